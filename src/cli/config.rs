//! `hostcni config check` and `hostcni config show`: is the configuration right, and what is it?

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};

use super::Exit;
use crate::settings;

/// `hostcni config …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Tell whether the configuration can be used
    Check(CheckArguments),
    /// Show the merged configuration and where each value comes from
    Show(ShowArguments),
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Look at the files below this directory instead of those of the running system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    /// Look at the files below this directory instead of those of the running system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show only this option or table, such as `bounds`, `network.conf` or `network.openshift-sdn.mtu`
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
}

/// Runs the verb.
pub fn run(verb: &Verb) -> anyhow::Result<Exit> {
    match verb {
        Verb::Check(arguments) => check(arguments),
        Verb::Show(arguments) => show(arguments),
    }
}

/// Tells whether the configuration can be used: exit status 0 and the files that make it up, or 1 and every problem.
pub fn check(arguments: &CheckArguments) -> anyhow::Result<Exit> {
    let loaded = match settings::load(&arguments.root) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return Ok(Exit::Failed);
        }
    };
    let networks = loaded.settings.networks.iter().map(|network| {
        format!("network {}: {}, {}\n", network.name, network.driver.name(), network.conf.path.display())
    });
    let files = loaded.files.iter().map(|file| format!("read {}\n", file.display()));
    let mut text = String::from("configuration valid\n");
    text.extend(networks.chain(files));
    if loaded.files.is_empty() {
        text.push_str("no file: the built-in defaults\n");
    }
    print(&text)
}

/// Prints the merged configuration. When the values do not go together, they are shown all the same, then what is
/// wrong with them, and the exit status is 1.
pub fn show(arguments: &ShowArguments) -> anyhow::Result<Exit> {
    let merged = match settings::merge(&arguments.root) {
        Ok(merged) => merged,
        Err(error) => {
            eprintln!("{error}");
            return Ok(Exit::Failed);
        }
    };
    let mut origins = merged.origins();
    if let Some(key) = &arguments.key {
        origins = origins.below(key).map_err(|nearest| match nearest {
            Some(nearest) => anyhow!("no option or table `{key}`; did you mean `{nearest}`?"),
            None => anyhow!("no option or table `{key}`; `hostcni config show` lists all"),
        })?;
    }
    let text = if arguments.json { format!("{:#}\n", origins.to_json()) } else { origins.to_toml() };
    print(&text)?;
    if let Err(error) = merged.validate() {
        eprintln!("{error}");
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

/// Writes to standard output; a reader that has had enough (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<Exit> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("write to standard output")
        }
        _ => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test says what it expects by failing

    use super::*;

    fn root(text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc/hostcni")).unwrap();
        std::fs::write(root.path().join("etc/hostcni/config.toml"), text).unwrap();
        root
    }

    fn checked(text: &str) -> Exit {
        let root = root(text);
        check(&CheckArguments { root: root.path().into() }).unwrap()
    }

    fn shown(text: &str, json: bool, key: Option<&str>) -> anyhow::Result<Exit> {
        let root = root(text);
        show(&ShowArguments { root: root.path().into(), json, key: key.map(str::to_owned) })
    }

    #[test]
    fn the_exit_status_says_whether_the_configuration_can_be_used() {
        assert_eq!(checked(""), Exit::Done);
        assert_eq!(checked("[["), Exit::Failed);
        assert_eq!(checked("[[network]]\nname = \"a\"\nsubnets = []"), Exit::Failed);
    }

    #[test]
    fn what_cannot_be_used_is_shown_when_it_can_be_read() {
        assert_eq!(shown("", false, None).unwrap(), Exit::Done);
        assert_eq!(shown("[[network]]\nname = \"a\"\nsubnets = []", true, None).unwrap(), Exit::Failed);
        assert_eq!(shown("[[", false, None).unwrap(), Exit::Failed);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest() {
        assert_eq!(shown("", false, Some("network.conf")).unwrap(), Exit::Done);
        let told = shown("", false, Some("network.cnf")).unwrap_err().to_string();
        assert_eq!(told, "no option or table `network.cnf`; did you mean `network.conf`?");
    }
}
