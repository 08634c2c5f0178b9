//! `hostcni doctor`: what keeps a node's pods from their network, as far as the node itself can tell.
//!
//! Owns the checks. Each looks, judges and says what to do; none changes anything. They read what the server says, what
//! systemd, the kernel and nftables say, and the runtimes' own configuration files.

mod conf;
mod firewall;
mod kernel;
mod modules;
mod routes;
mod runtime;
mod scene;
mod server;
mod units;

pub use scene::{Scene, json, said};

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Pods have their network; something will go wrong, or could not be looked at.
    Warning,
    /// Pods do not get their network, or lose it.
    Error,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was seen.
    pub reason: String,
    /// What to do; empty when all is well.
    pub remedy: String,
}

/// What one check has to say: nothing means that all is well.
#[derive(Debug, Default)]
pub struct Findings(Vec<(Verdict, String, String)>);

impl Findings {
    fn error(&mut self, reason: impl Into<String>, remedy: impl Into<String>) {
        self.0.push((Verdict::Error, reason.into(), remedy.into()));
    }

    fn warning(&mut self, reason: impl Into<String>, remedy: impl Into<String>) {
        self.0.push((Verdict::Warning, reason.into(), remedy.into()));
    }
}

type Check = fn(&Scene, &mut Findings);

/// Every check, what it is called, and what is said when all is well.
const CHECKS: &[(&str, &str, Check)] = &[
    ("configuration", "it is valid", conf::configuration),
    ("units", "enabled and active", units::check),
    ("server", "ready", server::check),
    ("addresses", "there are free ones", server::addresses),
    ("deletions", "none waits", server::deletions),
    ("namespaces", "every attachment's is there", server::namespaces),
    ("conf", "placed, and the one that runtimes take", conf::check),
    ("left-overs", "none of another plugin", conf::left_overs),
    ("multus", "it waits for hostcni's conf, or is not there", conf::multus),
    ("runtime", "it finds the plugin and the conf", runtime::check),
    ("forwarding", "on", kernel::forwarding),
    ("bridge", "as it should be", kernel::bridge),
    ("udev", "keeps off hostcni's links", kernel::udev),
    ("kernel", "has what the networks take", modules::check),
    ("clock", "not behind the attachments", server::clock),
    ("limits", "far away", kernel::limits),
    ("disk", "room for what has to be written down", kernel::disk),
    ("routes", "no subnet is somebody else's", routes::check),
    ("mtu", "fits the uplink", routes::mtu),
    ("firewall", "lets pods' packets through", firewall::check),
    ("firewalld", "not running, or the bridge is in its zone", firewall::firewalld),
];

/// Looks at everything.
pub fn examine(scene: &Scene) -> Vec<Finding> {
    let mut all = Vec::new();
    for (name, fine, check) in CHECKS {
        let mut findings = Findings::default();
        check(scene, &mut findings);
        if findings.0.is_empty() {
            findings.0.push((Verdict::Fine, (*fine).to_owned(), String::new()));
        }
        let found = findings.0.into_iter();
        all.extend(found.map(|(verdict, reason, remedy)| Finding { check: name, verdict, reason, remedy }));
    }
    all
}
