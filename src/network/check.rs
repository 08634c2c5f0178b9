//! CHECK: what the kernel holds against what ADD made and what the runtime remembers.

use std::fmt;
use std::os::fd::OwnedFd;

use ipnet::IpNet;

use crate::attachment::{Attachment, State};
use crate::cni::{AddResult, MacAddr};
use crate::datapath::{Link, PodRoute, PodView};

use super::driver::CheckRequest;
use super::{Bridge, Error};

/// One difference, in words that name the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an attachment must look like in the kernel.
#[derive(Debug)]
struct Expected<'a> {
    /// The record.
    attachment: &'a Attachment,
    /// The bridge's index and name.
    bridge: (u32, &'a str),
    /// Hairpin mode and isolation of the host end as the bridge's port.
    flags: (bool, bool),
    /// The routes that ADD set in the pod.
    routes: &'a [PodRoute],
}

/// Names the rules that are not there.
fn against_rules(missing: &[String]) -> Vec<Difference> {
    missing.iter().map(|what| Difference(format!("{what} is gone from nftables"))).collect()
}

/// Names the limits that are not as ADD made them.
fn against_limits(missing: Vec<String>) -> Vec<Difference> {
    missing.into_iter().map(Difference).collect()
}

/// Compares the kernel with the record.
fn against_kernel(expected: &Expected<'_>, view: &PodView) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |text: String| found.push(Difference(text));
    let attachment = expected.attachment;
    let ifname = &attachment.key.ifname;
    match &view.pod {
        None => differs(format!("interface {ifname} is gone from the container")),
        Some(link) => {
            if !link.up {
                differs(format!("interface {ifname} is down"));
            }
            if let Some(mac) = attachment.mac
                && link.mac != Some(mac.octets())
            {
                let has = link.mac.map_or_else(|| "none".to_owned(), |mac| MacAddr::new(mac).to_string());
                differs(format!("interface {ifname} has MAC address {has} instead of {mac}"));
            }
            if let Some(mtu) = attachment.mtu
                && link.mtu != mtu
            {
                differs(format!("interface {ifname} has MTU {} instead of {mtu}", link.mtu));
            }
        }
    }
    if view.pod.is_some() {
        for address in attachment.addresses.iter().filter(|address| !view.addresses.contains(address)) {
            differs(format!("address {address} is gone from {ifname}"));
        }
        for route in expected.routes.iter().filter(|route| !has_route(&view.routes, route)) {
            differs(format!("{} is gone from the container", describe(route)));
        }
    }
    if !view.lo_up {
        differs("interface lo is down in the container".to_owned());
    }
    match &view.host {
        None => differs(format!("host interface {} is gone", attachment.host_link)),
        Some(link) => found.extend(port(expected, link).into_iter().map(Difference)),
    }
    found
}

/// What of the host end is not as a port of the bridge has to be.
fn port(expected: &Expected<'_>, link: &Link) -> Vec<String> {
    let (name, bridge) = (&link.name, expected.bridge.1);
    let mut found = Vec::new();
    if !link.up {
        found.push(format!("host interface {name} is down"));
    }
    if link.master != Some(expected.bridge.0) {
        found.push(format!("host interface {name} is not a port of bridge {bridge}"));
        return found;
    }
    let flags =
        [("hairpin mode", link.hairpin, expected.flags.0), ("isolation", link.isolated, expected.flags.1)];
    for (flag, has, wanted) in flags {
        if has.is_some_and(|has| has != wanted) {
            let is = if wanted { "off instead of on" } else { "on instead of off" };
            found.push(format!("{flag} of host interface {name} is {is}"));
        }
    }
    found
}

fn has_route(routes: &[PodRoute], wanted: &PodRoute) -> bool {
    routes.iter().any(|route| route.dst == wanted.dst && route.gateway == wanted.gateway)
}

fn describe(route: &PodRoute) -> String {
    let target = if route.dst.prefix_len() == 0 {
        "the default route".to_owned()
    } else {
        format!("route {}", route.dst)
    };
    route.gateway.map_or(target.clone(), |gateway| format!("{target} via {gateway}"))
}

/// Compares the leases with the record.
fn against_leases(attachment: &Attachment, leased: &[IpNet]) -> Vec<Difference> {
    attachment
        .addresses
        .iter()
        .filter(|address| !leased.iter().any(|lease| lease.addr() == address.addr()))
        .map(|address| Difference(format!("address {} is not leased to this attachment", address.addr())))
        .collect()
}

/// Compares what the runtime remembers with the record: its own interface's addresses must be ours.
fn against_prev_result(attachment: &Attachment, prev: &AddResult) -> Vec<Difference> {
    let Some(result) = &attachment.result else { return Vec::new() };
    let mut found = Vec::new();
    for ip in &result.ips {
        if !prev.ips.iter().any(|other| other.address == ip.address) {
            found.push(Difference(format!("prevResult lacks address {}", ip.address)));
        }
    }
    for interface in result.interfaces.iter().filter(|interface| interface.sandbox.is_some()) {
        // Results before 0.3.0 have no interfaces.
        if !prev.interfaces.is_empty() && !prev.interfaces.iter().any(|other| other.name == interface.name) {
            found.push(Difference(format!("prevResult lacks interface {}", interface.name)));
        }
    }
    found
}

impl Bridge {
    /// How the attachment differs from what ADD made, in the kernel and in the leases.
    pub(super) async fn differences(
        &self,
        attachment: &Attachment,
        netns: OwnedFd,
    ) -> Result<Vec<Difference>, Error> {
        let view = self.kernel.inspect(attachment.key.ifname.as_str(), netns, &attachment.host_link).await?;
        let leased: Vec<IpNet> = self
            .table
            .borrow()
            .pool
            .leases_of(&attachment.key)
            .iter()
            .filter_map(|lease| IpNet::new(lease.address, lease.prefix_len).ok())
            .collect();
        let routes: Vec<PodRoute> = attachment
            .result
            .iter()
            .flat_map(|result| &result.routes)
            .map(|route| PodRoute {
                dst: route.dst,
                gateway: route.gw,
                priority: None,
                mtu: None,
                advmss: None,
            })
            .collect();
        let expected = Expected {
            attachment,
            bridge: (self.index.get(), &self.settings.bridge),
            flags: (self.settings.hairpin, self.settings.isolated),
            routes: &routes,
        };
        let mut found = against_kernel(&expected, &view);
        found.extend(against_leases(attachment, &leased));
        found.extend(against_rules(&self.missing_rules(attachment).await?));
        found.extend(against_limits(self.missing_limits(attachment).await?));
        Ok(found)
    }

    /// CHECK.
    pub(super) async fn compare(&self, request: CheckRequest) -> Result<(), Error> {
        let _turn = self.queue.turn(&request.key).await;
        let attachment = self
            .table
            .borrow()
            .get(&request.key)
            .filter(|attachment| attachment.state == State::Ready)
            .cloned()
            .ok_or_else(|| Error::UnknownAttachment(request.key.to_string()))?;
        let mut found = self.differences(&attachment, request.netns).await?;
        // Not in `differences`: an ADD again does not make a pod's link anew for what a repair is under way for.
        if !self.kernel.table_intact().await? {
            if !self.settings.block.is_empty() {
                found.extend(against_rules(&["the block list as configured".to_owned()]));
            }
            let what =
                "a table of hostcni's was changed by somebody else: masquerading and host ports may be gone";
            found.push(Difference(format!("{what} (it is loaded again)")));
        }
        if let Some(prev) = &request.prev_result {
            found.extend(against_prev_result(&attachment, prev));
        }
        if found.is_empty() { Ok(()) } else { Err(Error::Differs(found)) }
    }
}
