//! Settings and limits of the kernel and of the disk.

use std::path::Path;

use super::Findings;
use super::scene::{Scene, json};
use crate::datapath::sysctl;

/// Whether a setting below `/proc/sys/net` has that value.
fn is(name: &str, value: &str) -> bool {
    sysctl::get(name).is_ok_and(|now| now == value)
}

/// Forwarding is on for the families of networks that want it.
pub fn forwarding(scene: &Scene, found: &mut Findings) {
    for bridge in scene.bridges().filter(|bridge| bridge.forwarding) {
        for (ipv4, name) in [(true, "ipv4/ip_forward"), (false, "ipv6/conf/all/forwarding")] {
            if bridge.has_family(ipv4) && is(name, "0") {
                let remedy =
                    "systemctl restart hostcni sets it; look for who switches it off in /etc/sysctl.d";
                found.error(
                    format!("net.{} is 0: pods reach nothing beyond the node", name.replace('/', ".")),
                    remedy,
                );
            }
        }
    }
}

/// The bridge is there and up, and strict reverse path filtering is not on for it.
pub fn bridge(scene: &Scene, found: &mut Findings) {
    let Some(links) = json("ip", &["-j", "link", "show", "type", "bridge"]) else {
        return found.warning("`ip` says nothing", "install iproute2");
    };
    let links = links.as_array().cloned().unwrap_or_default();
    for bridge in scene.bridges() {
        match links.iter().find(|link| link["ifname"] == bridge.bridge.as_str()) {
            None => {
                found
                    .error(format!("the bridge {} is not there", bridge.bridge), "systemctl restart hostcni");
            }
            Some(link) if !link["flags"].to_string().contains("\"UP\"") => {
                found.error(
                    format!("the bridge {} is down", bridge.bridge),
                    format!("ip link set {} up", bridge.bridge),
                );
            }
            Some(_) => {}
        }
        let strict = |name: &str| is(&format!("ipv4/conf/{name}/rp_filter"), "1");
        if strict("all") || strict(&bridge.bridge) {
            let reason = format!(
                "reverse path filtering is strict on {}: a pod with two networks loses answers",
                bridge.bridge
            );
            found.warning(reason, format!("sysctl net.ipv4.conf.{}.rp_filter=2", bridge.bridge));
        }
    }
    if scene.bridges().any(|bridge| bridge.has_family(false)) && is("bridge/bridge-nf-call-ip6tables", "1") {
        let reason = "br_netfilter passes IPv6 frames to ip6tables: host ports do not answer on ::1";
        found.warning(reason, "sysctl net.bridge.bridge-nf-call-ip6tables=0, unless kube-proxy needs it");
    }
}

/// The files that keep udev, networkd and NetworkManager off.
pub fn udev(_: &Scene, found: &mut Findings) {
    for (file, what) in [
        ("systemd/network/70-hostcni.link", "udev may give links another MAC address"),
        ("systemd/network/70-hostcni.network", "systemd-networkd may configure them"),
        ("NetworkManager/conf.d/80-hostcni.conf", "NetworkManager may manage them"),
    ] {
        if !Path::new("/usr/lib").join(file).exists() {
            found.warning(format!("/usr/lib/{file} is not there: {what}"), "install hostcni again");
        }
        let masked = Path::new("/etc").join(file);
        if masked.exists() {
            found.warning(
                format!("{} overrides hostcni's", masked.display()),
                format!("rm {}", masked.display()),
            );
        }
    }
}

/// Connection tracking and the neighbour table have room.
pub fn limits(_: &Scene, found: &mut Findings) {
    let number = |name: &str| sysctl::get(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let (Some(used), Some(most)) =
        (number("netfilter/nf_conntrack_count"), number("netfilter/nf_conntrack_max"))
        && used * 10 > most * 9
    {
        let reason = format!("{used} of {most} connections are tracked: new ones will be dropped");
        found.warning(reason, "sysctl net.netfilter.nf_conntrack_max, larger");
    }
    for family in ["ipv4", "ipv6"] {
        let Some(most) = number(&format!("{family}/neigh/default/gc_thresh3")) else { continue };
        let flag = if family == "ipv4" { "-4" } else { "-6" };
        let used = json("ip", &["-j", flag, "neighbour", "show"]).and_then(|it| it.as_array().map(Vec::len));
        if used.is_some_and(|used| used as u64 * 10 > most * 9) {
            let reason = format!("the {family} neighbour table is nearly full ({most})");
            found.warning(reason, format!("sysctl net.{family}.neigh.default.gc_thresh3, larger"));
        }
    }
}

/// The directories that have to take something have room, in bytes and in files.
pub fn disk(scene: &Scene, found: &mut Findings) {
    let Ok(settings) = &scene.settings else { return };
    let paths = &settings.paths;
    for directory in [&paths.spool_dir, &paths.delegated_dir, &paths.state_dir] {
        let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
        let Ok(stat) = rustix::fs::statvfs(existing) else { continue };
        let remedy = format!("make room: df -h {0}; df -i {0}", existing.display());
        if stat.f_bavail * stat.f_frsize < 16 << 20 {
            found.error(format!("{}: less than 16 MiB are free", existing.display()), remedy.clone());
        }
        if stat.f_files > 0 && stat.f_favail < 1000 {
            found.error(format!("{}: fewer than 1000 files can be made", existing.display()), remedy);
        }
    }
}
