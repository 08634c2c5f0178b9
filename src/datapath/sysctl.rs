//! Kernel settings below `/proc/sys/net`, of the network namespace of the calling thread.
//!
//! Promises to write only what differs (so a read-only `/proc/sys` that already says the right thing is
//! fine), and to tell what it changed. Names are paths relative to `/proc/sys/net`, with slashes, since an
//! interface's name may hold dots: `ipv4/conf/eth0.5/forwarding`.

use std::fmt;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use nix::libc;

use super::error::{KernelError, Result};

const ROOT: &str = "/proc/sys/net";

/// A value that [`ensure`] replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The setting, relative to `/proc/sys/net`.
    pub name: String,
    /// What it was.
    pub was: String,
    /// What it is now.
    pub now: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net/{}: {} -> {}", self.name, self.was, self.now)
    }
}

/// The value of a setting, without the line's end. ENOENT: this kernel, or this namespace, does not have it.
pub fn get(name: &str) -> Result<String> {
    let path = path(name, "read sysctl")?;
    let value = read(&path).map_err(|e| KernelError::from_io(&e, "read sysctl", object(name)))?;
    Ok(value.trim().to_owned())
}

/// The whole file by one read: the kernel gives a value at once. One that fills the buffer may go on.
fn read(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut value = vec![0; 128];
    let length = file.read(&mut value)?;
    let full = length == value.len();
    value.truncate(length);
    if full {
        file.read_to_end(&mut value)?;
    }
    String::from_utf8(value).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Gives a setting a value; tells whether it had another one.
pub fn set(name: &str, value: &str) -> Result<bool> {
    Ok(replace(name, value)?.is_some())
}

/// Gives several settings their values. Goes on after a failure; gives what was changed and what failed.
pub fn ensure<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Vec<Change>, Vec<KernelError>) {
    let (mut changes, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in settings {
        match replace(name, value) {
            Ok(change) => changes.extend(change),
            Err(error) => errors.push(error),
        }
    }
    (changes, errors)
}

/// Gives a setting its value; what was there if that was another.
pub(super) fn replace(name: &str, value: &str) -> Result<Option<Change>> {
    let was = get(name)?;
    if was == value {
        return Ok(None);
    }
    let path = path(name, "set sysctl")?;
    // One write: the kernel takes each write for a whole value. Never created: procfs has no new files.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    written.map_err(|e| KernelError::from_io(&e, "set sysctl", format!("{} to {value}", object(name))))?;
    Ok(Some(Change { name: name.to_owned(), was, now: value.to_owned() }))
}

fn object(name: &str) -> String {
    format!("net/{name}")
}

/// The file; refuses what would leave `/proc/sys/net`.
fn path(name: &str, operation: &'static str) -> Result<PathBuf> {
    let relative = Path::new(name);
    let inside = !name.is_empty() && relative.components().all(|part| matches!(part, Component::Normal(_)));
    if inside {
        Ok(Path::new(ROOT).join(relative))
    } else {
        Err(KernelError::new(libc::EINVAL, operation, object(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read() {
        assert!(["0", "1"].contains(&get("ipv4/ip_forward").unwrap().as_str()));
    }

    #[test]
    fn a_value_longer_than_most_is_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        for length in [0, 1, 127, 128, 129, 5000] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            assert_eq!(read(&path).unwrap().len(), length);
        }
    }

    #[test]
    fn a_value_that_is_there_is_not_written() {
        let value = get("ipv4/ip_forward").unwrap();
        assert!(!set("ipv4/ip_forward", &value).unwrap());
        assert_eq!(ensure([("ipv4/ip_forward", value.as_str())]), (vec![], vec![]));
    }

    #[test]
    fn nothing_outside_is_reached_and_a_missing_setting_is_told() {
        for name in ["", "../kernel/hostname", "/etc/passwd", "ipv4/../../kernel/hostname"] {
            assert_eq!(get(name).unwrap_err().errno, libc::EINVAL, "{name}");
        }
        let error = get("ipv4/conf/nosuchlink/forwarding").unwrap_err();
        assert!(error.is_missing());
        assert!(error.to_string().contains("net/ipv4/conf/nosuchlink/forwarding"), "{error}");
    }
}
