//! The directory in which `host-local` keeps the addresses of a network; openshift-sdn's is one as well.
//!
//! A file for each address, named after it, holding the container's ID and, since 0.8, the interface's name on a
//! second line; besides `last_reserved_ip.N` and `lock`.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use crate::cni::{ContainerId, IfName};

/// No file of the directory is larger.
const MAX_FILE: u64 = 4096;
/// An address this young may belong to an ADD that is not done.
const YOUNG: Duration = Duration::from_secs(60);

/// An address that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: IpAddr,
    /// Whose it is.
    pub container: ContainerId,
    /// The interface in it; older versions did not say.
    pub ifname: Option<IfName>,
    /// Whether its ADD may still be under way.
    pub young: bool,
    /// The file.
    pub path: PathBuf,
}

/// What is in the directory.
#[derive(Debug, Default)]
pub struct Found {
    /// The addresses, in their order.
    pub entries: Vec<Entry>,
    /// Files that are no entry, and why.
    pub malformed: Vec<(PathBuf, String)>,
}

/// Reads the directory.
pub fn read(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name == "lock" || name.starts_with("last_reserved_ip.") {
            continue;
        }
        match entry(&path, &name) {
            Ok(Some(entry)) => found.entries.push(entry),
            Ok(None) => {}
            Err(why) => found.malformed.push((path, why)),
        }
    }
    found.entries.sort_by_key(|entry| entry.address);
    found.malformed.sort();
    Ok(found)
}

/// The entry in a file; none when it went away meanwhile.
fn entry(path: &Path, name: &str) -> Result<Option<Entry>, String> {
    let address: IpAddr = name.parse().map_err(|_| "its name is no address".to_owned())?;
    let (text, modified) = match text(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        outcome => outcome.map_err(|error| error.to_string())?,
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let container = lines.next().ok_or_else(|| "it is empty".to_owned())?;
    let container = container.parse().map_err(|error| format!("{error}"))?;
    let ifname = lines.next().map(|line| line.parse().map_err(|error| format!("{error}"))).transpose()?;
    let young = SystemTime::now().duration_since(modified).is_ok_and(|age| age < YOUNG);
    Ok(Some(Entry { address, container, ifname, young, path: path.to_owned() }))
}

/// Never waits, whatever lies there.
fn text(path: &Path) -> io::Result<(String, SystemTime)> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok((text, about.modified()?))
}

/// Removes the entries that still say the same, under the lock that `host-local` takes itself; says how many.
pub fn remove(directory: &Path, entries: &[&Entry]) -> io::Result<usize> {
    let lock = File::options().create(true).truncate(false).write(true).open(directory.join("lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        io::Error::other(format!("host-local is at work in {}: {errno}", directory.display()))
    })?;
    let mut removed = 0;
    for old in entries {
        let name = old.address.to_string();
        let now = entry(&old.path, &name).map_err(io::Error::other)?;
        if now.is_some_and(|now| now.container == old.container && now.ifname == old.ifname) {
            fs::remove_file(&old.path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test says what it expects by failing

    use super::*;

    #[test]
    fn every_kind_of_file_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("lock", "");
        write("last_reserved_ip.0", "10.88.0.5");
        write("10.88.0.5", "c1\r\neth0");
        write("10.88.0.4", "old");
        write("fd00::5", "c1\neth0\n");
        write("10.88.0.9", "");
        write("10.88.0.10", "a b\neth0");
        write("notes.txt", "mine");
        fs::create_dir(directory.path().join("10.88.0.11")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("10.88.0.12")).unwrap();
        let found = read(directory.path()).unwrap();
        let entries: Vec<(String, &str, Option<&str>)> = found
            .entries
            .iter()
            .map(|it| (it.address.to_string(), it.container.as_str(), it.ifname.as_ref().map(IfName::as_str)))
            .collect();
        assert_eq!(
            entries,
            [
                ("10.88.0.4".to_owned(), "old", None),
                ("10.88.0.5".to_owned(), "c1", Some("eth0")),
                ("fd00::5".to_owned(), "c1", Some("eth0"))
            ]
        );
        let wrong: Vec<String> = found
            .malformed
            .iter()
            .map(|(path, why)| format!("{}: {why}", path.file_name().unwrap().display()))
            .collect();
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        assert!(wrong.iter().any(|line| line.starts_with("10.88.0.9: it is empty")), "{wrong:?}");
        assert!(wrong.iter().any(|line| line.starts_with("notes.txt: its name is no address")), "{wrong:?}");
    }

    #[test]
    fn only_what_still_says_the_same_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("10.88.0.4"), "one\neth0").unwrap();
        fs::write(path("10.88.0.5"), "two\neth0").unwrap();
        let found = read(directory.path()).unwrap();
        fs::write(path("10.88.0.5"), "three\neth0").unwrap();
        let all: Vec<&Entry> = found.entries.iter().collect();
        assert_eq!(remove(directory.path(), &all).unwrap(), 1);
        assert!(!path("10.88.0.4").exists() && path("10.88.0.5").exists());
        let held = Flock::lock(File::open(path("lock")).unwrap(), FlockArg::LockExclusive).unwrap();
        assert!(remove(directory.path(), &all).unwrap_err().to_string().contains("at work"));
        drop(held);
    }
}
