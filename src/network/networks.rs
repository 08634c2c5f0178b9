//! All networks of the node behind one door: requests come in as the specification has them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::attachment::{Attachment, SpooledDel, Store};
use crate::cni::{AttachmentKey, Command, NetworkName, Request};
use crate::datapath::{AntiSpoofing, Change, Kernel, PortMap, Ruleset};
use crate::settings::{DriverSettings, NetworkSettings};

use super::driver::{AddRequest, Added, CheckRequest, DelRequest, Driver, Fate, Only, Reconciled, Report};
use super::{Bridge, Delegate, Error, Kept, bandwidth, delegate};

/// What a request brought about.
#[derive(Debug, Default)]
pub struct Outcome {
    /// ADD's result.
    pub added: Option<Added>,
    /// The attachment that a DEL took down.
    pub attachment: Option<Attachment>,
    /// What a GC removed.
    pub collected: Vec<AttachmentKey>,
}

/// What became of a spooled DEL.
#[derive(Debug)]
pub struct ReplayedDel {
    /// The DEL.
    pub del: SpooledDel,
    /// What it took down; nothing when there was nothing, or when a later ADD made it void.
    pub outcome: Result<Option<Attachment>, Error>,
}

/// The node's networks.
pub struct Networks {
    kernel: Kernel,
    store: Rc<Store>,
    drivers: Vec<(NetworkName, Rc<dyn Driver>)>,
    /// What other plugins made, of networks that are configured and of others.
    kept: Rc<Kept>,
    /// Attachments of networks that are configured no longer: they live until their DEL.
    retired: RefCell<HashMap<AttachmentKey, Attachment>>,
    /// Whether the kernel has nftables tables of the family bridge, once it was asked.
    bridge_tables: Cell<Option<bool>>,
}

impl Networks {
    /// The networks as configured; nothing is touched yet.
    pub fn new(
        networks: &[NetworkSettings],
        kernel: &Kernel,
        store: Store,
        kept: Rc<Kept>,
    ) -> Result<Self, crate::ipam::PoolError> {
        let store = Rc::new(store);
        let drivers = networks
            .iter()
            .map(|network| {
                let driver: Rc<dyn Driver> = match &network.driver {
                    DriverSettings::Bridge(settings) => Rc::new(Bridge::new(
                        network.name.clone(),
                        settings.as_ref().clone(),
                        kernel.clone(),
                        Rc::clone(&store),
                    )?),
                    DriverSettings::Delegate(settings) => Rc::new(Delegate::new(
                        network.name.clone(),
                        settings.as_ref().clone(),
                        Rc::clone(&kept),
                    )),
                };
                Ok((network.name.clone(), driver))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            kernel: kernel.clone(),
            store,
            drivers,
            kept,
            retired: RefCell::default(),
            bridge_tables: Cell::default(),
        })
    }

    fn driver(&self, name: &NetworkName) -> Option<&Rc<dyn Driver>> {
        self.drivers.iter().find(|(known, _)| known == name).map(|(_, driver)| driver)
    }

    /// Bridges, addresses, sysctls and routes of the node; says what was changed. Also the repair of all of them.
    pub async fn prepare(&self) -> Result<Vec<String>, Error> {
        let mut changes = Vec::new();
        for (_, driver) in &self.drivers {
            changes.extend(driver.prepare().await?);
        }
        if self.bridge_tables.get().is_none() {
            self.bridge_tables.set(Some(self.kernel.has_bridge_tables().await?));
        }
        let wanted =
            self.drivers.iter().find(|(_, driver)| driver.rules().is_some_and(|it| it.anti_spoofing));
        if let Some((name, _)) = wanted.filter(|_| self.bridge_tables.get() == Some(false)) {
            return Err(Error::Unsupported(format!(
                "network {name}: anti_spoofing takes nftables tables of the family bridge, which this kernel has not \
                 (CONFIG_NF_TABLES_BRIDGE): set anti_spoofing = false"
            )));
        }
        crate::step!("prepare.sysctl", Error::Injected("prepare.sysctl"));
        let ruleset = self.ruleset();
        let forwards6 = ruleset.sysctls().iter().any(|(name, _)| name == "ipv6/conf/all/forwarding");
        if forwards6 {
            let bridges = ruleset.networks.iter().map(|network| network.bridge.clone()).collect();
            for change in self.kernel.keep_router_advertisements(bridges).await? {
                tracing::info!(
                    "{change}: this node forwards IPv6 now, and that link takes router advertisements as before"
                );
            }
        }
        let settings = ruleset.sysctls().into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        let (changed, failed) = self.kernel.ensure_sysctls(settings).await?;
        if let Some(error) = failed.into_iter().next() {
            return Err(error.into());
        }
        changes.extend(changed.iter().map(ToString::to_string));
        for route in ruleset.loopback6() {
            let bridge = route.bridge.clone();
            if self.kernel.ensure_loopback6(route).await? {
                changes.push(format!("added the local route for ::1 on {bridge}"));
            }
        }
        Ok(changes)
    }

    /// The host ports of all networks, each once: a text with two answers for one port would be refused whole.
    fn port_maps(&self) -> Vec<PortMap> {
        let mut seen = HashSet::new();
        let all = self.drivers.iter().flat_map(|(_, driver)| driver.port_maps());
        all.filter(|map| {
            seen.insert((map.protocol.number(), map.host_address, map.host_port, map.pod_address.is_ipv4()))
        })
        .collect()
    }

    fn ruleset(&self) -> Ruleset {
        Ruleset {
            networks: self.drivers.iter().filter_map(|(_, driver)| driver.rules()).collect(),
            port_maps: self.port_maps(),
            pods: self.drivers.iter().flat_map(|(_, driver)| driver.identities()).collect(),
            anti_spoofing: match self.bridge_tables.get() {
                Some(true) => AntiSpoofing::On,
                _ => AntiSpoofing::Unsupported,
            },
            ..Ruleset::default()
        }
    }

    /// Matches the records with the kernel.
    pub async fn reconcile(&self, records: Vec<Attachment>) -> Result<Reconciled, Error> {
        let mut by_network: HashMap<NetworkName, Vec<Attachment>> = HashMap::new();
        for record in records {
            by_network.entry(record.key.network.clone()).or_default().push(record);
        }
        let mut all = Reconciled::default();
        for (name, driver) in &self.drivers {
            // Of a network that had a bridge once, the records are for nobody but their DEL.
            let own = if is_delegate(driver) { None } else { by_network.remove(name) };
            let one = driver.reconcile(own.unwrap_or_default()).await?;
            all.kept += one.kept;
            all.rebuilt += one.rebuilt;
            all.freed += one.freed;
            all.undone += one.undone;
            all.orphans += one.orphans;
            all.failures.extend(one.failures);
        }
        let retired = by_network.into_values().flatten().map(|record| (record.key.clone(), record));
        self.retired.borrow_mut().extend(retired);
        Ok(all)
    }

    /// Replaces the nftables table as a whole, with the elements of every live attachment.
    pub async fn apply_rules(&self) -> Result<(), Error> {
        crate::step!("prepare.rules", Error::Injected("prepare.rules"));
        Ok(self.kernel.apply_ruleset(self.ruleset().render()).await?)
    }

    /// Carries out ADD, DEL, CHECK or GC.
    pub async fn carry_out(
        &self,
        request: Request,
        netns: Option<OwnedFd>,
        caller: CancellationToken,
    ) -> Result<Outcome, Error> {
        let network = request.conf.name.clone();
        let driver = self.driver(&network);
        let unknown = || Error::UnknownNetwork(network.to_string());
        match request.command {
            Command::Add => {
                let request = add_request(request, netns, caller)?;
                let added = driver.ok_or_else(unknown)?.add(request).await?;
                Ok(Outcome { added: Some(added), ..Outcome::default() })
            }
            Command::Del => {
                let request = del_request(request, netns).ok_or_else(unknown)?;
                Ok(Outcome { attachment: self.del(request).await?, ..Outcome::default() })
            }
            Command::Check => {
                let key = request.key().ok_or_else(unknown)?;
                let netns = netns.ok_or_else(no_netns)?;
                let check = CheckRequest { key, netns, prev_result: request.conf.prev_result };
                driver.ok_or_else(unknown)?.check(check).await.map(|()| Outcome::default())
            }
            Command::Gc => {
                let valid = request.conf.valid_attachments.as_deref().ok_or(Error::NoValidAttachments)?;
                let collected = driver.ok_or_else(unknown)?.gc(valid).await?;
                Ok(Outcome { collected, ..Outcome::default() })
            }
            Command::Status | Command::Version => Ok(Outcome::default()),
        }
    }

    /// Takes an attachment down, also of a network that is configured no longer, or with another driver.
    pub async fn del(&self, request: DelRequest) -> Result<Option<Attachment>, Error> {
        let key = request.key.clone();
        let driver = self.driver(&key.network);
        let delegate = driver.filter(|driver| is_delegate(driver));
        if let Some(delegate) = delegate.filter(|_| !self.retired.borrow().contains_key(&key)) {
            return delegate.del(request).await;
        }
        let mut gone = None;
        if self.kept.get(&key).is_some() {
            let former = DelRequest { within: request.within, ..DelRequest::of(key.clone(), request.only) };
            gone = delegate::delete(&self.kept, former, None, request.within.unwrap_or(FORMER_DEL)).await?;
        }
        if let Some(driver) = driver.filter(|driver| !is_delegate(driver)) {
            return Ok(driver.del(request).await?.or(gone));
        }
        let link = crate::attachment::host_link_name(&key);
        self.kernel.delete_links(&bandwidth::links(&link, None)).await?;
        self.store.remove(&key)?;
        Ok(self.retired.borrow_mut().remove(&key).or(gone))
    }

    /// Begins the deletion of what other plugins made in an earlier boot, or did not finish.
    pub fn sweep(&self) -> Vec<tokio::task::JoinHandle<()>> {
        self.kept.sweep()
    }

    /// Whether the plugins that the network is made of are there and, when `asked`, say that they are able.
    pub async fn stands(&self, name: &NetworkName, asked: bool) -> Result<(), Error> {
        let driver = self.driver(name).ok_or_else(|| Error::UnknownNetwork(name.to_string()))?;
        if asked { driver.status().await } else { driver.stands().await }
    }

    /// Whether the network can add a pod now; the reason if not.
    pub fn able(&self, name: &NetworkName) -> Result<(), String> {
        let driver = self.driver(name).ok_or_else(|| Error::UnknownNetwork(name.to_string()).to_string())?;
        driver.report().unable.map_or(Ok(()), Err)
    }

    /// Carries out spooled DELs, all at once; an ADD that came after a DEL wins over it.
    pub async fn replay(&self, dels: Vec<SpooledDel>) -> Vec<ReplayedDel> {
        let each = dels.into_iter().map(|del| async move {
            let outcome = self.del(DelRequest::spooled(&del, SPOOLED_DEL)).await;
            ReplayedDel { del, outcome }
        });
        join_all(each).await
    }

    /// Tells every driver of a change in the kernel; what the one that it concerns did about it.
    pub async fn changed(&self, change: &Change) -> Fate {
        for (_, driver) in &self.drivers {
            let fate = driver.changed(change).await;
            if fate != Fate::NotOurs {
                return fate;
            }
        }
        Fate::NotOurs
    }

    /// Tries again what could not be taken down; says how many attachments are left so.
    pub async fn retry(&self) -> usize {
        let mut left = self.kept.retry();
        for (_, driver) in &self.drivers {
            left += driver.retry().await;
        }
        left
    }

    /// Looks at what no event tells of; what was found and put right, or could not be.
    pub async fn tend(&self) -> Vec<Fate> {
        let mut fates = Vec::new();
        for (_, driver) in &self.drivers {
            fates.extend(driver.tend().await);
        }
        fates
    }

    /// Every network's figures.
    pub fn reports(&self) -> Vec<(NetworkName, Report)> {
        self.drivers.iter().map(|(name, driver)| (name.clone(), driver.report())).collect()
    }

    /// Every attachment of the node, oldest first.
    pub fn attachments(&self) -> Vec<Attachment> {
        let mut all: Vec<Attachment> =
            self.drivers.iter().flat_map(|(_, driver)| driver.attachments()).collect();
        all.extend(self.retired.borrow().values().cloned());
        let former = |record: &Attachment| !self.driver(&record.key.network).is_some_and(is_delegate);
        all.extend(self.kept.all().into_iter().filter(former));
        all.sort_by_key(|attachment| attachment.created);
        all
    }
}

/// The bound of a DEL for a network that is configured no longer.
const FORMER_DEL: Duration = Duration::from_secs(40);
/// What a start waits for a DEL that was written down: what takes longer is kept, and done later.
const SPOOLED_DEL: Duration = Duration::from_secs(10);

fn is_delegate(driver: &Rc<dyn Driver>) -> bool {
    driver.rules().is_none()
}

fn del_request(request: Request, netns: Option<OwnedFd>) -> Option<DelRequest> {
    let key = request.key()?;
    Some(DelRequest {
        netns,
        netns_path: request.netns.unwrap_or_default(),
        pod: request.args.pod(),
        args: request.args.raw().to_owned(),
        config: request.config,
        ..DelRequest::of(key, Only::Always)
    })
}

fn no_netns() -> Error {
    Error::InvalidNetns("the request came without a network namespace".to_owned())
}

fn add_request(
    request: Request,
    netns: Option<OwnedFd>,
    caller: CancellationToken,
) -> Result<AddRequest, Error> {
    let key = request.key().ok_or_else(|| Error::UnknownAttachment(request.conf.name.to_string()))?;
    Ok(AddRequest {
        key,
        netns: netns.ok_or_else(no_netns)?,
        netns_path: request.netns.unwrap_or_default(),
        pod: request.args.pod(),
        runtime: request.conf.runtime_config,
        version: request.conf.cni_version,
        args: request.args.raw().to_owned(),
        config: request.config,
        caller,
    })
}
