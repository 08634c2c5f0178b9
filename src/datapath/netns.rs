//! Network namespaces: opening, telling apart, entering and coming back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};

use super::error::{KernelError, Result};
use super::socket::Socket;
use super::{bridge, links};

// linux/nsfs.h: _IO(0xb7, 0x3), the CLONE_NEW* flag of the namespace a descriptor stands for.
nix::ioctl_none!(
    /// `NS_GET_NSTYPE`.
    ns_get_nstype,
    0xb7,
    0x3
);

/// Opens a namespace by its path (`/proc/PID/ns/net`, `/run/netns/NAME`). Says nothing about what it is:
/// see [`is_netns`].
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    // A FIFO at that path must not make the open wait for a writer.
    let flags = nix::libc::O_CLOEXEC | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    Ok(File::options().read(true).custom_flags(flags).open(path)?.into())
}

/// A namespace that was found: a path to it, its device and inode, and itself.
pub type Found = (PathBuf, (u64, u64), OwnedFd);

/// Every network namespace that has a path, each once, but the calling thread's own: where it is mounted, or else
/// by a process in it.
pub fn all() -> io::Result<Vec<Found>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // proc_pid_mountinfo(5): field 5 is the mount point, with blanks written out; after " - " comes the type.
    let mounted = mounts.lines().filter(|line| line.contains(" - nsfs ") && line.contains(" net:["));
    let mounted = mounted.filter_map(|line| line.split(' ').nth(4)).map(|path| path.replace("\\040", " "));
    let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    });
    let mut seen = vec![id(own()?)?];
    let mut found = Vec::new();
    for path in mounted.map(PathBuf::from).chain(processes.map(|path| path.join("ns/net"))) {
        // What ends meanwhile is gone.
        let Ok(opened) = open(&path) else { continue };
        let Ok(id) = id(&opened) else { continue };
        if is_netns(&opened) && !seen.contains(&id) {
            seen.push(id);
            found.push((path, id, opened));
        }
    }
    Ok(found)
}

/// The addresses of all links of a namespace. Enters it on a thread of its own, which ends there.
pub fn addresses(namespace: OwnedFd) -> Result<BTreeSet<IpAddr>> {
    let look = move || {
        let fail = |errno: Errno| KernelError::new(errno as i32, "enter", "a network namespace");
        setns(&namespace, CloneFlags::CLONE_NEWNET).map_err(fail)?;
        let mut socket = Socket::open()?;
        let mut all = BTreeSet::new();
        for link in links::all(&mut socket)? {
            all.extend(bridge::addresses(&mut socket, link.index)?.iter().map(ipnet::IpNet::addr));
        }
        Ok(all)
    };
    let lost = || KernelError::message("look into", "a network namespace", "the thread for it has ended");
    std::thread::spawn(look).join().map_err(|_| lost())?
}

/// A path by which another program reaches a namespace; a mount of its own goes when this is dropped.
#[derive(Debug)]
pub struct Named {
    path: PathBuf,
    mounted: bool,
}

impl Named {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.path);
        }
    }
}

/// A path that leads to the namespace: the one it is known by while that is so, else a mount of its own in
/// `directory`.
pub fn named(namespace: impl AsFd, known: &Path, directory: &Path, name: &str) -> Result<Named> {
    let fail = |path: &Path| {
        let object = path.display().to_string();
        move |error: &io::Error| {
            KernelError::from_io(error, "give a network namespace the path", object.clone())
        }
    };
    let wanted = id(&namespace).map_err(|error| fail(known)(&error))?;
    if open(known).and_then(id).is_ok_and(|found| found == wanted) {
        return Ok(Named { path: known.to_owned(), mounted: false });
    }
    let path = directory.join(name);
    let fail = fail(&path);
    std::fs::create_dir_all(directory).map_err(|error| fail(&error))?;
    unmount(&path);
    File::options().write(true).create_new(true).open(&path).map_err(|error| fail(&error))?;
    let source = format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd());
    let mounted = Named { path, mounted: true };
    mount(Some(source.as_str()), &mounted.path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| fail(&errno.into()))?;
    Ok(mounted)
}

/// Takes away the paths that an earlier process left in the directory.
pub fn forget_names(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        unmount(&entry.path());
    }
}

/// A path that is no mount, or not there, is no error: what counts is that it is free.
fn unmount(path: &Path) {
    let _ = umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    let _ = std::fs::remove_file(path);
}

/// The device and inode that tell one namespace from all others that live at the same time.
pub fn id(namespace: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = nix::sys::stat::fstat(namespace)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether the descriptor is a network namespace.
pub fn is_netns(namespace: impl AsFd) -> bool {
    // SAFETY: NS_GET_NSTYPE takes no argument and writes nothing; on any other file it is an error.
    let kind = unsafe { ns_get_nstype(namespace.as_fd().as_raw_fd()) };
    kind == Ok(CloneFlags::CLONE_NEWNET.bits())
}

/// Whether the descriptor is the network namespace that the calling thread is in.
pub fn is_own(namespace: impl AsFd) -> io::Result<bool> {
    Ok(id(own()?)? == id(namespace)?)
}

/// The calling thread's own namespace.
pub(super) fn own() -> io::Result<OwnedFd> {
    open(Path::new("/proc/thread-self/ns/net"))
}

/// The calling thread, inside another network namespace. It goes back when this is dropped; if it cannot,
/// the process ends, because every later request of the thread would change the wrong namespace.
pub(super) struct Entered<'a> {
    home: BorrowedFd<'a>,
    // A thread's namespace is its own: this must be dropped on the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl<'a> Entered<'a> {
    /// Moves the calling thread from `home` into `namespace`.
    pub(super) fn enter(namespace: impl AsFd, home: BorrowedFd<'a>) -> std::result::Result<Self, Errno> {
        // The type is always given: RestrictNamespaces=net forbids setns(fd, 0).
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(Self { home, _not_send: std::marker::PhantomData })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if setns(self.home, CloneFlags::CLONE_NEWNET).is_err() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_network_namespace_is_one() {
        let net = open(Path::new("/proc/thread-self/ns/net")).unwrap();
        assert!(is_netns(&net));
        assert!(is_own(&net).unwrap());
        assert_eq!(id(&net).unwrap(), id(own().unwrap()).unwrap());
        for other in ["/proc/thread-self/ns/mnt", "/proc/thread-self/ns", "/dev/null", "/etc/passwd"] {
            let other = open(Path::new(other)).unwrap();
            assert!(!is_netns(&other));
            assert!(!is_own(&other).unwrap());
        }
        assert!(open(Path::new("/nowhere")).is_err());
    }
}
