//! CNI errors: a code, a message, details.

use std::fmt;

use super::CniVersion;

/// An error code: up to 99 the specification's, from 100 on hostcni's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// 1: the `cniVersion` asked for is not supported, or does not know the command.
    IncompatibleVersion,
    /// 2: a field of the network configuration cannot be honoured.
    UnsupportedField,
    /// 3: the container is unknown, or does not exist.
    UnknownContainer,
    /// 4: an environment variable is missing or invalid; the message names it.
    BadEnvironment,
    /// 5: reading or writing failed.
    Io,
    /// 6: the input is not JSON, or too large.
    Decoding,
    /// 7: the network configuration is invalid.
    BadConfiguration,
    /// 8: `CNI_NETNS` cannot be used; libcni's own constant, not in the specification's list.
    InvalidNetns,
    /// 11: the server is not ready; the runtime should try again.
    TryAgainLater,
    /// 50: STATUS: not ready to serve ADD.
    NotAvailable,
    /// 51: STATUS: running, but no pod can be added.
    LimitedConnectivity,
    /// 100: no address is free.
    PoolExhausted,
    /// 102: the container has such an interface already, or a host port is taken.
    InterfaceExists,
    /// 103: the kernel refused; the message has the errno and the object.
    KernelRefused,
    /// Any other code.
    Other(u32),
}

/// Every named code and its number.
const CODES: &[(ErrorCode, u32)] = &[
    (ErrorCode::IncompatibleVersion, 1),
    (ErrorCode::UnsupportedField, 2),
    (ErrorCode::UnknownContainer, 3),
    (ErrorCode::BadEnvironment, 4),
    (ErrorCode::Io, 5),
    (ErrorCode::Decoding, 6),
    (ErrorCode::BadConfiguration, 7),
    (ErrorCode::InvalidNetns, 8),
    (ErrorCode::TryAgainLater, 11),
    (ErrorCode::NotAvailable, 50),
    (ErrorCode::LimitedConnectivity, 51),
    (ErrorCode::PoolExhausted, 100),
    (ErrorCode::InterfaceExists, 102),
    (ErrorCode::KernelRefused, 103),
];

impl ErrorCode {
    /// The code's number.
    pub fn as_u32(self) -> u32 {
        match self {
            Self::Other(number) => number,
            named => CODES.iter().find(|(code, _)| *code == named).map_or(999, |(_, number)| *number),
        }
    }
}

impl From<u32> for ErrorCode {
    fn from(number: u32) -> Self {
        CODES.iter().find(|(_, known)| *known == number).map_or(Self::Other(number), |(code, _)| *code)
    }
}

/// A failure as the runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What kind of failure.
    pub code: ErrorCode,
    /// What went wrong and, where there is something to do, what to do.
    pub msg: String,
    /// More of it, possibly several lines.
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: ErrorCode, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    /// With details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The error as it is printed on standard output, in the version that was asked for.
    pub fn to_json(&self, version: CniVersion) -> String {
        let mut object = serde_json::json!({
            "cniVersion": version.as_str(),
            "code": self.code.as_u32(),
            "msg": self.msg,
        });
        if !self.details.is_empty() {
            object["details"] = self.details.clone().into();
        }
        object.to_string()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (CNI error {})", self.msg, self.code.as_u32())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_printed_in_the_version_asked_for() {
        let error = Error::new(ErrorCode::PoolExhausted, "full").with_details("10.0.0.0/30");
        assert_eq!(
            error.to_json(CniVersion::V0_3_1),
            r#"{"cniVersion":"0.3.1","code":100,"msg":"full","details":"10.0.0.0/30"}"#
        );
    }

    #[test]
    fn every_code_keeps_its_number_on_the_way() {
        for (code, number) in CODES {
            assert_eq!(code.as_u32(), *number);
            assert_eq!(ErrorCode::from(*number), *code);
        }
        assert_eq!(ErrorCode::from(104).as_u32(), 104);
    }
}
