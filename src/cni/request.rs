//! A request: environment and network configuration together.

use super::conf::version_of;
use super::{
    AttachmentKey, CniArgs, CniVersion, Command, ContainerId, Environment, Error, ErrorCode, IfName,
    PluginConf,
};

/// A request, checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// The container; always there for ADD, DEL and CHECK.
    pub container_id: Option<ContainerId>,
    /// The interface in it; always there for ADD, DEL and CHECK.
    pub ifname: Option<IfName>,
    /// The path of the namespace; always there for ADD and CHECK.
    pub netns: Option<String>,
    /// Extra arguments.
    pub args: CniArgs,
    /// Directories with plugins.
    pub path: Vec<String>,
    /// The network configuration.
    pub conf: PluginConf,
    /// Its text, unchanged.
    pub config: String,
}

impl Request {
    /// Checks what environment and configuration say together.
    pub fn from_parts(environment: Environment, config: String) -> Result<Self, Error> {
        let Environment { command, container_id, ifname, netns, args, path } = environment;
        let conf = PluginConf::parse_for(command, &config)?;
        if !conf.cni_version.supports(command) {
            let text = format!("CNI version {} has no {command}", conf.cni_version);
            return Err(Error::new(ErrorCode::IncompatibleVersion, text));
        }
        if command == Command::Check && conf.prev_result.is_none() {
            return Err(Error::new(ErrorCode::BadConfiguration, "CHECK needs the prevResult of its ADD"));
        }
        Ok(Self { command, container_id, ifname, netns, args, path, conf, config })
    }

    /// The attachment that the request is about; none for VERSION, STATUS and GC.
    pub fn key(&self) -> Option<AttachmentKey> {
        Some(AttachmentKey {
            network: self.conf.name.clone(),
            container_id: self.container_id.clone()?,
            ifname: self.ifname.clone()?,
        })
    }

    /// The version in which a request with this configuration wants its errors.
    pub fn version_of(config: &str) -> CniVersion {
        version_of(config)
    }
}

/// The answer to VERSION: the version asked for, as `skel` answers, and all that are supported.
pub fn version_reply(config: &str) -> String {
    let asked = if config.trim().is_empty() { CniVersion::CURRENT } else { version_of(config) };
    let supported: Vec<&str> = CniVersion::ALL.iter().map(|version| version.as_str()).collect();
    serde_json::json!({ "cniVersion": asked.as_str(), "supportedVersions": supported }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: &str, config: &str) -> Result<Request, Error> {
        let environment = Environment::parse(|name| {
            Some(match name {
                "CNI_COMMAND" => command.to_owned(),
                "CNI_CONTAINERID" => "c".to_owned(),
                "CNI_NETNS" => "/run/netns/c".to_owned(),
                "CNI_IFNAME" => "eth0".to_owned(),
                _ => return None,
            })
        });
        Request::from_parts(environment?, config.to_owned())
    }

    #[test]
    fn a_version_that_does_not_know_the_command_is_incompatible() {
        for (command, version) in [("CHECK", "0.3.1"), ("STATUS", "1.0.0"), ("GC", "0.4.0")] {
            let config = format!(r#"{{"name":"n","cniVersion":"{version}"}}"#);
            assert_eq!(
                request(command, &config).unwrap_err().code,
                ErrorCode::IncompatibleVersion,
                "{command}"
            );
        }
    }

    #[test]
    fn check_needs_the_result_of_its_add() {
        let config = r#"{"name":"n","cniVersion":"1.0.0"}"#;
        assert_eq!(request("CHECK", config).unwrap_err().code, ErrorCode::BadConfiguration);
    }

    #[test]
    fn the_key_is_network_container_and_interface() {
        let request = request("DEL", r#"{"name":"n"}"#).unwrap();
        assert_eq!(request.key().unwrap().to_string(), "n/c/eth0");
    }

    #[test]
    fn version_answers_in_the_version_asked_for() {
        assert!(version_reply(r#"{"cniVersion":"0.4.0"}"#).starts_with(r#"{"cniVersion":"0.4.0","#));
        assert!(version_reply("").contains(r#""1.1.0"]"#));
    }
}
