//! A directory of small files of ours, in which anything may lie: whole writes, wary reads, and a corner for
//! what does not belong there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use nix::fcntl::OFlag;

use super::time::micros;

/// Where unreadable files go, below their directory.
pub(super) const ASIDE: &str = ".corrupt";
/// How many of them are kept.
pub(super) const MAX_ASIDE: usize = 64;
/// What the names of unfinished files begin with.
const TEMP_PREFIX: &[u8] = b".tmp-";

/// The directory; it need not exist.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It went away meanwhile.
    Gone,
    /// What is wrong with it, to follow its name in a sentence.
    Wrong(String),
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Makes the directory and its parents where they lack, durably when asked.
    pub(super) fn create(&self, durable: bool) -> io::Result<()> {
        let missing: Vec<&Path> =
            self.path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).collect();
        for path in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                outcome => outcome?,
            }
            if durable {
                sync(
                    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
                )?;
            }
        }
        Ok(())
    }

    /// Makes what was renamed or removed so far survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync(&self.path)
    }

    /// Writes, and once more after the directory that somebody removed, or that has not been there yet, is made.
    pub(super) fn writing<T>(&self, durable: bool, write: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create(durable).and_then(|()| write())
            }
            outcome => outcome,
        }
    }

    /// Loads every entry; says what was set aside, and why. A directory that is not there has none.
    pub(super) fn load_each(
        &self,
        mut load: impl FnMut(&OsStr) -> Result<(), Unreadable>,
    ) -> io::Result<Vec<(PathBuf, String)>> {
        let mut set_aside = Vec::new();
        let names = match self.names() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(set_aside),
            names => names?,
        };
        for name in names {
            match load(&name) {
                Ok(()) | Err(Unreadable::Gone) => {}
                Err(Unreadable::Wrong(why)) => set_aside.extend(self.put_away(&name, &why)),
            }
        }
        Ok(set_aside)
    }

    /// The names of all entries, sorted, without the corner.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let is_corner = entry.file_name() == ASIDE && entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_corner {
                names.push(entry.file_name());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The bytes of a regular file of 1 to `limit` bytes; never waits, whatever it is.
    pub(super) fn read(&self, name: &OsStr, limit: u64) -> Result<Vec<u8>, Unreadable> {
        let path = self.join(name);
        let seen = fs::symlink_metadata(&path).map_err(|error| unreadable(&error))?;
        if let Some(kind) = kind(seen.file_type()) {
            return Err(Unreadable::Wrong(format!("is a {kind}")));
        }
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&path);
        let file = file.map_err(|error| unreadable(&error))?;
        let opened = file.metadata().map_err(|error| unreadable(&error))?;
        if !opened.is_file() {
            return Err(Unreadable::Wrong("changed its kind".to_owned()));
        }
        if opened.len() > limit {
            return Err(Unreadable::Wrong(format!("has {} bytes, more than {limit}", opened.len())));
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
        match bytes.len() as u64 {
            0 => Err(Unreadable::Wrong("is empty".to_owned())),
            length if length > limit => Err(Unreadable::Wrong(format!("has more than {limit} bytes"))),
            _ => Ok(bytes),
        }
    }

    /// A new file with the bytes under a name of its own, which goes away unless it is committed.
    pub(super) fn write_temp(&self, bytes: &[u8]) -> io::Result<Temp> {
        let (path, mut file) = self.create_temp()?;
        let temp = Temp { path: Some(path) };
        file.write_all(bytes)?;
        Ok(temp)
    }

    fn create_temp(&self) -> io::Result<(PathBuf, File)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut tries = 0;
        loop {
            // The time keeps apart processes of one number in different process namespaces.
            let (number, now) = (NEXT.fetch_add(1, Ordering::Relaxed), micros(SystemTime::now()));
            let name = format!(".tmp-{}-{number}-{now}", std::process::id());
            match self.create_file(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
                outcome => return Ok((self.join(name), outcome?)),
            }
        }
    }

    /// A new file under a name that nothing has.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(flags.bits()).open(self.join(name))
    }

    /// Gives the file its name, in place of what had it. A directory there is set aside first.
    pub(super) fn commit(&self, mut temp: Temp, name: &str) -> io::Result<()> {
        let Some(path) = temp.path.take() else { return Ok(()) };
        let outcome = match fs::rename(&path, self.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                self.set_aside(OsStr::new(name)).and_then(|()| fs::rename(&path, self.join(name)))
            }
            outcome => outcome,
        };
        if outcome.is_err() {
            temp.path = Some(path);
        }
        outcome
    }

    /// Removes the file; one that is not there is no error. A directory there is set aside.
    pub(super) fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match fs::remove_file(self.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => self.set_aside(name.as_ref()),
            outcome => outcome,
        }
    }

    /// Moves what has the name into the corner, and says why; also when that fails. Nothing, when it went
    /// away by itself.
    pub(super) fn put_away(&self, name: &OsStr, why: &str) -> Option<(PathBuf, String)> {
        let why = match self.set_aside(name) {
            Ok(()) => why.to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => format!("{why}; and it cannot be moved away: {}", words(&error)),
        };
        Some((self.join(name), why))
    }

    fn set_aside(&self, name: &OsStr) -> io::Result<()> {
        let corner = self.join(ASIDE);
        match fs::symlink_metadata(&corner) {
            Ok(there) if there.is_dir() => {}
            Ok(_) => {
                fs::remove_file(&corner)?;
                DirBuilder::new().mode(0o700).create(&corner)?;
            }
            Err(_) => DirBuilder::new().mode(0o700).create(&corner)?,
        }
        // The time in front keeps names apart and puts the oldest first; a name has at most 255 bytes.
        let mut aside = format!("{:020}-", micros(SystemTime::now())).into_bytes();
        aside.extend(name.as_bytes().iter().take(200));
        fs::rename(self.join(name), corner.join(OsString::from_vec(aside)))?;
        trim(&corner);
        Ok(())
    }

    /// Whether it is a file that somebody is writing, has just finished, or did not live to finish.
    pub(super) fn is_unfinished(&self, name: &OsStr) -> bool {
        let gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        is_temp(name) && fs::symlink_metadata(self.join(name)).map_or_else(gone, |it| it.is_file())
    }

    /// Removes unfinished files: all, or those that nobody can be writing any more.
    pub(super) fn remove_temps(&self, is_dead: impl Fn(&fs::Metadata) -> bool) {
        // What cannot be listed or removed here is met again, and told, by the load.
        for name in self.names().unwrap_or_default().iter().filter(|name| is_temp(name)) {
            let path = self.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && is_dead(&it)) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// A file that is not committed yet; dropping it removes it.
#[derive(Debug)]
pub(super) struct Temp {
    path: Option<PathBuf>,
}

impl Temp {
    /// Makes the content survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.path.as_ref().map_or(Ok(()), |path| sync(path))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_temp(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMP_PREFIX)
}

/// An error's text without the words that clients of a DEL take for success: go-cni and Multus look for
/// "not found" and "no such file or directory".
pub(super) fn words(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound { "it does not exist".to_owned() } else { error.to_string() }
}

fn unreadable(error: &io::Error) -> Unreadable {
    match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Gone,
        _ => Unreadable::Wrong(format!("cannot be read: {error}")),
    }
}

/// What a file is, other than a regular one.
fn kind(file_type: fs::FileType) -> Option<&'static str> {
    let kinds = [
        (file_type.is_file(), None),
        (file_type.is_symlink(), Some("symbolic link")),
        (file_type.is_dir(), Some("directory")),
        (file_type.is_fifo(), Some("fifo")),
        (file_type.is_socket(), Some("socket")),
    ];
    kinds.into_iter().find(|(is, _)| *is).map_or(Some("device"), |(_, name)| name)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Keeps the newest. A directory that is not empty is somebody's work: it stays.
fn trim(corner: &Path) {
    let Ok(entries) = fs::read_dir(corner) else { return };
    let mut names: Vec<OsString> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort_unstable();
    for name in names.iter().take(names.len().saturating_sub(MAX_ASIDE)) {
        let path = corner.join(name);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    }
}
