//! A blocking client: every step within a deadline, no thread, no runtime.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    AttachmentInfo, CniErrorParameters, INTERFACE, Invoke, InvokeReply, MAX_MESSAGE, MonitorEvent,
    StatusReply,
};
use crate::cni;

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
    /// The server answered with a CNI error.
    #[error(transparent)]
    Cni(cni::Error),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Timeout,
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    received: Vec<u8>,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    continues: bool,
    error: Option<String>,
}

impl Client {
    /// Connects. A full backlog is waited for until the deadline: for a unix socket `connect()` honours
    /// the send timeout (`unix_stream_connect()` in net/unix/af_unix.c).
    pub fn connect(path: &Path, deadline: Instant) -> io::Result<Self> {
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { stream: socket.into(), received: Vec::new() })
    }

    /// Carries out a CNI verb; the namespace travels as a descriptor.
    pub fn invoke(
        &mut self,
        call: &Invoke,
        netns: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<InvokeReply, CallError> {
        self.call("Invoke", &json!(call), netns, false, deadline)?;
        self.answer(deadline).map(|(reply, _)| reply)
    }

    /// What the server is doing.
    pub fn status(&mut self, deadline: Instant) -> Result<StatusReply, CallError> {
        self.call("Status", &json!({}), None, false, deadline)?;
        self.answer(deadline).map(|(reply, _)| reply)
    }

    /// Every attachment.
    pub fn list_attachments(&mut self, deadline: Instant) -> Result<Vec<AttachmentInfo>, CallError> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            attachments: Vec<AttachmentInfo>,
        }
        self.call("ListAttachments", &json!({}), None, false, deadline)?;
        self.answer(deadline).map(|(list, _): (List, _)| list.attachments)
    }

    /// Waits until the server is ready, at most `timeout`; `deadline` should come a little later.
    pub fn wait_ready(&mut self, timeout: Duration, deadline: Instant) -> Result<bool, CallError> {
        #[derive(Deserialize)]
        struct Ready {
            #[serde(default)]
            ready: bool,
        }
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.call("WaitReady", &json!({ "timeout": millis }), None, false, deadline)?;
        self.answer(deadline).map(|(reply, _): (Ready, _)| reply.ready)
    }

    /// Events as they happen, until the server goes.
    pub fn monitor(mut self) -> Result<impl Iterator<Item = Result<MonitorEvent, CallError>>, CallError> {
        #[derive(Deserialize)]
        struct Event {
            event: MonitorEvent,
        }
        let sent_within = Instant::now() + Duration::from_secs(5);
        self.call("Monitor", &json!({}), None, true, sent_within)?;
        let mut more = true;
        Ok(std::iter::from_fn(move || {
            if !more {
                return None;
            }
            let answer = self.answer_within::<Event>(None);
            more = matches!(answer, Ok((_, true)));
            Some(answer.map(|(event, _)| event.event))
        }))
    }

    fn call(
        &mut self,
        method: &str,
        parameters: &Value,
        descriptor: Option<BorrowedFd<'_>>,
        more: bool,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let mut call = json!({ "method": format!("{INTERFACE}.{method}"), "parameters": parameters });
        if more {
            call["more"] = true.into();
        }
        let mut bytes = call.to_string().into_bytes();
        if bytes.len() > MAX_MESSAGE {
            let text =
                format!("the request has {} bytes on the wire: at most {MAX_MESSAGE} are sent", bytes.len());
            return Err(CallError::Cni(cni::Error::new(cni::ErrorCode::Decoding, text)));
        }
        bytes.push(0);
        let mut rest = bytes.as_slice();
        // The descriptor goes with the first byte.
        let mut descriptor = descriptor;
        while !rest.is_empty() {
            set_socket_timeout(&self.stream, Timeout::Send, Some(left(deadline)?))
                .map_err(io::Error::from)?;
            let sent = send(&self.stream, rest, descriptor)?;
            rest = &rest[sent..];
            descriptor = None;
        }
        Ok(())
    }

    fn answer<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<(T, bool), CallError> {
        self.answer_within(Some(deadline))
    }

    /// The next reply, and whether more follow.
    fn answer_within<T: DeserializeOwned>(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<(T, bool), CallError> {
        let bytes = self.message(deadline)?;
        let protocol = |error: serde_json::Error| CallError::Protocol(error.to_string());
        let reply: Reply = serde_json::from_slice(&bytes).map_err(protocol)?;
        match reply.error {
            None => Ok((T::deserialize(reply.parameters).map_err(protocol)?, reply.continues)),
            Some(error) if error == format!("{INTERFACE}.CniError") => {
                let parameters = CniErrorParameters::deserialize(reply.parameters).map_err(protocol)?;
                let error = cni::Error::new(parameters.code.into(), parameters.msg);
                Err(CallError::Cni(error.with_details(parameters.details)))
            }
            Some(error) => Err(CallError::Protocol(format!("{error} {}", reply.parameters))),
        }
    }

    /// Reads up to the next NUL.
    fn message(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, CallError> {
        /// Replies may be longer than requests: a list of all attachments, say.
        const LONGEST: usize = 64 << 20;
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
            let timeout = deadline.map(left).transpose()?;
            self.stream.set_read_timeout(timeout)?;
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(CallError::Closed),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn send(stream: &UnixStream, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    loop {
        match rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// The time left; a timeout of zero would mean none at all.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
