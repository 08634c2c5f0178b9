//! The server's half: connections over tokio, calls in, replies out.
//!
//! Own framing and not the `zlink` crate's: a descriptor must be close-on-exec in the very call that receives
//! it (`MSG_CMSG_CLOEXEC`), or a child started meanwhile keeps a pod's namespace alive; and a peer must not be
//! able to make the server hold more than [`MAX_MESSAGE`] of it. The tests talk to it with `zlink`'s client.

/// Messages and their descriptors on a stream socket.
mod framing;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::{UnixListener, UnixStream};

use super::{
    AttachmentInfo, Body, CNI_ERROR, CniErrorParameters, IDL, INTERFACE, Invoke, InvokeReply, MAX_MESSAGE,
    MonitorEvent, SERVICE_IDL, SERVICE_INTERFACE, StatusReply,
};
use crate::cni;
use framing::{Framed, Received};

const INTERFACE_NOT_FOUND: &str = "org.varlink.service.InterfaceNotFound";
const METHOD_NOT_FOUND: &str = "org.varlink.service.MethodNotFound";
const METHOD_NOT_IMPLEMENTED: &str = "org.varlink.service.MethodNotImplemented";
const INVALID_PARAMETER: &str = "org.varlink.service.InvalidParameter";
const EXPECTED_MORE: &str = "org.varlink.service.ExpectedMore";
const MESSAGE_TOO_LARGE: &str = "io.hostcni.Node.MessageTooLarge";

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
        Ok(Connection::over(stream))
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
    /// To change what is logged, or to tell it.
    LogFilter(Option<String>),
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

/// A connection; one call at a time, the next waits in the socket.
#[derive(Debug)]
pub struct Connection {
    framed: Framed,
    reply: Expected,
}

/// A call without its parameters.
#[derive(Deserialize)]
struct Envelope {
    method: String,
    #[serde(default)]
    oneway: bool,
    #[serde(default)]
    more: bool,
    #[serde(default)]
    upgrade: bool,
}

/// What is answered without asking the server: a reply of the protocol's own methods, or an error.
struct Answer {
    error: Option<&'static str>,
    parameters: Value,
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
    fn over(stream: UnixStream) -> Self {
        Self { framed: Framed::new(stream), reply: Expected::One }
    }

    /// The peer's user, as the kernel knows it.
    pub fn peer_uid(&self) -> Option<u32> {
        self.framed.peer().map(|peer| peer.uid())
    }

    /// The peer's process.
    pub fn peer_pid(&self) -> Option<i32> {
        self.framed.peer().and_then(|peer| peer.pid())
    }

    /// The next call of our interface. Calls that only concern the protocol are answered here. Cancel-safe
    /// while it waits for the peer; whoever cancels it without closing the connection may cut such an answer.
    pub async fn receive(&mut self) -> Result<Call, ReceiveError> {
        loop {
            let (message, descriptors) = match self.framed.receive().await? {
                Received::Message(message, descriptors) => (message, descriptors),
                Received::Closed => return Err(ReceiveError::Closed),
                Received::TooLarge => return Err(self.refuse_large().await),
            };
            let protocol = |error: serde_json::Error| ReceiveError::Protocol(error.to_string());
            let envelope: Envelope = serde_json::from_slice(&message).map_err(protocol)?;
            self.reply = match (envelope.oneway, envelope.more, envelope.upgrade) {
                (false, false, _) => Expected::One,
                (false, true, false) => Expected::More,
                (true, false, false) => Expected::None,
                _ => {
                    return Err(ReceiveError::Protocol(
                        "a call with flags that exclude each other".to_owned(),
                    ));
                }
            };
            match self.decode(&envelope, &message, descriptors) {
                Ok(call) => return Ok(call),
                Err(Answer { error, parameters }) => self.reply_raw(error, parameters, false).await?,
            }
        }
    }

    /// Says why, if the peer still listens.
    async fn refuse_large(&mut self) -> ReceiveError {
        self.reply = Expected::One;
        let _ = self.reply_raw(Some(MESSAGE_TOO_LARGE), json!({ "limit": MAX_MESSAGE }), false).await;
        ReceiveError::Protocol(format!("a message of more than {MAX_MESSAGE} bytes"))
    }

    /// The call, or what is answered at once.
    fn decode(&self, envelope: &Envelope, message: &[u8], descriptors: Vec<OwnedFd>) -> Result<Call, Answer> {
        let method = envelope.method.as_str();
        let Some((interface, name)) = method.rsplit_once('.') else {
            return Err(refused(INTERFACE_NOT_FOUND, "interface", method));
        };
        match (interface, name) {
            (INTERFACE | SERVICE_INTERFACE, _) if envelope.upgrade => {
                Err(refused(METHOD_NOT_IMPLEMENTED, "method", method))
            }
            (INTERFACE, "Invoke") => invoke(message, descriptors),
            (INTERFACE, "Status") => Ok(Call::Status),
            (INTERFACE, "ListAttachments") => Ok(Call::ListAttachments),
            (INTERFACE, "WaitReady") => wait_ready(message),
            (INTERFACE, "LogFilter") => log_filter(message),
            (INTERFACE, "Monitor") if self.reply == Expected::More => Ok(Call::Monitor),
            (INTERFACE, "Monitor") => Err(Answer { error: Some(EXPECTED_MORE), parameters: json!({}) }),
            (SERVICE_INTERFACE, "GetInfo") => Err(info()),
            (SERVICE_INTERFACE, "GetInterfaceDescription") => Err(description(message)),
            (INTERFACE | SERVICE_INTERFACE, _) => Err(refused(METHOD_NOT_FOUND, "method", method)),
            _ => Err(refused(INTERFACE_NOT_FOUND, "interface", interface)),
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
                self.reply_raw(Some(CNI_ERROR), parameters, false).await
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

    /// Answers `LogFilter` with the filter in force, or refuses the one that was asked for.
    pub async fn reply_log_filter(&mut self, filter: Option<&str>) -> io::Result<()> {
        match filter {
            Some(filter) => self.reply_raw(None, json!({ "filter": filter }), false).await,
            None => self.reply_raw(Some(INVALID_PARAMETER), json!({ "parameter": "filter" }), false).await,
        }
    }

    /// Sends an event of `Monitor`; `continues` when more may follow.
    pub async fn reply_event(&mut self, event: &MonitorEvent, continues: bool) -> io::Result<()> {
        self.reply_raw(None, json!({ "event": event }), continues).await
    }

    /// Resolves when the peer has gone, while its call is being worked on; a peer that closes only its sending
    /// half counts as gone. Cancel-safe.
    pub async fn gone(&mut self) {
        self.framed.gone().await;
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
        self.framed.send(&bytes).await
    }
}

fn invoke(message: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<Call, Answer> {
    let invoke: Invoke = parameters(message)?;
    let netns = match invoke.netns_fd.map(|index| index as usize) {
        None => None,
        Some(index) if index < descriptors.len() => Some(descriptors.swap_remove(index)),
        Some(_) => return Err(invalid("netnsFd")),
    };
    Ok(Call::Invoke(Box::new(invoke), netns))
}

fn wait_ready(message: &[u8]) -> Result<Call, Answer> {
    #[derive(Default, Deserialize)]
    struct Timeout {
        timeout: Option<u64>,
    }
    let Timeout { timeout } = parameters(message)?;
    Ok(Call::WaitReady { timeout: timeout.map(Duration::from_millis).ok_or_else(|| invalid("timeout"))? })
}

fn log_filter(message: &[u8]) -> Result<Call, Answer> {
    #[derive(Default, Deserialize)]
    struct Wanted {
        filter: Option<String>,
    }
    let Wanted { filter } = parameters(message)?;
    Ok(Call::LogFilter(filter))
}

/// The parameters of a call; missing ones have their default.
fn parameters<T: DeserializeOwned + Default>(message: &[u8]) -> Result<T, Answer> {
    match serde_json::from_slice::<Body<T>>(message) {
        Ok(body) => Ok(body.parameters.unwrap_or_default()),
        Err(_) => Err(invalid(&culprit::<T>(message))),
    }
}

/// The first parameter that is wrong when it stands alone.
fn culprit<T: DeserializeOwned>(message: &[u8]) -> String {
    let body = serde_json::from_slice::<Body<Map<String, Value>>>(message).ok();
    let mut given = body.and_then(|body| body.parameters).unwrap_or_default().into_iter();
    let wrong = given.find(|(name, value)| T::deserialize(json!({ name: value })).is_err());
    wrong.map_or_else(|| "parameters".to_owned(), |(name, _)| name)
}

fn invalid(parameter: &str) -> Answer {
    refused(INVALID_PARAMETER, "parameter", parameter)
}

fn refused(error: &'static str, parameter: &str, value: &str) -> Answer {
    Answer { error: Some(error), parameters: json!({ parameter: value }) }
}

fn info() -> Answer {
    let parameters = json!({
        "vendor": "hostcni",
        "product": "hostcni",
        "version": env!("CARGO_PKG_VERSION"),
        "url": "",
        "interfaces": [SERVICE_INTERFACE, INTERFACE],
    });
    Answer { error: None, parameters }
}

fn description(message: &[u8]) -> Answer {
    #[derive(Default, Deserialize)]
    struct Interface {
        interface: Option<String>,
    }
    let idl = match parameters::<Interface>(message) {
        Err(answer) => return answer,
        Ok(Interface { interface: None }) => return invalid("interface"),
        Ok(Interface { interface: Some(name) }) => match name.as_str() {
            INTERFACE => IDL,
            SERVICE_INTERFACE => SERVICE_IDL,
            _ => return refused(INTERFACE_NOT_FOUND, "interface", &name),
        },
    };
    Answer { error: None, parameters: json!({ "description": idl }) }
}

#[cfg(test)]
mod tests;
