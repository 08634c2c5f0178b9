//! D-Bus as far as calls with strings and the hearing of signals need it, over systemd's private socket or the system
//! bus. Every call has a deadline, and everything that is read a bound.

/// What is said, in bytes.
pub(super) mod message;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use message::{Call, ERROR, METHOD_RETURN, Message, Reader, SIGNAL, strings};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// A thousand jobs are about 200 KiB; more than this is not an answer.
const MAX_MESSAGE: usize = 4 << 20;
/// Signals kept while an answer is waited for; more than these tell nothing new.
const MAX_SIGNALS: usize = 64;

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

/// A connection on which nothing is under way.
pub(super) struct Connection {
    stream: UnixStream,
    serial: u32,
    signals: VecDeque<Message>,
}

impl Connection {
    /// Connects and says who we are; on a bus, `Hello` has to be the first call.
    pub(super) fn open(path: &Path, deadline: Instant) -> Result<Self, DbusError> {
        let mut connection = Self { stream: open(path, deadline)?, serial: 0, signals: VecDeque::new() };
        connection.write(&greeting(), deadline)?;
        let answer = connection.read_line(deadline)?;
        if answer.starts_with("OK ") { Ok(connection) } else { Err(DbusError::Refused(answer)) }
    }

    /// The body of the reply.
    pub(super) fn call(&mut self, call: &Call<'_>, deadline: Instant) -> Result<Vec<u8>, DbusError> {
        self.serial += 1;
        // Only now: systemd 252 does not look at a call that came in one read with the greeting until more comes.
        self.write(&call.bytes(self.serial), deadline)?;
        loop {
            let message = self.read_message(Some(deadline))?;
            match (message.kind, message.reply_to) {
                (METHOD_RETURN, Some(serial)) if serial == self.serial => return Ok(message.body),
                (ERROR, Some(serial)) if serial == self.serial => {
                    let name = message.error.unwrap_or_else(|| "an unnamed error".to_owned());
                    let text = strings(&message.body).next().filter(|text| !text.is_empty());
                    return Err(DbusError::Refused(text.unwrap_or(name)));
                }
                (SIGNAL, _) if self.signals.len() < MAX_SIGNALS => self.signals.push_back(message),
                _ => {} // an answer to nobody
            }
        }
    }

    /// The next signal, however long that takes.
    pub(super) fn signal(&mut self) -> Result<Message, DbusError> {
        if let Some(signal) = self.signals.pop_front() {
            return Ok(signal);
        }
        loop {
            let message = self.read_message(None)?;
            if message.kind == SIGNAL {
                return Ok(message);
            }
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), DbusError> {
        self.stream.set_write_timeout(Some(remaining(deadline)?))?;
        self.stream.write_all(bytes).map_err(timed)
    }

    /// Reads in steps, the deadline being for all of it and not for each.
    fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> Result<(), DbusError> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.stream.set_read_timeout(deadline.map(remaining).transpose()?)?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(timed(error)),
            }
        }
        Ok(())
    }

    fn read_line(&mut self, deadline: Instant) -> Result<String, DbusError> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.read(&mut byte, Some(deadline))?;
            line.push(byte[0]);
            if line.len() > 512 {
                return Err(DbusError::Malformed);
            }
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn read_message(&mut self, deadline: Option<Instant>) -> Result<Message, DbusError> {
        let mut fixed = [0; 16];
        self.read(&mut fixed, deadline)?;
        let mut reader = Reader { bytes: &fixed, at: 4 };
        let body_length = reader.length().ok_or(DbusError::Malformed)?;
        let _serial = reader.u32();
        let fields_length = reader.length().ok_or(DbusError::Malformed)?;
        // The other side runs on this machine and speaks in its byte order.
        if fixed[0] != b'l' || body_length > MAX_MESSAGE || fields_length > MAX_MESSAGE {
            return Err(DbusError::Malformed);
        }
        let mut fields = vec![0; fields_length.next_multiple_of(8)];
        self.read(&mut fields, deadline)?;
        let mut body = vec![0; body_length];
        self.read(&mut body, deadline)?;
        let mut message = Message { kind: fixed[1], body, ..Message::default() };
        message.take_fields(&fields[..fields_length]).ok_or(DbusError::Malformed)?;
        Ok(message)
    }
}

fn remaining(deadline: Instant) -> Result<Duration, DbusError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(DbusError::Timeout) } else { Ok(left) }
}

fn timed(error: std::io::Error) -> DbusError {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => DbusError::Timeout,
        _ => error.into(),
    }
}
