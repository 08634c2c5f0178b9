//! The server's life from its configuration to its end.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::attachment::{Spool, Store};
use crate::datapath::Kernel;
use crate::netconf::Ledger;
use crate::network::{Kept, Networks};
use crate::settings::{self, Settings};
use crate::systemd::activation::{self, Local};
use crate::systemd::journal::{self, Event};
use crate::systemd::{boot, notify};
use crate::wire::service::Listener;

use super::firewalls::Firewalls;
use super::metrics::{self, Metrics};
use super::node::Node;
use super::{Phase, accept, behind, guard, health, maintain, notices, reload};

/// How the server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// A socket to make and listen on, instead of the one from systemd.
    pub listen: Option<PathBuf>,
    /// Below which directory the configuration is read; `/` in service.
    pub root: PathBuf,
}

/// Why the server could not start, and at which step.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {text}")]
pub struct ServeError {
    /// The step, as `STATUS=` shows it.
    pub step: &'static str,
    /// What went wrong and what to do.
    pub text: String,
}

impl ServeError {
    fn at<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self { step, text: error.to_string() }
    }
}

/// Runs the server until it is told to stop.
pub fn serve(options: &Options) -> Result<(), ServeError> {
    let outcome = configure(options);
    if let Err(error) = &outcome {
        let text = error.to_string();
        journal::emit(&Event::StartFailed { step: error.step, error: &error.text });
        notify::status(&text);
    }
    outcome
}

fn configure(options: &Options) -> Result<(), ServeError> {
    notify::status("starting: reading the configuration");
    fail_now("configuration")?;
    let settings = settings::load(&options.root).map_err(ServeError::at("configuration"))?.settings;
    journal::set_filter(&settings.log.filter);
    notify::status("starting: taking the socket");
    fail_now("socket")?;
    let (socket, readers) = sockets(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::at("runtime"))?;
    let outcome = LocalSet::new().block_on(&runtime, run(options, settings, socket, readers));
    // Not waiting for a plugin that hangs: it ends with its thread, and the next start does its work again.
    runtime.shutdown_background();
    outcome
}

/// The sockets from systemd, for requests and, if it is up, for the readers of the metrics; or one of our own for
/// development.
fn sockets(options: &Options) -> Result<(OwnedFd, Option<Local>), ServeError> {
    let Some(path) = &options.listen else {
        let mut passed = activation::receive().map_err(ServeError::at("socket"))?;
        let readers = passed.take_local("metrics").map_err(ServeError::at("metrics socket"))?;
        return Ok((passed.take("cni").map_err(ServeError::at("socket"))?, readers));
    };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(ServeError::at("socket")(error));
        }
        _ => {}
    }
    UnixListener::bind(path).map(|socket| (socket.into(), None)).map_err(|error| ServeError {
        step: "socket",
        text: format!("cannot listen on {}: {error}", path.display()),
    })
}

async fn run(
    options: &Options,
    settings: Settings,
    socket: OwnedFd,
    readers: Option<Local>,
) -> Result<(), ServeError> {
    let begun = Instant::now();
    let mut signals = Signals::new().map_err(ServeError::at("signals"))?;
    let metrics = Metrics::default();
    let kernel =
        Kernel::observed(settings.workers, &metrics.threads.observer()).map_err(ServeError::at("kernel"))?;
    let changes = kernel.watch(maintain::interest(&settings)).map_err(ServeError::at("kernel"))?;
    let store = Store::open(&settings.paths.state_dir).map_err(ServeError::at("state"))?;
    let loaded = store.load_all().map_err(ServeError::at("state"))?;
    for (path, why) in &loaded.set_aside {
        journal::emit(&Event::StateSetAside { path, why });
    }
    let boot = boot::id().map_err(ServeError::at("boot id"))?;
    let paths = &settings.paths;
    let (kept, loaded_kept) = Kept::open(&paths.delegated_dir, &paths.netns_dir, boot, notices::journal())
        .map_err(ServeError::at("state"))?;
    for (path, why) in &loaded_kept.set_aside {
        journal::emit(&Event::StateSetAside { path, why });
    }
    let networks =
        Networks::new(&settings.networks, &kernel, store, kept).map_err(ServeError::at("networks"))?;
    let spool = Spool::open(&settings.paths.spool_dir);
    let node = Rc::new(Node::new(settings, networks, spool, Ledger::system(), kernel, metrics));

    let listener = Listener::from_fd(socket).map_err(ServeError::at("socket"))?;
    let (probes, probed) = mpsc::channel(1);
    let accepting = tokio::task::spawn_local(accept::run(Rc::clone(&node), listener, probed));
    if let Some(readers) = readers {
        metrics::start(&node, readers).map_err(ServeError::at("metrics socket"))?;
    }
    tokio::task::spawn_local(health::run(Rc::clone(&node), probes));
    tokio::task::spawn_local(maintain::run(Rc::clone(&node), changes));
    if options.listen.is_none() {
        tokio::task::spawn_local(guard::grace(Rc::clone(&node)));
        tokio::task::spawn_local(guard::run(Rc::clone(&node)));
    }
    let gates = options.listen.is_none();
    tokio::task::spawn_local(behind::run(Rc::clone(&node), gates));
    let firewalls = Rc::new(Firewalls::new(&node.settings(), gates));
    tokio::task::spawn_local(Rc::clone(&firewalls).run(Rc::clone(&node)));

    let started = tokio::select! {
        started = become_ready(&node, loaded.attachments, begun, gates, &firewalls) => Some(started),
        () = signals.stop() => None,
    };
    if let Some(started) = started {
        started?;
        serve_until_stopped(&node, options, &mut signals).await;
    }
    stop(&node, accepting).await;
    Ok(())
}

/// The readiness steps, in order. Nothing is answered before the last one but STATUS.
async fn become_ready(
    node: &Rc<Node>,
    records: Vec<crate::attachment::Attachment>,
    started: Instant,
    gates: bool,
    firewalls: &Firewalls,
) -> Result<(), ServeError> {
    node.readiness.at("making bridges and addresses");
    fail_at("bridge").await?;
    let changes = node.networks.prepare().await.map_err(ServeError::at("bridge"))?;
    node.readiness.at("matching attachments with the kernel");
    fail_at("attachments").await?;
    let reconciled = node.networks.reconcile(records).await.map_err(ServeError::at("attachments"))?;
    node.readiness.at("loading the nftables table");
    fail_at("nftables").await?;
    node.networks.apply_rules().await.map_err(ServeError::at("nftables"))?;
    node.readiness.at("speaking with other firewalls");
    firewalls.at_start(node).await;
    node.readiness.at("looking at what the networks stand on");
    fail_at("behind").await?;
    behind::wait(node, gates).await;
    node.readiness.at("taking down what an earlier boot left");
    fail_at("sweep").await?;
    maintain::sweep(node).await;
    node.readiness.at("carrying out spooled DELs");
    fail_at("spool").await?;
    maintain::spooled(node).await;
    for change in &changes {
        tracing::debug!(%change, "made the node ready");
    }
    node.metrics.reconciled(&reconciled);
    for failure in &reconciled.failures {
        node.failed(failure);
    }
    journal::emit(&Event::Reconciled {
        attachments: reconciled.kept + reconciled.rebuilt,
        undone: reconciled.undone,
        leases_freed: reconciled.freed,
        links_deleted: reconciled.orphans,
    });
    fail_at("ready").await?;
    node.readiness.enter(Phase::Ready);
    notify::ready(&node.status_line());
    let duration = started.elapsed();
    node.metrics.ready_after(duration);
    journal::emit(&Event::ServerReady { status: &node.status_line(), duration });
    node.tell("ready", &[]);
    Ok(())
}

async fn serve_until_stopped(node: &Rc<Node>, options: &Options, signals: &mut Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hangup.recv() => reload::run(node, &options.root),
        }
    }
}

/// Accepts no more, finishes what is in flight, leaves the rest to the next server.
async fn stop(node: &Rc<Node>, accepting: tokio::task::JoinHandle<()>) {
    node.readiness.enter(Phase::Stopping);
    notify::stopping();
    journal::emit(&Event::ServerStopping);
    node.tell("stopping", &[]);
    crate::step!("stop.drain");
    node.stop.cancel();
    let _ = accepting.await;
    node.sessions.close();
    let bound = node.settings().stop_timeout;
    if tokio::time::timeout(bound, node.sessions.wait()).await.is_err() {
        // What is unfinished is `pending` or `deleting` on disk: the next start undoes or finishes it.
        tracing::warn!(
            left = node.sessions.len(),
            "requests did not finish in time, leaving them to the next start"
        );
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A start step that a test can make fail, wait or die: `start.<step>`. It waits on a thread of its own, so
/// that the server goes on answering STATUS as it would in a step that takes its time.
#[cfg(feature = "failpoints")]
async fn fail_at(step: &'static str) -> Result<(), ServeError> {
    let visit = tokio::task::spawn_blocking(move || fail_now(step));
    visit.await.unwrap_or_else(|error| Err(ServeError::at(step)(error)))
}

#[cfg(not(feature = "failpoints"))]
#[allow(clippy::unused_async)] // it waits where there are failpoints
async fn fail_at(_: &'static str) -> Result<(), ServeError> {
    Ok(())
}

/// The same before there is a runtime.
#[cfg_attr(not(feature = "failpoints"), allow(clippy::unnecessary_wraps))]
fn fail_now(step: &'static str) -> Result<(), ServeError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::visit(&format!("start.{step}")) {
        return Err(ServeError { step, text: "failpoint".to_owned() });
    }
    let _ = step;
    Ok(())
}
