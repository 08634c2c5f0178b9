//! What of IPv6 is set for a link by `/proc/sys/net` and not by netlink, in the network namespace of the
//! calling thread.

use std::path::Path;

use nix::libc;

use super::{KernelError, sysctl};

fn key(link: &str, setting: &str) -> String {
    format!("ipv6/conf/{link}/{setting}")
}

/// An error, in the operator's words, when IPv6 is switched off for the kernel or for the link.
/// `settings_of` is the link, or `default` before there is one.
pub(super) fn require(settings_of: &str, link: &str) -> Result<(), KernelError> {
    let off =
        |text: String| Err(KernelError::new(libc::EAFNOSUPPORT, "use IPv6 on link", link).with_text(text));
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return off("this kernel runs without IPv6 (ipv6.disable=1): enable it, or use IPv4 addresses only"
            .to_owned());
    }
    match sysctl::get(&key(settings_of, "disable_ipv6")) {
        Ok(value) if value == "1" => off(format!(
            "IPv6 is switched off (sysctl net.ipv6.conf.{settings_of}.disable_ipv6 = 1): set it to 0, or use \
             IPv4 addresses only"
        )),
        _ => Ok(()),
    }
}

/// Switches router advertisements off for a link, if the kernel has IPv6; says whether that changed
/// anything.
pub(super) fn ignore_router_advertisements(link: &str) -> Result<bool, KernelError> {
    match sysctl::set(&key(link, "accept_ra"), "0") {
        Err(error) if error.is_missing() => Ok(false),
        result => result,
    }
}

/// Lets the link go on taking router advertisements when the node begins to forward: then `accept_ra=1` means no
/// longer (`ipv6_accept_ra` in the kernel's `net/ipv6.h`), and 2 does. Only where it took them until now.
pub(super) fn keep_router_advertisements(link: &str) -> Result<Option<sysctl::Change>, KernelError> {
    let is = |setting: &str, value: &str| match sysctl::get(&key(link, setting)) {
        Ok(found) => Ok(found == value),
        // No IPv6 on this link, or no link any more.
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    };
    if !is("accept_ra", "1")? || !is("forwarding", "0")? {
        return Ok(None);
    }
    match sysctl::replace(&key(link, "accept_ra"), "2") {
        Err(error) if error.is_missing() => Ok(None),
        result => result,
    }
}

/// Whether the node forwards IPv6.
pub(super) fn forwards() -> Result<bool, KernelError> {
    match sysctl::get(&key("all", "forwarding")) {
        Ok(value) => Ok(value != "0"),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Switches IPv6 on for a link of a pod (some runtimes start a pod with IPv6 off).
pub(super) fn enable(link: &str) -> Result<(), KernelError> {
    match sysctl::set(&key(link, "disable_ipv6"), "0") {
        Err(error) if error.is_missing() => require(link, link),
        result => result.map(drop),
    }
}
