//! Bringing a request to the server, and what becomes of it when nobody answers.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::attachment::{Spool, SpooledDel};
use crate::cni::{Command, ContainerId, Error, ErrorCode, IfName, Request};
use crate::datapath::netns;
use crate::systemd::journal::{self, AttachmentFields, Event, PodFields};
use crate::wire::Invoke;
use crate::wire::client::{CallError, Client};

/// The pause before a socket that is not there is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that dies over a request shall not be made to die over it for ever.
const TRIES: usize = 10;

/// What stood between the request and its answer.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error("cannot connect to {0}: {1}")]
    Unreachable(String, std::io::Error),
    #[error(transparent)]
    Unanswered(CallError),
}

/// Delivers the request and gives the answer's text.
pub fn deliver(request: &Request, deadline: Instant) -> Result<String, Error> {
    crate::step!("plugin.deliver");
    let netns = namespace(request)?;
    let call = call(request, netns.is_some());
    match ask(request, call, netns.as_ref(), deadline) {
        Ok(result) => Ok(result),
        Err(Obstacle::Unanswered(CallError::Cni(error))) => Err(error),
        // A DEL of that size is written down: the disk takes more than the wire.
        Err(Obstacle::Unanswered(error @ CallError::TooLarge(_))) if request.command != Command::Del => {
            Err(Error::new(ErrorCode::Decoding, error.to_string()))
        }
        Err(obstacle) => nobody_answers(request, &obstacle),
    }
}

/// Opens the namespace. A DEL goes on without it; GC and STATUS are not about one.
fn namespace(request: &Request) -> Result<Option<OwnedFd>, Error> {
    let about_one = matches!(request.command, Command::Add | Command::Check | Command::Del);
    let Some(path) = request.netns.as_ref().filter(|_| about_one) else { return Ok(None) };
    let opened = match netns::open(Path::new(path)) {
        Ok(opened) if netns::is_netns(&opened) => Ok(opened),
        Ok(_) => Err("it is not a network namespace".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(_) if request.command == Command::Del => Ok(None),
        Err(why) => Err(Error::new(ErrorCode::InvalidNetns, format!("CNI_NETNS {path}: {why}"))),
    }
}

fn call(request: &Request, netns: bool) -> Invoke {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    Invoke {
        command: request.command.as_str().to_owned(),
        container_id: text(request.container_id.as_ref().map(ContainerId::as_str)),
        if_name: text(request.ifname.as_ref().map(IfName::as_str)),
        netns: text(request.netns.as_deref()),
        netns_fd: netns.then_some(0),
        args: request.args.raw().to_owned(),
        path: request.path.join(":"),
        config: request.config.clone(),
        traceparent: trace("TRACEPARENT"),
        tracestate: trace("TRACESTATE"),
        timeout: None,
    }
}

/// The runtime's trace context; libcni hands its environment on.
fn trace(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Asks until there is an answer or the deadline. Every verb may be asked again: ADD and DEL are idempotent.
fn ask(
    request: &Request,
    mut call: Invoke,
    netns: Option<&OwnedFd>,
    deadline: Instant,
) -> Result<String, Obstacle> {
    let mut tries = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        call.timeout = u64::try_from(left.as_millis()).ok();
        let obstacle = match ask_once(request, &call, netns, deadline) {
            Ok(result) => return Ok(result),
            Err(obstacle) => obstacle,
        };
        tries += 1;
        if !may_pass(request.command, &obstacle, tries) || Instant::now() + PAUSE >= deadline {
            return Err(obstacle);
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Whether asking again may help. STATUS never waits.
fn may_pass(command: Command, obstacle: &Obstacle, tries: usize) -> bool {
    match obstacle {
        _ if command == Command::Status => false,
        // That there is no socket is the administrator's will, and a DEL is written down then. A socket that
        // refuses is being replaced, or will be; other errors (no permission, a name too long) stay.
        Obstacle::Unreachable(_, error) => {
            command != Command::Del
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
        }
        // The server went away: the next one will answer.
        Obstacle::Unanswered(CallError::Closed) => tries < TRIES,
        Obstacle::Unanswered(_) => false,
    }
}

fn ask_once(
    request: &Request,
    call: &Invoke,
    netns: Option<&OwnedFd>,
    deadline: Instant,
) -> Result<String, Obstacle> {
    let socket = &request.conf.host.socket;
    let mut client = Client::connect(socket, deadline)
        .map_err(|error| Obstacle::Unreachable(socket.display().to_string(), error))?;
    let reply = client.invoke(call, netns.map(AsFd::as_fd), deadline).map_err(Obstacle::Unanswered)?;
    Ok(reply.result)
}

/// A DEL is written down, STATUS says 50, everything else says "try again later".
fn nobody_answers(request: &Request, obstacle: &Obstacle) -> Result<String, Error> {
    if request.command == Command::Status {
        return Err(Error::new(
            ErrorCode::NotAvailable,
            format!("hostcni is not ready: {}", plain(obstacle)),
        ));
    }
    let log = journal::init(journal::Mode::Plugin);
    let (parent, state) = (trace("TRACEPARENT"), trace("TRACESTATE"));
    let span = journal::request_span(parent.as_deref(), state.as_deref()).entered();
    let answer = if request.command == Command::Del {
        spool(request, obstacle)
    } else {
        Err(later(request, obstacle))
    };
    drop(span);
    drop(log);
    answer
}

fn later(request: &Request, obstacle: &Obstacle) -> Error {
    let key = request.key();
    let pod = request.args.pod();
    journal::emit(&Event::ServerUnreachable {
        command: request.command.as_str(),
        attachment: key.as_ref().map(AttachmentFields::from),
        pod: pod.as_ref().map(PodFields::from),
        socket: &request.conf.host.socket,
        error: &plain(obstacle),
    });
    let text = format!(
        "hostcni does not answer: {}: see `systemctl status hostcni.socket hostcni`",
        plain(obstacle)
    );
    Error::new(ErrorCode::TryAgainLater, text)
}

fn spool(request: &Request, obstacle: &Obstacle) -> Result<String, Error> {
    let Some(key) = request.key() else { return Err(later(request, obstacle)) };
    let del = SpooledDel {
        version: SpooledDel::FORMAT,
        at: SystemTime::now(),
        key: key.clone(),
        args: request.args.raw().to_owned(),
        config: request.config.clone(),
        netns: request.netns.clone(),
    };
    let why = plain(obstacle);
    match Spool::open(&request.conf.host.spool).write(&del) {
        Ok(()) => {
            let pod = request.args.pod();
            journal::emit(&Event::DelSpooled {
                attachment: AttachmentFields::from(&key),
                pod: pod.as_ref().map(PodFields::from),
                why: &why,
            });
            Ok(String::new())
        }
        Err(error) => {
            let text = format!("the DEL could neither be delivered ({why}) nor written down ({error})");
            Err(Error::new(ErrorCode::Io, text))
        }
    }
}

/// The obstacle in words that no runtime takes for success: go-cni and Multus look for "not found" and "no
/// such file or directory" in the texts of DEL's errors.
fn plain(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Unreachable(socket, error) if error.kind() == ErrorKind::NotFound => {
            format!("the socket {socket} does not exist")
        }
        other => other.to_string(),
    }
}
