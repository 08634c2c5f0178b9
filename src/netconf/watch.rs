//! Watching the confs' directories, so that the server notices what others do there.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe::Receiver;

/// Any change to a name, a content or a mode in a directory, and the directory itself.
const EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

/// An inotify watch over the directories of some confs.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    /// The same descriptor for tokio. (Its `AsyncFd` has no safe constructor; what it reads need not be parsed.)
    events: Receiver,
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Watches the directories of `confs`. A directory that is missing is waited for: its nearest ancestor is
    /// watched. Call it within a tokio runtime.
    pub fn new<'a>(confs: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut directories: Vec<PathBuf> =
            confs.into_iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
        directories.sort();
        directories.dedup();
        let events = Receiver::from_owned_fd_unchecked(inotify.as_fd().try_clone_to_owned()?)?;
        let watch = Self { inotify, events, directories };
        watch.arm()?;
        Ok(watch)
    }

    /// Returns when something has happened in one of the directories since the last call. That may be what
    /// the caller did itself: look at the confs, and act on what is there. Cancel-safe.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut any = false;
        loop {
            match self.events.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && any => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.events.readable().await?,
                Err(error) => return Err(error),
            }
        }
        // A directory that was removed or replaced is another inode now: watch that one.
        self.arm()
    }

    /// Watches each directory, or its nearest ancestor that is there. Adding a watch again changes nothing.
    fn arm(&self) -> io::Result<()> {
        for directory in &self.directories {
            for ancestor in directory.ancestors() {
                match self.inotify.add_watch(ancestor, EVENTS) {
                    Ok(_) => break,
                    Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn within_a_second(watch: &mut Watch) -> bool {
        tokio::time::timeout(Duration::from_secs(1), watch.changed())
            .await
            .is_ok_and(|changed| changed.is_ok())
    }

    async fn is_quiet(watch: &mut Watch) -> bool {
        tokio::time::timeout(Duration::from_millis(50), watch.changed()).await.is_err()
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn removals_and_arrivals_are_noticed_and_quiet_is_quiet() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let conf = dir.path().join("80-net.conf");
            let mut watch = Watch::new([conf.as_path()]).unwrap();
            assert!(is_quiet(&mut watch).await);
            std::fs::write(&conf, "{}").unwrap();
            assert!(within_a_second(&mut watch).await);
            assert!(is_quiet(&mut watch).await);
            std::fs::remove_file(&conf).unwrap();
            assert!(within_a_second(&mut watch).await);
        });
    }

    #[test]
    fn a_directory_that_is_deleted_and_made_again_is_watched_again() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let conf = dir.path().join("cni/net.d/80-net.conf");
            let mut watch = Watch::new([conf.as_path()]).unwrap();
            for _ in 0..2 {
                std::fs::create_dir_all(conf.parent().unwrap()).unwrap();
                while !is_quiet(&mut watch).await {}
                std::fs::write(&conf, "{}").unwrap();
                assert!(within_a_second(&mut watch).await);
                while !is_quiet(&mut watch).await {}
                std::fs::remove_dir_all(dir.path().join("cni")).unwrap();
                assert!(within_a_second(&mut watch).await);
            }
        });
    }
}
