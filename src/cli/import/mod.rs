//! `hostcni import`: what `host-local` and openshift-sdn left of a network, against the namespaces that run.

mod host_local;
mod judge;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use ipnet::IpNet;
use serde_json::json;

use super::{Exit, table};
use crate::attachment::{Attachment, Delegated, NetnsId, Slots, State as Life, Store, StoreError};
use crate::cni::AttachmentKey;
use crate::datapath::{netns, spawn};
use crate::ipam::{Range, RangeSet};
use crate::settings::{self, DriverSettings, NetworkSettings, Settings};
use crate::systemd::boot;
use host_local::{Entry, Found};
use judge::{Namespace, State};

/// Where `host-local` keeps its networks unless told otherwise.
const NETWORKS: &str = "/var/lib/cni/networks";

#[derive(Debug, Args)]
pub struct Arguments {
    /// Keep away from live addresses until their pods end, and remove stale ones
    #[arg(long)]
    apply: bool,
    /// Only report (the default)
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// The network, as hostcni's configuration names it; needed when there are several
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// The directory with one file for each address [default: /var/lib/cni/networks/NAME]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Read the configuration below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Everything that was found and what it means.
struct Report {
    directory: PathBuf,
    found: Found,
    namespaces: Vec<Namespace>,
    states: Vec<State>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let settings = settings::load(&arguments.root)?.settings;
    let network = network(&settings, arguments.network.as_deref())?;
    let directory =
        arguments.directory.clone().unwrap_or_else(|| Path::new(NETWORKS).join(network.name.as_str()));
    let found =
        host_local::read(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let namespaces = namespaces().context("cannot look into the network namespaces: that takes root")?;
    let states = judge::judge(&found.entries, &namespaces);
    let report = Report { directory, found, namespaces, states };
    report.print(arguments.json);
    if !arguments.apply {
        return Ok(Exit::Done);
    }
    if service_runs() {
        eprintln!(
            "hostcni: the server runs: `systemctl stop hostcni.service hostcni.socket` first (pods keep their network)"
        );
        return Ok(Exit::Refused);
    }
    report.apply(&settings, network)?;
    Ok(Exit::Done)
}

fn network<'a>(settings: &'a Settings, name: Option<&str>) -> anyhow::Result<&'a NetworkSettings> {
    match (name, settings.networks.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => bail!("several networks are configured: say which with --network"),
        (Some(name), all) => all
            .iter()
            .find(|network| network.name.as_str() == name)
            .ok_or_else(|| anyhow!("no network {name} in the configuration: see `hostcni config show`")),
    }
}

/// Every namespace of the node but its own, with its addresses.
fn namespaces() -> anyhow::Result<Vec<Namespace>> {
    let mut all = Vec::new();
    for (path, id, opened) in netns::all()? {
        // One that ends meanwhile has no addresses any more.
        let addresses = netns::addresses(opened).unwrap_or_default();
        all.push(Namespace { path, id, addresses });
    }
    Ok(all)
}

/// Whether systemd runs the service, or is about to.
fn service_runs() -> bool {
    let asked = spawn::run("systemctl", &["is-active", "hostcni.service"], "", Duration::from_secs(10));
    asked.is_ok_and(|output| !matches!(output.stdout.trim(), "inactive" | "failed" | "unknown" | ""))
}

impl Report {
    fn words(&self, state: &State) -> (&'static str, String) {
        match state {
            State::Live(at) => ("live", self.namespaces[*at].path.display().to_string()),
            State::Stale => ("stale", "no namespace has it".to_owned()),
            State::New => ("new", "taken a moment ago: look again".to_owned()),
            State::Clash(why) => ("clash", why.clone()),
        }
    }

    fn print(&self, as_json: bool) {
        let rows: Vec<[String; 5]> = self
            .found
            .entries
            .iter()
            .zip(&self.states)
            .map(|(entry, state)| {
                let (word, note) = self.words(state);
                let ifname = entry.ifname.as_ref().map_or("-", |name| name.as_str());
                [
                    entry.address.to_string(),
                    entry.container.to_string(),
                    ifname.to_owned(),
                    word.to_owned(),
                    note,
                ]
            })
            .collect();
        let count = |word: &str| rows.iter().filter(|row| row[3] == word).count();
        if as_json {
            let entries: Vec<_> = rows
                .iter()
                .map(|[address, container, ifname, state, note]| {
                    json!({"address": address, "containerId": container, "ifName": ifname, "state": state, "note": note})
                })
                .collect();
            let malformed: Vec<_> =
                self.found.malformed.iter().map(|(path, why)| json!({"path": path, "why": why})).collect();
            println!(
                "{:#}",
                json!({"directory": self.directory, "entries": entries, "malformed": malformed})
            );
            return;
        }
        let header = ["ADDRESS", "CONTAINER", "INTERFACE", "STATE", "NOTE"];
        print!("{}", table::render(&header, &rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>()));
        for (path, why) in &self.found.malformed {
            println!("{}: left alone: {why}", path.display());
        }
        println!(
            "{}: {} live, {} stale, {} new, {} clashing, {} malformed",
            self.directory.display(),
            count("live"),
            count("stale"),
            count("new"),
            count("clash"),
            self.found.malformed.len()
        );
    }

    fn of(&self, wanted: impl Fn(&State) -> bool) -> Vec<(&Entry, &State)> {
        self.found.entries.iter().zip(&self.states).filter(|(_, state)| wanted(state)).collect()
    }

    fn apply(&self, settings: &Settings, network: &NetworkSettings) -> anyhow::Result<()> {
        let mut kept: Vec<Attachment> = Vec::new();
        for (entry, state) in self.of(|state| matches!(state, State::Live(_))) {
            let State::Live(at) = state else { continue };
            let key = AttachmentKey {
                network: network.name.clone(),
                container_id: entry.container.clone(),
                ifname: entry.ifname.clone().map_or_else(|| "eth0".parse(), Ok)?,
            };
            let Some(address) = with_length(network, entry) else {
                println!(
                    "{}: in no subnet of network {}: nothing to keep away from",
                    entry.address, network.name
                );
                continue;
            };
            match kept.iter_mut().find(|record| record.key == key) {
                Some(record) => record.addresses.push(address),
                None => kept.push(record(network, key, &self.namespaces[*at], address)?),
            }
        }
        let noted = match network.driver {
            DriverSettings::Bridge(_) => {
                let store = Store::open(&settings.paths.state_dir)?;
                note(&kept, &store.load_all()?.attachments, |record| store.put(record))?
            }
            DriverSettings::Delegate(_) => {
                let slots = Slots::new(&settings.paths.delegated_dir);
                note(&kept, &slots.load_all()?.attachments, |record| slots.put(record))?
            }
        };
        let stale: Vec<&Entry> =
            self.of(|state| *state == State::Stale).into_iter().map(|(it, _)| it).collect();
        let removed = host_local::remove(&self.directory, &stale)?;
        println!("noted {noted} live containers, removed {removed} stale addresses");
        Ok(())
    }
}

/// Puts those that are not known; says how many.
fn note(
    found: &[Attachment],
    known: &[Attachment],
    put: impl Fn(&Attachment) -> Result<(), StoreError>,
) -> Result<usize, StoreError> {
    let unknown = found.iter().filter(|record| known.iter().all(|other| other.key != record.key));
    unknown.map(put).try_fold(0, |noted, put| put.map(|()| noted + 1))
}

/// The address with the prefix length of its subnet; other plugins have their own ideas of it.
fn with_length(network: &NetworkSettings, entry: &Entry) -> Option<IpNet> {
    match &network.driver {
        DriverSettings::Bridge(bridge) => {
            let mut subnets = bridge.ranges.iter().flat_map(RangeSet::ranges).map(Range::subnet);
            let subnet = subnets.find(|subnet| subnet.contains(&entry.address))?;
            IpNet::new(entry.address, subnet.prefix_len()).ok()
        }
        DriverSettings::Delegate(_) => Some(entry.address.into()),
    }
}

/// What the server is to know of a pod that another plugin added.
fn record(
    network: &NetworkSettings,
    key: AttachmentKey,
    namespace: &Namespace,
    address: IpNet,
) -> anyhow::Result<Attachment> {
    let delegated = match &network.driver {
        DriverSettings::Bridge(_) => None,
        DriverSettings::Delegate(delegate) => Some(Box::new(Delegated {
            boot: boot::id()?,
            conflist: delegate.list.text.clone(),
            plugin_dirs: delegate.plugin_dirs.clone(),
            timeout: delegate.timeout.as_secs(),
            ..Delegated::default()
        })),
    };
    Ok(Attachment {
        state: Life::Ready,
        netns: Some(namespace.path.display().to_string()),
        netns_id: Some(NetnsId::of(namespace.id)),
        addresses: vec![address],
        imported: true,
        delegated,
        ..Attachment::new(key)
    })
}
