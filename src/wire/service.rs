//! The server's half: connections over tokio, calls in, replies out.
//!
//! Own framing and not the `zlink` crate's: a descriptor must be close-on-exec in the very call that receives
//! it (`MSG_CMSG_CLOEXEC`), or a child started meanwhile keeps a pod's namespace alive; and a peer must not be
//! able to make the server hold more than [`MAX_MESSAGE`] of it. The tests talk to it with `zlink`'s client.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use super::{
    AttachmentInfo, CniErrorParameters, IDL, INTERFACE, Invoke, InvokeReply, MAX_MESSAGE, MonitorEvent,
    StatusReply,
};
use crate::cni;

/// The listening socket.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Over a socket that listens already.
    pub fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self)
    }

    /// The next connection; cancel-safe.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        let (stream, _) = self.0.accept().await?;
        Ok(Connection {
            stream,
            received: Vec::new(),
            searched: 0,
            descriptors: Vec::new(),
            reply: Expected::One,
        })
    }
}

/// A call.
#[derive(Debug)]
pub enum Call {
    /// A CNI verb, with the namespace that came along.
    Invoke(Box<Invoke>, Option<OwnedFd>),
    /// What the server is doing.
    Status,
    /// Every attachment.
    ListAttachments,
    /// To be answered when the server is ready, at the latest after the timeout.
    WaitReady {
        /// How long to wait.
        timeout: Duration,
    },
    /// Events as they happen.
    Monitor,
}

/// Why a connection yields no further call.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer has closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// Receiving or answering failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer does not keep to the protocol.
    #[error("the peer does not speak Varlink: {0}")]
    Protocol(String),
}

/// What kind of reply the call in hand expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    None,
    One,
    More,
}

/// A connection; one call at a time.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    /// How far `received` is known to hold no NUL.
    searched: usize,
    descriptors: Vec<OwnedFd>,
    reply: Expected,
}

/// More descriptors than any call of ours carries; the kernel closes what does not fit.
const DESCRIPTORS: usize = 4;
const CHUNK: usize = 16 << 10;

#[derive(Deserialize)]
struct Incoming {
    method: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    oneway: bool,
    #[serde(default)]
    more: bool,
}

#[derive(Serialize)]
struct Outgoing<'a, P: Serialize> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    parameters: P,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continues: bool,
}

impl Connection {
    /// The peer's user, as the kernel knows it.
    pub fn peer_uid(&self) -> Option<u32> {
        self.stream.peer_cred().ok().map(|peer| peer.uid())
    }

    /// The peer's process.
    pub fn peer_pid(&self) -> Option<i32> {
        self.stream.peer_cred().ok().and_then(|peer| peer.pid())
    }

    /// The next call of our interface. Calls that only concern the protocol are answered here. Cancel-safe
    /// while it waits for the peer.
    pub async fn receive(&mut self) -> Result<Call, ReceiveError> {
        loop {
            let message = self.message().await?;
            let descriptors = std::mem::take(&mut self.descriptors);
            let incoming: Incoming = serde_json::from_slice(&message)
                .map_err(|error| ReceiveError::Protocol(error.to_string()))?;
            self.reply = match (incoming.oneway, incoming.more) {
                (true, _) => Expected::None,
                (false, true) => Expected::More,
                (false, false) => Expected::One,
            };
            match self.decode(incoming, descriptors) {
                Ok(call) => return Ok(call),
                Err((error, parameters)) => self.reply_raw(error, parameters, false).await?,
            }
        }
    }

    /// The call, or what is answered instead: `Err((None, reply))` for the protocol's own methods.
    fn decode(
        &self,
        incoming: Incoming,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Call, (Option<&'static str>, Value)> {
        let Some((interface, method)) = incoming.method.rsplit_once('.') else {
            return Err((
                Some("org.varlink.service.InterfaceNotFound"),
                json!({ "interface": incoming.method }),
            ));
        };
        match (interface, method) {
            (INTERFACE, "Invoke") => {
                let invoke: Invoke = parameters(incoming.parameters, "config")?;
                let mut descriptors = descriptors;
                let netns = match invoke.netns_fd.map(|index| index as usize) {
                    None => None,
                    Some(index) if index < descriptors.len() => Some(descriptors.swap_remove(index)),
                    Some(_) => return Err(invalid("netnsFd")),
                };
                Ok(Call::Invoke(Box::new(invoke), netns))
            }
            (INTERFACE, "Status") => Ok(Call::Status),
            (INTERFACE, "ListAttachments") => Ok(Call::ListAttachments),
            (INTERFACE, "WaitReady") => {
                #[derive(Deserialize)]
                struct Timeout {
                    timeout: u64,
                }
                let wait: Timeout = parameters(incoming.parameters, "timeout")?;
                Ok(Call::WaitReady { timeout: Duration::from_millis(wait.timeout) })
            }
            (INTERFACE, "Monitor") if self.reply == Expected::More => Ok(Call::Monitor),
            (INTERFACE, "Monitor") => Err((Some("org.varlink.service.ExpectedMore"), json!({}))),
            ("org.varlink.service", "GetInfo") => Err((None, info())),
            ("org.varlink.service", "GetInterfaceDescription") => Err(description(&incoming.parameters)),
            (INTERFACE | "org.varlink.service", _) => {
                Err((Some("org.varlink.service.MethodNotFound"), json!({ "method": method })))
            }
            _ => Err((Some("org.varlink.service.InterfaceNotFound"), json!({ "interface": interface }))),
        }
    }

    /// Answers `Invoke`.
    pub async fn reply_invoke(&mut self, reply: Result<&InvokeReply, &cni::Error>) -> io::Result<()> {
        match reply {
            Ok(reply) => self.reply_raw(None, reply, false).await,
            Err(error) => {
                let parameters = CniErrorParameters {
                    code: error.code.as_u32(),
                    msg: error.msg.clone(),
                    details: error.details.clone(),
                };
                self.reply_raw(Some("io.hostcni.Node.CniError"), parameters, false).await
            }
        }
    }

    /// Answers `Status`.
    pub async fn reply_status(&mut self, status: &StatusReply) -> io::Result<()> {
        self.reply_raw(None, status, false).await
    }

    /// Answers `ListAttachments`.
    pub async fn reply_attachments(&mut self, attachments: &[AttachmentInfo]) -> io::Result<()> {
        self.reply_raw(None, json!({ "attachments": attachments }), false).await
    }

    /// Answers `WaitReady`.
    pub async fn reply_wait_ready(&mut self, ready: bool) -> io::Result<()> {
        self.reply_raw(None, json!({ "ready": ready }), false).await
    }

    /// Sends an event of `Monitor`; `continues` when more may follow.
    pub async fn reply_event(&mut self, event: &MonitorEvent, continues: bool) -> io::Result<()> {
        self.reply_raw(None, json!({ "event": event }), continues).await
    }

    /// Resolves when the peer has gone, while its call is being worked on. Cancel-safe; what the peer sends
    /// meanwhile is kept for the next [`Self::receive`], up to the limit.
    pub async fn gone(&mut self) {
        while let Ok(count) = self.fill().await {
            if count == 0 || self.received.len() > MAX_MESSAGE {
                return;
            }
        }
    }

    async fn message(&mut self) -> Result<Vec<u8>, ReceiveError> {
        loop {
            if let Some(end) = self.received[self.searched..].iter().position(|byte| *byte == 0) {
                let rest = self.received.split_off(self.searched + end + 1);
                let mut message = std::mem::replace(&mut self.received, rest);
                message.pop();
                self.searched = 0;
                return Ok(message);
            }
            self.searched = self.received.len();
            if self.searched > MAX_MESSAGE {
                let text = format!("a message of more than {MAX_MESSAGE} bytes");
                return Err(ReceiveError::Protocol(text));
            }
            if self.fill().await? == 0 {
                return Err(ReceiveError::Closed);
            }
        }
    }

    /// Receives once; the count of bytes, 0 when the peer has closed. A reset counts as closed.
    async fn fill(&mut self) -> io::Result<usize> {
        let Self { stream, received, descriptors, .. } = self;
        let received = stream.async_io(Interest::READABLE, || receive(stream, received, descriptors)).await;
        match received {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            other => other,
        }
    }

    async fn reply_raw(
        &mut self,
        error: Option<&str>,
        parameters: impl Serialize,
        continues: bool,
    ) -> io::Result<()> {
        if self.reply == Expected::None {
            return Ok(());
        }
        let mut bytes = serde_json::to_vec(&Outgoing { error, parameters, continues })?;
        bytes.push(0);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            // NOSIGNAL: a peer that has gone is an error here and not the end of the server.
            let send = || Ok(rustix::net::send(&self.stream, rest, SendFlags::NOSIGNAL)?);
            let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
            rest = &rest[sent..];
        }
        Ok(())
    }
}

fn receive(stream: &UnixStream, received: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut chunk = [0; CHUNK];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS {
        descriptors.clear();
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    received.extend_from_slice(&chunk[..message.bytes]);
    Ok(message.bytes)
}

fn parameters<T: for<'de> Deserialize<'de>>(
    value: Value,
    likely: &'static str,
) -> Result<T, (Option<&'static str>, Value)> {
    let value = if value.is_null() { json!({}) } else { value };
    T::deserialize(value).map_err(|_| invalid(likely))
}

fn invalid(parameter: &str) -> (Option<&'static str>, Value) {
    (Some("org.varlink.service.InvalidParameter"), json!({ "parameter": parameter }))
}

fn info() -> Value {
    json!({
        "vendor": "hostcni",
        "product": "hostcni",
        "version": env!("CARGO_PKG_VERSION"),
        "url": "",
        "interfaces": ["org.varlink.service", INTERFACE],
    })
}

fn description(parameters: &Value) -> (Option<&'static str>, Value) {
    match parameters["interface"].as_str() {
        Some(INTERFACE) => (None, json!({ "description": IDL })),
        Some(other) => (Some("org.varlink.service.InterfaceNotFound"), json!({ "interface": other })),
        None => invalid("interface"),
    }
}
