//! Making a pod's link. Either all of it is there afterwards, or nothing.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use super::namespace_jobs::Door;
use super::socket::Socket;
use super::{
    AttachError, KernelError, Link, PodLink, PodLinkSpec, PodRoute, ipv6, links, message, parse, shaping,
};

/// Makes the veth pair and configures the pod's end of it.
pub(super) fn attach(
    door: &Door,
    host: &mut Socket,
    spec: &PodLinkSpec,
    netns: &OwnedFd,
) -> Result<PodLink, AttachError> {
    door.check(netns)?;
    let bridge = links::bridge_index(host, &spec.bridge)?;
    let (_inside, mut pod) = door.enter(netns)?;
    make(host, &mut pod, spec, netns, bridge)
}

/// Runs on a thread inside the pod's namespace.
fn make(
    host: &mut Socket,
    pod: &mut Socket,
    spec: &PodLinkSpec,
    netns: &OwnedFd,
    bridge: u32,
) -> Result<PodLink, AttachError> {
    let mut outcomes = host
        .batch(vec![
            message::create_veth(spec, netns.as_fd(), bridge),
            message::set_port(&spec.host_link, Some(&spec.alias), spec.hairpin, spec.isolated),
            message::link_by_name(&spec.host_link),
        ])?
        .into_iter();
    // One outcome for each request, in order.
    let mut next = move || outcomes.next().unwrap_or_else(|| Ok(Vec::new()));
    if let Err(error) = next() {
        return Err(creation_refused(pod, spec, error));
    }
    // From here on the pair is ours, and every failure takes it away.
    let ports = next();
    let created = next();
    ports
        .and_then(|_| may_fail())
        .and(created)
        .and_then(|answers| {
            answers.first().and_then(|answer| parse::link(answer)).map(|(_, link)| link).ok_or_else(|| {
                KernelError::new(Errno::ENODEV as i32, "look up link", spec.host_link.as_str())
            })
        })
        .and_then(|link| {
            // While the pod's end is down.
            spec.shaping.as_ref().map_or(Ok(()), |limits| shaping::apply(host, &link, limits))?;
            configure(pod, spec, &link)
        })
        .map_err(|error| undo(host, spec, error).into())
}

/// A place where a test can make the pair's configuration fail.
#[cfg_attr(not(feature = "failpoints"), allow(clippy::unnecessary_wraps))]
fn may_fail() -> Result<(), KernelError> {
    crate::step!("datapath.attach", KernelError::message("attach", "the pod", "a test made it fail"));
    Ok(())
}

/// The kernel says `EEXIST` for either end.
fn creation_refused(pod: &mut Socket, spec: &PodLinkSpec, error: KernelError) -> AttachError {
    if error.is_exists() && matches!(links::find(pod, &spec.ifname), Ok(Some(_))) {
        return AttachError::InterfaceExists { ifname: spec.ifname.clone() };
    }
    error.into()
}

fn undo(host: &mut Socket, spec: &PodLinkSpec, mut error: KernelError) -> KernelError {
    for link in spec.links() {
        match host.one(message::delete_link_by_name(&link)) {
            Ok(_) => {}
            Err(gone) if gone.is_missing() => {}
            Err(failed) => error = error.and(&format!("and taking it back failed: {failed}")),
        }
    }
    error
}

fn configure(pod: &mut Socket, spec: &PodLinkSpec, host_link: &Link) -> Result<PodLink, KernelError> {
    let missing =
        || KernelError::new(Errno::ENODEV as i32, "find the other end of link", spec.host_link.as_str());
    let index = host_link.peer_index.ok_or_else(missing)?;
    let host_mac = host_link.mac.ok_or_else(missing)?;
    ipv6::ignore_router_advertisements(&spec.ifname)?;
    if spec.addresses.iter().any(|address| address.addr().is_ipv6()) {
        ipv6::enable(&spec.ifname)?;
    }
    let mut requests = vec![message::set_up(message::LOOPBACK, "lo"), message::set_up(index, &spec.ifname)];
    requests.extend(spec.addresses.iter().map(|address| message::add_address(index, &spec.ifname, *address)));
    let before_routes = requests.len();
    requests.extend(
        spec.routes
            .iter()
            .map(|route| message::add_route(index, &spec.ifname, route, !is_reachable(spec, route))),
    );
    let mut skipped_routes = Vec::new();
    for (position, outcome) in pod.batch(requests)?.into_iter().enumerate() {
        match outcome {
            Ok(_) => {}
            // The pod has another interface, and the first route wins.
            Err(error) if position >= before_routes && error.is_exists() => {
                skipped_routes.push(spec.routes[position - before_routes].clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(PodLink { host_index: host_link.index, host_mac, pod_index: index, skipped_routes })
}

/// Whether the interface's addresses already say that the gateway is on the link.
fn is_reachable(spec: &PodLinkSpec, route: &PodRoute) -> bool {
    route.gateway.is_none_or(|gateway| match gateway {
        IpAddr::V6(gateway) if gateway.is_unicast_link_local() => true,
        gateway => spec.addresses.iter().any(|address| address.contains(&gateway)),
    })
}
