//! What of IPv6 is set by files under `/proc/sys/net` and not by netlink. They show the network namespace
//! of the thread that opens them.

use std::fs::File;
use std::io::{self, Read, Write};
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
    Ok(set(&file(link, "accept_ra"), "0")?.unwrap_or(false))
}

/// Switches IPv6 on for a link of a pod (some runtimes start a pod with IPv6 off).
pub(super) fn enable(link: &str) -> Result<(), KernelError> {
    match set(&file(link, "disable_ipv6"), "0")? {
        Some(_) => Ok(()),
        None => require(link, link),
    }
}

/// The value, which for all that are read here is one digit.
fn read(path: &Path) -> io::Result<String> {
    // Plain reads: a `read_to_string` asks for the size first and reads to the end, three calls more.
    let mut value = [0; 16];
    let length = File::open(path)?.read(&mut value)?;
    Ok(String::from_utf8_lossy(&value[..length]).trim().to_owned())
}

/// Sets a value that is not set yet and says whether it was not; none when there is no such setting.
fn set(path: &Path, value: &str) -> Result<Option<bool>, KernelError> {
    let change = || {
        if read(path)? == value {
            return Ok(Some(false));
        }
        File::options().write(true).open(path)?.write_all(value.as_bytes())?;
        Ok(Some(true))
    };
    change().or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(KernelError::from_io(&error, "set sysctl", path.display().to_string())),
    })
}
