//! How a pod's link looks now, in the pod and on the node. Changes nothing.

use std::os::fd::OwnedFd;

use super::namespace_jobs::Door;
use super::socket::Socket;
use super::{KernelError, Link, LinkView, PodView, bridge, links, message};

/// Reads everything about a pod's interface and its host end.
pub(super) fn inspect(
    door: &Door,
    host: &mut Socket,
    ifname: &str,
    netns: &OwnedFd,
    host_link: &str,
) -> Result<PodView, KernelError> {
    let host = links::find(host, host_link)?;
    let (entered, mut pod) = door.enter_checked(netns)?;
    drop(entered);
    let lo_up = links::find(&mut pod, "lo")?.is_some_and(|lo| lo.up);
    let mut view = PodView {
        pod: None,
        addresses: Vec::new(),
        routes: Vec::new(),
        other_routes: Vec::new(),
        host,
        lo_up,
    };
    let Some(link) = links::find(&mut pod, ifname)? else { return Ok(view) };
    view.addresses = bridge::addresses(&mut pod, link.index)?.into_iter().collect();
    read_routes(&mut pod, link.index, &mut view)?;
    view.pod = Some(to_view(link));
    Ok(view)
}

fn read_routes(pod: &mut Socket, index: u32, view: &mut PodView) -> Result<(), KernelError> {
    for family in [message::V4, message::V6] {
        for route in links::routes(pod, family)? {
            if route.interface != Some(index) {
                view.other_routes.push(route.what);
            } else if !route.from_kernel {
                view.routes.push(route.what);
            }
        }
    }
    Ok(())
}

fn to_view(link: Link) -> LinkView {
    LinkView {
        index: link.index,
        name: link.name,
        kind: link.kind,
        mac: link.mac,
        mtu: link.mtu,
        up: link.up,
        peer_index: link.peer_index,
    }
}
