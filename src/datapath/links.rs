//! The thread for the node's own links: the bridge, dumps, look-ups, the uplink, the watchdog's ping.

use std::net::IpAddr;

use tokio::sync::oneshot;

use super::socket::Socket;
use super::worker::{self, Queue};
use super::{
    BridgeReport, BridgeSpec, KernelError, Link, Loopback6, Shaped, Shaping, bridge, ipv6, message, parse,
    shaping, sysctl,
};

type Reply<T> = oneshot::Sender<Result<T, KernelError>>;

/// What the thread can be asked for.
pub(super) enum Job {
    Bridge(BridgeSpec, Reply<BridgeReport>),
    All(Reply<Vec<Link>>),
    One(String, Reply<Option<Link>>),
    Uplink(Reply<Option<(String, u32)>>),
    Port(Port, Reply<()>),
    Sysctls(Vec<(String, String)>, oneshot::Sender<(Vec<sysctl::Change>, Vec<KernelError>)>),
    KeepAdvertisements(Vec<String>, Reply<Vec<sysctl::Change>>),
    Loopback6(Loopback6, Reply<bool>),
    IsLocal(IpAddr, Reply<bool>),
    Shape(String, Box<Shaping>, Reply<bool>),
    Shaped(String, String, Reply<Shaped>),
    Ping(Reply<()>),
}

/// A link that is to be a port of a bridge.
pub(super) struct Port {
    pub(super) name: String,
    pub(super) bridge: String,
    pub(super) hairpin: bool,
    pub(super) isolated: bool,
}

/// Starts the thread.
pub(super) fn start(queue: Queue<Job>) -> Result<(), KernelError> {
    let mut socket = Socket::open()?;
    worker::spawn("hc-links", move || {
        while let Some(job) = queue.next() {
            serve(&mut socket, job);
        }
    })
}

fn serve(socket: &mut Socket, job: Job) {
    // Whoever asked may have given up; what was done stays done.
    match job {
        Job::Bridge(spec, reply) => drop(reply.send(bridge::ensure(socket, &spec))),
        Job::All(reply) => drop(reply.send(all(socket))),
        Job::One(name, reply) => drop(reply.send(find(socket, &name))),
        Job::Uplink(reply) => drop(reply.send(uplink(socket))),
        Job::Port(port, reply) => drop(reply.send(enslave(socket, &port))),
        Job::Sysctls(settings, reply) => {
            let settings = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            drop(reply.send(sysctl::ensure(settings)));
        }
        Job::KeepAdvertisements(bridges, reply) => {
            drop(reply.send(keep_advertisements(socket, &bridges)));
        }
        Job::Loopback6(route, reply) => drop(reply.send(loopback6(socket, &route))),
        Job::IsLocal(address, reply) => drop(reply.send(is_local(socket, address))),
        Job::Shape(link, limits, reply) => drop(reply.send(shaping::repair(socket, &link, &limits))),
        Job::Shaped(link, shaper, reply) => drop(reply.send(shaping::look(socket, &link, &shaper))),
        Job::Ping(reply) => drop(reply.send(socket.one(message::link_by_index(message::LOOPBACK)).map(drop))),
    }
}

/// The index of the bridge of that name.
pub(super) fn bridge_index(socket: &mut Socket, name: &str) -> Result<u32, KernelError> {
    match find(socket, name)? {
        Some(Link { kind: Some(kind), index, .. }) if kind == "bridge" => Ok(index),
        Some(_) => Err(KernelError::new(nix::libc::EOPNOTSUPP, "use as bridge the link", name)),
        None => Err(KernelError::new(nix::libc::ENODEV, "use bridge", name)),
    }
}

fn enslave(socket: &mut Socket, port: &Port) -> Result<(), KernelError> {
    let bridge = bridge_index(socket, &port.bridge)?;
    let link = find(socket, &port.name)?
        .ok_or_else(|| KernelError::new(nix::libc::ENODEV, "look up link", port.name.as_str()))?;
    // One after the other: the flags are a port's, and the kernel takes them only when it is one.
    let requests = vec![
        message::set_master(link.index, &port.name, bridge),
        message::set_port(&port.name, None, port.hairpin, port.isolated),
        message::set_up(link.index, &port.name),
    ];
    socket.batch(requests)?.into_iter().try_for_each(|outcome| outcome.map(drop))
}

/// For all links that are no bridge of ours, nor a port of one, nor an ifb.
fn keep_advertisements(socket: &mut Socket, bridges: &[String]) -> Result<Vec<sysctl::Change>, KernelError> {
    if ipv6::forwards()? {
        return Ok(Vec::new());
    }
    let links = all(socket)?;
    let own: Vec<u32> = links.iter().filter(|it| bridges.contains(&it.name)).map(|it| it.index).collect();
    let mut changes = Vec::new();
    for link in &links {
        let inside = own.contains(&link.index) || link.master.is_some_and(|master| own.contains(&master));
        if !inside && link.index != message::LOOPBACK && link.kind.as_deref() != Some("ifb") {
            changes.extend(ipv6::keep_router_advertisements(&link.name)?);
        }
    }
    Ok(changes)
}

fn loopback6(socket: &mut Socket, route: &Loopback6) -> Result<bool, KernelError> {
    let bridge = bridge_index(socket, &route.bridge)?;
    match socket.one(message::add_loopback6(bridge, &route.bridge, route.priority)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Every link of the namespace.
pub(super) fn all(socket: &mut Socket) -> Result<Vec<Link>, KernelError> {
    let answers = socket.dump(message::all_links())?;
    Ok(answers.iter().filter_map(|answer| parse::link(answer)).map(|(_, link)| link).collect())
}

/// The link of that name, if there is one.
pub(super) fn find(socket: &mut Socket, name: &str) -> Result<Option<Link>, KernelError> {
    match socket.one(message::link_by_name(name)) {
        Ok(answers) => Ok(answers.first().and_then(|answer| parse::link(answer)).map(|(_, link)| link)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The routes of the main table, of one family; none when the family is switched off.
pub(super) fn routes(socket: &mut Socket, of: IpAddr) -> Result<Vec<parse::Route>, KernelError> {
    match socket.dump(message::routes(of)) {
        Ok(answers) => Ok(answers.iter().filter_map(|answer| parse::route(answer)).collect()),
        // The table is made with its first route.
        Err(error) if error.is_missing() || is_family_missing(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether the address is one of the node's own, as `fib daddr type local` of a rule sees it.
fn is_local(socket: &mut Socket, address: IpAddr) -> Result<bool, KernelError> {
    use nix::errno::Errno::{EHOSTUNREACH, ENETUNREACH};
    match socket.one(message::route_to(address)) {
        Ok(answers) => Ok(answers.first().is_some_and(|answer| parse::is_local_route(answer))),
        Err(error) if [ENETUNREACH as i32, EHOSTUNREACH as i32].contains(&error.errno) => Ok(false),
        Err(error) if is_family_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the kernel has no such address family (`ipv6.disable=1`).
fn is_family_missing(error: &KernelError) -> bool {
    use nix::errno::Errno::{EAFNOSUPPORT, EOPNOTSUPP};
    error.errno == EAFNOSUPPORT as i32 || error.errno == EOPNOTSUPP as i32
}

/// Name and MTU of the link that the default route leaves by: IPv4's, else IPv6's.
fn uplink(socket: &mut Socket) -> Result<Option<(String, u32)>, KernelError> {
    for family in [message::V4, message::V6] {
        let best = routes(socket, family)?
            .into_iter()
            .filter(|route| route.what.dst.prefix_len() == 0)
            .filter_map(|route| Some((route.what.priority.unwrap_or(0), route.interface?)))
            .min();
        let Some((_, index)) = best else { continue };
        let answers = match socket.one(message::link_by_index(index)) {
            Ok(answers) => answers,
            Err(error) if error.is_missing() => continue,
            Err(error) => return Err(error),
        };
        if let Some((_, link)) = answers.first().and_then(|answer| parse::link(answer)) {
            return Ok(Some((link.name, link.mtu)));
        }
    }
    Ok(None)
}
