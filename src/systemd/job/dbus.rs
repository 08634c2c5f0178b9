//! D-Bus method calls to systemd over a direct connection: `ListJobs() -> a(usssoo)`, and `Get(ss) -> v` of a
//! service's property that is a number.
//!
//! Everything read is bounded in size and time.

/// What is said, in bytes.
mod message;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use message::{
    ERROR, Job, METHOD_RETURN, Reader, SERIAL, list_jobs_call, number_call, parse_jobs, parse_number,
};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// A thousand jobs are about 200 KiB; more than this is not an answer.
const MAX_MESSAGE: usize = 4 << 20;

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
    let body = call(path, deadline, &list_jobs_call())?;
    parse_jobs(&body).ok_or(DbusError::Malformed)
}

/// A property of type `u` of a service.
pub(super) fn number(path: &Path, deadline: Instant, unit: &str, name: &str) -> Result<u32, DbusError> {
    let body = call(path, deadline, &number_call(unit, name))?;
    parse_number(&body).ok_or(DbusError::Malformed)
}

/// The body of the reply.
fn call(path: &Path, deadline: Instant, call: &[u8]) -> Result<Vec<u8>, DbusError> {
    let mut connection = Connection { stream: open(path, deadline)?, deadline };
    connection.write(&greeting())?;
    let answer = connection.read_line()?;
    if !answer.starts_with("OK ") {
        return Err(DbusError::Refused(answer));
    }
    // Only now: systemd 252 does not look at a call that came in one read with the greeting until more comes.
    connection.write(call)?;
    loop {
        let message = connection.read_message()?;
        match (message.kind, message.reply_to) {
            (METHOD_RETURN, Some(SERIAL)) => return Ok(message.body),
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

#[cfg(test)]
pub(super) use message::tests;
