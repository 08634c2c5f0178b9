//! firewalld, over the system bus: links put into their zones, at its every start and reload.
//!
//! Promises that firewalld is never started by asking, and that nobody waits for it: a thread of its own speaks with it,
//! and tells. The zone is one of the running firewalld; its files on disk are the admin's.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::dbus::message::{Call, Reader, strings};
use super::dbus::{Connection, DbusError};

const BUS: &str = "/run/dbus/system_bus_socket";
const FIREWALLD: &str = "org.fedoraproject.FirewallD1";

/// How long the bus may take to answer.
const BOUND: Duration = Duration::from_secs(2);
/// How long firewalld may: while it starts or reloads, calls wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long until the bus is tried again when it is not there.
const AGAIN: Duration = Duration::from_secs(10);

/// A link and the zone that it is to be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZonedLink {
    /// The link's name.
    pub link: String,
    /// The zone's name.
    pub zone: String,
}

/// What the thread tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The link was put into its zone.
    Taken(ZonedLink),
    /// firewalld runs, and does not take the link into its zone: why.
    Refused(ZonedLink, String),
    /// All that can be done now is done: each link is in its zone, or firewalld does not run.
    Done,
}

/// Starts the thread; it ends when nobody listens any more.
pub fn keep(links: Vec<ZonedLink>, tell: impl Fn(Told) -> bool + Send + 'static) -> std::io::Result<()> {
    let bus = PathBuf::from(BUS);
    thread::Builder::new()
        .name("hc-firewalld".to_owned())
        .spawn(move || follow(&bus, &links, &tell))
        .map(drop)
}

fn follow(bus: &Path, links: &[ZonedLink], tell: &impl Fn(Told) -> bool) {
    loop {
        let Err(error) = session(bus, links, tell);
        tracing::debug!(%error, "no system bus to reach firewalld by");
        if !tell(Told::Done) {
            return;
        }
        thread::sleep(AGAIN);
    }
}

/// One connection with the bus, until it breaks.
fn session(bus: &Path, links: &[ZonedLink], tell: &impl Fn(Told) -> bool) -> Result<Infallible, DbusError> {
    let mut bus = Connection::open(bus, Instant::now() + BOUND)?;
    ask_bus(&mut bus, "Hello", &[])?;
    // Before the first look, so that nothing is missed in between.
    for rule in [
        format!("type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{FIREWALLD}'"),
        format!("type='signal',sender='{FIREWALLD}',interface='{FIREWALLD}',member='Reloaded'"),
    ] {
        ask_bus(&mut bus, "AddMatch", &[&rule])?;
    }
    let owned = ask_bus(&mut bus, "NameHasOwner", &[FIREWALLD])?;
    if (Reader { bytes: &owned, at: 0 }).u32() == Some(1) {
        put_all(&mut bus, links, tell)?;
    }
    tell(Told::Done);
    loop {
        let signal = bus.signal()?;
        let concerns = match signal.member.as_str() {
            "Reloaded" => true,
            // Name, old owner, new owner.
            "NameOwnerChanged" => {
                let words: Vec<String> = strings(&signal.body).collect();
                words.first().is_some_and(|name| name == FIREWALLD)
                    && words.get(2).is_some_and(|new| !new.is_empty())
            }
            _ => false,
        };
        if concerns {
            put_all(&mut bus, links, tell)?;
            tell(Told::Done);
        }
    }
}

/// Puts the links into their zones. What firewalld refuses is told; an error means that the bus is gone.
fn put_all(bus: &mut Connection, links: &[ZonedLink], tell: &impl Fn(Told) -> bool) -> Result<(), DbusError> {
    for link in links {
        match put(bus, link) {
            Ok(false) => {}
            Ok(true) => drop(tell(Told::Taken(link.clone()))),
            Err(error @ DbusError::Refused(_)) => drop(tell(Told::Refused(link.clone(), error.to_string()))),
            Err(error) => {
                tell(Told::Refused(link.clone(), error.to_string()));
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Whether the link was not in its zone, and is now.
fn put(bus: &mut Connection, ZonedLink { link, zone }: &ZonedLink) -> Result<bool, DbusError> {
    let mut ask = |member, arguments: &[&str]| {
        let call = Call {
            destination: FIREWALLD,
            path: "/org/fedoraproject/FirewallD1",
            interface: "org.fedoraproject.FirewallD1.zone",
            member,
            arguments,
        };
        bus.call(&call, Instant::now() + PATIENCE)
    };
    let now = ask("getZoneOfInterface", &[link])?;
    if strings(&now).next().as_deref() == Some(zone) {
        return Ok(false);
    }
    ask("changeZoneOfInterface", &[zone, link]).map(|_| true)
}

fn ask_bus(bus: &mut Connection, member: &str, arguments: &[&str]) -> Result<Vec<u8>, DbusError> {
    let call = Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member,
        arguments,
    };
    bus.call(&call, Instant::now() + BOUND)
}
