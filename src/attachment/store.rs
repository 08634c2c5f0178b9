//! The records of the attachments that are there, one file each, on tmpfs.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::cni::AttachmentKey;

use super::Attachment;
use super::directory::{Directory, Unreadable, words};
use super::names::key_digits;

/// No record is larger: results and port mappings come from a configuration of at most 1 MiB.
pub(super) const MAX_RECORD: u64 = 4 << 20;

/// Why a record could not be written, removed, or the directory not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {}", path.display(), words(source))]
pub struct StoreError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What was found in the store.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The records, oldest first.
    pub attachments: Vec<Attachment>,
    /// What could not be read and was moved away, and why.
    pub set_aside: Vec<(PathBuf, String)>,
}

impl Loaded {
    pub(super) fn sort(&mut self) {
        self.attachments.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
    }
}

/// The directory of records. One process writes to it.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
}

impl Store {
    /// Makes the directory where it lacks, and removes what writes left unfinished.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let store = Self { directory: Directory::new(dir) };
        store.directory.create(false).map_err(failed("make directory", dir.to_owned()))?;
        store.directory.remove_temps(|_| true);
        Ok(store)
    }

    /// Writes the record in place of an earlier one: a reader sees the one or the other, also after a crash.
    pub fn put(&self, attachment: &Attachment) -> Result<(), StoreError> {
        let name = file_name(&attachment.key);
        let failed = failed("write", self.directory.join(&name));
        crate::step!("store.put", failed(crate::failpoint::error()));
        let write = || {
            let bytes = serde_json::to_vec(attachment)?;
            self.directory.commit(self.directory.write_temp(&bytes)?, &name)
        };
        self.directory.writing(false, write).map_err(&failed)
    }

    /// Removes the record; one that is not there is no error.
    pub fn remove(&self, key: &AttachmentKey) -> Result<(), StoreError> {
        let name = file_name(key);
        let failed = failed("remove", self.directory.join(&name));
        crate::step!("store.remove", failed(crate::failpoint::error()));
        self.directory.remove(&name).map_err(&failed)
    }

    /// All records. What is not one is set aside; only a directory that cannot be listed is an error.
    pub fn load_all(&self) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
        let set_aside = self.directory.load_each(|name| {
            loaded.attachments.push(self.load(name)?);
            Ok(())
        });
        loaded.set_aside = set_aside.map_err(failed("list", self.directory.path().to_owned()))?;
        loaded.sort();
        Ok(loaded)
    }

    fn load(&self, name: &OsStr) -> Result<Attachment, Unreadable> {
        if self.directory.is_unfinished(name) {
            return Err(Unreadable::Gone);
        }
        if !is_file_name(name) {
            return Err(Unreadable::Wrong("is not a file of hostcni's".to_owned()));
        }
        let bytes = self.directory.read(name, MAX_RECORD)?;
        let attachment = Attachment::parse(&bytes).map_err(Unreadable::Wrong)?;
        if name != file_name(&attachment.key).as_str() {
            return Err(Unreadable::Wrong(format!(
                "is the record of {} under another's name",
                attachment.key
            )));
        }
        Ok(attachment)
    }
}

#[cfg(feature = "failpoints")]
impl StoreError {
    /// What a test asked for.
    pub(crate) fn injected() -> Self {
        failed("remove", PathBuf::from("a record"))(crate::failpoint::error())
    }
}

pub(super) fn failed(operation: &'static str, path: PathBuf) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError { operation, path: path.clone(), source }
}

fn file_name(key: &AttachmentKey) -> String {
    format!("{}.json", key_digits(key))
}

fn is_file_name(name: &OsStr) -> bool {
    name.to_str().and_then(|name| name.strip_suffix(".json")).is_some_and(super::names::is_key_digits)
}
