//! One D-Bus method call to systemd, `ListJobs() -> a(usssoo)`, over a direct connection.
//!
//! The wire format is the D-Bus specification's ("Message Protocol", "Marshaling"). Everything read is
//! bounded in size and time; a reply that does not parse is an error and never a panic.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// A thousand jobs are about 200 KiB; more than this is not an answer.
const MAX_MESSAGE: usize = 4 << 20;

/// What a job is and for which unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) unit: String,
    pub(super) kind: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DbusError {
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it refused: {0}")]
    Refused(String),
    #[error("its answer does not parse")]
    Malformed,
}

pub(super) fn list_jobs(path: &Path, deadline: Instant) -> Result<Vec<Job>, DbusError> {
    let mut connection = Connection { stream: open(path, deadline)?, deadline };
    connection.write(&greeting())?;
    let answer = connection.read_line()?;
    if !answer.starts_with("OK ") {
        return Err(DbusError::Refused(answer));
    }
    // Only now: systemd 252 does not look at a call that came in one read with the greeting until more comes.
    connection.write(&list_jobs_call())?;
    loop {
        let message = connection.read_message()?;
        match (message.kind, message.reply_to) {
            (METHOD_RETURN, Some(SERIAL)) => return parse_jobs(&message.body).ok_or(DbusError::Malformed),
            (ERROR, Some(SERIAL)) => {
                return Err(DbusError::Refused(
                    message.error.unwrap_or_else(|| "an unnamed error".to_owned()),
                ));
            }
            _ => {} // a signal, or an answer to nobody
        }
    }
}

/// Says who we are (the user id in decimal, each digit in hex), which systemd checks against the socket's peer.
fn greeting() -> Vec<u8> {
    let mut text = b"\0AUTH EXTERNAL ".to_vec();
    for digit in nix::unistd::geteuid().to_string().bytes() {
        text.extend([b'3', digit]); // "0" to "9" are 0x30 to 0x39
    }
    text.extend(b"\r\nBEGIN\r\n");
    text
}

/// Connects without blocking for ever on a full backlog.
fn open(path: &Path, deadline: Instant) -> Result<UnixStream, DbusError> {
    let descriptor: OwnedFd =
        socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
            .map_err(std::io::Error::from)?;
    let address = UnixAddr::new(path).map_err(std::io::Error::from)?;
    loop {
        match connect(descriptor.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::EAGAIN) => return Err(DbusError::Timeout),
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
    }
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

struct Connection {
    stream: UnixStream,
    deadline: Instant,
}

impl Connection {
    fn remaining(&self) -> Result<Duration, DbusError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(DbusError::Timeout) } else { Ok(left) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DbusError> {
        self.stream.set_write_timeout(Some(self.remaining()?))?;
        self.stream.write_all(bytes).map_err(timed)
    }

    /// Reads in steps, the deadline being for all of it and not for each.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), DbusError> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.stream.set_read_timeout(Some(self.remaining()?))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(timed(error)),
            }
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<String, DbusError> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.read(&mut byte)?;
            line.push(byte[0]);
            if line.len() > 512 {
                return Err(DbusError::Malformed);
            }
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn read_message(&mut self) -> Result<Message, DbusError> {
        let mut fixed = [0; 16];
        self.read(&mut fixed)?;
        let mut reader = Reader { bytes: &fixed, at: 4 };
        let body_length = reader.length().ok_or(DbusError::Malformed)?;
        let _serial = reader.u32();
        let fields_length = reader.length().ok_or(DbusError::Malformed)?;
        // systemd runs on this machine and answers in the caller's byte order.
        if fixed[0] != b'l' || body_length > MAX_MESSAGE || fields_length > MAX_MESSAGE {
            return Err(DbusError::Malformed);
        }
        let mut fields = vec![0; fields_length.next_multiple_of(8)];
        self.read(&mut fields)?;
        let mut body = vec![0; body_length];
        self.read(&mut body)?;
        let mut message = Message { kind: fixed[1], reply_to: None, error: None, body };
        message.take_fields(&fields[..fields_length]).ok_or(DbusError::Malformed)?;
        Ok(message)
    }
}

fn timed(error: std::io::Error) -> DbusError {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => DbusError::Timeout,
        _ => error.into(),
    }
}

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SERIAL: u32 = 1;

struct Message {
    kind: u8,
    reply_to: Option<u32>,
    error: Option<String>,
    body: Vec<u8>,
}

impl Message {
    /// Header fields, `a(yv)`; the fields that matter have values of the types s, o, g and u.
    fn take_fields(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader { bytes, at: 0 };
        while reader.at < bytes.len() {
            reader.align(8);
            let code = reader.byte()?;
            match reader.signature()?.as_str() {
                "u" => {
                    let value = reader.u32()?;
                    if code == 5 {
                        self.reply_to = Some(value);
                    }
                }
                "s" | "o" => {
                    let value = reader.string()?;
                    if code == 4 {
                        self.error = Some(value);
                    }
                }
                "g" => drop(reader.signature()?),
                _ => return None,
            }
        }
        Some(())
    }
}

/// `a(usssoo)`: id, unit, type, state, job path, unit path.
fn parse_jobs(body: &[u8]) -> Option<Vec<Job>> {
    let mut reader = Reader { bytes: body, at: 0 };
    let length = reader.length()?;
    reader.align(8);
    let end = reader.at.checked_add(length)?;
    let mut jobs = Vec::new();
    while reader.at < end {
        reader.align(8);
        reader.u32()?;
        let unit = reader.string()?;
        let kind = reader.string()?;
        for _ in 0..3 {
            reader.string()?;
        }
        jobs.push(Job { unit, kind });
    }
    Some(jobs)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn length(&mut self) -> Option<usize> {
        self.u32().and_then(|value| usize::try_from(value).ok())
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    fn string(&mut self) -> Option<String> {
        let length = self.length()?;
        self.text(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.text(usize::from(length))
    }
}

/// Appends values in the wire's alignment.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// A header field of a one-letter string type.
    fn field(&mut self, code: u8, kind: u8, text: &str) {
        self.align(8);
        self.bytes.extend([code, 1, kind, 0]);
        self.string(text);
    }
}

/// Puts the fixed header in front of header fields and body.
fn message(kind: u8, serial: u32, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes.extend([b'l', kind, 0, 1]);
    writer.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    writer.u32(serial);
    writer.u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    writer.bytes.extend(fields);
    writer.align(8);
    writer.bytes.extend(body);
    writer.bytes
}

fn list_jobs_call() -> Vec<u8> {
    let mut fields = Writer::default();
    fields.field(1, b'o', "/org/freedesktop/systemd1");
    fields.field(2, b's', "org.freedesktop.systemd1.Manager");
    fields.field(3, b's', "ListJobs");
    fields.field(6, b's', "org.freedesktop.systemd1");
    message(METHOD_CALL, SERIAL, &fields.bytes, &[])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn call_length() -> usize {
        list_jobs_call().len()
    }

    /// A signal as systemd sends it unasked.
    pub(crate) fn signal() -> Vec<u8> {
        let mut fields = Writer::default();
        fields.field(1, b'o', "/org/freedesktop/systemd1");
        fields.field(2, b's', "org.freedesktop.systemd1.Manager");
        fields.field(3, b's', "Reloading");
        message(4, 7, &fields.bytes, &[1, 0, 0, 0])
    }

    /// A reply to `ListJobs` with (unit, type) each.
    pub(crate) fn jobs_reply(jobs: &[(&str, &str)]) -> Vec<u8> {
        let mut items = Writer::default();
        for (unit, kind) in jobs {
            items.align(8);
            items.u32(17);
            for text in [
                unit,
                kind,
                "running",
                "/org/freedesktop/systemd1/job/17",
                "/org/freedesktop/systemd1/unit/x",
            ] {
                items.string(text);
            }
        }
        let mut body = Writer::default();
        body.u32(u32::try_from(items.bytes.len()).unwrap());
        body.align(8);
        body.bytes.extend(items.bytes);
        let mut fields = Writer::default();
        fields.align(8);
        fields.bytes.extend([5, 1, b'u', 0]);
        fields.u32(SERIAL);
        message(METHOD_RETURN, 9, &fields.bytes, &body.bytes)
    }

    #[test]
    fn no_truncation_of_a_reply_panics() {
        let reply = jobs_reply(&[("hostcni.service", "restart"), ("a.service", "stop")]);
        let body = &reply[16 + 8..];
        assert_eq!(parse_jobs(body).unwrap().len(), 2);
        for length in 0..body.len() {
            assert_eq!(parse_jobs(&body[..length]), None, "{length} bytes");
        }
        assert_eq!(parse_jobs(&[0xff; 64]), None);
    }
}
