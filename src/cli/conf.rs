//! `hostcni conf place|remove|show`: the network configuration files, for the unit and for people.
//!
//! `place` is the unit's `ExecStartPost=`, `remove` its `ExecStop=` and `ExecStopPost=`. Both are idempotent
//! and say what they did in the journal. What decides is in functions that take the answers of server and
//! systemd as arguments; only [`run`] asks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::netconf::{self, Ledger, Ownership, PlaceError, Placed, RemoveError, Removed};
use crate::settings::{ForeignPolicy, NetworkSettings, RestartPolicy, Settings};
use crate::systemd::job::{self, PendingJob};
use crate::systemd::journal::{self, Event, Mode, emit};
use crate::wire::client::Client;

/// The CNI network configuration files that the container runtimes read.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Put the files in place, if the server is ready.
    Place(PlaceArgs),
    /// Take away the files that hostcni placed; in a planned restart they stay where the settings say so.
    Remove(RemoveArgs),
    /// Print each file as it would be placed, and what is there.
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
struct PlaceArgs {
    /// Do not ask the server whether it is ready.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// Remove all that any boot left behind; does not ask systemd whether the service restarts.
    #[arg(long)]
    boot: bool,
    /// Remove them in a planned restart, too. A running server does not put them back.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How a command ended, as an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done = 0,
    Failed = 1,
    NotReady = 3,
}

/// How long the server may take to say whether it is ready.
const STATUS_BOUND: Duration = Duration::from_secs(10);

/// Where a stale conf is looked for when the settings do not say where to look.
const DEFAULT_DIRECTORY: &str = "/etc/cni/net.d";

/// The unit whose restart keeps the conf, when the process cannot tell which one it belongs to.
const UNIT: &str = "hostcni.service";

/// Runs one of the commands.
pub fn run(args: &Args) -> ExitCode {
    let _log = journal::init(Mode::Helper);
    let ledger = Ledger::system();
    let settings = crate::settings::load(Path::new("/")).map(|loaded| loaded.settings);
    let outcome = match (&args.verb, settings) {
        (Verb::Remove(args), settings) => {
            if let Err(error) = &settings {
                tracing::warn!("{error}");
            }
            let pending = || job::pending(&job::own_unit().unwrap_or_else(|| UNIT.to_owned()));
            remove(args, settings.ok().as_ref(), &ledger, Path::new(DEFAULT_DIRECTORY), pending)
        }
        (_, Err(error)) => {
            tracing::error!("{error}");
            Outcome::Failed
        }
        (Verb::Place(args), Ok(settings)) => {
            let ready = if args.force { Ok(Lacks::new()) } else { ask_server(&settings.paths.socket) };
            place(&settings, &ledger, ready)
        }
        (Verb::Show(args), Ok(settings)) => show(args, &settings, &ledger),
    };
    ExitCode::from(outcome as u8)
}

/// What networks lack that they stand on, by their names: these get no conf yet.
type Lacks = BTreeMap<String, String>;

/// `Ok` when the server says that it is ready, else why not.
fn ask_server(socket: &Path) -> Result<Lacks, String> {
    let deadline = Instant::now() + STATUS_BOUND;
    let unreachable = |error: &dyn std::fmt::Display| format!("no answer from the server: {error}");
    let mut client = Client::connect(socket, deadline).map_err(|error| unreachable(&error))?;
    let status = client.status(deadline).map_err(|error| unreachable(&error))?;
    if status.ready {
        let lacking = status.networks.into_iter().filter(|network| !network.lacks.is_empty());
        Ok(lacking.map(|network| (network.name, network.lacks)).collect())
    } else {
        Err(format!("the server is not ready: {} {}", status.state, status.step))
    }
}

fn place(settings: &Settings, ledger: &Ledger, ready: Result<Lacks, String>) -> Outcome {
    let lacks = match ready {
        Ok(lacks) => lacks,
        Err(why) => {
            for network in &settings.networks {
                emit(&Event::ConfRefused { path: &network.conf.path, why: &why });
            }
            return Outcome::NotReady;
        }
    };
    let mut outcome = Outcome::Done;
    for network in &settings.networks {
        // The server places it when it is time.
        if let Some(why) = lacks.get(network.name.as_str()) {
            emit(&Event::ConfRefused { path: &network.conf.path, why });
            continue;
        }
        if !place_one(network, settings, ledger) {
            outcome = Outcome::Failed;
        }
    }
    // The old path of a network that has another one now; after the new one, so that there always is one.
    for path in unconfigured(settings, ledger) {
        if !remove_one(&path, "no network has it in its settings any more", ledger) {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

fn place_one(network: &NetworkSettings, settings: &Settings, ledger: &Ledger) -> bool {
    let path = &network.conf.path;
    match netconf::place(path, &netconf::render(network, settings), ledger) {
        Ok(Placed::Already) => {}
        Ok(Placed::New | Placed::Replaced) => {
            emit(&Event::ConfPlaced { network: network.name.as_str(), path });
        }
        Err(PlaceError::Foreign { why, .. }) => {
            emit(&Event::ForeignConf { path, why: &why });
            return network.conf.foreign == ForeignPolicy::Wait;
        }
        Err(error) => {
            emit(&Event::ConfRefused { path, why: &error.to_string() });
            return false;
        }
    }
    let own: BTreeSet<&Path> = settings.networks.iter().map(|network| network.conf.path.as_path()).collect();
    if let Some(by) = netconf::shadowing(path).into_iter().find(|by| !own.contains(by.as_path())) {
        emit(&Event::ShadowedConf { path, by: &by });
    }
    true
}

/// Paths in the ledger that no network has.
fn unconfigured(settings: &Settings, ledger: &Ledger) -> Vec<PathBuf> {
    let configured = |path: &Path| settings.networks.iter().any(|network| network.conf.path == path);
    ledger.entries().into_iter().map(|entry| entry.path).filter(|path| !configured(path)).collect()
}

/// `settings` are None when they do not parse: then nothing says that a conf may stay, and the server that
/// is to start will not.
fn remove(
    args: &RemoveArgs,
    settings: Option<&Settings>,
    ledger: &Ledger,
    default_directory: &Path,
    pending: impl FnOnce() -> PendingJob,
) -> Outcome {
    let settings = match settings {
        Some(settings) if !args.boot && !args.force => settings,
        _ => return remove_all(args, settings, ledger, default_directory),
    };
    let keeps = |network: &NetworkSettings| network.conf.restart == RestartPolicy::Keep;
    let pending = if settings.networks.iter().any(keeps) { pending() } else { PendingJob::None };
    if let PendingJob::Unknown(why) = &pending {
        tracing::warn!("{why}, taking it for a stop");
    }
    let why = reason(&pending, std::env::var("SERVICE_RESULT").ok().as_deref());
    let mut done = true;
    for network in &settings.networks {
        let path = &network.conf.path;
        if pending == PendingJob::Restart && keeps(network) {
            if let Ok(Ownership::Ours { .. }) = netconf::inspect(path, b"", ledger) {
                emit(&Event::ConfKept { path });
            }
        } else {
            done &= remove_one(path, &why, ledger);
        }
    }
    for path in unconfigured(settings, ledger) {
        done &= remove_one(&path, &why, ledger);
    }
    if done { Outcome::Done } else { Outcome::Failed }
}

fn remove_all(
    args: &RemoveArgs,
    settings: Option<&Settings>,
    ledger: &Ledger,
    default_directory: &Path,
) -> Outcome {
    let why = match (args.boot, args.force) {
        (true, _) => "it was left behind by the last boot",
        (_, true) => "asked for with --force",
        _ => "the configuration of hostcni is faulty",
    };
    let configured = settings.map(|settings| settings.networks.as_slice()).unwrap_or_default();
    let mut directories: BTreeSet<PathBuf> =
        configured.iter().filter_map(|network| network.conf.path.parent().map(Path::to_owned)).collect();
    if settings.is_none() {
        directories.insert(default_directory.to_owned());
    }
    let directories: Vec<PathBuf> = directories.into_iter().collect();
    let outcomes = netconf::remove_all(ledger, &directories);
    let failures = outcomes.iter().filter(|(path, outcome)| !report_removal(path, outcome, why)).count();
    if failures == 0 { Outcome::Done } else { Outcome::Failed }
}

fn remove_one(path: &Path, why: &str, ledger: &Ledger) -> bool {
    report_removal(path, &netconf::remove(path, ledger), why)
}

fn report_removal(path: &Path, outcome: &Result<Removed, RemoveError>, why: &str) -> bool {
    match outcome {
        Ok(Removed::Removed) => emit(&Event::ConfRemoved { path, why }),
        Ok(Removed::Absent) => {}
        Ok(Removed::Foreign { why }) => tracing::info!("leaving {} alone: {why}", path.display()),
        Err(error) => emit(&Event::ConfRemoveFailed { path, error: &error.to_string() }),
    }
    outcome.is_ok()
}

/// Why the conf goes, in the journal's words; `result` is what systemd tells about the server's end.
fn reason(pending: &PendingJob, result: Option<&str>) -> String {
    match (pending, result) {
        (PendingJob::Stop, _) => "the service stops".to_owned(),
        (PendingJob::Restart, _) => "the service restarts".to_owned(),
        (_, None | Some("success")) => "the service ends".to_owned(),
        (_, Some(result)) => format!("the service failed ({result})"),
    }
}

fn show(args: &ShowArgs, settings: &Settings, ledger: &Ledger) -> Outcome {
    let mut shown = Vec::new();
    for network in &settings.networks {
        let path = &network.conf.path;
        let content = netconf::render(network, settings);
        let (state, why) = match netconf::inspect(path, &content, ledger) {
            Ok(Ownership::Absent) => ("absent", String::new()),
            Ok(Ownership::Ours { as_rendered: true }) => ("ours", String::new()),
            Ok(Ownership::Ours { as_rendered: false }) => ("stale", String::new()),
            Ok(Ownership::Foreign { why }) => ("foreign", why),
            Err(error) => ("unknown", error.to_string()),
        };
        let content = String::from_utf8_lossy(&content).into_owned();
        shown.push(serde_json::json!({
            "network": network.name.as_str(), "path": path, "state": state, "why": why,
            "shadowedBy": netconf::shadowing(path), "content": content,
        }));
        if !args.json {
            let why = if why.is_empty() { why } else { format!(": {why}") };
            println!("# {} ({state}{why})\n{content}", path.display());
        }
    }
    if args.json {
        println!("{:#}", serde_json::Value::Array(shown));
    }
    Outcome::Done
}

#[cfg(test)]
mod tests;
