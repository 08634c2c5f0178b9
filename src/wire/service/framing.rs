//! Messages and their descriptors on a stream socket.
//!
//! A message is looked at before it is taken, so that no read goes past its NUL: the limit is exact, nothing of
//! the next message is held here, and descriptors belong to the message that they came with.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::MAX_MESSAGE;

/// More descriptors than any call of ours carries; the surplus is closed.
const DESCRIPTORS: usize = 4;
/// How much is looked at in one step.
const CHUNK: usize = 16 << 10;
/// A message may grow to this size freely. Ordinary ones have a few kilobytes.
const ORDINARY: usize = 64 << 10;
/// So many connections may hold a larger one at a time; the others wait their turn. Bounds the server's memory.
static LARGE: Semaphore = Semaphore::const_new(64);
/// A peer that takes nothing of its answer for so long is given up.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

/// What was received.
#[derive(Debug)]
pub enum Received {
    /// A message without its NUL, and the descriptors that came with it.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// The message grows beyond the limit; the connection is of no use any more.
    TooLarge,
    /// The peer has closed.
    Closed,
}

/// A connected socket.
#[derive(Debug)]
pub struct Framed {
    stream: UnixStream,
    /// The message that is arriving; kept here so that a cancelled receive loses nothing.
    partial: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// Held from a message's growth until the next one is waited for: so long its text may be in use.
    large: Option<SemaphorePermit<'static>>,
}

/// What one read has brought.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    More,
    End,
    Closed,
}

impl Framed {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, partial: Vec::new(), descriptors: Vec::new(), large: None }
    }

    pub fn peer(&self) -> Option<UCred> {
        self.stream.peer_cred().ok()
    }

    /// The next message. Cancel-safe.
    pub async fn receive(&mut self) -> io::Result<Received> {
        loop {
            if self.partial.len() <= ORDINARY {
                self.large = None;
            } else if self.large.is_none() {
                self.large = LARGE.acquire().await.ok();
            }
            // A peer that never stops sending shall not keep the others from their turn.
            tokio::task::coop::consume_budget().await;
            let step = match self.step().await {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Received::Closed),
                step => step?,
            };
            match step {
                Step::Closed => return Ok(Received::Closed),
                _ if self.partial.len() > MAX_MESSAGE => return Ok(Received::TooLarge),
                Step::More => {}
                Step::End => {
                    let message = std::mem::take(&mut self.partial);
                    return Ok(Received::Message(message, std::mem::take(&mut self.descriptors)));
                }
            }
        }
    }

    async fn step(&mut self) -> io::Result<Step> {
        let Self { stream, partial, descriptors, .. } = self;
        // `gone` uses up tokio's knowledge that something can be read: hence a try before the wait.
        match take(stream, partial, descriptors) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.async_io(Interest::READABLE, || take(stream, partial, descriptors)).await
            }
            step => step,
        }
    }

    /// Resolves when the peer closes, or its sending half of the connection. Cancel-safe; takes nothing, so what
    /// the peer sends meanwhile stays in the socket, where the kernel bounds it.
    pub async fn gone(&self) {
        while let Ok(ready) = self.stream.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            // A call that waits its turn: the next event is of interest, this one has been seen.
            let _ = self.stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        }
    }

    /// Sends a whole message. Not cancel-safe: after a cancelled send only closing is left.
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            // NOSIGNAL: a peer that has gone is an error here and not the end of the server.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let write = self
                .stream
                .async_io(Interest::WRITABLE, || Ok(rustix::net::send(&self.stream, rest, flags)?));
            let sent = tokio::time::timeout(PATIENCE, write).await??;
            rest = &rest[sent..];
        }
        Ok(())
    }
}

/// Takes what is there, at most to the end of the message.
fn take(stream: &UnixStream, partial: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<Step> {
    let mut chunk = [0; CHUNK];
    let (seen, _) = rustix::net::recv(stream, &mut chunk[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    if seen == 0 {
        return Ok(Step::Closed);
    }
    let end = chunk[..seen].iter().position(|byte| *byte == 0);
    let wanted = end.map_or(seen, |end| end + 1);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // Close-on-exec from the first moment: a child started meanwhile would keep a pod's namespace alive. What
    // does not fit into `control` is closed by the kernel.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let taken =
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut chunk[..wanted])], &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            let room = DESCRIPTORS - descriptors.len();
            descriptors.extend(rights.take(room));
        }
    }
    // A read ends early behind bytes that carry descriptors.
    let ended = end.is_some() && taken.bytes == wanted;
    partial.extend_from_slice(&chunk[..taken.bytes - usize::from(ended)]);
    Ok(if ended { Step::End } else { Step::More })
}
