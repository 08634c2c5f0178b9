//! nftables: the ruleset as a whole by `nft -f -`, elements by netlink, and an eye on who else changes it.
//!
//! Promises that a ruleset is applied whole or not at all, with nft's own words in the error, and that the
//! monitor tells other people's changes of our tables from ours. Everything blocks: the kernel works inside
//! `sendmsg`, and `nft` is a process of some milliseconds.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};
use nix::libc;

use super::batch::{self, ElementBatch, RefusalKind, UpdateError};
use super::elements::{Element, PortMap, TABLE, TableFamily};
use super::error::{KernelError, Result};
use super::nfnl::{self, NfSocket, Raw};
use super::spawn;

/// 10,000 elements take nft well under a second; what takes this long will not end.
const APPLY_DEADLINE: Duration = Duration::from_secs(10);
/// `NFNLGRP_NFTABLES` (`linux/netfilter/nfnetlink.h`).
const NFNLGRP_NFTABLES: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, and the messages of it that matter here (`linux/netfilter/nf_tables.h`).
const SUBSYSTEM: u16 = 10;
const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWGEN: u16 = 15;
/// The attribute that names the table, the same in each kind of message.
const NAME: u16 = 1;

/// Applies a ruleset text, as one transaction, in the network namespace of the calling thread.
pub fn apply(text: &str) -> Result<()> {
    run_nft(&["-f", "-"], text, "apply")
}

/// Whether this kernel has tables of family `bridge`. Asks it for one, without leaving anything.
pub fn has_bridge_tables() -> bool {
    run_nft(&["-c", "-f", "-"], &format!("add table bridge {TABLE}\n"), "try").is_ok()
}

fn run_nft(arguments: &[&str], text: &str, operation: &'static str) -> Result<()> {
    let object = "the nftables ruleset";
    let output = spawn::run_seen("nft", arguments, text, APPLY_DEADLINE, AUTHORS.adding_child())?;
    if output.success() {
        return Ok(());
    }
    let words = match (output.stderr.trim(), output.signal) {
        ("", Some(signal)) => format!("nft was ended by signal {signal}"),
        ("", None) => format!("nft exited with {}", output.code.unwrap_or_default()),
        (stderr, _) => stderr.to_owned(),
    };
    Err(KernelError::message(operation, object, words))
}

/// A way to the elements, for one thread, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Nft {
    socket: NfSocket,
}

impl Nft {
    /// Opens the socket.
    pub fn open() -> Result<Self> {
        let socket = NfSocket::open()?;
        AUTHORS.add_socket(socket.port());
        Ok(Self { socket })
    }

    /// Commits a batch: all of it or nothing.
    pub fn update(&mut self, batch: &ElementBatch) -> std::result::Result<(), UpdateError> {
        let mut result = batch.commit(&mut self.socket);
        if let Err(error) = &mut result {
            self.settle(error);
        }
        result
    }

    /// Whether our table of that family is there.
    pub fn table_present(&mut self, family: TableFamily) -> Result<bool> {
        let message = TableMessage { attributes: vec![TableAttribute::Name(TABLE.to_owned())] };
        let message = nfnl::message(family.netlink(), NfTablesMessage::GetTable(message));
        match self.socket.request(message, false, "look up nftables table", TABLE) {
            Ok(_) => Ok(true),
            Err(error) if error.errno == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where a host port leads now: the holder's address and port. `None`: nobody has it.
    pub fn holder(&mut self, port_map: &PortMap) -> Result<Option<(IpAddr, u16)>> {
        port_map.element().map_or(Ok(None), |element| batch::holder(&mut self.socket, &element))
    }

    /// Those of the elements that are not there.
    pub fn missing(&mut self, elements: Vec<Element>) -> Result<Vec<Element>> {
        batch::missing(&mut self.socket, elements)
    }

    /// On a kernel that does not point at what is missing, finds out.
    fn settle(&mut self, error: &mut UpdateError) {
        for refusal in &mut error.refusals {
            if refusal.kind != RefusalKind::MissingOrTable {
                continue;
            }
            let family = refusal.element.as_ref().map_or(TableFamily::Inet, |element| element.set().table());
            let present = self.table_present(family).unwrap_or(true);
            refusal.kind = if present { RefusalKind::Missing } else { RefusalKind::TableMissing };
        }
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        AUTHORS.remove_socket(self.socket.port());
    }
}

/// What somebody else did to our tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableEvent {
    /// A table is gone (`nft flush ruleset`): apply the ruleset again.
    Deleted(TableFamily),
    /// Something in a table was added or deleted, or the table replaced: apply the ruleset again.
    Changed(TableFamily),
    /// Changes were missed: look whether the tables are there.
    Resync,
}

/// Hears every change of nftables in its network namespace and tells those of our tables by others.
///
/// What this process did is left out: changes by an open [`Nft`], and by the children of [`apply`].
#[derive(Debug)]
pub struct Monitor {
    socket: NfSocket,
    transaction: Vec<TableEvent>,
}

impl AsFd for Monitor {
    /// Readable when [`Monitor::read`] has something to look at.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Monitor {
    /// Subscribes.
    pub fn open() -> Result<Self> {
        let mut socket = NfSocket::open()?;
        let joined = socket.socket().add_membership(NFNLGRP_NFTABLES);
        let joined = joined.and_then(|()| socket.socket().set_non_blocking(true));
        joined.map_err(|e| KernelError::from_io(&e, "subscribe to", "changes of nftables"))?;
        Ok(Self { socket, transaction: Vec::new() })
    }

    /// What there is to tell, without waiting. A transaction is told when it is complete, as one event for
    /// each table: a table deleted and made again is `Changed`.
    pub fn read(&mut self) -> Result<Vec<TableEvent>> {
        let mut events = Vec::new();
        loop {
            match self.socket.receive() {
                Ok(datagram) => {
                    let seen: Vec<Raw> = nfnl::messages(&datagram).filter_map(|m| nfnl::raw(&m)).collect();
                    for message in &seen {
                        self.see(message, &mut events);
                    }
                }
                // The socket does not block: its timeout is "nothing there".
                Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => return Ok(events),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.transaction.clear();
                    events.push(TableEvent::Resync);
                }
                Err(error) => return Err(KernelError::from_io(&error, "hear of", "changes of nftables")),
            }
        }
    }

    fn see(&mut self, message: &Raw, events: &mut Vec<TableEvent>) {
        if message.kind >> 8 != SUBSYSTEM {
            return;
        }
        let kind = message.kind & 0xff;
        if kind == NEWGEN {
            events.append(&mut self.transaction);
            return;
        }
        let Some(family) = TableFamily::from_number(message.family) else { return };
        let ours =
            nfnl::attribute(&message.attributes, NAME).map(nfnl::text).is_some_and(|name| name == TABLE);
        if !ours || AUTHORS.has(message.port) {
            return;
        }
        let (deleted, changed) = (TableEvent::Deleted(family), TableEvent::Changed(family));
        // Within a transaction: the last word about the table itself counts.
        let now = match kind {
            DELTABLE => deleted,
            NEWTABLE => changed,
            _ if self.transaction.contains(&deleted) => deleted,
            _ => changed,
        };
        self.transaction.retain(|event| *event != deleted && *event != changed);
        self.transaction.push(now);
    }
}

/// The netlink ports from which this process changes nftables, so that the monitor knows its own.
struct Authors(Mutex<Ports>);

struct Ports {
    sockets: Vec<u32>,
    children: VecDeque<u32>,
}

static AUTHORS: Authors = Authors(Mutex::new(Ports { sockets: Vec::new(), children: VecDeque::new() }));

impl Authors {
    /// How many past children are remembered: the monitor may hear of a change after its author's end, and a
    /// number too long remembered may be another's by then.
    const CHILDREN: usize = 8;

    /// A first netlink socket is bound to the process id by the kernel (`netlink_autobind`), as its
    /// author's process namespace knows it; nft opens one.
    fn adding_child(&self) -> impl FnOnce(u32) + '_ {
        |child| {
            let mut ports = self.lock();
            ports.children.push_back(child);
            if ports.children.len() > Self::CHILDREN {
                ports.children.pop_front();
            }
        }
    }

    fn add_socket(&self, port: u32) {
        self.lock().sockets.push(port);
    }

    fn remove_socket(&self, port: u32) {
        let mut ports = self.lock();
        if let Some(at) = ports.sockets.iter().position(|p| *p == port) {
            ports.sockets.swap_remove(at);
        }
    }

    fn has(&self, port: u32) -> bool {
        let ports = self.lock();
        ports.sockets.contains(&port) || ports.children.contains(&port)
    }

    /// A panic elsewhere leaves two plain lists, at worst without one number.
    fn lock(&self) -> std::sync::MutexGuard<'_, Ports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
