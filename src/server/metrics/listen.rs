//! The listener for readers: few at a time, each with little patience, apart from the requests' accept loop.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::server::node::Node;
use crate::systemd::activation::Local;
use crate::systemd::job;

use super::Format;
use super::http::{self, MAX_HEAD, Refusal};

/// So many readers at once; the others wait in the socket.
const READERS: usize = 4;
/// How long a reader may take to ask, and to take the answer.
const ASKING: Duration = Duration::from_secs(2);
const TAKING: Duration = Duration::from_secs(5);
/// A text that is younger is good for the next reader, too: however often somebody asks, writing it costs little.
const FRESH: Duration = Duration::from_millis(250);
/// The pause after an accept that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Where readers come from.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A reader's connection.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Listener {
    /// Over a socket that listens already.
    fn new(socket: Local) -> io::Result<Self> {
        Ok(match socket {
            Local::Unix(socket) => {
                let listener = std::os::unix::net::UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?)
            }
            Local::Tcp(socket) => {
                let listener = std::net::TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Texts that are fresh, by format.
#[derive(Default)]
struct Texts(RefCell<[Option<Written>; 2]>);

/// When, and what.
type Written = (Instant, Rc<str>);

impl Texts {
    fn get(&self, node: &Node, format: Format) -> Rc<str> {
        let slot = &mut self.0.borrow_mut()[format as usize];
        if let Some((at, text)) = slot
            && at.elapsed() < FRESH
        {
            return Rc::clone(text);
        }
        node.metrics.facts.read(node);
        let text: Rc<str> = node.metrics.write(format).into();
        *slot = Some((Instant::now(), Rc::clone(&text)));
        text
    }
}

/// Answers readers from now on until the server stops.
pub fn start(node: &Rc<Node>, socket: Local) -> io::Result<()> {
    let listener = Listener::new(socket)?;
    tokio::task::spawn_local(restarts(Rc::clone(node)));
    tokio::task::spawn_local(run(Rc::clone(node), listener));
    Ok(())
}

/// Asks systemd, which may take its time, how often it has started the service again.
async fn restarts(node: Rc<Node>) {
    let asked = || job::own_unit().and_then(|unit| job::restarts(&unit));
    if let Ok(Some(times)) = tokio::task::spawn_blocking(asked).await {
        node.metrics.restarted(times);
    }
}

async fn run(node: Rc<Node>, listener: Listener) {
    let texts = Rc::new(Texts::default());
    let places = Arc::new(Semaphore::new(READERS));
    loop {
        let accepted = tokio::select! {
            () = node.stop.cancelled() => return,
            accepted = next(&places, &listener) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (node, texts) = (Rc::clone(&node), Rc::clone(&texts));
                tokio::task::spawn_local(async move {
                    let text = |format| texts.get(&node, format);
                    if let Err(error) = serve(stream, text).await {
                        tracing::debug!(%error, "a reader of the metrics went away");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a reader of the metrics, trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The place comes before the accept, so that whoever is too many waits in the socket.
async fn next(
    places: &Arc<Semaphore>,
    listener: &Listener,
) -> io::Result<(Box<dyn Stream>, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?, place))
}

/// One question, one answer.
async fn serve(mut stream: impl Stream, text: impl Fn(Format) -> Rc<str>) -> io::Result<()> {
    let mut head = Vec::with_capacity(1 << 10);
    let asked = match tokio::time::timeout(ASKING, question(&mut stream, &mut head)).await {
        Ok(asked) => asked?,
        Err(_) => Err(Refusal::Slow),
    };
    let answer = async {
        match asked {
            Ok(wanted) => {
                let text = text(wanted.format);
                stream.write_all(http::found(wanted.format, text.len()).as_bytes()).await?;
                if wanted.body {
                    stream.write_all(text.as_bytes()).await?;
                }
            }
            Err(why) => stream.write_all(http::refused(why).as_bytes()).await?,
        }
        stream.shutdown().await
    };
    tokio::time::timeout(TAKING, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Reads a request's head, and nothing of what may follow it.
async fn question(
    stream: &mut impl Stream,
    bytes: &mut Vec<u8>,
) -> io::Result<Result<http::Wanted, Refusal>> {
    loop {
        if let Some(length) = http::head(bytes) {
            return Ok(http::parse(&bytes[..length]));
        }
        if bytes.len() >= MAX_HEAD {
            return Ok(Err(Refusal::TooLarge));
        }
        let mut rest = (&mut *stream).take((MAX_HEAD - bytes.len()) as u64);
        if rest.read_buf(bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests;
