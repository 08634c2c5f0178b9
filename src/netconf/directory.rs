//! Opening a directory by a path that nobody but root could have bent.
//!
//! The conf's directory may be reached through symbolic links that root made (`/etc/cni/net.d` often is
//! one). Each component is opened by itself, without following, and checked: the directory must belong to
//! root and be closed to others' writing, a link must belong to root. After that, everything is done relative
//! to the open descriptor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// As in the kernel's path walk.
const MAX_LINKS: usize = 40;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Only absolute paths mean the same to everybody.
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    /// An unprivileged user could make the path lead elsewhere.
    #[error("not using {}: {} {why}; make it root's and writable by root only", path.display(), component.display())]
    Unsafe {
        /// The path asked for.
        path: PathBuf,
        /// The part of it that is not safe.
        component: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It could not be opened or made.
    #[error("cannot open {}: {error}", path.display())]
    Io {
        /// Where the walk had come to.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
}

impl DirectoryError {
    /// Whether the directory simply is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens the directory `path`; with `create`, makes missing components (0755).
pub(super) fn open(path: &Path, create: bool) -> Result<OwnedFd, DirectoryError> {
    let mut walk = Walk { path, create, at: PathBuf::from("/"), links: 0, left: components(path)? };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut current = rustix::fs::openat(CWD, "/", flags, Mode::empty()).map_err(|errno| walk.io(errno))?;
    walk.check_directory(&walk.stat(&current)?)?;
    while let Some(name) = walk.left.pop_front() {
        current = walk.step(current, &name)?;
    }
    // A sticky directory protects its entries from others, but not the free names in it.
    if walk.stat(&current)?.st_mode & 0o002 != 0 {
        return Err(walk.refuse("is writable by everybody"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&current, ".", flags, Mode::empty()).map_err(|errno| walk.io(errno))
}

fn components(path: &Path) -> Result<VecDeque<OsString>, DirectoryError> {
    if !path.is_absolute() {
        return Err(DirectoryError::Relative(path.to_owned()));
    }
    Ok(names(path))
}

/// The names to walk; `..` is left to the kernel, which knows the real parent.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

struct Walk<'a> {
    path: &'a Path,
    create: bool,
    at: PathBuf,
    links: usize,
    left: VecDeque<OsString>,
}

impl Walk<'_> {
    fn step(&mut self, current: OwnedFd, name: &OsString) -> Result<OwnedFd, DirectoryError> {
        let before = self.at.clone();
        self.at.push(name);
        let next = self.open_entry(&current, name)?;
        let stat = self.stat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.check_directory(&stat)?;
                Ok(next)
            }
            FileType::Symlink => {
                if !is_trusted(&stat) {
                    return Err(self.refuse("is a symbolic link of another user"));
                }
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(self.io(Errno::LOOP));
                }
                let target = rustix::fs::readlinkat(&next, "", Vec::new()).map_err(|errno| self.io(errno))?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                for name in names(&target).into_iter().rev() {
                    self.left.push_front(name);
                }
                if !target.is_absolute() {
                    self.at = before;
                    return Ok(current);
                }
                self.at = PathBuf::from("/");
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::openat(CWD, "/", flags, Mode::empty()).map_err(|errno| self.io(errno))
            }
            _ => Err(self.io(Errno::NOTDIR)),
        }
    }

    fn open_entry(&self, current: &OwnedFd, name: &OsString) -> Result<OwnedFd, DirectoryError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(current, name.as_bytes(), flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) if self.create => {
                match rustix::fs::mkdirat(current, name.as_bytes(), Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(errno) => Err(errno),
                }
            }
            other => other,
        };
        opened.map_err(|errno| self.io(errno))
    }

    fn check_directory(&self, stat: &Stat) -> Result<(), DirectoryError> {
        let sticky = stat.st_mode & 0o1000 != 0;
        let open_to_group = stat.st_mode & 0o020 != 0 && stat.st_gid != 0;
        let open_to_others = stat.st_mode & 0o002 != 0;
        if !is_trusted(stat) {
            Err(self.refuse("belongs to another user"))
        } else if (open_to_group || open_to_others) && !sticky {
            Err(self.refuse("is writable by others"))
        } else {
            Ok(())
        }
    }

    fn stat(&self, descriptor: &OwnedFd) -> Result<Stat, DirectoryError> {
        rustix::fs::fstat(descriptor).map_err(|errno| self.io(errno))
    }

    fn refuse(&self, why: &'static str) -> DirectoryError {
        DirectoryError::Unsafe { path: self.path.to_owned(), component: self.at.clone(), why }
    }

    fn io(&self, errno: Errno) -> DirectoryError {
        DirectoryError::Io { path: self.at.clone(), error: errno.into() }
    }
}

/// Root's, or of the user this runs as (who could bend the path anyway).
pub(super) fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn refused(path: &Path) -> String {
        let error = open(path, false).unwrap_err();
        assert!(matches!(error, DirectoryError::Unsafe { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn a_directory_behind_roots_links_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("real/net.d")).unwrap();
        symlink("real", dir.path().join("relative")).unwrap();
        symlink(dir.path().join("relative/net.d"), dir.path().join("absolute")).unwrap();
        symlink("../relative/net.d", dir.path().join("real/up")).unwrap();
        for path in ["relative/net.d", "absolute", "real/up", "real/../real/net.d"] {
            let opened = rustix::fs::fstat(open(&dir.path().join(path), false).unwrap()).unwrap();
            let expected = rustix::fs::stat(dir.path().join("real/net.d")).unwrap();
            assert_eq!((opened.st_dev, opened.st_ino), (expected.st_dev, expected.st_ino), "{path}");
        }
    }

    #[test]
    fn missing_directories_are_made_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert!(open(&path, false).unwrap_err().is_missing());
        open(&path, true).unwrap();
        assert!(path.is_dir());
        assert!(matches!(open(Path::new("a/b"), true), Err(DirectoryError::Relative(_))));
    }

    /// Needs root, to make things that belong to somebody else.
    #[test]
    fn nothing_that_another_user_could_have_bent_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();

        symlink(&real, dir.path().join("link")).unwrap();
        lchown(dir.path().join("link"), Some(1000), Some(1000)).expect("needs root");
        assert!(refused(&dir.path().join("link")).contains("is a symbolic link of another user"));

        let open_to_all = dir.path().join("open");
        std::fs::create_dir_all(open_to_all.join("net.d")).unwrap();
        std::fs::set_permissions(&open_to_all, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&open_to_all.join("net.d")).contains("is writable by others"));
        std::fs::set_permissions(&open_to_all, std::fs::Permissions::from_mode(0o1777)).unwrap();
        open(&open_to_all.join("net.d"), false).unwrap();
        assert!(refused(&open_to_all).contains("is writable by everybody"));

        chown(&real, Some(1000), Some(1000)).unwrap();
        assert!(refused(&real).contains("belongs to another user"));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert!(open(&dir.path().join("a"), true).is_err());
    }
}
