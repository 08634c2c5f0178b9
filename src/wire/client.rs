//! A blocking client: every step within a deadline, no thread, no runtime.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::buffer::spare_capacity;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttachmentInfo, Body, CNI_ERROR, CniErrorParameters, Invoke, InvokeReply, MAX_MESSAGE, MonitorEvent,
    StatusReply,
};
use crate::cni;

/// The longest answer in bytes; a list of all attachments is longer than any call.
const LONGEST: usize = 64 << 20;
/// How much is read in one step, at least.
const CHUNK: usize = 4 << 10;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The deadline has passed.
    #[error("no answer within the time allowed")]
    Timeout,
    /// The server closed the connection without an answer.
    #[error("the server closed the connection without an answer")]
    Closed,
    /// Sending or receiving failed.
    #[error("talking to the server failed: {0}")]
    Io(io::Error),
    /// The answer is not what the interface says.
    #[error("the server's answer cannot be understood: {0}")]
    Protocol(String),
    /// The call is larger than the wire carries; it was not sent.
    #[error("the request has {0} bytes on the wire: at most {MAX_MESSAGE} are sent")]
    TooLarge(usize),
    /// The server answered with a CNI error.
    #[error(transparent)]
    Cni(cni::Error),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => Self::Timeout,
            kind if is_closed(kind) => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// What was read and not yet given out.
    received: Vec<u8>,
}

#[derive(Serialize)]
struct Call<'a, P: Serialize> {
    method: &'a str,
    parameters: &'a P,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

/// A reply without its parameters.
#[derive(Deserialize)]
struct Envelope {
    error: Option<String>,
    #[serde(default)]
    continues: bool,
}

/// No parameters.
#[derive(Serialize)]
struct Nothing {}

impl Client {
    /// Connects. A full backlog is waited for until the deadline.
    pub fn connect(path: &Path, deadline: Instant) -> io::Result<Self> {
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        let address = SocketAddrUnix::new(path)?;
        loop {
            // Waiting for the backlog honours the send timeout (unix_stream_connect() in net/unix/af_unix.c), and
            // nothing else does: poll() knows nothing of it.
            set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
            match rustix::net::connect(&socket, &address) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
                connected => {
                    connected?;
                    return Ok(Self { stream: socket.into(), received: Vec::new() });
                }
            }
        }
    }

    /// Carries out a CNI verb; the namespace travels as a descriptor.
    pub fn invoke(
        &mut self,
        call: &Invoke,
        netns: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<InvokeReply, CallError> {
        self.call("io.hostcni.Node.Invoke", call, netns, false, Some(deadline))?;
        self.answer(Some(deadline)).map(|(reply, _)| reply)
    }

    /// What the server is doing.
    pub fn status(&mut self, deadline: Instant) -> Result<StatusReply, CallError> {
        self.call("io.hostcni.Node.Status", &Nothing {}, None, false, Some(deadline))?;
        self.answer(Some(deadline)).map(|(reply, _)| reply)
    }

    /// Every attachment.
    pub fn list_attachments(&mut self, deadline: Instant) -> Result<Vec<AttachmentInfo>, CallError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct List {
            attachments: Vec<AttachmentInfo>,
        }
        self.call("io.hostcni.Node.ListAttachments", &Nothing {}, None, false, Some(deadline))?;
        self.answer(Some(deadline)).map(|(list, _): (List, _)| list.attachments)
    }

    /// Waits until the server is ready, at most `timeout`; `deadline` should come a little later.
    pub fn wait_ready(&mut self, timeout: Duration, deadline: Instant) -> Result<bool, CallError> {
        #[derive(Serialize)]
        struct Wait {
            timeout: u64,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Ready {
            ready: bool,
        }
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.call("io.hostcni.Node.WaitReady", &Wait { timeout }, None, false, Some(deadline))?;
        self.answer(Some(deadline)).map(|(reply, _): (Ready, _)| reply.ready)
    }

    /// Changes what is logged, to the configuration's filter when empty; the filter in force.
    pub fn log_filter(&mut self, filter: Option<&str>, deadline: Instant) -> Result<String, CallError> {
        #[derive(Serialize)]
        struct Wanted<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            filter: Option<&'a str>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct InForce {
            filter: String,
        }
        self.call("io.hostcni.Node.LogFilter", &Wanted { filter }, None, false, Some(deadline))?;
        self.answer(Some(deadline)).map(|(reply, _): (InForce, _)| reply.filter)
    }

    /// Events as they happen, until the server goes.
    pub fn monitor(mut self) -> Result<impl Iterator<Item = Result<MonitorEvent, CallError>>, CallError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Event {
            event: MonitorEvent,
        }
        let sent_within = Instant::now() + Duration::from_secs(5);
        self.call("io.hostcni.Node.Monitor", &Nothing {}, None, true, Some(sent_within))?;
        let mut more = true;
        Ok(std::iter::from_fn(move || {
            if !more {
                return None;
            }
            let answer = self.answer::<Event>(None);
            more = matches!(answer, Ok((_, true)));
            Some(answer.map(|(event, _)| event.event))
        }))
    }

    fn call(
        &mut self,
        method: &str,
        parameters: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
        more: bool,
        deadline: Option<Instant>,
    ) -> Result<(), CallError> {
        let mut bytes = serde_json::to_vec(&Call { method, parameters, more })
            .map_err(|error| CallError::Io(error.into()))?;
        if bytes.len() > MAX_MESSAGE {
            return Err(CallError::TooLarge(bytes.len()));
        }
        bytes.push(0);
        match self.send(&bytes, descriptor, deadline) {
            // Why it closed it may have said before: reading tells.
            Err(error) if is_closed(error.kind()) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Sends all of it; the descriptor goes with the first byte.
    fn send(
        &self,
        bytes: &[u8],
        mut descriptor: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(descriptor) = &descriptor {
                control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.stream, &[IoSlice::new(rest)], &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::POLLOUT, deadline)?,
                sent => {
                    rest = &rest[sent?..];
                    descriptor = None;
                }
            }
        }
        Ok(())
    }

    /// The next reply, and whether more follow.
    fn answer<T: DeserializeOwned + Default>(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<(T, bool), CallError> {
        let message = self.message(deadline)?;
        let envelope: Envelope = decode(&message)?;
        match envelope.error.as_deref() {
            None => Ok((decode::<Body<T>>(&message)?.parameters.unwrap_or_default(), envelope.continues)),
            Some(CNI_ERROR) => {
                let CniErrorParameters { code, msg, details } =
                    decode::<Body<_>>(&message)?.parameters.unwrap_or_default();
                Err(CallError::Cni(cni::Error::new(code.into(), msg).with_details(details)))
            }
            Some(error) => {
                let parameters = decode::<Body<Value>>(&message)?.parameters.unwrap_or_default();
                Err(CallError::Protocol(format!("{error} {parameters}")))
            }
        }
    }

    /// Reads up to the next NUL.
    fn message(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, CallError> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.received[searched..].iter().position(|byte| *byte == 0) {
                let rest = self.received.split_off(searched + end + 1);
                let mut message = std::mem::replace(&mut self.received, rest);
                message.pop();
                return Ok(message);
            }
            searched = self.received.len();
            if searched > LONGEST {
                return Err(CallError::Protocol("the answer has no end".to_owned()));
            }
            self.received.reserve(CHUNK);
            match rustix::net::recv(&self.stream, spare_capacity(&mut self.received), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(CallError::Closed),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::POLLIN, deadline)?,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    /// Waits until the socket can be used, or the deadline.
    fn wait(&self, what: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => PollTimeout::try_from(left(deadline)?).unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut [PollFd::new(self.stream.as_fd(), what)], timeout) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            // A signal, or an error of the socket: trying again tells.
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(message).map_err(|error| CallError::Protocol(error.to_string()))
}

/// The time left; a timeout of zero would mean none at all.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
