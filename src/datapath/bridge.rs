//! The bridge: made as it must be, or an existing one adopted and repaired. What else it has is left alone.

use std::collections::BTreeSet;

use ipnet::IpNet;
use nix::errno::Errno;

use super::socket::Socket;
use super::{BridgeReport, BridgeSpec, KernelError, Link, ipv6, links, message, parse};

/// Makes the bridge be as the specification says, and tells what had to be done.
pub(super) fn ensure(socket: &mut Socket, spec: &BridgeSpec) -> Result<BridgeReport, KernelError> {
    let wants_ipv6 = spec.addresses.iter().any(|address| address.addr().is_ipv6());
    let found = links::find(socket, &spec.name)?;
    if wants_ipv6 {
        ipv6::require(if found.is_some() { &spec.name } else { "default" }, &spec.name)?;
    }
    let created = found.is_none();
    let link = match found {
        Some(link) => link,
        None => create(socket, spec)?,
    };
    refuse_what_is_no_bridge(&link, spec)?;
    let mut changes = Vec::new();
    // Before it goes up: a pod must not be able to make the node take a route from it.
    if ipv6::ignore_router_advertisements(&spec.name)? {
        changes.push("router advertisements are ignored from now on".to_owned());
    }
    repair_link(socket, &link, spec, &mut changes)?;
    let other_addresses = repair_addresses(socket, &link, spec, &mut changes)?;
    if created {
        changes.clear();
    }
    Ok(BridgeReport { index: link.index, created, changes, other_addresses })
}

fn create(socket: &mut Socket, spec: &BridgeSpec) -> Result<Link, KernelError> {
    match socket.one(message::create_bridge(&spec.name, spec.mac)) {
        Ok(_) => {}
        // Somebody was quicker: adopt what they made.
        Err(error) if error.is_exists() => {}
        Err(error) => return Err(error),
    }
    links::find(socket, &spec.name)?.ok_or_else(|| {
        KernelError::new(Errno::ENODEV as i32, "create bridge", spec.name.as_str())
            .with_text("it was deleted at once by somebody else")
    })
}

fn refuse_what_is_no_bridge(link: &Link, spec: &BridgeSpec) -> Result<(), KernelError> {
    match link.kind.as_deref() {
        Some("bridge") => Ok(()),
        kind => Err(KernelError::new(Errno::EEXIST as i32, "use as bridge the link", spec.name.as_str())
            .with_text(format!(
                "it is a {}; delete or rename it, or choose another name for the bridge",
                kind.unwrap_or("device")
            ))),
    }
}

fn repair_link(
    socket: &mut Socket,
    link: &Link,
    spec: &BridgeSpec,
    changes: &mut Vec<String>,
) -> Result<(), KernelError> {
    if link.mac != Some(spec.mac) {
        socket.one(message::set_mac(link.index, &spec.name, spec.mac))?;
        changes.push("MAC address set".to_owned());
    }
    // Set once by name, the MTU no longer follows the smallest of the ports.
    if link.mtu != spec.mtu {
        socket.one(message::set_mtu(link.index, &spec.name, spec.mtu))?;
        changes.push(format!("MTU set from {} to {}", link.mtu, spec.mtu));
    }
    if !link.up {
        socket.one(message::set_up(link.index, &spec.name))?;
        changes.push("set up".to_owned());
    }
    Ok(())
}

/// Adds the addresses that are missing; gives those that were there beside.
fn repair_addresses(
    socket: &mut Socket,
    link: &Link,
    spec: &BridgeSpec,
    changes: &mut Vec<String>,
) -> Result<Vec<IpNet>, KernelError> {
    let present = addresses(socket, link.index)?;
    for address in spec.addresses.iter().filter(|address| !present.contains(address)) {
        match socket.one(message::add_address(link.index, &spec.name, *address)) {
            Ok(_) => changes.push(format!("address {address} added")),
            Err(error) if error.is_exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(present.into_iter().filter(|address| !spec.addresses.contains(address)).collect())
}

/// The addresses of a link, IPv6 link-local ones left out.
pub(super) fn addresses(socket: &mut Socket, index: u32) -> Result<BTreeSet<IpNet>, KernelError> {
    let answers = socket.dump(message::addresses(index))?;
    Ok(answers
        .iter()
        .filter_map(|answer| parse::address(answer))
        .filter(|(of, address)| *of == index && !is_link_local(address))
        .map(|(_, address)| address)
        .collect())
}

fn is_link_local(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(net) if net.addr().is_unicast_link_local())
}
