//! Peers for the plugin: the real server's half with an answer of the test's choice, and some that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hostcni::wire::service::{Call, Connection, Listener};
use hostcni::wire::{Invoke, InvokeReply, StatusReply};
use hostcni::{attachment, cni};
use serde_json::{Value, json};

use crate::support::cni as support;

/// The binary under test.
pub const HOSTCNI: &str = env!("CARGO_BIN_EXE_hostcni");

/// A directory with room for a socket and a spool.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory can be made") }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("cni.sock")
    }

    pub fn spool(&self) -> PathBuf {
        self.directory.path().join("spool")
    }

    /// A configuration with short bounds, in whole seconds.
    pub fn config(&self, bound: u64) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "net", "type": "hostcni",
            "socket": self.socket(), "spool": self.spool(),
            "bounds": { "add": bound, "del": bound, "check": bound, "status": bound.min(2), "gc": bound },
        })
    }

    /// A call of the plugin with the test's own namespace.
    pub fn call(&self, command: &str, bound: u64) -> support::Call {
        support::Call::new(command, "c1", &self.config(bound).to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", "/proc/self/ns/net")
    }

    /// The DELs that were written down.
    pub fn spooled(&self) -> Vec<attachment::SpooledDel> {
        let loaded = attachment::Spool::open(&self.spool()).load_all().expect("the spool can be read");
        assert!(loaded.set_aside.is_empty(), "{:?}", loaded.set_aside);
        loaded.dels
    }

    /// A server that answers with `answer`; `None` closes the connection without one.
    pub fn serve(
        &self,
        answer: impl Fn(&Invoke, Option<&OwnedFd>) -> Option<Result<String, cni::Error>> + 'static + Send,
    ) -> Server {
        Server::start(&self.socket(), answer)
    }
}

/// The server's half on a thread of its own.
pub struct Server {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(
        socket: &Path,
        answer: impl Fn(&Invoke, Option<&OwnedFd>) -> Option<Result<String, cni::Error>> + 'static + Send,
    ) -> Self {
        let listener = UnixListener::bind(socket).expect("the directory is the test's own");
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let answer = std::rc::Rc::new(answer);
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let mut listener = Listener::from_fd(listener.into()).expect("it listens");
                loop {
                    let connection = tokio::select! {
                        _ = &mut stopped => return,
                        connection = listener.accept() => connection.expect("accept works"),
                    };
                    let answer = std::rc::Rc::clone(&answer);
                    tokio::task::spawn_local(async move { session(connection, answer.as_ref()).await });
                }
            });
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.take().expect("dropped once").send(());
        let ended = self.thread.take().expect("dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
    }
}

async fn session(
    mut connection: Connection,
    answer: &impl Fn(&Invoke, Option<&OwnedFd>) -> Option<Result<String, cni::Error>>,
) {
    while let Ok(call) = connection.receive().await {
        let sent = match call {
            Call::Invoke(call, netns) => match answer(&call, netns.as_ref()) {
                None => return,
                Some(Ok(result)) => connection.reply_invoke(Ok(&InvokeReply { result })).await,
                Some(Err(error)) => connection.reply_invoke(Err(&error)).await,
            },
            Call::Status => connection.reply_status(&StatusReply { ready: true, ..Default::default() }).await,
            Call::WaitReady { .. } => connection.reply_wait_ready(true).await,
            Call::LogFilter(_) => connection.reply_log_filter(Some("info")).await,
            Call::ListAttachments => connection.reply_attachments(&[]).await,
            Call::Monitor => {
                let event = hostcni::wire::MonitorEvent { kind: "ready".to_owned(), ..Default::default() };
                connection.reply_event(&event, true).await.expect("a short message");
                connection.reply_event(&event, false).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A peer that does with each connection what the test says; the connections stay open until the end of the test.
pub struct Rude {
    _kept: Arc<Mutex<Vec<UnixStream>>>,
}

impl Rude {
    pub fn new(socket: &Path, act: impl Fn(UnixStream) -> Option<UnixStream> + 'static + Send) -> Self {
        let listener = UnixListener::bind(socket).expect("the directory is the test's own");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                keep.lock().expect("no panic").extend(act(stream));
            }
        });
        Self { _kept: kept }
    }

    /// Never says anything.
    pub fn silent(socket: &Path) -> Self {
        Self::new(socket, Some)
    }

    /// Reads the call, says the bytes and closes.
    pub fn says(socket: &Path, bytes: &'static [u8]) -> Self {
        Self::new(socket, move |mut stream| {
            read_call(&mut stream);
            stream.write_all(bytes).ok();
            None
        })
    }
}

/// Reads to the NUL.
pub fn read_call(stream: &mut UnixStream) {
    let mut byte = [1];
    while byte != [0] && stream.read(&mut byte).is_ok_and(|count| count == 1) {}
}

/// A socket file that nobody listens on any more.
pub fn stale(socket: &Path) {
    drop(UnixListener::bind(socket).expect("the directory is the test's own"));
}

/// A socket whose backlog is full, as long as the value lives.
pub fn full(socket: &Path) -> impl Sized + use<> {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket as make,
    };
    use std::os::fd::AsRawFd;
    let new = |flags| make(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket");
    let address = UnixAddr::new(socket).expect("short enough");
    let listener = new(SockFlag::SOCK_CLOEXEC);
    bind(listener.as_raw_fd(), &address).expect("the directory is the test's own");
    listen(&listener, Backlog::new(0).expect("zero is allowed")).expect("it can listen");
    let mut waiting = Vec::new();
    loop {
        let client = new(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        if connect(client.as_raw_fd(), &address).is_err() {
            return (listener, waiting);
        }
        waiting.push(client);
    }
}

/// Gives what it is sent to the test.
pub fn channel<T: Send + 'static>() -> (mpsc::Sender<T>, impl Fn() -> T) {
    let (sender, receiver) = mpsc::channel();
    (sender, move || receiver.recv_timeout(Duration::from_secs(60)).expect("it comes"))
}

/// A file with nothing in it.
pub fn touch(path: &Path) {
    fs::write(path, "").expect("the directory is the test's own");
}
