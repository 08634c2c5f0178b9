//! The records that must survive a power cut, in files that are used again.
//!
//! A new file costs a commit of the file system's journal, and so does its end; to write over what is on the disk
//! already costs one flush. So a record that is removed leaves its file, marked as free, to the next one.
//!
//! A file holds lines `serial hash record`. Those with the serial of the first line are one attachment's, the last of
//! them says what has become of it, and whatever follows is of an earlier use. The hash covers serial and record: what
//! a power cut mixed of two uses is no line. A free file begins with a zero byte.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;

use crate::cni::AttachmentKey;

use super::Attachment;
use super::directory::{Directory, Unreadable};
use super::names::hash;
use super::store::{Loaded, MAX_RECORD, StoreError, failed};

/// What the names of the files begin with; a number follows.
const PREFIX: &str = "record-";
/// How many free files a start leaves.
const SPARE: usize = 64;
/// Files are as large as whole blocks.
const BLOCK: usize = 4096;
/// A new file has room for so many lines like its first, since to grow costs what a new file costs.
const LINES: usize = 6;
/// What has grown beyond this many bytes is not used again.
const LARGE: usize = 64 << 10;

/// The directory of records. One process writes to it.
#[derive(Debug)]
pub struct Slots {
    directory: Directory,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<AttachmentKey, Place>,
    free: Vec<u32>,
    next: u32,
    serial: u64,
}

/// Where a record is.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: u32,
    serial: u64,
    /// Where its next line goes.
    end: u64,
}

/// What is in a file that is not free.
#[derive(Debug)]
struct Content {
    serial: u64,
    end: u64,
    /// As the last line has it.
    record: Attachment,
}

impl Slots {
    /// The records below a directory; the first one makes it. Nothing is known before [`Slots::load_all`].
    pub fn new(dir: &Path) -> Self {
        Self { directory: Directory::new(dir), state: Mutex::default() }
    }

    /// Writes the record, in place of an earlier one; afterwards a power cut does not lose it.
    pub fn put(&self, attachment: &Attachment) -> Result<(), StoreError> {
        let failed = failed("write a record to", self.directory.path().to_owned());
        crate::step!("store.put", failed(crate::failpoint::error()));
        let serial = {
            let mut state = self.state();
            state.serial += 1;
            state.serial
        };
        let line = line(serial, attachment).map_err(&failed)?;
        let spare = self.state().free.pop();
        let used = spare.filter(|file| self.begin(*file, &line));
        let file = used.map_or_else(|| self.new_file(&line), Ok).map_err(&failed)?;
        let place = Place { file, serial, end: line.len() as u64 };
        let earlier = self.state().places.insert(attachment.key.clone(), place);
        if let Some(earlier) = earlier {
            // If that fails, the greater serial tells which is which.
            let _ = self.free(earlier);
        }
        Ok(())
    }

    /// Adds what has become of an attachment to its record, without waiting for the disk: after a power cut the
    /// record may be as it was put, which is all that a DEL cannot do without.
    pub fn amend(&self, attachment: &Attachment) -> Result<(), StoreError> {
        let failed = failed("write a record to", self.directory.path().to_owned());
        crate::step!("store.put", failed(crate::failpoint::error()));
        let Some(place) = self.place(&attachment.key) else { return self.put(attachment) };
        let line = line(place.serial, attachment).map_err(&failed)?;
        let end = place.end + line.len() as u64;
        // Whatever is there instead of the file, a new one deals with.
        let Some(file) = self.open(place.file).filter(|_| end <= MAX_RECORD) else {
            return self.put(attachment);
        };
        file.write_all_at(&line, place.end).map_err(&failed)?;
        if let Some(known) = self.state().places.get_mut(&attachment.key) {
            known.end = end;
        }
        Ok(())
    }

    /// Makes what was added to the record survive a power cut, too; a record that is gone needs nothing.
    pub fn sync(&self, key: &AttachmentKey) -> Result<(), StoreError> {
        let file = self.place(key).and_then(|place| self.open(place.file));
        let synced = file.map_or(Ok(()), |file| file.sync_data());
        synced.map_err(failed("sync a record in", self.directory.path().to_owned()))
    }

    /// Removes the record; one that is not there is no error. After a power cut it may be there again.
    pub fn remove(&self, key: &AttachmentKey) -> Result<(), StoreError> {
        let failed = failed("remove a record from", self.directory.path().to_owned());
        crate::step!("store.remove", failed(crate::failpoint::error()));
        let Some(place) = self.place(key) else { return Ok(()) };
        self.free(place).map_err(failed)?;
        self.state().places.remove(key);
        Ok(())
    }

    /// All records. What is not one is set aside; only a directory that cannot be listed is an error.
    pub fn load_all(&self) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
        let mut state = State::default();
        let mut found: HashMap<AttachmentKey, (Place, Attachment)> = HashMap::new();
        let mut left = Vec::new();
        let set_aside = self.directory.load_each(|name| {
            let (file, content) = self.load(name, &mut state)?;
            let Some(Content { serial, end, record }) = content else {
                state.free.push(file);
                return Ok(());
            };
            let place = Place { file, serial, end };
            // One of them was removed, and came back with a power cut. Of two with one serial, nothing was added to
            // the one whose flush failed.
            let other = found.get(&record.key).map(|(place, _)| *place);
            if other.is_none_or(|other| (other.serial, other.end) < (serial, end)) {
                left.extend(other);
                found.insert(record.key.clone(), (place, record));
            } else {
                left.push(place);
            }
            Ok(())
        });
        loaded.set_aside = set_aside.map_err(failed("list", self.directory.path().to_owned()))?;
        for file in state.free.drain(state.free.len().min(SPARE)..) {
            let _ = self.directory.remove(file_name(file));
        }
        // A process that died may not have come to it, and what is put over a file counts on its name.
        let _ = self.directory.sync();
        state.places = found.iter().map(|(key, (place, _))| (key.clone(), *place)).collect();
        *self.state() = state;
        for place in left {
            // What cannot be freed is found again, and again the greater serial counts.
            let _ = self.free(place);
        }
        loaded.attachments = found.into_values().map(|(_, record)| record).collect();
        loaded.sort();
        Ok(loaded)
    }

    /// The number of a file and, unless it is free, what is in it. Numbers and serials go on behind those that it has.
    fn load(&self, name: &OsStr, state: &mut State) -> Result<(u32, Option<Content>), Unreadable> {
        let file =
            file_number(name).ok_or_else(|| Unreadable::Wrong("is not a file of hostcni's".to_owned()))?;
        let mut bytes = self.directory.read(name, MAX_RECORD)?;
        state.next = state.next.max(file.wrapping_add(1));
        let is_free = bytes[0] == 0;
        if is_free {
            // As every serial begins.
            bytes[0] = b'0';
        }
        let lines = lines(&bytes);
        // Also those of earlier uses: with the serial of a later one they would be its lines.
        state.serial = lines.iter().map(|line| line.serial).fold(state.serial, u64::max);
        if is_free {
            return Ok((file, None));
        }
        let content = if bytes[0] == b'{' { by_hand(&bytes) } else { newest(lines) };
        Ok((file, Some(content.map_err(Unreadable::Wrong)?)))
    }

    /// Writes the first line over a free file, down to the disk; false when that file is no good.
    fn begin(&self, file: u32, line: &[u8]) -> bool {
        let write = |file: File| file.write_all_at(line, 0).and_then(|()| file.sync_data());
        let is_written = self.open(file).is_some_and(|file| write(file).is_ok());
        if !is_written {
            // It is met again, at worst as an attachment whose DEL finds nothing.
            let _ = self.directory.remove(file_name(file));
        }
        is_written
    }

    fn new_file(&self, line: &[u8]) -> io::Result<u32> {
        let size = (LINES * line.len()).min(LARGE).max(line.len()).next_multiple_of(BLOCK);
        let mut bytes = line.to_vec();
        bytes.resize(size, 0);
        self.directory.writing(true, || self.create(&bytes))
    }

    fn create(&self, bytes: &[u8]) -> io::Result<u32> {
        let (number, mut file) = loop {
            let number = {
                let mut state = self.state();
                // After the last one the first that is not there.
                let number = state.next;
                state.next = number.wrapping_add(1);
                number
            };
            match self.directory.create_file(&file_name(number)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => break (number, outcome?),
            }
        };
        let written =
            file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| self.directory.sync());
        if written.is_err() {
            let _ = self.directory.remove(file_name(number));
        }
        written.map(|()| number)
    }

    /// Marks the file of a record as free, for the next one.
    fn free(&self, place: Place) -> io::Result<()> {
        let file = self.open(place.file).filter(|_| place.end <= LARGE as u64);
        let Some(file) = file else { return self.directory.remove(file_name(place.file)) };
        file.write_all_at(&[0], 0)?;
        self.state().free.push(place.file);
        Ok(())
    }

    /// A file of ours, if it is one.
    fn open(&self, file: u32) -> Option<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let path = self.directory.join(file_name(file));
        let file = OpenOptions::new().write(true).custom_flags(flags.bits()).open(path).ok()?;
        let there = file.metadata().ok()?;
        (there.is_file() && there.nlink() == 1).then_some(file)
    }

    fn place(&self, key: &AttachmentKey) -> Option<Place> {
        self.state().places.get(key).copied()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(serial: u64, attachment: &Attachment) -> io::Result<Vec<u8>> {
    let record = serde_json::to_string(attachment)?;
    let serial = format!("{serial:016x}");
    let line = format!("{serial} {:032x} {record}\n", check(&serial, &record));
    // A start would set it aside.
    if line.len() as u64 > MAX_RECORD {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(line.into_bytes())
    }
}

fn check(serial: &str, record: &str) -> u128 {
    hash(&format!("{serial} {record}"))
}

/// A line of a file that is whole.
struct Line<'a> {
    /// Where it is in the file.
    begin: u64,
    end: u64,
    serial: u64,
    record: &'a [u8],
}

/// All lines that are whole, wherever they are.
fn lines(bytes: &[u8]) -> Vec<Line<'_>> {
    let mut end = 0;
    let each = bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
        let begin = end;
        end += line.len() as u64;
        parse(line).map(|(serial, record)| Line { begin, end, serial, record })
    });
    each.collect()
}

/// What the lines of a file say of its use now.
fn newest(lines: Vec<Line<'_>>) -> Result<Content, String> {
    let mut content: Option<Content> = None;
    for Line { begin, end, serial, record } in lines {
        let (expected, first) = content.as_ref().map_or((0, serial), |content| (content.end, content.serial));
        if begin != expected || serial != first {
            break;
        }
        match (Attachment::parse(record), &content) {
            (Ok(record), _) => content = Some(Content { serial, end, record }),
            (Err(why), None) => return Err(why),
            // A later version's: what it had before counts.
            (Err(_), Some(_)) => break,
        }
    }
    content.ok_or_else(|| "is no attachment: its first line is not whole".to_owned())
}

/// A record that is plain JSON was written by hand.
fn by_hand(bytes: &[u8]) -> Result<Content, String> {
    let end = bytes.iter().position(|byte| [b'\n', 0].contains(byte)).unwrap_or(bytes.len());
    let record = Attachment::parse(&bytes[..end])?;
    // A file of its own when it is amended.
    Ok(Content { serial: 0, end: MAX_RECORD, record })
}

/// Serial and record of a line that is whole.
fn parse(line: &[u8]) -> Option<(u64, &[u8])> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (serial, rest) = line.split_once(' ')?;
    let (found, record) = rest.split_once(' ')?;
    let is_whole = found == format!("{:032x}", check(serial, record));
    Some((u64::from_str_radix(serial, 16).ok().filter(|_| is_whole)?, record.as_bytes()))
}

fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:06}")
}

fn file_number(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
    (name == file_name(number).as_str()).then_some(number)
}
