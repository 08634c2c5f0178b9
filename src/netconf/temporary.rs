//! The complete file under a hidden name in the conf's directory, made without a write event there.
//!
//! containerd reloads on every write event in its directory and ignores creations. A file opened with
//! `O_TMPFILE` *in* the directory does cause a write event (named `#inode`, seen on Linux 6.18), so the
//! content is written elsewhere on the same mount and linked in: in the parent directory, or, where the conf's
//! directory is a mount of its own, in a hidden subdirectory, which nobody watches.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::directory::is_trusted;
use super::found::Identity;

/// Runtimes read confs as root, so others need not; the CIS Kubernetes benchmark (1.1.9) and the
/// compliance profile of `OpenShift` ask for 0600.
pub(super) const MODE: u32 = 0o600;

/// Where the content is written when the parent directory is of no use.
const WORKSHOP: &str = ".hostcni";

/// The hidden name that `name` has before it is complete. No runtime knows its ending.
pub(super) fn hidden_name(name: &OsStr) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".hostcni");
    hidden
}

/// Makes `hidden` in `directory`, complete, on disk, with exactly one event in `directory`: its creation.
/// Returns what was made.
pub(super) fn make(directory: BorrowedFd<'_>, hidden: &OsStr, content: &[u8]) -> io::Result<Identity> {
    // The leftover of a placing that was interrupted.
    remove(directory, hidden)?;
    in_parent(directory, hidden, content).or_else(|_| in_workshop(directory, hidden, content))
}

/// Removes `name` if it is there. Looks first: on a read-only file system removing nothing is an error, too.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let there = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    match there.and_then(|_| rustix::fs::unlinkat(directory, name, AtFlags::empty())) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes the hidden subdirectory away again, if there is one.
pub(super) fn clean_up(directory: BorrowedFd<'_>) {
    let _ = rustix::fs::unlinkat(directory, WORKSHOP, AtFlags::REMOVEDIR);
}

fn in_parent(directory: BorrowedFd<'_>, hidden: &OsStr, content: &[u8]) -> io::Result<Identity> {
    let parent = rustix::fs::openat(directory, "..", DIRECTORY, Mode::empty())?;
    anonymous(parent.as_fd(), directory, hidden, content)
}

fn in_workshop(directory: BorrowedFd<'_>, hidden: &OsStr, content: &[u8]) -> io::Result<Identity> {
    match rustix::fs::mkdirat(directory, WORKSHOP, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let workshop = rustix::fs::openat(directory, WORKSHOP, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    if !is_trusted(&rustix::fs::fstat(&workshop)?) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            ".hostcni in it belongs to another user",
        ));
    }
    anonymous(workshop.as_fd(), directory, hidden, content)
        .or_else(|_| named(workshop.as_fd(), directory, hidden, content))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn anonymous(
    place: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    hidden: &OsStr,
    content: &[u8],
) -> io::Result<Identity> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(place, ".", flags, Mode::from_raw_mode(MODE))?;
    let file = fill(File::from(file), content)?;
    // By /proc: linking the descriptor itself takes CAP_DAC_READ_SEARCH.
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, source, directory, hidden, AtFlags::SYMLINK_FOLLOW)?;
    Identity::of(&file)
}

/// For file systems without `O_TMPFILE`.
fn named(
    place: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    hidden: &OsStr,
    content: &[u8],
) -> io::Result<Identity> {
    const NAME: &str = "conf";
    remove(place, OsStr::new(NAME))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(place, NAME, flags, Mode::from_raw_mode(MODE))?;
    let file = fill(File::from(file), content)?;
    rustix::fs::renameat(place, NAME, directory, hidden)?;
    Identity::of(&file)
}

fn fill(mut file: File, content: &[u8]) -> io::Result<File> {
    rustix::fs::fchmod(&file, Mode::from_raw_mode(MODE))?; // whatever the umask
    file.write_all(content)?;
    file.sync_all()?;
    Ok(file)
}
