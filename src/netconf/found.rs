//! A file that was found at the conf's path: which one it is, what is in it, and whose it is.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

use super::ledger::Entry;
use super::marker;

/// Which file: no two that ever were have the same, where the file system knows births.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// The file system.
    pub device: u64,
    /// The number in it, which the next file may have again.
    pub inode: u64,
    /// When it was made, in nanoseconds since the epoch; 0 where that is not known.
    pub born: u64,
}

/// How sure it is that two are the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sameness {
    No,
    /// The inode is the same, and nothing is known of births: perhaps another file's number used again.
    Perhaps,
    Certain,
}

impl Identity {
    /// Of an open file.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self::made_of(&stat, file.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH))
    }

    /// Of the file of a name, not followed; None when there is none.
    pub fn at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Self>> {
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Self::made_of(&stat, directory, name, AtFlags::SYMLINK_NOFOLLOW))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)] // types differ between architectures
    fn made_of(stat: &Stat, directory: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Self {
        let extended = rustix::fs::statx(directory, name, flags, StatxFlags::BTIME).ok();
        let born = extended.filter(|found| found.stx_mask & StatxFlags::BTIME.bits() != 0).map(|found| {
            let seconds = u64::try_from(found.stx_btime.tv_sec).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(found.stx_btime.tv_nsec))
        });
        Self { device: stat.st_dev as u64, inode: stat.st_ino as u64, born: born.unwrap_or(0) }
    }

    fn same(self, other: Self) -> Sameness {
        match (self.device, self.inode) == (other.device, other.inode) {
            true if self.born != 0 && self.born == other.born => Sameness::Certain,
            true if self.born == 0 || other.born == 0 => Sameness::Perhaps,
            _ => Sameness::No,
        }
    }
}

impl From<&Entry> for Identity {
    fn from(entry: &Entry) -> Self {
        Self { device: entry.device, inode: entry.inode, born: entry.born }
    }
}

pub(super) struct FoundFile {
    pub stat: Stat,
    pub identity: Identity,
    /// Or why it cannot be one of ours.
    pub content: Result<Vec<u8>, String>,
}

impl FoundFile {
    /// `Ok` when hostcni wrote it: it carries our mark, or it is the very file that was `placed` and what is in
    /// it is nobody's configuration. So a file of ours that somebody edited, or that a power cut emptied, is ours,
    /// and one that somebody made into the configuration of another plugin is his.
    pub fn is_ours(&self, placed: Option<Identity>) -> Result<(), String> {
        let content = self.content.as_ref().map_err(Clone::clone)?;
        let Err(why) = marker::check(content) else { return Ok(()) };
        match placed.map_or(Sameness::No, |placed| self.identity.same(placed)) {
            Sameness::Certain if !marker::is_others(content) => Ok(()),
            Sameness::Perhaps if marker::is_blank(content) => Ok(()),
            _ => Err(why),
        }
    }
}

/// Reads `name` without following it or waiting for it; None when there is nothing.
pub(super) fn read(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<FoundFile>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let Some(identity) = Identity::at(directory, name)? else { return Ok(None) };
    let refuse = |why: &str| Ok(Some(FoundFile { stat, identity, content: Err(why.to_owned()) }));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return refuse("it is a symbolic link"),
        FileType::Directory => return refuse("it is a directory"),
        _ => return refuse("it is not a regular file"),
    }
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let identity = Identity::of(&file)?;
    let mut content = Vec::new();
    file.take(marker::MAX_SIZE as u64 + 1).read_to_end(&mut content)?;
    if content.len() > marker::MAX_SIZE {
        return refuse("it is larger than any of ours");
    }
    Ok(Some(FoundFile { stat, identity, content: Ok(content) }))
}
