//! From the merged input to settings: what needs more than one value to judge.

use super::delegate;
use super::firewall;
use super::fragment::{Driver, NetworkInput, RouteFragment, Table};
use super::input::Input;
use super::model::{
    BridgeSettings, ConfSettings, DriverSettings, Limits, LogSettings, NetworkSettings, Paths, Settings,
    bridge_mac,
};
use super::problem::{Origin, Problem, SettingsError};
use super::ranges::Ranges;
use crate::cni::{Bounds, Dns, Route};
use ipnet::IpNet;
use std::path::Path;
use toml::Spanned;

/// The settings, or everything that keeps them from being used.
pub(super) fn settings(input: &Input) -> Result<Settings, SettingsError> {
    let mut problems = Vec::new();
    let mut networks = Vec::new();
    for network in &input.networks {
        let mut own = Vec::new();
        networks.extend(network_settings(network, bounds(input), &mut own));
        let name = network.name.get().to_string();
        problems.extend(own.into_iter().map(|problem| Problem { network: Some(name.clone()), ..problem }));
    }
    across(input, &mut problems);
    places(input, &mut problems);
    if !problems.is_empty() {
        return Err(SettingsError::new(problems));
    }
    Ok(Settings {
        paths: Paths {
            socket: input.paths.socket.get().0.clone(),
            state_dir: input.paths.state_dir.get().0.clone(),
            spool_dir: input.paths.spool_dir.get().0.clone(),
            delegated_dir: input.paths.delegated_dir.get().0.clone(),
            netns_dir: input.paths.netns_dir.get().0.clone(),
        },
        log: LogSettings { filter: input.log.filter.get().0.clone() },
        limits: Limits {
            max_connections: whole(input.limits.max_connections.get().0),
            idle_timeout: input.limits.idle_timeout.get().0,
        },
        bounds: bounds(input),
        networks,
        workers: whole(input.server.workers.get().0),
        stop_timeout: input.server.stop_timeout.get().0,
    })
}

fn bounds(input: &Input) -> Bounds {
    let bounds = &input.bounds;
    Bounds {
        add: bounds.add.get().0,
        del: bounds.del.get().0,
        check: bounds.check.get().0,
        status: bounds.status.get().0,
        gc: bounds.gc.get().0,
    }
}

/// A `u32` as a size; there is no Linux with less than 32 bits.
fn whole(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A network's settings; none when a problem was told that leaves nothing to put there.
fn network_settings(
    input: &NetworkInput,
    bounds: Bounds,
    problems: &mut Vec<Problem>,
) -> Option<NetworkSettings> {
    let conf = &input.conf;
    Some(NetworkSettings {
        name: input.name.get().clone(),
        driver: match input.driver.get() {
            Driver::Bridge => DriverSettings::Bridge(Box::new(bridge_settings(input, problems))),
            Driver::Delegate => {
                DriverSettings::Delegate(Box::new(delegate::settings(input, bounds, problems)?))
            }
        },
        conf: ConfSettings {
            path: conf.path.get().0.clone(),
            cni_version: *conf.cni_version.get(),
            restart: *conf.restart.get(),
            restart_grace: conf.restart_grace.get().0,
            foreign: *conf.foreign.get(),
        },
    })
}

fn bridge_settings(input: &NetworkInput, problems: &mut Vec<Problem>) -> BridgeSettings {
    let ranges = Ranges::build(input, problems);
    let subnets = ranges.subnets();
    let mac = input.mac.get().unwrap_or_else(|| bridge_mac(input.name.get()));
    let mtu = input.mtu.get().map(|mtu| mtu.0);
    if mtu.is_some_and(|mtu| mtu < 1280) && subnets.iter().any(|net| net.addr().is_ipv6()) {
        problems.push(
            input.mtu.problem("network.mtu", "too small for IPv6, which needs 1280 (RFC 8200, section 5)"),
        );
    }
    let overhead = input.mtu_overhead.get().0;
    if let Some(mtu) = mtu.filter(|_| overhead > 0) {
        problems.push(input.mtu_overhead.problem(
            "network.mtu_overhead",
            format!(
                "set together with mtu = {mtu} ({}), which is used as it is: set one of them",
                input.mtu.origin()
            ),
        ));
    }
    let routes = routes(input, &subnets, problems);
    let block = firewall::block(input, &ranges.sets(), problems);
    let dns = &input.dns;
    BridgeSettings {
        bridge: input.bridge.get().0.to_string(),
        mac,
        mtu,
        mtu_overhead: overhead,
        ranges: ranges.sets(),
        masquerade: *input.masquerade.get(),
        no_masquerade: input.no_masquerade.get().iter().map(|net| net.get_ref().0).collect(),
        hairpin: *input.hairpin.get(),
        isolated: *input.isolated.get(),
        anti_spoofing: *input.anti_spoofing.get(),
        routes,
        dns: Dns {
            nameservers: dns.nameservers.get().iter().map(|server| server.get_ref().0.to_string()).collect(),
            domain: dns.domain.get().as_ref().map(|domain| domain.0.clone()),
            search: dns.search.get().iter().map(|domain| domain.get_ref().0.clone()).collect(),
            options: dns.options.get().iter().map(|option| option.get_ref().0.clone()).collect(),
        },
        forwarding: *input.forwarding.get(),
        block,
        accept_forward: firewall::accept_forward(input, problems),
        firewalld_zone: input.firewalld_zone.get().0.clone(),
    }
}

fn routes(input: &NetworkInput, subnets: &[IpNet], problems: &mut Vec<Problem>) -> Vec<Route> {
    let mut routes = Vec::new();
    for entry in input.route.get() {
        match route(entry, subnets) {
            Ok(route) => routes.push(route),
            Err((option, message)) => {
                let Table(fragment) = entry.get_ref();
                let key = format!("network.route.{option}");
                problems.push(match (option, &fragment.dst, &fragment.gateway) {
                    ("dst", Some(dst), _) => input.route.problem_in(dst, &key, message),
                    ("gateway", _, Some(gateway)) => input.route.problem_in(gateway, &key, message),
                    _ => Problem { key, ..Problem::at(input.route.origin_in(entry), message) },
                });
            }
        }
    }
    routes
}

/// A route, or the option that is wrong and why.
fn route(entry: &Spanned<Table<RouteFragment>>, subnets: &[IpNet]) -> Result<Route, (&'static str, String)> {
    let Table(fragment) = entry.get_ref();
    let Some(dst) = fragment.dst.as_ref().map(|dst| dst.get_ref().0) else {
        return Err((
            "dst",
            "not set: every route needs its destination, such as dst = \"192.0.2.0/24\"".into(),
        ));
    };
    let gateway = fragment.gateway.as_ref().map(|gateway| gateway.get_ref().0);
    match gateway {
        Some(gateway) if gateway.is_ipv4() != dst.addr().is_ipv4() => {
            return Err(("gateway", format!("not of the same family as the destination {dst}")));
        }
        Some(gateway) if !subnets.iter().any(|net| net.contains(&gateway)) => {
            return Err(("gateway", "in none of the network's subnets: pods cannot reach it".into()));
        }
        None if !subnets.iter().any(|net| net.addr().is_ipv4() == dst.addr().is_ipv4()) => {
            return Err(("dst", "of a family that the network has no addresses of".into()));
        }
        _ => {}
    }
    Ok(Route {
        dst,
        gw: gateway,
        mtu: fragment.mtu.as_ref().map(|mtu| mtu.get_ref().0),
        advmss: fragment.advmss.as_ref().map(|advmss| advmss.get_ref().0),
        priority: fragment.priority.as_ref().map(|priority| priority.get_ref().0),
        table: None,
        scope: None,
    })
}

/// What two networks cannot share.
fn across(input: &Input, problems: &mut Vec<Problem>) {
    for (index, later) in input.networks.iter().enumerate() {
        let mut found = Vec::new();
        let earlier = &input.networks[..index];
        let has_bridge = |network: &&NetworkInput| *network.driver.get() == Driver::Bridge;
        let bridges: Vec<&NetworkInput> =
            if has_bridge(&later) { earlier.iter().filter(has_bridge).collect() } else { Vec::new() };
        let told = |network: &NetworkInput, origin: Origin| {
            format!("network {} ({origin}) has it too: each needs its own", network.name.get())
        };
        if let Some(other) = bridges.iter().find(|it| it.bridge.get() == later.bridge.get()) {
            found.push(later.bridge.problem("network.bridge", told(other, other.bridge.origin())));
        }
        if let Some(other) = earlier.iter().find(|it| it.conf.path.get() == later.conf.path.get()) {
            found.push(later.conf.path.problem("network.conf.path", told(other, other.conf.path.origin())));
        }
        for other in bridges {
            // What is wrong with the ranges of either by itself has been told.
            let ranges = |network| Ranges::build(network, &mut Vec::new());
            found.extend(ranges(later).shared_with(&ranges(other), other.name.get().as_str()));
        }
        let name = later.name.get().to_string();
        problems.extend(found.into_iter().map(|problem| Problem { network: Some(name.clone()), ..problem }));
    }
}

/// Directories that hostcni sweeps must hold nothing else: unknown files in them are set aside.
fn places(input: &Input, problems: &mut Vec<Problem>) {
    let (state, spool, socket) = (&input.paths.state_dir, &input.paths.spool_dir, &input.paths.socket);
    let (delegated, netns) = (&input.paths.delegated_dir, &input.paths.netns_dir);
    let swept: [(&Path, &str); 4] = [
        (&state.get().0, "paths.state_dir"),
        (&spool.get().0, "paths.spool_dir"),
        (&delegated.get().0, "paths.delegated_dir"),
        (&netns.get().0, "paths.netns_dir"),
    ];
    let mut check = |path: &Path, key: &str, problem: &dyn Fn(String) -> Problem| {
        for (directory, other) in swept {
            if other != key && path.starts_with(directory) {
                problems.push(problem(format!(
                    "inside {other} ({}), which must hold nothing else",
                    directory.display()
                )));
            }
        }
    };
    check(&state.get().0, "paths.state_dir", &|message| state.problem("paths.state_dir", message));
    check(&spool.get().0, "paths.spool_dir", &|message| spool.problem("paths.spool_dir", message));
    check(&delegated.get().0, "paths.delegated_dir", &|message| {
        delegated.problem("paths.delegated_dir", message)
    });
    check(&netns.get().0, "paths.netns_dir", &|message| netns.problem("paths.netns_dir", message));
    check(&socket.get().0, "paths.socket", &|message| socket.problem("paths.socket", message));
    for network in &input.networks {
        let path = &network.conf.path;
        check(&path.get().0, "network.conf.path", &|message| path.problem("network.conf.path", message));
    }
}
