//! What is reported of other firewalls on the node.

use tracing::Level;

use super::event::Entry;

/// One thing between hostcni and another firewall.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the fields are what their names and the catalog say
pub enum Firewall<'a> {
    /// A rule of hostcni's in somebody else's chain was added or taken away.
    ForwardChanged { what: &'a str },
    /// Packets may be dropped: the rules that would have them accepted cannot be made.
    ForwardRefused { why: &'a str },
    /// The bridge is in its zone of firewalld.
    ZoneTaken { bridge: &'a str, zone: &'a str },
    /// firewalld runs and does not take the bridge into the zone.
    ZoneRefused { bridge: &'a str, zone: &'a str, why: &'a str },
}

impl<'a> Firewall<'a> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ForwardChanged { .. } => "ForwardChanged",
            Self::ForwardRefused { .. } => "ForwardRefused",
            Self::ZoneTaken { .. } => "ZoneTaken",
            Self::ZoneRefused { .. } => "ZoneRefused",
        }
    }

    pub(super) fn level(&self) -> Level {
        match self {
            Self::ForwardChanged { .. } | Self::ZoneTaken { .. } => Level::INFO,
            Self::ForwardRefused { .. } | Self::ZoneRefused { .. } => Level::WARN,
        }
    }

    pub(super) fn message(&self) -> String {
        match *self {
            Self::ForwardChanged { what } => format!("accept_forward: {what}"),
            Self::ForwardRefused { why } => {
                format!("accept_forward: pods' packets may be dropped, tried again every 10 s: {why}")
            }
            Self::ZoneTaken { bridge, zone } => format!("{bridge} is in firewalld's zone {zone}"),
            Self::ZoneRefused { bridge, zone, why } => format!(
                "firewalld drops pods' packets, {bridge} is not in its zone {zone}: {why}; \
                 firewall-cmd --zone={zone} --change-interface={bridge}"
            ),
        }
    }

    pub(super) fn entry(&self) -> Entry<'a> {
        match *self {
            Self::ForwardChanged { what: reason } | Self::ForwardRefused { why: reason } => {
                Entry { reason: Some(reason), ..Entry::default() }
            }
            Self::ZoneTaken { zone, .. } => Entry { reason: Some(zone), ..Entry::default() },
            Self::ZoneRefused { why, .. } => Entry { reason: Some(why), ..Entry::default() },
        }
    }
}
