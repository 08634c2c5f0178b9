//! Placing and removing the conf.
//!
//! Promises: the final name shows the complete conf or none; a runtime that watches the directory sees one
//! rename; a file that hostcni did not write is neither overwritten nor removed, even when it appears in the
//! middle; the directory is never removed, since containerd would stop watching for good.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::directory::{self, DirectoryError, is_trusted};
use super::found::{Identity, read};
use super::ledger::{Entry, Ledger};
use super::temporary;

/// Whose file is at the conf's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// Nothing is there.
    Absent,
    /// hostcni wrote it.
    Ours {
        /// It is, byte for byte and with its mode, what would be placed now.
        as_rendered: bool,
    },
    /// Somebody else's.
    Foreign {
        /// How that is known.
        why: String,
    },
}

/// What placing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// It is there now and was not before.
    New,
    /// It replaced an older one of ours.
    Replaced,
    /// The same was there already.
    Already,
}

/// What removing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// It is gone.
    Removed,
    /// There was nothing.
    Absent,
    /// Somebody else's file is there, and stays.
    Foreign {
        /// How that is known.
        why: String,
    },
}

/// Why the conf could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A file that hostcni did not write is there.
    #[error(
        "{} was not written by hostcni: {why}; move it away, or set another path for the network",
        path.display()
    )]
    Foreign {
        /// The conf's path.
        path: PathBuf,
        /// How it is known not to be ours.
        why: String,
    },
    /// The directory is not there or not safe.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The placing could not be written down first, so a power cut could leave a conf nobody knows of.
    #[error("cannot note {} in the ledger below the state directory: {error}", path.display())]
    Ledger {
        /// The conf's path.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// Anything else.
    #[error("cannot place {}: {error}", path.display())]
    Io {
        /// The conf's path.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
}

/// Why the conf could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The directory is not safe, or cannot be opened.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Anything else.
    #[error("cannot remove {}: {error}", path.display())]
    Io {
        /// The conf's path.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
}

/// Says whose file is at `path`; `content` is what would be placed now.
pub fn inspect(path: &Path, content: &[u8], ledger: &Ledger) -> Result<Ownership, DirectoryError> {
    match Site::open(path, false) {
        Ok(site) => match site.look(Some(content), ledger) {
            Ok(look) => Ok(look.ownership),
            Err(error) => Err(DirectoryError::Io { path: path.to_owned(), error }),
        },
        Err(error) if error.is_missing() => Ok(Ownership::Absent),
        Err(error) => Err(error),
    }
}

/// What is at `path` now, for whoever looks for its writer.
pub fn describe(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) => format!("it is there now, of user {} and {} bytes", found.uid(), found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing now".to_owned(),
        Err(error) => format!("it cannot be looked at: {error}"),
    }
}

/// Places `content` at `path`. Whether the server is ready is for the caller to know.
pub fn place(path: &Path, content: &[u8], ledger: &Ledger) -> Result<Placed, PlaceError> {
    let _lock = ledger.lock().map_err(|error| PlaceError::Ledger { path: path.to_owned(), error })?;
    place_locked(path, content, ledger)
}

fn place_locked(path: &Path, content: &[u8], ledger: &Ledger) -> Result<Placed, PlaceError> {
    let site = Site::open(path, true)?;
    let placed = site.place(content, ledger);
    if !matches!(placed, Ok(Placed::Already)) {
        // An older one of ours, or the new one when it could not be placed.
        let _ = temporary::remove(site.directory.as_fd(), &temporary::hidden_name(site.name));
        temporary::clean_up(site.directory.as_fd());
    }
    placed
}

/// Places `content` again where the ledger says that it should be: somebody removed or changed it. What `remove`
/// took away in the meantime is not put back. Whether anything was done.
pub fn restore(path: &Path, content: &[u8], ledger: &Ledger) -> Result<bool, PlaceError> {
    let _lock = ledger.lock().map_err(|error| PlaceError::Ledger { path: path.to_owned(), error })?;
    if ledger.get(path).is_none() {
        return Ok(false);
    }
    place_locked(path, content, ledger).map(|placed| placed != Placed::Already)
}

/// Removes the conf at `path` if it is ours. A ledger that cannot be locked or written does not stop it.
pub fn remove(path: &Path, ledger: &Ledger) -> Result<Removed, RemoveError> {
    let _lock = ledger.lock();
    let removed = match Site::open(path, false) {
        Ok(site) => site.remove(ledger)?,
        Err(error) if error.is_missing() => Removed::Absent,
        Err(error) => return Err(error.into()),
    };
    let _ = ledger.forget(path);
    Ok(removed)
}

/// Removes every conf in the ledger, and every file in `directories` that carries our mark: for the boot, and
/// for settings that do not parse. Goes on after an error.
pub fn remove_all(ledger: &Ledger, directories: &[PathBuf]) -> Vec<(PathBuf, Result<Removed, RemoveError>)> {
    let mut paths: Vec<PathBuf> = ledger.entries().into_iter().map(|entry| entry.path).collect();
    let known: Vec<PathBuf> = paths.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
    for directory in directories.iter().chain(&known) {
        paths.extend(super::conf_files(directory).into_iter().filter(|path| is_marked(path)));
    }
    paths.sort();
    paths.dedup();
    paths.into_iter().map(|path| (path.clone(), remove(&path, ledger))).collect()
}

/// Whether the file carries our mark. Only a first look: removing looks again, safely.
fn is_marked(path: &Path) -> bool {
    Site::open(path, false)
        .ok()
        .and_then(|site| read(site.directory.as_fd(), site.name).ok().flatten())
        .is_some_and(|file| file.is_ours(None).is_ok())
}

/// How often a placing starts over because somebody else was faster.
const ATTEMPTS: usize = 5;

/// The open directory and the name in it.
struct Site<'a> {
    path: &'a Path,
    directory: OwnedFd,
    name: &'a OsStr,
}

struct Look {
    ownership: Ownership,
    file: Option<Identity>,
}

impl<'a> Site<'a> {
    fn open(path: &'a Path, create: bool) -> Result<Self, DirectoryError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(DirectoryError::Io {
                path: path.to_owned(),
                error: io::ErrorKind::InvalidInput.into(),
            });
        };
        Ok(Self { path, directory: directory::open(parent, create)?, name })
    }

    /// Looks at the conf's path; `content` is what would be placed now, where that matters.
    fn look(&self, content: Option<&[u8]>, ledger: &Ledger) -> io::Result<Look> {
        let Some(file) = read(self.directory.as_fd(), self.name)? else {
            return Ok(Look { ownership: Ownership::Absent, file: None });
        };
        let ownership = match (&file.content, content) {
            (Ok(found), Some(content)) if found == content => {
                let as_placed = file.stat.st_mode & 0o7777 == temporary::MODE && is_trusted(&file.stat);
                Ownership::Ours { as_rendered: as_placed }
            }
            _ => match file.is_ours(ledger.get(self.path).map(|entry| Identity::from(&entry))) {
                Ok(()) => Ownership::Ours { as_rendered: false },
                Err(why) => Ownership::Foreign { why },
            },
        };
        Ok(Look { ownership, file: Some(file.identity) })
    }

    fn place(&self, content: &[u8], ledger: &Ledger) -> Result<Placed, PlaceError> {
        let hidden = temporary::hidden_name(self.name);
        for _ in 0..ATTEMPTS {
            let look = self.look(Some(content), ledger).map_err(|error| self.place_error(error))?;
            let older = match (look.ownership, look.file) {
                (Ownership::Ours { as_rendered: true }, Some(there)) => {
                    self.record(there, ledger)?;
                    return Ok(Placed::Already);
                }
                (Ownership::Foreign { why }, _) => return Err(self.foreign(why)),
                (Ownership::Ours { .. }, older) => older,
                (Ownership::Absent, _) => None,
            };
            let made = temporary::make(self.directory.as_fd(), &hidden, content);
            let made = made.map_err(|error| self.place_error(error))?;
            self.record(made, ledger)?;
            crate::step!("netconf.rename", self.place_error(crate::failpoint::error()));
            let moved = match older {
                Some(older) => self.exchange(&hidden, older)?,
                None => self.move_in(&hidden)?,
            };
            if moved {
                rustix::fs::fsync(&self.directory).map_err(|errno| self.place_error(errno.into()))?;
                return Ok(if older.is_some() { Placed::Replaced } else { Placed::New });
            }
        }
        Err(self.place_error(io::Error::new(io::ErrorKind::ResourceBusy, "somebody else keeps changing it")))
    }

    /// The one rename that runtimes see. False when a file has appeared meanwhile.
    fn move_in(&self, hidden: &OsStr) -> Result<bool, PlaceError> {
        match self.rename(hidden, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.place_error(errno.into())),
        }
    }

    /// Replaces an `older` one of ours. What comes back under the hidden name is looked at: it may have become
    /// somebody else's in the meantime, and then goes back to where it was.
    fn exchange(&self, hidden: &OsStr, older: Identity) -> Result<bool, PlaceError> {
        match self.rename(hidden, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false), // it vanished: place it as a new one
            Err(errno) => return Err(self.place_error(errno.into())),
        }
        let back = read(self.directory.as_fd(), hidden).map_err(|error| self.place_error(error))?;
        if let Some(Err(why)) = back.map(|file| file.is_ours(Some(older))) {
            self.rename(hidden, RenameFlags::EXCHANGE).map_err(|errno| self.place_error(errno.into()))?;
            return Err(self.foreign(why));
        }
        Ok(true)
    }

    /// Renames within the directory. Few file systems lack the flags (NFS, FUSE); there, what the flags ensure
    /// is checked just before.
    fn rename(&self, hidden: &OsStr, flags: RenameFlags) -> Result<(), Errno> {
        let renamed = rustix::fs::renameat_with(&self.directory, hidden, &self.directory, self.name, flags);
        if renamed != Err(Errno::INVAL) {
            return renamed;
        }
        let there = rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        match (flags == RenameFlags::NOREPLACE, there) {
            (true, true) => Err(Errno::EXIST),
            (false, false) => Err(Errno::NOENT),
            _ => rustix::fs::renameat(&self.directory, hidden, &self.directory, self.name),
        }
    }

    fn record(&self, file: Identity, ledger: &Ledger) -> Result<(), PlaceError> {
        let Identity { device, inode, born } = file;
        ledger
            .record(&Entry { path: self.path.to_owned(), inode, device, born })
            .map_err(|error| PlaceError::Ledger { path: self.path.to_owned(), error })
    }

    fn remove(&self, ledger: &Ledger) -> Result<Removed, RemoveError> {
        let failed = |error| RemoveError::Io { path: self.path.to_owned(), error };
        let hidden = temporary::hidden_name(self.name);
        temporary::remove(self.directory.as_fd(), &hidden).map_err(failed)?;
        let look = self.look(None, ledger).map_err(failed)?;
        match (look.ownership, look.file) {
            (Ownership::Foreign { why }, _) => Ok(Removed::Foreign { why }),
            (Ownership::Ours { .. }, Some(seen)) => {
                // Still the file that was looked at?
                match Identity::at(self.directory.as_fd(), self.name).map_err(failed)? {
                    Some(now) if now == seen => {}
                    Some(_) => return Ok(Removed::Foreign { why: "it has just appeared".to_owned() }),
                    None => return Ok(Removed::Absent),
                }
                crate::step!("netconf.unlink", failed(crate::failpoint::error()));
                temporary::remove(self.directory.as_fd(), self.name).map_err(failed)?;
                // Or a power cut would bring it back.
                rustix::fs::fsync(&self.directory).map_err(|errno| failed(errno.into()))?;
                Ok(Removed::Removed)
            }
            _ => Ok(Removed::Absent),
        }
    }

    fn foreign(&self, why: String) -> PlaceError {
        PlaceError::Foreign { path: self.path.to_owned(), why }
    }

    fn place_error(&self, error: io::Error) -> PlaceError {
        PlaceError::Io { path: self.path.to_owned(), error }
    }
}

#[cfg(test)]
mod tests;
