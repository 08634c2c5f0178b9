//! The thread that listens to what changes in the kernel, by whomever, and tells everyone who watches.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::net::if_::if_indextoname;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::sync::mpsc;

use super::nft::{self, TableEvent};
use super::socket::{BUFFER, Messages, receive};
use super::{Change, Interest, KernelError, parse, worker};

const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_DELADDR: u16 = 21;

/// Room for the events of some thousand links; the kernel charges it only while it is in use.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A failure that does not go away must not spin.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

type Watchers = Arc<Mutex<Vec<Watcher>>>;

struct Watcher {
    interest: Interest,
    sender: mpsc::UnboundedSender<Change>,
}

impl Watcher {
    /// Most of what happens on a node is others': a thread that is woken for it disturbs those who do it.
    fn wants(&self, change: &Change) -> bool {
        let Interest { links, ends } = &self.interest;
        match change {
            Change::LinkChanged { name, .. } => links.contains(name),
            Change::LinkRemoved { name, .. } => links.contains(name) || ends.is_some_and(|of| of(name)),
            Change::AddressRemoved { .. } if links.is_empty() => false,
            Change::AddressRemoved { index, .. } => match if_indextoname(*index) {
                Ok(name) => links.iter().any(|link| name.as_bytes() == link.as_bytes()),
                // Of a link that is gone, too, its end is told. Without a descriptor to ask by, it may be one of these.
                Err(errno) => errno != Errno::ENXIO,
            },
            Change::Rules | Change::Resync => true,
        }
    }
}

/// The running monitor.
pub(super) struct Monitor {
    watchers: Watchers,
    links: Arc<Socket>,
    // Closing it ends the thread.
    _stop: OwnedFd,
}

impl Monitor {
    /// Starts listening to what happens to nftables. `touched` is set when somebody else changes a table of ours.
    pub(super) fn start(touched: Arc<AtomicBool>) -> Result<Self, KernelError> {
        let fail = |error: std::io::Error| KernelError::from_io(&error, "listen to", "the kernel's changes");
        let socket = Arc::new(open(RECEIVE_BUFFER).map_err(fail)?);
        let tables = nft::Monitor::open()?;
        let (stopped, stop) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| fail(errno.into()))?;
        let watchers = Watchers::default();
        let (told, links) = (Arc::clone(&watchers), Arc::clone(&socket));
        worker::spawn("hc-monitor", move || listen(&socket, tables, &stopped, &told, &touched))?;
        Ok(Self { watchers, links, _stop: stop })
    }

    /// A new watcher: it misses nothing of its interest that happens after this returns. The kernel tells of links only
    /// once somebody wants to know.
    pub(super) fn watch(&self, interest: Interest) -> std::io::Result<mpsc::UnboundedReceiver<Change>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let links = !interest.links.is_empty() || interest.ends.is_some();
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(Watcher { interest, sender });
        if links {
            subscribe(&self.links)?;
        }
        Ok(receiver)
    }
}

fn open(buffer: usize) -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    // Beyond the node's limit where that is allowed; without it there are only more Resyncs.
    if setsockopt(&socket, sockopt::RcvBufForce, &buffer).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &buffer)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

fn subscribe(socket: &Socket) -> std::io::Result<()> {
    let groups = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR];
    groups.into_iter().try_for_each(|group| socket.add_membership(group))
}

fn listen(
    socket: &Socket,
    mut tables: nft::Monitor,
    stopped: &OwnedFd,
    watchers: &Watchers,
    touched: &AtomicBool,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut ready = [socket.as_fd(), tables.as_fd(), stopped.as_fd()]
            .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        if !matches!(poll(&mut ready, PollTimeout::NONE), Ok(_) | Err(Errno::EINTR)) {
            std::thread::sleep(AFTER_A_FAILURE);
        }
        let [links_ready, tables_ready, stop] = ready.map(|one| one.any() == Some(true));
        if stop {
            return;
        }
        if links_ready {
            hear_links(socket, &mut buffer, watchers);
        }
        if tables_ready {
            if let Ok(events) = tables.read() {
                tell(watchers, events.into_iter().map(|event| rules_change(event, touched)));
            } else {
                tell(watchers, std::iter::once(Change::Resync));
                std::thread::sleep(AFTER_A_FAILURE);
            }
        }
    }
}

fn hear_links(socket: &Socket, buffer: &mut Vec<u8>, watchers: &Watchers) {
    match receive(socket, buffer) {
        Ok(length) => tell(watchers, changes(&buffer[..length])),
        Err(Errno::EAGAIN) => {}
        // The kernel's queue ran over, or one event was larger than the buffer.
        Err(Errno::ENOBUFS | Errno::EMSGSIZE) => tell(watchers, std::iter::once(Change::Resync)),
        Err(_) => {
            tell(watchers, std::iter::once(Change::Resync));
            std::thread::sleep(AFTER_A_FAILURE);
        }
    }
}

fn rules_change(event: TableEvent, touched: &AtomicBool) -> Change {
    match event {
        TableEvent::Deleted(_) | TableEvent::Changed(_) => {
            touched.store(true, Ordering::SeqCst);
            Change::Rules
        }
        TableEvent::Resync => Change::Resync,
    }
}

fn tell(watchers: &Watchers, changes: impl Iterator<Item = Change>) {
    let mut watchers = watchers.lock().unwrap_or_else(PoisonError::into_inner);
    for change in changes {
        watchers.retain(|watcher| {
            if watcher.wants(&change) {
                watcher.sender.send(change.clone()).is_ok()
            } else {
                !watcher.sender.is_closed()
            }
        });
    }
}

fn changes(datagram: &[u8]) -> impl Iterator<Item = Change> {
    Messages::new(datagram).filter_map(|message| match message.kind {
        RTM_NEWLINK => link(message.body).map(|link| Change::LinkChanged {
            index: link.index,
            name: link.name.clone(),
            link: Box::new(link),
        }),
        RTM_DELLINK => {
            link(message.body).map(|link| Change::LinkRemoved { index: link.index, name: link.name })
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
    fn events_that_did_not_fit_are_told_as_a_resync() {
        let told = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let socket = open(1).unwrap();
            subscribe(&socket).unwrap();
            let mut requests = super::super::socket::Socket::open().unwrap();
            for number in 0..50 {
                requests.one(super::super::message::create_bridge(&format!("b{number}"), [2; 6])).unwrap();
            }
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let watchers = Watchers::new(Mutex::new(vec![Watcher { interest: Interest::default(), sender }]));
            let mut buffer = vec![0; BUFFER];
            (0..100).for_each(|_| hear_links(&socket, &mut buffer, &watchers));
            std::iter::from_fn(|| receiver.try_recv().ok()).collect::<Vec<_>>()
        })
        .join()
        .unwrap();
        assert_eq!(told.iter().filter(|change| **change == Change::Resync).count(), 1, "{told:?}");
    }

    #[test]
    fn an_address_concerns_who_wants_its_link_and_nobody_when_that_is_gone() {
        let (sender, _receiver) = mpsc::unbounded_channel();
        let interest = Interest { links: vec!["lo".to_owned()], ends: None };
        let watcher = Watcher { interest, sender };
        let of = |index| Change::AddressRemoved { index, address: "127.0.0.1/8".parse().unwrap() };
        assert!(watcher.wants(&of(1)));
        assert!(!watcher.wants(&of(0x7fff_ffff)));
    }

    #[test]
    fn the_thread_ends_with_the_monitor_and_a_deaf_watcher_is_forgotten() {
        let monitor = Monitor::start(Arc::default()).unwrap();
        drop(monitor.watch(Interest::default()).unwrap());
        tell(&monitor.watchers, std::iter::once(Change::Resync));
        assert!(monitor.watchers.lock().unwrap().is_empty());
        let watchers = Arc::clone(&monitor.watchers);
        drop(monitor);
        while Arc::strong_count(&watchers) > 1 {
            std::thread::yield_now();
        }
    }
}
