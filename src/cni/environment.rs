//! The environment of a plugin call. One table says what is required when, and drives errors and manual.

use std::fmt;
use std::str::FromStr;

use super::{CniArgs, ContainerId, Error, ErrorCode, IfName};

/// What a runtime asks a plugin to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it; never fails because something is gone already.
    Del,
    /// Compare the attachment with what ADD made.
    Check,
    /// Tell the supported versions.
    Version,
    /// Tell whether ADD would be served.
    Status,
    /// Remove all attachments but the listed ones.
    Gc,
}

impl Command {
    /// Every command.
    pub const ALL: &[Self] = &[Self::Add, Self::Del, Self::Check, Self::Version, Self::Status, Self::Gc];

    /// The command as `CNI_COMMAND` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Version => "VERSION",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Command {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|command| command.as_str() == text).ok_or_else(|| {
            let text =
                format!("CNI_COMMAND: unknown command {text:?}: use ADD, DEL, CHECK, GC, STATUS or VERSION");
            Error::new(ErrorCode::BadEnvironment, text)
        })
    }
}

/// A variable of the environment.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The commands that cannot do without it.
    pub required_for: &'static [Command],
    /// What it holds, for the manual.
    pub meaning: &'static str,
}

const CONTAINER: &[Command] = &[Command::Add, Command::Del, Command::Check];
const NAMESPACE: &[Command] = &[Command::Add, Command::Check];

/// SPEC.md, "Parameters", with what libcni's `skel` requires. `CNI_PATH` is not required here, although `skel`
/// does: hostcni calls no further plugin, and a DEL must not fail for want of a variable nobody reads.
pub const VARIABLES: &[Variable] = &[
    Variable { name: "CNI_COMMAND", required_for: Command::ALL, meaning: "what is asked for" },
    Variable { name: "CNI_CONTAINERID", required_for: CONTAINER, meaning: "the container's ID" },
    Variable { name: "CNI_NETNS", required_for: NAMESPACE, meaning: "the path of its network namespace" },
    Variable { name: "CNI_IFNAME", required_for: CONTAINER, meaning: "the interface's name in it" },
    Variable { name: "CNI_ARGS", required_for: &[], meaning: "extra arguments, K=V;K=V" },
    Variable { name: "CNI_PATH", required_for: &[], meaning: "directories with plugins" },
];

/// The environment of a call, checked.
#[derive(Debug, Clone)]
pub struct Environment {
    /// What is asked for.
    pub command: Command,
    /// The container's ID.
    pub container_id: Option<ContainerId>,
    /// The interface in the container.
    pub ifname: Option<IfName>,
    /// The path of the namespace; `None` when unset or empty.
    pub netns: Option<String>,
    /// Extra arguments.
    pub args: CniArgs,
    /// Directories with plugins.
    pub path: Vec<String>,
}

impl Environment {
    /// Reads the variables through `get`; an empty one counts as unset. VERSION needs only its command.
    pub fn parse(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let value = |name: &str| get(name).filter(|value| !value.is_empty());
        let command: Command = value("CNI_COMMAND").ok_or_else(|| missing(&["CNI_COMMAND"]))?.parse()?;
        let absent: Vec<&str> = VARIABLES
            .iter()
            .filter(|variable| variable.required_for.contains(&command) && value(variable.name).is_none())
            .map(|variable| variable.name)
            .collect();
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        let mut environment = Self {
            command,
            container_id: None,
            ifname: None,
            netns: value("CNI_NETNS"),
            args: CniArgs::default(),
            path: value("CNI_PATH")
                .map(|path| path.split(':').map(str::to_owned).collect())
                .unwrap_or_default(),
        };
        if CONTAINER.contains(&command) {
            environment.container_id =
                value("CNI_CONTAINERID").map(|id| checked("CNI_CONTAINERID", id)).transpose()?;
            environment.ifname = value("CNI_IFNAME").map(|name| checked("CNI_IFNAME", name)).transpose()?;
            environment.args =
                value("CNI_ARGS").map(|args| CniArgs::parse(&args)).transpose()?.unwrap_or_default();
        }
        Ok(environment)
    }
}

fn missing(names: &[&str]) -> Error {
    let text = format!("required environment variables are missing: {}", names.join(", "));
    Error::new(ErrorCode::BadEnvironment, text)
}

fn checked<T: TryFrom<String, Error: fmt::Display>>(name: &str, value: String) -> Result<T, Error> {
    T::try_from(value).map_err(|error| Error::new(ErrorCode::BadEnvironment, format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Environment, Error> {
        Environment::parse(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_error_names_every_missing_variable() {
        let error = parse(&[("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "eth0")]).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadEnvironment);
        assert!(
            error.msg.contains("CNI_CONTAINERID, CNI_NETNS") && !error.msg.contains("IFNAME"),
            "{}",
            error.msg
        );
    }

    #[test]
    fn a_del_does_without_a_namespace() {
        let del =
            [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "")];
        assert_eq!(parse(&del).unwrap().netns, None);
    }

    #[test]
    fn version_status_and_gc_need_no_container() {
        for command in ["VERSION", "STATUS", "GC"] {
            assert!(parse(&[("CNI_COMMAND", command)]).is_ok(), "{command}");
        }
        // Nor do they mind what else is set.
        assert!(parse(&[("CNI_COMMAND", "VERSION"), ("CNI_IFNAME", "a/b"), ("CNI_ARGS", "x")]).is_ok());
    }

    #[test]
    fn invalid_values_name_their_variable() {
        let add = |ifname: &str, id: &str| {
            parse(&[
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", id),
                ("CNI_NETNS", "/n"),
                ("CNI_IFNAME", ifname),
            ])
        };
        assert!(add("sixteen-bytes-xx", "c").unwrap_err().msg.contains("CNI_IFNAME"));
        assert!(add("eth0", "../c").unwrap_err().msg.contains("CNI_CONTAINERID"));
        assert!(parse(&[("CNI_COMMAND", "add")]).unwrap_err().msg.contains("unknown command"));
        assert_eq!(parse(&[]).unwrap_err().code, ErrorCode::BadEnvironment);
    }
}
