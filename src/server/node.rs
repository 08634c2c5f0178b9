//! What the server's parts share.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attachment::{Attachment, Spool, State};
use crate::datapath::Kernel;
use crate::netconf::{self, Ledger, Ownership};
use crate::network::Networks;
use crate::settings::{NetworkSettings, Settings};
use crate::systemd::notify;
use crate::wire::{AttachmentInfo, ConfStatus, MonitorEvent, NetworkStatus, RangeStatus, StatusReply};

use super::behind::Lacks;
use super::guard::Trouble;
use super::metrics::Metrics;
use super::{Phase, Readiness};

/// How many events a slow `hostcni monitor` may lag behind before it loses some.
const MONITOR_BACKLOG: usize = 1024;

/// The running server.
pub struct Node {
    /// The configuration in force.
    pub settings: RefCell<Rc<Settings>>,
    /// Where the server stands.
    pub readiness: Readiness,
    /// The networks.
    pub networks: Networks,
    /// DELs that were left on disk.
    pub spool: Spool,
    /// The confs that hostcni has placed.
    pub ledger: Ledger,
    /// The kernel.
    pub kernel: Kernel,
    /// What is counted and measured.
    pub metrics: Metrics,
    /// Open connections.
    pub connections: Cell<usize>,
    /// Whether no more may be open, so that others wait in the socket.
    pub crowded: Cell<bool>,
    /// The last thing that went wrong, for `status`.
    pub last_error: RefCell<String>,
    /// Confs whose place somebody else's file has, or had.
    pub was_foreign: RefCell<HashSet<PathBuf>>,
    /// Confs that are not as they should be, and why.
    pub conf_trouble: RefCell<HashMap<PathBuf, Trouble>>,
    /// Networks that lack what they stand on: they have no conf.
    pub lacks: RefCell<Lacks>,
    /// Live events.
    pub events: broadcast::Sender<MonitorEvent>,
    /// Ends the accept loop and every idle connection.
    pub stop: CancellationToken,
    /// Sessions under way.
    pub sessions: TaskTracker,
}

impl Node {
    /// A server at the beginning of its start.
    pub fn new(
        settings: Settings,
        networks: Networks,
        spool: Spool,
        ledger: Ledger,
        kernel: Kernel,
        metrics: Metrics,
    ) -> Self {
        Self {
            settings: RefCell::new(Rc::new(settings)),
            readiness: Readiness::default(),
            networks,
            spool,
            ledger,
            kernel,
            metrics,
            connections: Cell::new(0),
            crowded: Cell::new(false),
            last_error: RefCell::default(),
            was_foreign: RefCell::default(),
            conf_trouble: RefCell::default(),
            lacks: RefCell::default(),
            events: broadcast::Sender::new(MONITOR_BACKLOG),
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        }
    }

    /// The configuration in force.
    pub fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.settings.borrow())
    }

    /// Tells `hostcni monitor`; nobody listening is the normal case.
    pub fn tell(&self, kind: &str, fields: &[(&str, String)]) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let _ =
            self.events.send(MonitorEvent { at: micros(SystemTime::now()), kind: kind.to_owned(), fields });
    }

    /// Remembers what went wrong, and shows it where the operator looks first.
    pub fn failed(&self, error: &str) {
        error.clone_into(&mut self.last_error.borrow_mut());
        self.show_status();
    }

    /// The line under `Status:` in `systemctl status`.
    pub fn show_status(&self) {
        if self.readiness.phase() == Phase::Ready {
            notify::status(&self.status_line());
        }
    }

    /// The line for a server that is ready: pods, free addresses, the last error.
    pub fn status_line(&self) -> String {
        let reports = self.networks.reports();
        let pods: usize = reports.iter().map(|(_, report)| report.attachments).sum();
        let free = reports
            .iter()
            .flat_map(|(_, report)| &report.ranges)
            .map(|range| range.free)
            .min()
            .map_or_else(String::new, |free| format!(", {free} addresses free"));
        let error = self.last_error.borrow();
        let error = if error.is_empty() { String::new() } else { format!("; last error: {error}") };
        format!("ready: {pods} attachments{free}{error}")
    }

    /// What `hostcni status` shows.
    pub fn status(&self) -> StatusReply {
        let settings = self.settings();
        let phase = self.readiness.phase();
        StatusReply {
            ready: phase == Phase::Ready,
            state: phase.as_str().to_owned(),
            step: self.readiness.step(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: micros(self.readiness.since()),
            pid: std::process::id(),
            networks: settings
                .networks
                .iter()
                .map(|network| self.network_status(network, &settings))
                .collect(),
            spooled: self.spool.len() as u64,
            connections: self.connections.get() as u64,
            last_error: self.last_error.borrow().clone(),
        }
    }

    fn network_status(&self, network: &NetworkSettings, settings: &Settings) -> NetworkStatus {
        let report = self.networks.reports().into_iter().find(|(name, _)| *name == network.name);
        let conf = self.conf_status(network, settings);
        let lacks = self.lacks.borrow().get(&network.name).cloned().unwrap_or_default();
        let mut status =
            NetworkStatus { name: network.name.to_string(), conf, lacks, ..NetworkStatus::default() };
        if let Some((_, report)) = report {
            report.driver.clone_into(&mut status.driver);
            status.bridge = report.bridge;
            status.mtu = report.mtu;
            status.attachments = report.attachments as u64;
            status.able = report.unable.is_none();
            status.reason = report.unable.unwrap_or_default();
            status.ranges = report
                .ranges
                .iter()
                .map(|range| RangeStatus {
                    subnet: range.subnet.to_string(),
                    capacity: saturate(range.capacity),
                    used: saturate(range.used),
                    free: saturate(range.free),
                })
                .collect();
        }
        status
    }

    /// What the guard knows of the conf, or else what is there now.
    fn conf_status(&self, network: &NetworkSettings, settings: &Settings) -> ConfStatus {
        let path = &network.conf.path;
        let (state, reason) = match self.conf_trouble.borrow().get(path) {
            Some(trouble) => (trouble.state, trouble.why.clone()),
            None => match netconf::inspect(path, &netconf::render(network, settings), &self.ledger) {
                Ok(Ownership::Absent) => ("absent", String::new()),
                Ok(Ownership::Ours { as_rendered: true }) => ("ours", String::new()),
                Ok(Ownership::Ours { as_rendered: false }) => ("stale", String::new()),
                Ok(Ownership::Foreign { why }) => ("foreign", why),
                Err(error) => ("unusable", error.to_string()),
            },
        };
        ConfStatus { path: path.display().to_string(), state: state.to_owned(), reason }
    }

    /// What `hostcni attachments` shows.
    pub fn attachments(&self) -> Vec<AttachmentInfo> {
        self.networks.attachments().into_iter().map(info).collect()
    }
}

fn info(attachment: Attachment) -> AttachmentInfo {
    let pod = attachment.pod.unwrap_or_default();
    AttachmentInfo {
        network: attachment.key.network.to_string(),
        container_id: attachment.key.container_id.to_string(),
        if_name: attachment.key.ifname.to_string(),
        pod_namespace: pod.namespace,
        pod_name: pod.name,
        pod_uid: pod.uid,
        addresses: attachment.addresses.iter().map(ToString::to_string).collect(),
        mac: attachment.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        host_link: attachment.host_link,
        netns: attachment.netns.unwrap_or_default(),
        state: match attachment.state {
            State::Pending => "pending",
            State::Ready => "ready",
            State::Deleting => "deleting",
        }
        .to_owned(),
        created: micros(attachment.created),
    }
}

fn saturate(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Microseconds since the epoch, as the journal counts.
pub fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
