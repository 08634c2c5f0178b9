//! A CNI request from the wire: decoded, held until the server is ready, carried out, logged once.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cni::{self, AttachmentKey, Command, Environment, ErrorCode, NetworkName, PodIdentity, Request};
use crate::network::{DelRequest, Error, Only, Outcome};
use crate::systemd::journal::{self, AttachmentFields, Event, PodFields};
use crate::wire::{Invoke, InvokeReply};

use super::Phase;
use super::node::Node;

/// The answer to a request.
pub struct Answer {
    /// `None` when the server stops before it was ready: the next one shall answer.
    pub reply: Option<Result<InvokeReply, cni::Error>>,
    /// What an ADD attached, to be rolled back when nobody takes the answer.
    pub attached: Option<(AttachmentKey, u64)>,
}

/// Carries out a request. All that is logged on the way has the ids of its trace.
pub async fn carry_out(
    node: &Rc<Node>,
    call: Box<Invoke>,
    netns: Option<OwnedFd>,
    caller: CancellationToken,
) -> Answer {
    let span = journal::request_span(call.traceparent.as_deref(), call.tracestate.as_deref());
    answer(node, call, netns, caller).instrument(span).await
}

async fn answer(
    node: &Rc<Node>,
    call: Box<Invoke>,
    netns: Option<OwnedFd>,
    caller: CancellationToken,
) -> Answer {
    let started = Instant::now();
    let request = match decode(*call) {
        Ok(request) => request,
        Err(error) => {
            log(node, None, started, None, Err(&error));
            return Answer { reply: Some(Err(error)), attached: None };
        }
    };
    let _in_flight = node.metrics.requests.begin(request.command);
    let subject = Subject {
        command: request.command,
        key: request.key(),
        pod: request.args.pod(),
        version: request.conf.cni_version,
    };
    let outcome = match admit(node, &request, started).await {
        Ok(true) => execute(node, request, netns, caller).await,
        Ok(false) => return Answer { reply: None, attached: None },
        Err(error) => Err(error),
    };
    log(node, Some(&subject), started, outcome.as_ref().ok(), outcome.as_ref().map(drop));
    let serial = outcome.as_ref().ok().and_then(|outcome| outcome.added.as_ref()).map(|added| added.serial);
    let attached = subject.key.zip(serial);
    let reply = outcome.and_then(|outcome| render(outcome, subject.version));
    Answer { reply: Some(reply), attached }
}

struct Subject {
    command: Command,
    key: Option<AttachmentKey>,
    pod: Option<PodIdentity>,
    version: cni::CniVersion,
}

fn decode(call: Invoke) -> Result<Request, cni::Error> {
    let environment = Environment::parse(|name| {
        let value = match name {
            "CNI_COMMAND" => &call.command,
            "CNI_CONTAINERID" => &call.container_id,
            "CNI_IFNAME" => &call.if_name,
            "CNI_NETNS" => &call.netns,
            "CNI_ARGS" => &call.args,
            "CNI_PATH" => &call.path,
            _ => return None,
        };
        (!value.is_empty()).then(|| value.into())
    })?;
    Request::from_parts(environment, call.config)
}

/// Holds a request until the server is ready, within the request's bound. `Ok(false)`: the server stops.
async fn admit(node: &Rc<Node>, request: &Request, started: Instant) -> Result<bool, cni::Error> {
    let settings = node.settings();
    if request.command == Command::Status {
        return status(node, request).await.map(|()| true);
    }
    let bound = settings.bounds.for_command(request.command).saturating_sub(started.elapsed());
    if node.readiness.ready_within(bound).await {
        return Ok(true);
    }
    if node.readiness.phase() == Phase::Stopping {
        return Ok(false);
    }
    Err(cni::Error::new(
        ErrorCode::TryAgainLater,
        format!("hostcni is still {}: see `systemctl status hostcni`", starting(node)),
    ))
}

fn starting(node: &Node) -> String {
    match node.readiness.phase() {
        Phase::Starting => format!("starting ({})", node.readiness.step()),
        phase => phase.as_str().to_owned(),
    }
}

/// STATUS: 50 unless ready and the network has all it needs, 51 when ready but unable to add.
async fn status(node: &Node, request: &Request) -> Result<(), cni::Error> {
    if node.readiness.phase() != Phase::Ready {
        let text = format!("hostcni is not ready: {}", starting(node));
        return Err(cni::Error::new(ErrorCode::NotAvailable, text));
    }
    let name = &request.conf.name;
    if let Some(why) = lacking(node, name) {
        return Err(cni::Error::new(ErrorCode::NotAvailable, why));
    }
    node.networks.able(name).map_err(|reason| cni::Error::new(ErrorCode::LimitedConnectivity, reason))?;
    node.networks.stands(name, true).await.map_err(|error| {
        let code = match error.code() {
            code @ (ErrorCode::NotAvailable | ErrorCode::LimitedConnectivity) => code,
            _ => ErrorCode::NotAvailable,
        };
        cni::Error::new(code, error.to_string())
    })
}

/// What the network stands on and lacks, or why its conf cannot be kept: a runtime that has read the conf would call
/// the node ready, and after its restart not any more.
pub(super) fn lacking(node: &Node, name: &NetworkName) -> Option<String> {
    if let Some(lacks) = node.lacks.borrow().get(name) {
        return Some(format!("network {name} waits: {lacks}"));
    }
    let settings = node.settings();
    let network = settings.networks.iter().find(|network| network.name == *name)?;
    let troubles = node.conf_trouble.borrow();
    let trouble = troubles.get(&network.conf.path)?;
    Some(format!("the network configuration is {}: {}", trouble.state, trouble.why))
}

async fn execute(
    node: &Rc<Node>,
    request: Request,
    netns: Option<OwnedFd>,
    caller: CancellationToken,
) -> Result<Outcome, cni::Error> {
    let key = request.key();
    let pod = request.args.pod();
    let outcome = node.networks.carry_out(request, netns, caller).await;
    if let (Err(Error::CallerGone), Some(key)) = (&outcome, &key) {
        let attachment = AttachmentFields::from(key);
        node.metrics.rolled_back.inc();
        journal::emit(&Event::AddRolledBack {
            attachment,
            pod: pod.as_ref().map(PodFields::from),
            why: "its plugin process is gone",
        });
    }
    if matches!(outcome, Err(Error::PoolExhausted { .. } | Error::Kernel(_) | Error::StillThere { .. })) {
        if let Err(error) = &outcome {
            node.failed(&error.to_string());
        }
    } else if outcome.is_ok() {
        node.show_status();
    }
    outcome.map_err(cni::Error::from)
}

fn render(outcome: Outcome, version: cni::CniVersion) -> Result<InvokeReply, cni::Error> {
    let result = match outcome.added {
        Some(added) => added.result.to_version(version)?.to_string(),
        None => String::new(),
    };
    Ok(InvokeReply { result })
}

/// Undoes an ADD whose answer nobody took.
pub async fn roll_back(node: &Rc<Node>, (key, serial): (AttachmentKey, u64)) {
    let attachment = AttachmentFields::from(&key);
    node.metrics.rolled_back.inc();
    journal::emit(&Event::AddRolledBack { attachment, pod: None, why: "nobody took its result" });
    if let Err(error) = node.networks.del(DelRequest::of(key.clone(), Only::IfSerial(serial))).await {
        node.failed(&error.to_string());
    }
}

fn log(
    node: &Node,
    subject: Option<&Subject>,
    started: Instant,
    outcome: Option<&Outcome>,
    answer: Result<(), &cni::Error>,
) {
    let addresses = outcome.map(addresses).unwrap_or_default();
    let command = subject.map_or("", |subject| subject.command.as_str());
    let (duration, code) = (started.elapsed(), answer.err().map(|error| error.code.as_u32()));
    node.metrics.requests.answered(subject.map(|subject| subject.command), code, duration);
    journal::emit(&Event::RequestFinished {
        command,
        attachment: subject.and_then(|subject| subject.key.as_ref()).map(AttachmentFields::from),
        pod: subject.and_then(|subject| subject.pod.as_ref()).map(PodFields::from),
        addresses: &addresses,
        duration,
        code,
        msg: answer.err().map_or("", |error| &error.msg),
    });
    let key = subject.and_then(|subject| subject.key.as_ref()).map(ToString::to_string).unwrap_or_default();
    node.tell(
        command,
        &[
            ("attachment", key),
            ("addresses", addresses),
            ("error", answer.err().map(|error| error.msg.clone()).unwrap_or_default()),
        ],
    );
}

fn addresses(outcome: &Outcome) -> String {
    let list = |ips: &[ipnet::IpNet]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match (&outcome.added, &outcome.attachment) {
        (Some(added), _) => list(&added.result.ips.iter().map(|ip| ip.address).collect::<Vec<_>>()),
        (None, Some(attachment)) => list(&attachment.addresses),
        (None, None) => String::new(),
    }
}
