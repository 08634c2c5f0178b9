//! The ledger: the confs that hostcni placed and has not removed.
//!
//! One small file for each path under `/var/lib/hostcni/conf/`, written durably before a conf is placed and
//! deleted after it was removed. So a conf is found again when its path was changed in the settings, when the
//! settings do not parse, and after a power cut.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// How long to wait for another process that is placing or removing.
const LOCK_BOUND: Duration = Duration::from_secs(5);

/// One placed conf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it was placed.
    pub path: PathBuf,
    /// The file that was placed, so that it is known again when a power cut took its content.
    #[serde(default)]
    pub inode: u64,
    /// The file system it is on.
    #[serde(default)]
    pub device: u64,
    /// When the file was made, in nanoseconds since the epoch, so that no later one of the same number is taken for
    /// it; 0 where the file system does not tell.
    #[serde(default)]
    pub born: u64,
}

/// What hostcni placed.
#[derive(Debug, Clone)]
pub struct Ledger {
    directory: PathBuf,
}

/// Held while confs are placed or removed: one process at a time.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] File); // closing it is what unlocks

impl Ledger {
    /// The ledger in the state directory (`/var/lib/hostcni`). Touches nothing yet.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("conf") }
    }

    /// The system's ledger. Its place cannot be configured: it has to be found when the settings do not parse.
    pub fn system() -> Self {
        Self::new(Path::new("/var/lib/hostcni"))
    }

    /// What was placed and not removed. Unreadable entries are left out; a missing ledger is empty.
    pub fn entries(&self) -> Vec<Entry> {
        let Ok(directory) = std::fs::read_dir(&self.directory) else { return Vec::new() };
        let mut entries: Vec<Entry> = directory
            .filter_map(|file| {
                let file = file.ok()?;
                let entry: Entry = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
                // A file that was copied or renamed by hand says nothing.
                (self.file(&entry.path) == file.path()).then_some(entry)
            })
            .collect();
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        entries
    }

    /// The entry for `path`.
    pub fn get(&self, path: &Path) -> Option<Entry> {
        let entry: Entry = serde_json::from_slice(&std::fs::read(self.file(path)).ok()?).ok()?;
        (entry.path == path).then_some(entry)
    }

    /// Writes an entry down, durably.
    pub(super) fn record(&self, entry: &Entry) -> io::Result<()> {
        if self.get(&entry.path).as_ref() == Some(entry) {
            return Ok(());
        }
        self.create()?;
        let file = self.file(&entry.path);
        let temporary = file.with_extension("new");
        let mut options = File::options();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        written.write_all(&serde_json::to_vec(entry)?)?;
        written.sync_all()?;
        std::fs::rename(&temporary, &file)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Forgets `path`. Not made durable: an entry too many only costs a look at the next boot.
    pub(super) fn forget(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(self.file(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps other processes from placing and removing meanwhile; waits for them at most 5 s.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        self.lock_within(LOCK_BOUND)
    }

    fn lock_within(&self, bound: Duration) -> io::Result<Lock> {
        self.create()?;
        // In this directory and not in the conf's, which anybody may open, and so lock for ever.
        let directory = File::open(&self.directory)?;
        let deadline = Instant::now() + bound;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(directory)),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another hostcni holds the lock"));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    /// The file for `path`: FNV-1a of its bytes, so that any path makes a short name.
    fn file(&self, path: &Path) -> PathBuf {
        let hash =
            path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        self.directory.join(format!("{hash:016x}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry { path: path.into(), inode: 7, device: 8, born: 9 }
    }

    #[test]
    fn what_is_recorded_is_found_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(dir.path());
        assert_eq!(ledger.entries(), []);
        ledger.record(&entry("/etc/cni/net.d/b.conf")).unwrap();
        ledger.record(&entry("/etc/cni/net.d/a.conf")).unwrap();
        ledger.record(&entry("/etc/cni/net.d/a.conf")).unwrap();
        let other = Ledger::new(dir.path());
        assert_eq!(other.entries(), [entry("/etc/cni/net.d/a.conf"), entry("/etc/cni/net.d/b.conf")]);
        assert_eq!(other.get(Path::new("/etc/cni/net.d/a.conf")), Some(entry("/etc/cni/net.d/a.conf")));
        other.forget(Path::new("/etc/cni/net.d/a.conf")).unwrap();
        other.forget(Path::new("/etc/cni/net.d/a.conf")).unwrap();
        assert_eq!(ledger.entries(), [entry("/etc/cni/net.d/b.conf")]);
    }

    #[test]
    fn damaged_entries_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(dir.path());
        ledger.record(&entry("/a.conf")).unwrap();
        std::fs::write(dir.path().join("conf/empty.json"), "").unwrap();
        std::fs::copy(ledger.file(Path::new("/a.conf")), dir.path().join("conf/copy.json")).unwrap();
        std::fs::create_dir(dir.path().join("conf/dir.json")).unwrap();
        assert_eq!(ledger.entries(), [entry("/a.conf")]);
    }

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(dir.path());
        let held = ledger.lock().unwrap();
        let error = ledger.lock_within(Duration::from_millis(30)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(held);
        ledger.lock_within(Duration::ZERO).unwrap();
    }
}
