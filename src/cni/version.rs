//! The versions of the specification.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Command;

/// A version of the CNI specification that a runtime may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it
pub enum CniVersion {
    /// Also what an absent `cniVersion` means.
    #[default]
    #[serde(rename = "0.1.0")]
    V0_1_0,
    #[serde(rename = "0.2.0")]
    V0_2_0,
    #[serde(rename = "0.3.0")]
    V0_3_0,
    #[serde(rename = "0.3.1")]
    V0_3_1,
    #[serde(rename = "0.4.0")]
    V0_4_0,
    #[serde(rename = "1.0.0")]
    V1_0_0,
    #[serde(rename = "1.1.0")]
    V1_1_0,
}

impl CniVersion {
    /// Every version, oldest first.
    pub const ALL: &[Self] =
        &[Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest version, whose shapes are the internal model.
    pub const CURRENT: Self = Self::V1_1_0;

    /// The version as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Whether the version knows the command: CHECK since 0.4.0, STATUS and GC since 1.1.0.
    pub fn supports(self, command: Command) -> bool {
        match command {
            Command::Add | Command::Del | Command::Version => true,
            Command::Check => self >= Self::V0_4_0,
            Command::Status | Command::Gc => self >= Self::V1_1_0,
        }
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CniVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| format!("unsupported CNI version {text:?}: supported are {}", supported()))
    }
}

/// The supported versions, for messages.
pub(super) fn supported() -> String {
    CniVersion::ALL.iter().map(|version| version.as_str()).collect::<Vec<_>>().join(", ")
}
