//! What of IPv6 is set by files under `/proc/sys/net` and not by netlink. They show the network namespace
//! of the thread that opens them.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::KernelError;

const DIRECTORY: &str = "/proc/sys/net/ipv6";

fn file(link: &str, key: &str) -> PathBuf {
    Path::new(DIRECTORY).join("conf").join(link).join(key)
}

/// Whether the kernel has IPv6 at all.
fn exists() -> bool {
    Path::new(DIRECTORY).exists()
}

/// An error, in the operator's words, when IPv6 is switched off for the kernel or for the link.
/// `settings_of` is the link, or `default` before there is one.
pub(super) fn require(settings_of: &str, link: &str) -> Result<(), KernelError> {
    let off =
        |text: String| KernelError::new(Errno::EAFNOSUPPORT as i32, "use IPv6 on link", link).with_text(text);
    if !exists() {
        return Err(off(
            "this kernel runs without IPv6 (ipv6.disable=1): enable it, or use IPv4 addresses only"
                .to_owned(),
        ));
    }
    match read(&file(settings_of, "disable_ipv6")) {
        Ok(value) if value == "1" => Err(off(format!(
            "IPv6 is switched off (sysctl net.ipv6.conf.{settings_of}.disable_ipv6 = 1): set it to 0, or use \
             IPv4 addresses only"
        ))),
        _ => Ok(()),
    }
}

/// Switches router advertisements off for a link, if the kernel has IPv6; says whether that changed
/// anything.
pub(super) fn ignore_router_advertisements(link: &str) -> Result<bool, KernelError> {
    if !exists() {
        return Ok(false);
    }
    set(&file(link, "accept_ra"), "0")
}

/// Switches IPv6 on for a link of a pod (some runtimes start a pod with IPv6 off).
pub(super) fn enable(link: &str) -> Result<(), KernelError> {
    if !exists() {
        return require(link, link);
    }
    set(&file(link, "disable_ipv6"), "0").map(drop)
}

fn read(path: &Path) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

fn set(path: &Path, value: &str) -> Result<bool, KernelError> {
    let fail = |error: io::Error| KernelError::from_io(&error, "set sysctl", path.display().to_string());
    if read(path).map_err(fail)? == value {
        return Ok(false);
    }
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(fail)?;
    Ok(true)
}
