//! Names that come from outside, valid by construction.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {value:?}: {rule}")]
pub struct NameError {
    what: &'static str,
    value: String,
    rule: &'static str,
}

/// A name of one kind: private text, checked once, and shared by its clones: what is kept of an attachment (record,
/// lease, link, queue) names it a dozen times.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(value: String) -> Result<Self, NameError> {
                match $check(&value) {
                    Ok(()) => Ok(Self(value.into())),
                    Err(rule) => Err(NameError { what: $what, value, rule }),
                }
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;

            fn try_from(value: &str) -> Result<Self, NameError> {
                value.to_owned().try_into()
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                value.try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                (*name.0).to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name! {
    /// A container's ID. SPEC.md, "Parameters": starts with an alphanumeric character, then alphanumeric
    /// characters, underscore, dot or hyphen.
    ContainerId, "container ID", identifier
}

name! {
    /// A network's name; the rule is the container ID's.
    NetworkName, "network name", identifier
}

name! {
    /// A network interface's name as the kernel takes it (`dev_valid_name()` in net/core/dev.c).
    IfName, "interface name", interface
}

fn identifier(value: &str) -> Result<(), &'static str> {
    let first = value.bytes().next().ok_or("it is empty")?;
    if !first.is_ascii_alphanumeric() {
        return Err("it must start with a letter or a digit");
    }
    if value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
        Ok(())
    } else {
        Err("only letters, digits, underscore, dot and hyphen are allowed")
    }
}

fn interface(value: &str) -> Result<(), &'static str> {
    // IFNAMSIZ is 16 with the terminating NUL.
    const LONGEST: usize = 15;
    match value {
        "" => Err("it is empty"),
        "." | ".." => Err("`.` and `..` are no names"),
        _ if value.len() > LONGEST => Err("at most 15 bytes are allowed"),
        _ if value.bytes().any(|byte| {
            byte == b'/' || byte == b':' || byte == 0 || byte.is_ascii_whitespace() || byte == 0x0b
        }) =>
        {
            Err("slash, colon and white space are not allowed")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_the_kernels() {
        for good in ["eth0", "a", "fifteen-bytes-x", "net.1", "ümlaut"] {
            assert!(good.parse::<IfName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "sixteen-bytes-xx", "a/b", "a:b", "a b", "a\tb", "a\nb", "a\u{b}b", "a\0b"]
        {
            assert!(bad.parse::<IfName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn container_ids_are_the_specifications() {
        for good in ["a", "0", "abc_d.e-f", "A9"] {
            assert!(good.parse::<ContainerId>().is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "a/b", "a b", "ä", "a;b", "../etc"] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn json_cannot_bring_in_an_invalid_name() {
        assert!(serde_json::from_str::<IfName>("\"a/b\"").is_err());
        assert_eq!(serde_json::from_str::<IfName>("\"eth0\"").unwrap().as_str(), "eth0");
    }
}
