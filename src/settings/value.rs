//! The kinds of value an option can have: text and numbers from a file become these, or an error that says what is
//! allowed. What can be judged by looking at one value alone is judged here; what needs a second one, in `validate`.
//!
//! Each kind is written (`Serialize`) as it would be written in a file.

use super::prefix;
use crate::cni::IfName;
use ipnet::IpNet;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Reads a `T` from a string, with `T`'s own error and `expecting` when it is no string.
pub(super) struct Text<T>(pub(super) &'static str, pub(super) PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! from_text {
    ($($type:ty: $expecting:literal,)+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text::<Self>($expecting, PhantomData))
            }
        }
    )+};
}
pub(super) use from_text;

from_text! {
    AbsolutePath: "an absolute path in quotes",
    SocketPath: "an absolute path in quotes",
    ConfPath: "an absolute path in quotes",
    Conflist: "a network configuration list in quotes: its absolute path, or its text in '''…'''",
    Filter: "a log filter in quotes, such as \"info\" or \"info,hostcni::datapath=debug\"",
    BridgeName: "a network interface's name in quotes",
    Subnet: "a subnet in quotes, such as \"10.128.0.0/23\"",
    Prefix: "an address and prefix length in quotes, such as \"192.0.2.0/24\"",
    Exclude: "an address or a prefix in quotes, such as \"10.128.0.5\"",
    Address: "an IP address in quotes",
    DnsName: "a domain name in quotes",
    DnsOption: "a resolver option in quotes, such as \"ndots:5\"",
}

macro_rules! to_text {
    ($($type:ident: |$value:ident| $text:expr,)+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self($value) = self;
                serializer.collect_str(&$text)
            }
        }
    )+};
}
pub(super) use to_text;

to_text! {
    AbsolutePath: |path| path.display(),
    SocketPath: |path| path.display(),
    ConfPath: |path| path.display(),
    Conflist: |source| source,
    Filter: |text| text,
    BridgeName: |name| name,
    Subnet: |net| net,
    Prefix: |net| net,
    Address: |address| address,
    DnsName: |name| name,
    DnsOption: |option| option,
}

/// A path that means the same wherever the process stands: absolute, no `.`, no `..`, no line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AbsolutePath(pub(super) PathBuf);

impl FromStr for AbsolutePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// `PATH_MAX` with its final NUL.
        const LONGEST: usize = 4095;
        if !text.starts_with('/') {
            return Err("not an absolute path: it must begin with `/`".into());
        }
        if text.len() > LONGEST {
            return Err(format!("longer than the {LONGEST} bytes that the kernel takes"));
        }
        if text.contains(char::is_control) {
            return Err("a path with a control character in it".into());
        }
        let path = Path::new(text);
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain || text.split('/').any(|part| part == ".") {
            return Err("a path with `.` or `..` in it: write the directory itself".into());
        }
        if path.file_name().is_none() || text.ends_with('/') {
            return Err("no name after the last `/`".into());
        }
        // `//run` and `/run` are one place; two spellings of it must compare equal.
        Ok(Self(path.components().collect()))
    }
}

/// A path that fits a unix socket's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SocketPath(pub(super) PathBuf);

impl FromStr for SocketPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// `sun_path` is 108 bytes with its final NUL (unix(7)).
        const LONGEST: usize = 107;
        let AbsolutePath(path) = text.parse()?;
        if path.as_os_str().len() > LONGEST {
            return Err(format!(
                "{} bytes long, and a unix socket's path has at most {LONGEST}",
                path.as_os_str().len()
            ));
        }
        Ok(Self(path))
    }
}

/// Where a CNI network configuration file may lie: the runtimes go by the name's ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfPath(pub(super) PathBuf);

impl FromStr for ConfPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let AbsolutePath(path) = text.parse()?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if !name.ends_with(b".conf") && !name.ends_with(b".conflist") {
            return Err(
                "must end in `.conf` (one plugin) or `.conflist` (a list): a runtime takes nothing else"
                    .into(),
            );
        }
        if name.starts_with(b".") {
            return Err("begins with a dot: names like that are kept for files being written".into());
        }
        Ok(Self(path))
    }
}

/// A network configuration list: where it is, or what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflist(pub(super) String);

impl Conflist {
    /// Its file, unless it is the text itself.
    pub(super) fn path(&self) -> Option<&Path> {
        self.0.starts_with('/').then(|| Path::new(&self.0))
    }
}

impl FromStr for Conflist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return Ok(Self(text.to_owned()));
        }
        let AbsolutePath(path) =
            text.parse().map_err(|error| format!("{error}; or the list itself, in braces"))?;
        Ok(Self(path.display().to_string()))
    }
}

/// A log filter that `tracing` understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter(pub(super) String);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const ALLOWED: &str = "error, warn, info, debug or trace, or `target=level` parts joined by commas";
        let shape = || format!("allowed: {ALLOWED}");
        if text.trim().is_empty() {
            return Err(shape());
        }
        // The filter's own parser takes any single word for the name of a module, so `inof` would be silence.
        for part in text.split(',').map(str::trim) {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level).to_lowercase();
            if !["off", "error", "warn", "info", "debug", "trace"].contains(&level.as_str()) {
                return Err(format!("`{part}` has no log level; {}", shape()));
            }
        }
        tracing_subscriber::EnvFilter::try_new(text).map_err(|error| format!("{error}; {}", shape()))?;
        Ok(Self(text.to_owned()))
    }
}

/// The name of a bridge of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BridgeName(pub(super) IfName);

impl FromStr for BridgeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = IfName::from_str(text).map_err(|error| error.to_string())?;
        if text.contains(|c: char| c.is_control() || c == '%') {
            // The kernel fills `%d` in by itself (__dev_alloc_name).
            return Err("control characters and `%` cannot stand in the name of a bridge".into());
        }
        if ["lo", "all", "default"].contains(&text) {
            return Err("a name that the kernel uses for something else".into());
        }
        // What `attachment::host_link_name` and `shaper_name` make: a start would take them down as nobody's.
        if text.len() == 15 && (text.starts_with("hc") || text.starts_with("hi")) {
            return Err(
                "looks like the host end of a pod's link (`hc` or `hi` and 13 characters): choose another"
                    .into(),
            );
        }
        Ok(Self(name))
    }
}

/// A subnet that pods can have addresses of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subnet(pub(super) IpNet);

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        prefix::pod_subnet(prefix::strict(text)?).map(Self)
    }
}

/// Addresses with a common prefix, no bit set after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix(pub(super) IpNet);

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        prefix::strict(text).map(Self)
    }
}

/// Addresses of a range that no pod gets: one (`10.0.0.5`), or all with a prefix (`10.0.0.64/26`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exclude(pub(super) IpNet);

impl Serialize for Exclude {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(net) = self;
        if net.prefix_len() == net.max_prefix_len() {
            serializer.collect_str(&net.addr())
        } else {
            serializer.collect_str(net)
        }
    }
}

impl FromStr for Exclude {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self(address.into())),
            Err(_) if text.contains('/') => prefix::strict(text).map(Self),
            Err(_) => Err("neither an address nor an address and a prefix length".into()),
        }
    }
}

/// One address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub(super) IpAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| match text.split_once('/') {
            Some(_) => "an address is wanted here, without a prefix length".to_owned(),
            None => "not an IP address".to_owned(),
        };
        text.parse().map(Self).map_err(wrong)
    }
}

/// A domain name, or a suffix to search in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsName(pub(super) String);

impl FromStr for DnsName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// RFC 1035, section 2.3.4.
        const LONGEST: usize = 253;
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > LONGEST || !text.chars().all(letter) {
            return Err(format!(
                "not a domain name: letters, digits, `-`, `_` and dots, at most {LONGEST} in all"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// One word of the `options` line of resolv.conf(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsOption(pub(super) String);

impl FromStr for DnsOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("one word, as in resolv.conf: \"ndots:5\", \"edns0\"".into());
        }
        Ok(Self(text.to_owned()))
    }
}

/// A whole number with bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Count<const MIN: u32, const MAX: u32>(pub(super) u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u32(Number::<MIN, MAX>)
    }
}

struct Number<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Visitor<'_> for Number<MIN, MAX> {
    type Value = Count<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        match u32::try_from(number) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Count(number)),
            _ => Err(E::custom(format_args!("allowed: {MIN} to {MAX}"))),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
