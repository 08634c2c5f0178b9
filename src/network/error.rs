//! Why a request failed, and the one place that chooses its CNI error code.

use crate::attachment::StoreError;
use crate::cni::{self, ErrorCode};
use crate::datapath::{AttachError, KernelError, UpdateError};
use crate::ipam::{AllocateError, RangeUsage, SelectionError};

use super::{Difference, Failure};

/// Why a request could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request names a network that this node does not serve.
    #[error("network {0} is not configured here: see `hostcni config show`")]
    UnknownNetwork(String),
    /// CHECK for an attachment that does not exist.
    #[error("no attachment {0}: its ADD never finished, or it has been deleted")]
    UnknownAttachment(String),
    /// No free address is left.
    #[error(
        "no free address in {ranges}: {used} in use; see `hostcni attachments`, or configure more subnets"
    )]
    PoolExhausted {
        /// The ranges that are full.
        ranges: String,
        /// How many addresses of them are leased.
        used: u64,
    },
    /// No free address is left in a range that the pod asks for.
    #[error(
        "no free address in the range {0} that ipRanges asks for: see `hostcni attachments`, or ask for another"
    )]
    RangeExhausted(String),
    /// The requested ranges cannot be used.
    #[error("the capability argument ipRanges cannot be honoured: {0}")]
    Ranges(#[from] SelectionError),
    /// A requested address cannot be given.
    #[error("cannot lease the requested address: {0}")]
    Address(AllocateError),
    /// The container already has an interface of that name.
    #[error("the container already has an interface {0}: delete it, or choose another CNI_IFNAME")]
    InterfaceExists(String),
    /// The namespace cannot be used.
    #[error("{0}")]
    InvalidNetns(String),
    /// Something was asked for that the network cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// A host port is taken.
    #[error("{0}")]
    PortTaken(String),
    /// The nftables table went away in the middle.
    #[error("the nftables table hostcni was removed by somebody else: it is loaded again, try again")]
    RulesMissing,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An attachment's file could not be written.
    #[error(transparent)]
    State(#[from] StoreError),
    /// A plugin of a chain failed.
    #[error(transparent)]
    Delegate(#[from] Failure),
    /// The deletion has to wait for an earlier request, longer than its runtime does.
    #[error("an earlier request for this attachment is still being carried out: try again")]
    Busy,
    /// Work of the server's own was lost.
    #[error("internal: {0}")]
    Lost(String),
    /// CHECK found the attachment changed.
    #[error("the attachment differs from what ADD made: {}", join(.0))]
    Differs(Vec<Difference>),
    /// The plugin process went away while its ADD was carried out.
    #[error("the CNI plugin went away before its ADD was done: rolled back")]
    CallerGone,
    /// Several steps of a deletion failed; all others were carried out.
    #[error("{}", join(.0))]
    Teardown(Vec<Error>),
    /// The attachment could not be taken down yet.
    #[error("{attachment} is still being deleted and is tried again: {source}")]
    StillThere {
        /// Which attachment.
        attachment: String,
        /// What stood in the way.
        source: Box<Error>,
    },
    /// A test made this step fail.
    #[cfg(feature = "failpoints")]
    #[error("failpoint {0}")]
    Injected(&'static str),
    /// GC without the list of valid attachments.
    #[error("GC without cni.dev/valid-attachments: refusing to take a missing list for an empty one")]
    NoValidAttachments,
}

/// CHECK found a difference; the specification leaves codes from 100 on to the plugin.
const DIFFERS: u32 = 104;

impl Error {
    /// The CNI error code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownNetwork(_)
            | Self::NoValidAttachments
            | Self::Ranges(_)
            | Self::Address(AllocateError::NotSelected(_)) => ErrorCode::BadConfiguration,
            Self::Address(_) | Self::Unsupported(_) => ErrorCode::UnsupportedField,
            Self::UnknownAttachment(_) => ErrorCode::UnknownContainer,
            Self::PoolExhausted { .. } | Self::RangeExhausted(_) => ErrorCode::PoolExhausted,
            Self::InterfaceExists(_) | Self::PortTaken(_) => ErrorCode::InterfaceExists,
            Self::InvalidNetns(_) => ErrorCode::InvalidNetns,
            Self::Kernel(_) => ErrorCode::KernelRefused,
            Self::State(_) | Self::Lost(_) => ErrorCode::Io,
            Self::Delegate(failure) => failure.code(),
            #[cfg(feature = "failpoints")]
            Self::Injected(_) => ErrorCode::Io,
            Self::Differs(_) => ErrorCode::Other(DIFFERS),
            Self::CallerGone | Self::StillThere { .. } | Self::RulesMissing | Self::Busy => {
                ErrorCode::TryAgainLater
            }
            Self::Teardown(errors) => errors.first().map_or(ErrorCode::Io, Self::code),
        }
    }

    /// All failures of a deletion as one error, `None` when there were none.
    pub fn collect(mut errors: Vec<Error>) -> Option<Error> {
        if errors.len() > 1 { Some(Self::Teardown(errors)) } else { errors.pop() }
    }

    /// No address is left in these ranges.
    pub(super) fn exhausted(usage: &[RangeUsage]) -> Self {
        let ranges: Vec<String> = usage.iter().map(|range| range.subnet.to_string()).collect();
        let used = usage.iter().map(|range| u64::try_from(range.used).unwrap_or(u64::MAX)).sum();
        Self::PoolExhausted { ranges: ranges.join(", "), used }
    }
}

impl From<Error> for cni::Error {
    fn from(error: Error) -> Self {
        let code = error.code();
        let details = match &error {
            Error::Differs(differences) => {
                differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        cni::Error::new(code, error.to_string()).with_details(details)
    }
}

impl From<UpdateError> for Error {
    fn from(error: UpdateError) -> Self {
        match error.refusals.into_iter().next() {
            Some(refusal) => Self::Kernel(refusal.error),
            None => Self::RulesMissing,
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::InterfaceExists { ifname } => Self::InterfaceExists(ifname),
            AttachError::NotANetns | AttachError::HostNetns => Self::InvalidNetns(error.to_string()),
            AttachError::Kernel(kernel) => Self::Kernel(kernel),
        }
    }
}

fn join<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
