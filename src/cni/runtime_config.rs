//! Capability arguments: `runtimeConfig`, as CONVENTIONS.md of containernetworking/cni shapes them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::MacAddr;

/// What the runtime asks for a single container. Absent means not asked for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RuntimeConfig {
    /// Host ports that lead to the container.
    #[serde(deserialize_with = "null_as_default")]
    pub port_mappings: Vec<PortMapping>,
    /// Rate limits.
    pub bandwidth: Option<Bandwidth>,
    /// Addresses asked for; the prefix length is the network's whatever it says here.
    #[serde(deserialize_with = "addresses")]
    pub ips: Vec<IpNet>,
    /// The interface's MAC address.
    #[serde(deserialize_with = "mac")]
    pub mac: Option<MacAddr>,
    /// Names under which the container is known.
    #[serde(deserialize_with = "null_as_default")]
    pub aliases: Vec<String>,
    /// Ranges that the addresses are to come from: sets of alternatives, one address for each set. None and an empty
    /// list are the same: not asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub ip_ranges: Vec<Vec<IpRange>>,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(alias = "TCP")]
    Tcp,
    /// UDP.
    #[serde(alias = "UDP")]
    Udp,
    /// SCTP.
    #[serde(alias = "SCTP")]
    Sctp,
}

/// A host port that leads to the container.
///
/// The spellings with a capital letter are those of go-cni, which containerd passes on as they are: Go reads and
/// writes keys without regard to case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The port on the node, 1 to 65535.
    #[serde(alias = "HostPort", deserialize_with = "port")]
    pub host_port: u16,
    /// The port in the container, 1 to 65535.
    #[serde(alias = "ContainerPort", deserialize_with = "port")]
    pub container_port: u16,
    /// TCP unless it says otherwise.
    #[serde(default, alias = "Protocol")]
    pub protocol: Protocol,
    /// The node's address; any when absent.
    #[serde(
        default,
        rename = "hostIP",
        alias = "HostIP",
        deserialize_with = "host_ip",
        skip_serializing_if = "Option::is_none"
    )]
    pub host_ip: Option<IpAddr>,
}

/// Rate limits, in bits per second and bits; 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // CONVENTIONS.md's own names
pub struct Bandwidth {
    #[serde(alias = "IngressRate")]
    pub ingress_rate: u64,
    #[serde(alias = "IngressBurst")]
    pub ingress_burst: u64,
    #[serde(alias = "EgressRate")]
    pub egress_rate: u64,
    #[serde(alias = "EgressBurst")]
    pub egress_burst: u64,
}

impl Bandwidth {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        self.ingress_rate == 0 && self.egress_rate == 0
    }
}

/// A range of addresses, as host-local's `ranges` has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpRange {
    /// The subnet that the range is part of.
    #[serde(alias = "Subnet", deserialize_with = "subnet")]
    pub subnet: IpNet,
    /// The first address; that of the subnet when absent.
    #[serde(default, alias = "RangeStart", deserialize_with = "optional_address")]
    pub range_start: Option<IpAddr>,
    /// The last address; that of the subnet when absent.
    #[serde(default, alias = "RangeEnd", deserialize_with = "optional_address")]
    pub range_end: Option<IpAddr>,
    /// The gateway; the network's when absent.
    #[serde(default, alias = "Gateway", deserialize_with = "optional_address")]
    pub gateway: Option<IpAddr>,
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subnet)?;
        match (self.range_start, self.range_end) {
            (None, None) => Ok(()),
            (Some(start), Some(end)) => write!(f, " ({start} to {end})"),
            (Some(start), None) => write!(f, " (from {start})"),
            (None, Some(end)) => write!(f, " (to {end})"),
        }
    }
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn port<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = i64::deserialize(deserializer)?;
    u16::try_from(number)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| serde::de::Error::custom(format!("port {number}: 1 to 65535 are allowed")))
}

/// An empty `hostIP` is what runtimes send for "any".
fn host_ip<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    address_or_empty(deserializer, "hostIP")
}

fn optional_address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    address_or_empty(deserializer, "ipRanges:")
}

fn address_or_empty<'de, D>(deserializer: D, what: &str) -> Result<Option<IpAddr>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| serde::de::Error::custom(format!("{what} {text:?} is no IP address")))
}

fn subnet<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong =
        |_| serde::de::Error::custom(format!("ipRanges: {text:?} is no subnet: write address/length"));
    text.parse().map_err(wrong)
}

fn mac<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<MacAddr>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
}

fn addresses<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default();
    let parse = |text: &String| {
        text.parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| serde::de::Error::custom(format!("ips: {text:?} is no IP address")))
    };
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<RuntimeConfig, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn the_shapes_of_the_conventions_are_read() {
        let config = parse(
            r#"{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},
                 {"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"127.0.0.1"},
                 {"hostPort":1,"containerPort":1,"hostIP":""}],
                "bandwidth":{"ingressRate":2048,"ingressBurst":1600},
                "ips":["10.10.0.1/24","fd00::5"],"mac":"c2:11:22:33:44:55","dns":{"searches":[]},"new":1,
                "ipRanges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.3","rangeEnd":"10.1.2.99",
                              "gateway":"10.1.2.254"},{"subnet":"10.1.3.0/24"}],[{"subnet":"fd00::/64"}]]}"#,
        )
        .unwrap();
        assert_eq!(config.ip_ranges.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(config.ip_ranges[0][0].to_string(), "10.1.2.0/24 (10.1.2.3 to 10.1.2.99)");
        assert_eq!(config.ip_ranges[0][0].gateway, Some("10.1.2.254".parse().unwrap()));
        assert_eq!(config.ip_ranges[1][0].to_string(), "fd00::/64");
        assert_eq!(config.port_mappings[1].protocol, Protocol::Udp);
        assert_eq!(config.port_mappings[2].host_ip, None);
        assert_eq!(config.ips[1].to_string(), "fd00::5/128");
        assert!(!config.bandwidth.unwrap().is_unlimited());
    }

    #[test]
    fn containerds_spelling_is_read_too() {
        let config = parse(
            r#"{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":""}],
                "bandwidth":{"IngressRate":1,"IngressBurst":2,"EgressRate":0,"EgressBurst":0}}"#,
        )
        .unwrap();
        assert_eq!((config.port_mappings[0].host_port, config.port_mappings[0].container_port), (8080, 80));
        assert_eq!(config.bandwidth.unwrap().ingress_rate, 1);
    }

    #[test]
    fn null_and_absent_mean_not_asked_for() {
        assert_eq!(parse("{}").unwrap(), RuntimeConfig::default());
        assert_eq!(
            parse(r#"{"portMappings":null,"ips":null,"mac":"","bandwidth":null,"ipRanges":null}"#).unwrap(),
            RuntimeConfig::default()
        );
    }

    #[test]
    fn impossible_values_are_refused() {
        for bad in [
            r#"{"portMappings":[{"hostPort":0,"containerPort":80}]}"#,
            r#"{"portMappings":[{"hostPort":65536,"containerPort":80}]}"#,
            r#"{"portMappings":[{"hostPort":-1,"containerPort":80}]}"#,
            r#"{"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"icmp"}]}"#,
            r#"{"portMappings":[{"hostPort":1,"containerPort":80,"hostIP":"node"}]}"#,
            r#"{"ips":["10.0.0"]}"#,
            r#"{"mac":"01:00:00:00:00:00"}"#,
            r#"{"bandwidth":{"ingressRate":-1}}"#,
            r#"{"ipRanges":[{"subnet":"10.0.0.0/24"}]}"#,
            r#"{"ipRanges":[[{"rangeStart":"10.0.0.1"}]]}"#,
            r#"{"ipRanges":[[{"subnet":"10.0.0.0"}]]}"#,
            r#"{"ipRanges":[[{"subnet":"10.0.0.0/24","gateway":"first"}]]}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
