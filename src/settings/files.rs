//! Which files make up the configuration, in which order, and their text.
//!
//! `usr/lib/hostcni/config.toml`, then `etc/hostcni/config.toml`, then the drop-ins `config.d/*.toml` of both
//! directories sorted by name together, as systemd sorts its own: a later one overrides an earlier one key by key. A
//! drop-in in `/etc` takes the place of the vendor's of the same name, and a link to `/dev/null` there takes it away;
//! `/etc/hostcni/config.toml` as a link to `/dev/null` takes the vendor's file away.
//!
//! Nothing here blocks or grows without bound, whatever lies at those paths: a FIFO is refused, not waited for.

use super::problem::{Origin, Problem};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of one file in bytes above which it is not a configuration but a mistake.
const MAX_FILE: u64 = 1 << 20;
/// Number of drop-ins, for the same reason.
const MAX_DROP_INS: usize = 256;

const VENDOR: &str = "usr/lib/hostcni";
const ADMIN: &str = "etc/hostcni";

/// One file that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Source {
    /// The line (from 1) of a byte of the text.
    pub(super) fn line(&self, offset: usize) -> usize {
        line_of(self.text.as_bytes(), offset)
    }

    pub(super) fn origin(&self, offset: usize) -> Origin {
        Origin::File { path: self.path.clone(), line: self.line(offset) }
    }
}

/// Reads every file that counts under `root`, the least important first. What cannot be read is a problem; what is
/// not there is not.
pub(super) fn read_all(root: &Path, problems: &mut Vec<Problem>) -> Vec<Arc<Source>> {
    let mut paths = Vec::new();
    let admin = root.join(ADMIN).join("config.toml");
    if !is_masked(&admin) {
        paths.push(root.join(VENDOR).join("config.toml"));
        paths.push(admin);
    }
    paths.extend(drop_ins(root, problems));
    let mut sources = Vec::new();
    for path in paths {
        match read(&path) {
            Ok(Some(text)) => sources.push(Arc::new(Source { path, text })),
            Ok(None) => {}
            Err(problem) => problems.push(*problem),
        }
    }
    sources
}

/// The drop-ins that count, sorted by name.
fn drop_ins(root: &Path, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for directory in [VENDOR, ADMIN] {
        let directory = root.join(directory).join("config.d");
        let listing = std::fs::read_dir(&directory)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect());
        let names: Vec<OsString> = match listing {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                problems.push(Problem::general(format!("cannot list {}: {error}", directory.display())));
                continue;
            }
        };
        for name in names {
            // Hidden names are what editors and package managers leave on their way to the final name.
            let bytes = name.as_encoded_bytes();
            if !bytes.starts_with(b".") && bytes.ends_with(b".toml") {
                by_name.insert(name.clone(), directory.join(name));
            }
        }
    }
    if by_name.len() > MAX_DROP_INS {
        problems.push(Problem::general(format!(
            "{} files in config.d, more than the {MAX_DROP_INS} that are read: put them together",
            by_name.len()
        )));
        return Vec::new();
    }
    by_name.into_values().filter(|path| !is_masked(path)).collect()
}

/// Is this a link to `/dev/null`, the way to take a vendor's file away?
fn is_masked(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null"))
}

/// The text of a file; `None` when there is no such file.
fn read(path: &Path) -> Result<Option<String>, Box<Problem>> {
    let bytes = match bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot_read(path, &error).into()),
        // A name that leads nowhere is a mistake; no name is none.
        Err(_) if std::fs::symlink_metadata(path).is_ok() => {
            let what = "a symbolic link to nothing; remove it, or link it to /dev/null to mask the vendor's";
            return Err(cannot_read(path, &what).into());
        }
        Err(_) => return Ok(None),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let upto = error.utf8_error().valid_up_to();
        let line = line_of(error.as_bytes(), upto);
        let message = format!("not UTF-8 text: byte 0x{:02x} at offset {upto}", error.as_bytes()[upto]);
        Box::new(Problem::at(Origin::File { path: path.to_path_buf(), line }, message))
    })?;
    Ok(Some(text))
}

fn cannot_read(path: &Path, what: &dyn std::fmt::Display) -> Problem {
    Problem::general(format!("cannot read {}: {what}", path.display()))
}

/// The text of a file that a setting names.
pub(super) fn text(path: &Path) -> Result<String, String> {
    let cannot = |what: &dyn std::fmt::Display| format!("cannot read {}: {what}", path.display());
    let bytes = bytes(path).map_err(|error| cannot(&error))?;
    String::from_utf8(bytes).map_err(|error| cannot(&error))
}

/// All bytes of a plain file of a size that a configuration can have.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // O_NONBLOCK: opening a FIFO that nobody writes to would otherwise wait for ever.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a FIFO"
        } else {
            "a special file"
        };
        return Err(io::Error::other(format!("{kind}, not a file")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("larger than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

/// The line (from 1) of a byte.
fn line_of(bytes: &[u8], offset: usize) -> usize {
    bytes[..offset.min(bytes.len())].split(|byte| *byte == b'\n').count()
}
