//! The network configuration on the plugin's standard input.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    AddResult, CniVersion, Command, ContainerId, Error, ErrorCode, IfName, NetworkName, RuntimeConfig,
};

/// The largest network configuration that is read, in bytes.
pub const MAX_CONFIG: usize = 1 << 20;

/// A network configuration, as far as hostcni reads it. Unknown keys are other versions' business.
#[derive(Debug, Clone)]
pub struct PluginConf {
    /// The version asked for; 0.1.0 when absent.
    pub cni_version: CniVersion,
    /// The network.
    pub name: NetworkName,
    /// The plugin's name.
    pub plugin_type: String,
    /// Capability arguments.
    pub runtime_config: RuntimeConfig,
    /// The result of ADD, as the runtime remembers it.
    pub prev_result: Option<AddResult>,
    /// For GC; `None` when the list is absent, which is not the empty list.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// What hostcni's own conf tells its plugin.
    pub host: HostKeys,
}

/// An attachment that GC must keep.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct ValidAttachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: ContainerId,
    /// The interface in it.
    pub ifname: IfName,
}

/// Where the plugin finds its server and leaves what it cannot deliver; written by `hostcni conf place`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeys {
    /// The server's socket.
    pub socket: PathBuf,
    /// The directory for DELs that could not be delivered.
    pub spool: PathBuf,
    /// How long each verb may take.
    pub bounds: Bounds,
}

impl Default for HostKeys {
    fn default() -> Self {
        Self {
            socket: "/run/hostcni/cni.sock".into(),
            spool: "/var/lib/hostcni/spool".into(),
            bounds: Bounds::default(),
        }
    }
}

/// How long a request may block its runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For ADD.
    pub add: Duration,
    /// For DEL.
    pub del: Duration,
    /// For CHECK.
    pub check: Duration,
    /// For STATUS.
    pub status: Duration,
    /// For GC.
    pub gc: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { add: seconds(45), del: seconds(45), check: seconds(10), status: seconds(2), gc: seconds(30) }
    }
}

impl Bounds {
    /// The bound of a verb; VERSION, which waits for nobody, shares STATUS's.
    pub fn for_command(&self, command: Command) -> Duration {
        match command {
            Command::Add => self.add,
            Command::Del => self.del,
            Command::Check => self.check,
            Command::Gc => self.gc,
            Command::Status | Command::Version => self.status,
        }
    }
}

impl PluginConf {
    /// Reads a configuration strictly: what is there must be right.
    pub fn parse(json: &str) -> Result<Self, Error> {
        Self::read(json, false)
    }

    /// Reads a configuration for a command. A DEL is carried out whatever became of the rest of its
    /// configuration: only the network's name matters for it.
    pub fn parse_for(command: Command, json: &str) -> Result<Self, Error> {
        Self::read(json, command == Command::Del)
    }

    fn read(json: &str, lenient: bool) -> Result<Self, Error> {
        if json.len() > MAX_CONFIG {
            let text =
                format!("the network configuration has {} bytes: at most {MAX_CONFIG} are read", json.len());
            return Err(Error::new(ErrorCode::Decoding, text));
        }
        let value: Value = serde_json::from_str(json).map_err(|error| {
            Error::new(ErrorCode::Decoding, format!("the network configuration is not JSON: {error}"))
        })?;
        let Value::Object(object) = value else {
            return Err(Error::new(ErrorCode::Decoding, "the network configuration is not a JSON object"));
        };
        let keys = Keys { object, lenient };
        let cni_version = keys.version()?;
        Ok(Self {
            cni_version,
            name: keys.name()?,
            plugin_type: keys.optional("type")?.unwrap_or_default(),
            runtime_config: keys.optional("runtimeConfig")?.unwrap_or_default(),
            prev_result: keys.prev_result(cni_version)?,
            valid_attachments: keys.valid_attachments()?,
            host: keys.host()?,
        })
    }
}

/// The version that a configuration asks for, as far as it can be told: errors are printed in it.
pub(super) fn version_of(json: &str) -> CniVersion {
    #[derive(Default, Deserialize)]
    struct Only {
        #[serde(default, rename = "cniVersion")]
        version: CniVersion,
    }
    serde_json::from_str::<Only>(json).unwrap_or_default().version
}

/// The configuration's keys, read one by one so that an error names its key.
struct Keys {
    object: Map<String, Value>,
    lenient: bool,
}

impl Keys {
    fn optional<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<Option<T>, Error> {
        match self.object.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) if self.lenient => Ok(None),
                Err(error) => Err(invalid(key, &error)),
            },
        }
    }

    fn version(&self) -> Result<CniVersion, Error> {
        let text: String = match self.object.get("cniVersion") {
            None | Some(Value::Null) => return Ok(CniVersion::default()),
            Some(Value::String(text)) if text.is_empty() => return Ok(CniVersion::default()),
            Some(Value::String(text)) => text.clone(),
            Some(_) if self.lenient => return Ok(CniVersion::default()),
            Some(_) => return Err(invalid("cniVersion", &"it is not a string")),
        };
        match text.parse() {
            Ok(version) => Ok(version),
            // Written by a newer hostcni, perhaps: the DEL counts.
            Err(_) if self.lenient => Ok(CniVersion::CURRENT),
            Err(error) => Err(Error::new(ErrorCode::IncompatibleVersion, error)
                .with_details(format!("supported versions: {}", super::version::supported()))),
        }
    }

    fn name(&self) -> Result<NetworkName, Error> {
        let name = self.object.get("name").ok_or_else(|| invalid("name", &"it is missing"))?;
        NetworkName::deserialize(name).map_err(|error| invalid("name", &error))
    }

    fn prev_result(&self, version: CniVersion) -> Result<Option<AddResult>, Error> {
        match self.object.get("prevResult") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match AddResult::from_version(version, value) {
                Ok(result) => Ok(Some(result)),
                Err(_) if self.lenient => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    fn valid_attachments(&self) -> Result<Option<Vec<ValidAttachment>>, Error> {
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            match self.object.get(key) {
                None => {}
                // Go writes an empty list so.
                Some(Value::Null) => return Ok(Some(Vec::new())),
                Some(_) => return self.optional(key),
            }
        }
        Ok(None)
    }

    fn host(&self) -> Result<HostKeys, Error> {
        let default = HostKeys::default();
        let seconds: SecondsByVerb = self.optional("bounds")?.unwrap_or_default();
        let bound = |seconds: Option<u64>, default: Duration| match seconds {
            // A day: longer than any runtime waits, and far from where a clock's arithmetic ends.
            Some(seconds) => Duration::from_secs(seconds.clamp(1, 86_400)),
            None => default,
        };
        let bounds = default.bounds;
        Ok(HostKeys {
            socket: self.optional("socket")?.unwrap_or(default.socket),
            spool: self.optional("spool")?.unwrap_or(default.spool),
            bounds: Bounds {
                add: bound(seconds.add, bounds.add),
                del: bound(seconds.del, bounds.del),
                check: bound(seconds.check, bounds.check),
                status: bound(seconds.status, bounds.status),
                gc: bound(seconds.gc, bounds.gc),
            },
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecondsByVerb {
    add: Option<u64>,
    del: Option<u64>,
    check: Option<u64>,
    status: Option<u64>,
    gc: Option<u64>,
}

fn invalid(key: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::BadConfiguration, format!("network configuration, key {key:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_absent_or_empty_version_is_the_first_one() {
        for json in
            [r#"{"name":"n"}"#, r#"{"name":"n","cniVersion":""}"#, r#"{"name":"n","cniVersion":null}"#]
        {
            assert_eq!(PluginConf::parse(json).unwrap().cni_version, CniVersion::V0_1_0);
        }
    }

    #[test]
    fn each_kind_of_wrong_has_its_code() {
        for (json, code) in [
            ("", ErrorCode::Decoding),
            ("{", ErrorCode::Decoding),
            ("[]", ErrorCode::Decoding),
            ("{}", ErrorCode::BadConfiguration),
            (r#"{"name":"a/b"}"#, ErrorCode::BadConfiguration),
            (r#"{"name":7}"#, ErrorCode::BadConfiguration),
            (r#"{"name":"n","cniVersion":"2.0.0"}"#, ErrorCode::IncompatibleVersion),
            (r#"{"name":"n","cniVersion":1}"#, ErrorCode::BadConfiguration),
            (r#"{"name":"n","runtimeConfig":{"mac":"x"}}"#, ErrorCode::BadConfiguration),
            (
                r#"{"name":"n","cniVersion":"1.0.0","prevResult":{"ips":[{"address":"x"}]}}"#,
                ErrorCode::Decoding,
            ),
        ] {
            assert_eq!(PluginConf::parse(json).unwrap_err().code, code, "{json}");
        }
        assert_eq!(PluginConf::parse(&" ".repeat(MAX_CONFIG + 1)).unwrap_err().code, ErrorCode::Decoding);
    }

    #[test]
    fn a_del_needs_only_the_networks_name() {
        let json = r#"{"name":"n","cniVersion":"9.9.9","type":7,"runtimeConfig":{"mac":"x"},"bounds":"?",
                       "prevResult":{"ips":"?"},"socket":1}"#;
        let conf = PluginConf::parse_for(Command::Del, json).unwrap();
        assert_eq!((conf.prev_result, conf.host), (None, HostKeys::default()));
        assert!(PluginConf::parse_for(Command::Add, json).is_err());
    }

    #[test]
    fn a_missing_list_is_not_an_empty_one() {
        let list = |json: &str| PluginConf::parse(json).unwrap().valid_attachments.map(|list| list.len());
        assert_eq!(list(r#"{"name":"n"}"#), None);
        assert_eq!(list(r#"{"name":"n","cni.dev/valid-attachments":[]}"#), Some(0));
        assert_eq!(list(r#"{"name":"n","cni.dev/valid-attachments":null}"#), Some(0));
        assert_eq!(
            list(r#"{"name":"n","cni.dev/attachments":[{"containerID":"c","ifname":"eth0"}]}"#),
            Some(1)
        );
        assert!(
            PluginConf::parse(r#"{"name":"n","cni.dev/valid-attachments":[{"containerID":"c"}]}"#).is_err()
        );
    }

    #[test]
    fn the_conf_tells_the_plugin_where_and_how_long() {
        let json = r#"{"name":"n","socket":"/s","spool":"/p","bounds":{"add":7,"gc":0,"new":1}}"#;
        let host = PluginConf::parse(json).unwrap().host;
        assert_eq!((host.socket.as_os_str(), host.spool.as_os_str()), ("/s".as_ref(), "/p".as_ref()));
        assert_eq!(host.bounds.for_command(Command::Add).as_secs(), 7);
        assert_eq!(host.bounds.for_command(Command::Gc).as_secs(), 1);
        assert_eq!(host.bounds.for_command(Command::Del).as_secs(), 45);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = PluginConf::parse(&text);
            let _ = PluginConf::parse_for(Command::Del, &text);
        }

        #[test]
        fn no_value_makes_it_panic(key in "cniVersion|name|type|runtimeConfig|prevResult|bounds|socket|cni.dev/valid-attachments", value in "[0-9]{1,30}|\\[\\]|\\{\\}|null|\"[a-z]{0,4}\"|-1|1e400|\\[\\{\\}\\]") {
            let _ = PluginConf::parse(&format!(r#"{{"name":"n","{key}":{value}}}"#));
        }
    }
}
