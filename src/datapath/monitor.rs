//! The thread that listens to what changes in the kernel, by whomever, and tells everyone who watches.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::sync::mpsc;

use super::socket::{Messages, receive};
use super::{Change, KernelError, parse, worker};

const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;

/// Room for the events of some thousand links; the kernel charges it only while it is in use.
const RECEIVE_BUFFER: usize = 8 << 20;

type Watchers = Arc<Mutex<Vec<mpsc::UnboundedSender<Change>>>>;

/// The running monitor.
pub(super) struct Monitor {
    watchers: Watchers,
    // Closing it ends the thread.
    _stop: OwnedFd,
}

impl Monitor {
    /// Starts listening: nothing that happens after this returns is missed.
    pub(super) fn start() -> Result<Self, KernelError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR] {
                socket.add_membership(group)?;
            }
            socket.set_non_blocking(true)?;
            // Beyond the node's limit where that is allowed; without it there are only more Resyncs.
            if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
                setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
            }
            Ok(socket)
        };
        let fail = |error: std::io::Error| KernelError::from_io(&error, "listen to", "the kernel's changes");
        let socket = open().map_err(fail)?;
        let (stopped, stop) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| fail(errno.into()))?;
        let watchers = Watchers::default();
        let told = Arc::clone(&watchers);
        worker::spawn("hc-monitor", move || listen(&socket, &stopped, &told))?;
        Ok(Self { watchers, _stop: stop })
    }

    /// A new watcher.
    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }
}

fn listen(socket: &Socket, stopped: &OwnedFd, watchers: &Watchers) {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let mut ready =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
        if ready[1].any() == Some(true) {
            return;
        }
        match receive(socket, &mut buffer) {
            Ok(length) => tell(watchers, changes(&buffer[..length])),
            Err(Errno::EAGAIN) => {}
            // ENOBUFS: the buffer ran over. Whatever else it is, events may be missing.
            Err(_) => tell(watchers, std::iter::once(Change::Resync)),
        }
    }
}

fn tell(watchers: &Watchers, changes: impl Iterator<Item = Change>) {
    let mut watchers = watchers.lock().unwrap_or_else(PoisonError::into_inner);
    for change in changes {
        watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
    }
}

fn changes(datagram: &[u8]) -> impl Iterator<Item = Change> {
    Messages::new(datagram).filter_map(|message| match message.kind {
        RTM_NEWLINK => link(message.body).map(|link| Change::Link(Box::new(link))),
        RTM_DELLINK => {
            link(message.body).map(|link| Change::LinkRemoved { index: link.index, name: link.name })
        }
        RTM_NEWADDR => {
            parse::address(message.body).map(|(index, address)| Change::Address { index, address })
        }
        RTM_DELADDR => {
            parse::address(message.body).map(|(index, address)| Change::AddressRemoved { index, address })
        }
        _ => None,
    })
}

/// The link of a message that is about the link itself: a bridge tells of a port that left it by a
/// "deleted" of its own family, and the link lives on.
fn link(body: &[u8]) -> Option<super::Link> {
    parse::link(body).filter(|(family, _)| *family == 0).map(|(_, link)| link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, family: u8) -> Vec<u8> {
        let mut body = vec![family, 0, 0, 0];
        body.extend(7_u32.to_ne_bytes());
        body.extend([0; 8]);
        let mut bytes = 32_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_no_link_that_is_gone() {
        assert_eq!(changes(&message(RTM_DELLINK, 7)).count(), 0);
        let gone = changes(&message(RTM_DELLINK, 0)).next();
        assert_eq!(gone, Some(Change::LinkRemoved { index: 7, name: String::new() }));
    }

    #[test]
    fn the_thread_ends_with_the_monitor_and_a_deaf_watcher_is_forgotten() {
        let monitor = Monitor::start().unwrap();
        drop(monitor.watch());
        tell(&monitor.watchers, std::iter::once(Change::Resync));
        assert!(monitor.watchers.lock().unwrap().is_empty());
        let watchers = Arc::clone(&monitor.watchers);
        drop(monitor);
        while Arc::strong_count(&watchers) > 1 {
            std::thread::yield_now();
        }
    }
}
