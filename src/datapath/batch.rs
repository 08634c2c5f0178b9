//! Changes of elements, sent to the kernel by netlink: no process, microseconds each.
//!
//! Promises that a batch is one transaction, and that a refusal names the element it is about and says
//! whether it means a conflict, an element that is gone, or a table that is gone. Tries nothing again.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_netfilter::NetfilterMessage;
use nix::libc;

use super::elements::{Action, Element, TABLE};
use super::error::{KernelError, Result};
use super::nfnl::{self, Ack, NfSocket};

/// Changes that become true together or not at all. One per pod, so that one pod's conflict is its own.
///
/// An element that is there already with the same value is no error. A map's key that is there with
/// another value is a conflict: EEXIST. **A delete looks at the key alone**: delete only what this pod holds,
/// never to undo an add that was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementBatch {
    changes: Vec<Change>,
    seen: HashSet<Change>,
}

/// Whether to add (or else to delete), and what.
type Change = (bool, Element);

impl ElementBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an element.
    pub fn add(&mut self, element: Element) -> &mut Self {
        self.push(true, element)
    }

    /// Deletes an element; ENOENT when it is not there.
    pub fn delete(&mut self, element: Element) -> &mut Self {
        self.push(false, element)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// The same change twice is one: the second delete of a key would refuse the whole batch.
    fn push(&mut self, add: bool, element: Element) -> &mut Self {
        let change = (add, element);
        if self.seen.insert(change.clone()) {
            self.changes.push(change);
        }
        self
    }

    fn messages(&self) -> Vec<(NetfilterMessage, u16)> {
        let message = |(add, element): &Change| {
            // Without NLM_F_EXCL: with it an identical element would be an error and abort the batch.
            let (action, flags) = if *add { (Action::Add, NLM_F_CREATE) } else { (Action::Delete, 0) };
            (element.message(action), flags)
        };
        self.changes.iter().map(message).collect()
    }

    /// Commits the batch.
    pub(super) fn commit(&self, socket: &mut NfSocket) -> std::result::Result<(), UpdateError> {
        let refused = socket.batch(self.messages()).map_err(|error| {
            let error = KernelError::from_io(&error, "change elements of", format!("nftables table {TABLE}"));
            UpdateError { refusals: vec![Refusal { element: None, kind: RefusalKind::Other, error }] }
        })?;
        if refused.is_empty() {
            return Ok(());
        }
        let refusals = refused.into_iter().map(|(index, ack)| self.refusal(index, ack)).collect();
        Err(UpdateError { refusals })
    }

    fn refusal(&self, index: Option<usize>, ack: Ack) -> Refusal {
        let text = ack.text.unwrap_or_default();
        let Some((add, element)) = index.and_then(|index| self.changes.get(index)) else {
            let error = KernelError::new(ack.errno, "change elements of", format!("nftables table {TABLE}"));
            return Refusal { element: None, kind: RefusalKind::Other, error: error.with_text(text) };
        };
        let before_list = ack.offset.map(|offset| offset < element.list_offset());
        let kind = match (ack.errno, add, before_list) {
            (libc::EEXIST, true, _) => RefusalKind::Conflict,
            // An add needs nothing but its table and its set.
            (libc::ENOENT, true, _) | (libc::ENOENT, false, Some(true)) => RefusalKind::TableMissing,
            (libc::ENOENT, false, Some(false)) => RefusalKind::Missing,
            (libc::ENOENT, false, None) => RefusalKind::MissingOrTable,
            _ => RefusalKind::Other,
        };
        let operation = if *add { "add nftables element" } else { "delete nftables element" };
        let error = KernelError::new(ack.errno, operation, element.to_string()).with_text(text);
        Refusal { element: Some(element.clone()), kind, error }
    }
}

/// Why one change was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The map has the key with another value: somebody else holds the host port.
    Conflict,
    /// The element to be deleted is not there.
    Missing,
    /// The table or the set is not there: somebody flushed the ruleset; apply it again.
    TableMissing,
    /// One of the two before: this kernel does not point at what is missing.
    MissingOrTable,
    /// Anything else: permissions, memory, a kernel that lacks something.
    Other,
}

/// One change that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The element; `None`: the batch as a whole.
    pub element: Option<Element>,
    /// What it means.
    pub kind: RefusalKind,
    /// The kernel's words; its object is the element.
    pub error: KernelError,
}

/// A refused batch: nothing of it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// At least one, in the order of the batch.
    pub refusals: Vec<Refusal>,
}

impl UpdateError {
    /// The element whose key another value holds.
    pub fn conflict(&self) -> Option<&Element> {
        self.refusals.iter().find(|r| r.kind == RefusalKind::Conflict).and_then(|r| r.element.as_ref())
    }

    /// Whether the table or a set is not there.
    pub fn table_missing(&self) -> bool {
        self.refusals.iter().any(|r| r.kind == RefusalKind::TableMissing)
    }

    /// Whether elements to be deleted were not there and nothing else is wrong.
    pub fn only_missing(&self) -> bool {
        self.refusals.iter().all(|r| r.kind == RefusalKind::Missing)
    }
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) =
            self.refusals.split_first().map_or((None, 0), |(first, rest)| (Some(first), rest.len()));
        match first {
            Some(first) => first.error.fmt(f)?,
            None => f.write_str("cannot change nftables elements")?,
        }
        if rest > 0 { write!(f, " and {rest} more") } else { Ok(()) }
    }
}

impl std::error::Error for UpdateError {}

impl From<UpdateError> for KernelError {
    /// The first conflict, else the first refusal.
    fn from(error: UpdateError) -> Self {
        let at = error.refusals.iter().position(|r| r.kind == RefusalKind::Conflict).unwrap_or(0);
        match error.refusals.into_iter().nth(at) {
            Some(refusal) => refusal.error,
            None => Self::message("change elements of", format!("nftables table {TABLE}"), "no reason given"),
        }
    }
}

/// What a port map's key leads to now: the address and port of the pod that holds it.
pub(super) fn holder(socket: &mut NfSocket, element: &Element) -> Result<Option<(IpAddr, u16)>> {
    let found =
        socket.request(element.message(Action::Get), false, "look up nftables element", &element.to_string());
    let found = match found {
        Ok(found) => found,
        Err(error) if error.errno == libc::ENOENT => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(found.iter().find_map(|message| target(&message.attributes)))
}

/// Those of the elements that are not there.
pub(super) fn missing(socket: &mut NfSocket, elements: Vec<Element>) -> Result<Vec<Element>> {
    let mut missing = Vec::new();
    for element in elements {
        let what = element.to_string();
        match socket.request(element.message(Action::Get), false, "look up nftables element", &what) {
            Ok(_) => {}
            Err(error) if error.errno == libc::ENOENT => missing.push(element),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// Element list → list element → data → value (`NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_LIST_ELEM`,
/// `NFTA_SET_ELEM_DATA`, `NFTA_DATA_VALUE`), and the value taken apart.
fn target(attributes: &[u8]) -> Option<(IpAddr, u16)> {
    let value = [3, 1, 2, 1].into_iter().try_fold(attributes, nfnl::attribute)?;
    let port = |bytes: &[u8]| bytes.first_chunk().map(|port| u16::from_be_bytes(*port));
    match value.len() {
        8 => Some((IpAddr::from(*value.first_chunk::<4>()?), port(&value[4..])?)),
        20 => Some((IpAddr::from(*value.first_chunk::<16>()?), port(&value[16..])?)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
