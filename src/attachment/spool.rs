//! DELs that met no server: written by the plugin, carried out by the next server. Durable.
//!
//! The name of an entry is its attachment's and its time's. So two plugins never write the same file, the
//! server never removes a DEL that came after the one it carried out, and no lock is needed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::cni::{AttachmentKey, CniArgs, PodIdentity};

use super::directory::{Directory, Unreadable, words};
use super::names::{is_key_digits, key_digits};
use super::time::{self, micros};

/// How many attachments may have a DEL waiting.
pub const MAX_ENTRIES: usize = 10_000;
/// How large an entry may be, in bytes: a configuration of 1 MiB and the longest `CNI_ARGS`, escaped as JSON.
pub const MAX_ENTRY: usize = 4 << 20;
/// An unfinished file this old has no writer any more: a plugin lives for less than a minute.
const TEMP_LIFE: Duration = Duration::from_secs(600);

/// A DEL that could not be handed to a server.
///
/// Written by other versions of hostcni too: unknown fields are ignored, missing ones have their default;
/// only the key and the time have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledDel {
    /// The version of the format that the entry was written in.
    #[serde(default)]
    pub version: u32,
    /// When the DEL came, to the microsecond: an ADD that began later is not meant by it.
    #[serde(with = "time")]
    pub at: SystemTime,
    /// Which attachment.
    pub key: AttachmentKey,
    /// `CNI_ARGS` as they were.
    #[serde(default)]
    pub args: String,
    /// The network configuration as it was.
    #[serde(default)]
    pub config: String,
    /// `CNI_NETNS` as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

impl SpooledDel {
    /// The version of the format that this hostcni writes.
    pub const FORMAT: u32 = 1;

    /// Whose pod it is, when the runtime said.
    pub fn pod(&self) -> Option<PodIdentity> {
        CniArgs::parse(&self.args).ok().and_then(|args| args.pod())
    }
}

/// Why a DEL could not be written down, or the spool not be read.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// So many DELs wait that something is badly wrong.
    #[error("{} DELs wait in {} already: start hostcni to have them carried out", MAX_ENTRIES, .0.display())]
    Full(PathBuf),
    /// The DEL is larger than any DEL can be.
    #[error("the DEL is too large to be written down: {bytes} bytes, and {} are allowed", MAX_ENTRY)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The disk refused.
    #[error("cannot {operation} {}: {}", path.display(), words(source))]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What was found in the spool.
#[derive(Debug, Default)]
pub struct LoadedSpool {
    /// The DELs, oldest first, one per attachment: the latest.
    pub dels: Vec<SpooledDel>,
    /// What could not be read and was moved away, and why.
    pub set_aside: Vec<(PathBuf, String)>,
}

/// The directory of DELs. Any number of processes write to it.
#[derive(Debug)]
pub struct Spool {
    directory: Directory,
}

impl Spool {
    /// The spool in the directory, which is made by the first write.
    pub fn open(dir: &Path) -> Self {
        Self { directory: Directory::new(dir) }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the DEL down. When this returns without an error, a power cut does not lose it.
    pub fn write(&self, del: &SpooledDel) -> Result<(), SpoolError> {
        let bytes = serde_json::to_vec(del).map_err(|error| self.failed("write to")(error.into()))?;
        if bytes.len() > MAX_ENTRY {
            return Err(SpoolError::TooLarge { bytes: bytes.len() });
        }
        let waiting = self.entries();
        let digits = key_digits(&del.key);
        if waiting.len() >= MAX_ENTRIES && !waiting.iter().any(|entry| entry.key == digits) {
            return Err(SpoolError::Full(self.dir().to_owned()));
        }
        let entry = Entry { key: digits, at: micros(del.at) };
        if let Err(error) = self.write_durably(&bytes, &entry.name()) {
            // Somebody removed the directory, or took the unfinished file for a dead one.
            let gone =
                matches!(&error, SpoolError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
            if !gone {
                return Err(error);
            }
            self.write_durably(&bytes, &entry.name())?;
        }
        for earlier in waiting.iter().filter(|it| it.key == entry.key && it.at < entry.at) {
            // The later one says all that the earlier said; what stays is merged by the load.
            let _ = self.directory.remove(earlier.name());
        }
        Ok(())
    }

    fn write_durably(&self, bytes: &[u8], name: &str) -> Result<(), SpoolError> {
        self.directory.create(true).map_err(self.failed("make directory"))?;
        crate::step!("spool.write", self.failed("write to")(crate::failpoint::error()));
        let temp = self.directory.write_temp(bytes).map_err(self.failed("write to"))?;
        crate::step!("spool.fsync", self.failed("sync a file in")(crate::failpoint::error()));
        temp.sync().map_err(self.failed("sync a file in"))?;
        crate::step!("spool.rename", self.failed("rename a file in")(crate::failpoint::error()));
        self.directory.commit(temp, name).map_err(self.failed("rename a file in"))?;
        self.directory.sync().map_err(self.failed("sync directory"))
    }

    /// All DELs that wait. What is not one is set aside; only a directory that cannot be listed is an error.
    pub fn load_all(&self) -> Result<LoadedSpool, SpoolError> {
        let mut loaded = LoadedSpool::default();
        self.directory.remove_temps(is_dead);
        let mut latest: HashMap<AttachmentKey, SpooledDel> = HashMap::new();
        let set_aside = self.directory.load_each(|name| {
            let del = self.load(name)?;
            let kept = latest.entry(del.key.clone()).or_insert_with(|| del.clone());
            if kept.at < del.at {
                *kept = del;
            }
            Ok(())
        });
        loaded.set_aside = set_aside.map_err(self.failed("list"))?;
        loaded.dels = latest.into_values().collect();
        loaded.dels.sort_by(|one, other| (one.at, &one.key).cmp(&(other.at, &other.key)));
        Ok(loaded)
    }

    fn load(&self, name: &OsStr) -> Result<SpooledDel, Unreadable> {
        let wrong = |why: String| Err(Unreadable::Wrong(why));
        if self.directory.is_unfinished(name) {
            return Err(Unreadable::Gone);
        }
        let Some(entry) = Entry::of(name) else { return wrong("is not a file of hostcni's".to_owned()) };
        let bytes = self.directory.read(name, MAX_ENTRY as u64)?;
        let del: SpooledDel = match serde_json::from_slice(&bytes) {
            Ok(del) => del,
            Err(error) => return wrong(format!("is no DEL: {error}")),
        };
        if entry.key != key_digits(&del.key) || entry.at != micros(del.at) {
            return wrong(format!("is a DEL of {} under another's name", del.key));
        }
        Ok(del)
    }

    /// Removes the attachment's DELs that came at this moment or before; a later one stays. Says whether
    /// they are gone.
    pub fn remove(&self, key: &AttachmentKey, not_after: SystemTime) -> bool {
        let (digits, at) = (key_digits(key), micros(not_after));
        let mut gone = true;
        // All of them, whatever fails on the way.
        for entry in self.entries().iter().filter(|entry| entry.key == digits && entry.at <= at) {
            gone &= self.directory.remove(entry.name()).is_ok();
        }
        gone
    }

    /// How many DELs wait.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether no DEL waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn entries(&self) -> Vec<Entry> {
        self.directory.names().unwrap_or_default().iter().filter_map(|name| Entry::of(name)).collect()
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> SpoolError {
        let path = self.dir().to_owned();
        move |source| SpoolError::Io { operation, path, source }
    }
}

/// The name of a file in the spool: `<hash of the key>-<microseconds, 20 digits>.json`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    at: u64,
}

impl Entry {
    fn name(&self) -> String {
        format!("{}-{:020}.json", self.key, self.at)
    }

    fn of(name: &OsStr) -> Option<Self> {
        let (key, at) = name.to_str()?.strip_suffix(".json")?.split_once('-')?;
        let is_number = at.len() == 20 && at.bytes().all(|byte| byte.is_ascii_digit());
        (is_key_digits(key) && is_number).then_some(())?;
        Some(Self { key: key.to_owned(), at: at.parse().ok()? })
    }
}

/// Whether nobody writes the unfinished file any more; one from the future is of a clock that was wrong.
fn is_dead(file: &Metadata) -> bool {
    let Ok(modified) = file.modified() else { return false };
    let now = SystemTime::now();
    now.duration_since(modified).or_else(|_| modified.duration_since(now)).is_ok_and(|age| age > TEMP_LIFE)
}
