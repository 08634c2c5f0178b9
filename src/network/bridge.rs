//! The native driver: an own bridge, a veth pair per pod, addresses from an own pool.
//!
//! One path makes an attachment and one takes it down; DEL, roll-back, GC and the start-up's undoing all
//! use the second, which goes through every step whatever fails on the way.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::SystemTime;

use futures_util::future::join_all;
use ipnet::IpNet;

use crate::attachment::{self, Attachment, NetnsId, State, Store};
use crate::cni::{
    AddResult, AttachmentKey, Command, Interface, IpConfig, MacAddr, NetworkName, Route, RuntimeConfig,
    ValidAttachment,
};
use crate::datapath::{
    AttachError, BridgeSpec, Change, Kernel, NetworkRules, PodLink, PodLinkSpec, PodPort, PodRoute, PortMap,
    netns,
};
use crate::ipam::{AllocateError, Lease, Pool, RangeSet};
use crate::settings::BridgeSettings;

use super::driver::{AddRequest, Added, Answer, CheckRequest, DelRequest, Driver, Fate, Reconciled, Report};
use super::steps::Steps;
use super::{Difference, Error, KeyedQueue, Table, bandwidth, block, check, ports, reconcile};

/// The MTU when there is no default route to take it from.
const FALLBACK_MTU: u32 = 1500;

/// A network with an own bridge.
#[derive(Debug)]
pub struct Bridge {
    pub(super) name: NetworkName,
    pub(super) settings: BridgeSettings,
    pub(super) kernel: Kernel,
    pub(super) table: RefCell<Table>,
    pub(super) queue: Rc<KeyedQueue>,
    pub(super) index: Cell<u32>,
    pub(super) mtu: Cell<u32>,
}

impl Bridge {
    /// The network as configured; nothing is touched yet.
    pub fn new(
        name: NetworkName,
        settings: BridgeSettings,
        kernel: Kernel,
        store: Rc<Store>,
    ) -> Result<Self, crate::ipam::PoolError> {
        let pool = Pool::new(settings.ranges.clone())?;
        Ok(Self {
            name,
            settings,
            kernel,
            table: RefCell::new(Table::new(store, pool)),
            queue: Rc::default(),
            index: Cell::new(0),
            mtu: Cell::new(FALLBACK_MTU),
        })
    }

    fn gateways(&self) -> Vec<IpNet> {
        let ranges = self.settings.ranges.iter().flat_map(RangeSet::ranges);
        let mut gateways: Vec<IpNet> = ranges
            .filter_map(|range| IpNet::new(range.gateway()?, range.subnet().prefix_len()).ok())
            .collect();
        gateways.dedup();
        gateways
    }

    fn subnets(&self) -> Vec<IpNet> {
        let mut subnets: Vec<IpNet> = self
            .settings
            .ranges
            .iter()
            .flat_map(RangeSet::ranges)
            .map(|range| range.subnet().trunc())
            .collect();
        subnets.sort_unstable();
        subnets.dedup();
        subnets
    }

    async fn prepare_node(&self) -> Result<Vec<String>, Error> {
        let mtu = match self.settings.mtu {
            Some(mtu) => mtu,
            None => self
                .kernel
                .uplink_mtu()
                .await?
                .map_or(FALLBACK_MTU, |(_, mtu)| mtu)
                .saturating_sub(self.settings.mtu_overhead),
        };
        self.mtu.set(mtu);
        crate::step!("prepare.bridge", Error::Injected("prepare.bridge"));
        let bridge = self
            .kernel
            .ensure_bridge(&BridgeSpec {
                name: self.settings.bridge.clone(),
                mac: self.settings.mac.octets(),
                mtu,
                addresses: self.gateways(),
            })
            .await?;
        self.index.set(bridge.index);
        let mut changes = bridge.changes;
        if bridge.created {
            changes.extend(self.enslave_all().await);
        }
        Ok(changes)
    }

    /// Puts the host ends of running pods back under a bridge that somebody deleted.
    async fn enslave_all(&self) -> Vec<String> {
        let links: Vec<String> =
            self.table.borrow().iter().map(|attachment| attachment.host_link.clone()).collect();
        let mut changes = Vec::new();
        for link in links {
            match self
                .kernel
                .enslave(&link, &self.settings.bridge, self.settings.hairpin, self.settings.isolated)
                .await
            {
                Ok(()) => changes.push(format!("put {link} back under {}", self.settings.bridge)),
                Err(error) if error.is_missing() => {}
                Err(error) => changes.push(error.to_string()),
            }
        }
        changes
    }

    fn pod_routes(&self, leases: &[Lease]) -> Vec<PodRoute> {
        let default = |lease: &Lease| {
            let gateway = lease.gateway?;
            let dst = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            Some(PodRoute {
                dst: dst.parse().ok()?,
                gateway: Some(gateway),
                priority: None,
                mtu: None,
                advmss: None,
            })
        };
        let configured = self.settings.routes.iter().map(|route| PodRoute {
            dst: route.dst,
            gateway: route.gw,
            priority: route.priority,
            mtu: route.mtu,
            advmss: route.advmss,
        });
        leases.iter().filter_map(default).chain(configured).collect()
    }

    async fn attach(&self, request: AddRequest) -> Result<Added, Error> {
        refuse_unsupported(&request.runtime)?;
        let _turn = self.queue.turn(&request.key).await;
        if request.caller.is_cancelled() {
            return Err(Error::CallerGone);
        }
        if let Some(result) = self.same_again(&request).await? {
            return Ok(self.answered(&request.key, result));
        }
        let outcome = match self.make(&request).await {
            Ok(_) if request.caller.is_cancelled() => Err(Error::CallerGone),
            outcome => outcome,
        };
        if outcome.is_err() {
            // What cannot be undone now stays recorded as `deleting` and is tried again.
            let _ = self.take_down(&request.key).await;
        }
        outcome.map(|result| self.answered(&request.key, result))
    }

    fn answered(&self, key: &AttachmentKey, result: AddResult) -> Added {
        Added { result, serial: self.table.borrow_mut().answered(key) }
    }

    /// An ADD that was carried out before gives its result again while nothing has changed; otherwise
    /// what is left of the old attachment goes first.
    async fn same_again(&self, request: &AddRequest) -> Result<Option<AddResult>, Error> {
        let Some(attachment) = self.table.borrow().get(&request.key).cloned() else { return Ok(None) };
        let same = attachment.state == State::Ready
            && attachment.netns_id == Some(NetnsId::of(netns::id(&request.netns).unwrap_or_default()))
            && attachment.port_mappings == request.runtime.port_mappings
            && attachment.bandwidth == bandwidth::asked(&request.runtime)?
            && request.runtime.mac.is_none_or(|mac| attachment.mac == Some(mac));
        if same {
            let netns = request.netns.try_clone().map_err(|error| Error::InvalidNetns(error.to_string()))?;
            if attachment.result.is_some() && self.differences(&attachment, netns).await?.is_empty() {
                return Ok(attachment.result);
            }
        }
        self.take_down(&request.key).await?;
        Ok(None)
    }

    async fn make(&self, request: &AddRequest) -> Result<AddResult, Error> {
        let mut steps = Steps::of(Command::Add, &request.key);
        crate::step!("add.lease", Error::Injected("add.lease"));
        let (leases, mut attachment) = self.lease(request)?;
        let routes = self.pod_routes(&leases);
        crate::step!("add.record", Error::Injected("add.record"));
        self.table.borrow_mut().put(attachment.clone())?;
        steps.passed("lease");
        let spec = PodLinkSpec {
            host_link: attachment.host_link.clone(),
            alias: attachment::host_link_alias(&attachment.key, &attachment.addresses),
            bridge: self.settings.bridge.clone(),
            ifname: request.key.ifname.to_string(),
            mac: attachment.mac.map(MacAddr::octets).unwrap_or_default(),
            mtu: self.mtu.get(),
            addresses: attachment.addresses.clone(),
            routes: routes.clone(),
            hairpin: self.settings.hairpin,
            isolated: self.settings.isolated,
            shaping: bandwidth::shaping(&attachment, self.mtu.get()),
        };
        // Before the link: what a pod sends first, its ARP for the gateway, shall pass.
        self.hold(&attachment).await?;
        steps.passed("identity");
        crate::step!("add.link", Error::Injected("add.link"));
        let link = self.make_link(spec, request).await?;
        steps.passed("link");
        crate::step!("add.elements", Error::Injected("add.elements"));
        self.open_ports(&attachment).await?;
        steps.passed("ports");
        let result = self.result(request, &attachment, &leases, &routes, &link);
        attachment.result = Some(result.clone());
        attachment.state = State::Ready;
        crate::step!("add.commit", Error::Injected("add.commit"));
        self.table.borrow_mut().put(attachment)?;
        steps.passed("record");
        crate::step!("add.answer", Error::Injected("add.answer"));
        Ok(result)
    }

    fn lease(&self, request: &AddRequest) -> Result<(Vec<Lease>, Attachment), Error> {
        let requested: Vec<IpAddr> = request.runtime.ips.iter().map(IpNet::addr).collect();
        let mut table = self.table.borrow_mut();
        let leases = table.pool.allocate(&request.key, &requested).map_err(|error| match error {
            AllocateError::Exhausted { .. } => {
                let usage = table.pool.usage();
                let ranges: Vec<String> = usage.iter().map(|range| range.subnet.to_string()).collect();
                let used = usage.iter().map(|range| u64::try_from(range.used).unwrap_or(u64::MAX)).sum();
                Error::exhausted(&ranges, used)
            }
            other => Error::Address(other),
        })?;
        let addresses: Vec<IpNet> =
            leases.iter().filter_map(|lease| IpNet::new(lease.address, lease.prefix_len).ok()).collect();
        let mac = request.runtime.mac.unwrap_or_else(|| mac_for(&leases));
        let attachment = Attachment {
            created: SystemTime::now(),
            netns: Some(request.netns_path.clone()),
            netns_id: netns::id(&request.netns).ok().map(NetnsId::of),
            gateways: leases.iter().filter_map(|lease| lease.gateway).collect(),
            addresses,
            mac: Some(mac),
            mtu: Some(self.mtu.get()),
            pod: request.pod.clone(),
            cni_version: request.version,
            port_mappings: request.runtime.port_mappings.clone(),
            bandwidth: bandwidth::asked(&request.runtime)?,
            ..Attachment::new(request.key.clone())
        };
        Ok((leases, attachment))
    }

    /// Creates the pod's link. A host end of the same name whose record was lost is a left-over of the
    /// same attachment: it goes, once, and the link is made again.
    async fn make_link(&self, spec: PodLinkSpec, request: &AddRequest) -> Result<PodLink, Error> {
        let clone = || request.netns.try_clone().map_err(|error| Error::InvalidNetns(error.to_string()));
        let error = match self.kernel.attach(spec.clone(), clone()?).await {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        let exists = match &error {
            AttachError::InterfaceExists { .. } => true,
            AttachError::Kernel(kernel) => kernel.is_exists(),
            _ => false,
        };
        if exists && self.kernel.delete_links(&bandwidth::links(&spec.host_link, None)).await? {
            return Ok(self.kernel.attach(spec, clone()?).await?);
        }
        Err(error.into())
    }

    pub(super) fn result(
        &self,
        request: &AddRequest,
        attachment: &Attachment,
        leases: &[Lease],
        routes: &[PodRoute],
        link: &PodLink,
    ) -> AddResult {
        let interface = |name: &str, mac: MacAddr, sandbox: Option<&str>, mtu: Option<u32>| Interface {
            name: name.to_owned(),
            mac: Some(mac.to_string()),
            mtu,
            sandbox: sandbox.map(str::to_owned),
            ..Interface::default()
        };
        let mtu = Some(self.mtu.get());
        AddResult {
            interfaces: vec![
                interface(&self.settings.bridge, self.settings.mac, None, mtu),
                interface(&attachment.host_link, MacAddr::new(link.host_mac), None, mtu),
                interface(
                    request.key.ifname.as_str(),
                    attachment.mac.unwrap_or_default(),
                    Some(&request.netns_path),
                    mtu,
                ),
            ],
            ips: leases
                .iter()
                .zip(&attachment.addresses)
                .map(|(lease, address)| IpConfig {
                    interface: Some(2),
                    address: *address,
                    gateway: lease.gateway,
                })
                .collect(),
            routes: routes
                .iter()
                .map(|route| Route {
                    mtu: route.mtu,
                    advmss: route.advmss,
                    priority: route.priority,
                    ..Route::new(route.dst, route.gateway)
                })
                .collect(),
            dns: self.settings.dns.clone(),
        }
    }

    /// Takes an attachment down, all steps, whatever fails. The lease is free only when the link is gone.
    pub(super) async fn take_down(&self, key: &AttachmentKey) -> Result<Option<Attachment>, Error> {
        let mut steps = Steps::of(Command::Del, key);
        crate::step!("del.mark", Error::Injected("del.mark"));
        let attachment = self.table.borrow_mut().deleting(key);
        let link =
            attachment.as_ref().map_or_else(|| attachment::host_link_name(key), |it| it.host_link.clone());
        let mut errors = Vec::new();
        crate::step!("del.link", Error::Injected("del.link"));
        if let Err(error) = self.kernel.delete_links(&bandwidth::links(&link, attachment.as_ref())).await {
            errors.push(Error::Kernel(error));
        }
        steps.passed("link");
        crate::step!("del.elements", Error::Injected("del.elements"));
        if let Some(attachment) = &attachment
            && let Err(error) = self.close_ports(attachment).await
        {
            errors.push(error);
        }
        if let Some(attachment) = &attachment
            && let Err(error) = self.let_go(attachment).await
        {
            errors.push(error);
        }
        steps.passed("elements");
        if errors.is_empty() {
            crate::step!("del.forget", Error::Injected("del.forget"));
            if let Err(error) = self.table.borrow_mut().forget(key) {
                errors.push(Error::State(error));
            }
            steps.passed("record");
        }
        match Error::collect(errors) {
            None => Ok(attachment),
            Some(source) => Err(Error::StillThere { attachment: key.to_string(), source: Box::new(source) }),
        }
    }

    async fn differences(
        &self,
        attachment: &Attachment,
        netns: std::os::fd::OwnedFd,
    ) -> Result<Vec<Difference>, Error> {
        let view = self.kernel.inspect(attachment.key.ifname.as_str(), netns, &attachment.host_link).await?;
        let leased: Vec<IpNet> = self
            .table
            .borrow()
            .pool
            .leases_of(&attachment.key)
            .iter()
            .filter_map(|lease| IpNet::new(lease.address, lease.prefix_len).ok())
            .collect();
        let routes: Vec<PodRoute> = attachment
            .result
            .iter()
            .flat_map(|result| &result.routes)
            .map(|route| PodRoute {
                dst: route.dst,
                gateway: route.gw,
                priority: None,
                mtu: None,
                advmss: None,
            })
            .collect();
        let expected = check::Expected {
            attachment,
            bridge: (self.index.get(), &self.settings.bridge),
            routes: &routes,
        };
        let mut found = check::against_kernel(&expected, &view);
        found.extend(check::against_leases(attachment, &leased));
        found.extend(check::against_rules(&self.missing_rules(attachment).await?));
        found.extend(check::against_limits(self.missing_limits(attachment).await?));
        Ok(found)
    }

    async fn compare(&self, request: CheckRequest) -> Result<(), Error> {
        let _turn = self.queue.turn(&request.key).await;
        let attachment = self
            .table
            .borrow()
            .get(&request.key)
            .filter(|attachment| attachment.state == State::Ready)
            .cloned()
            .ok_or_else(|| Error::UnknownAttachment(request.key.to_string()))?;
        let mut found = self.differences(&attachment, request.netns).await?;
        found.extend(check::against_rules(&self.missing_block().await?));
        if let Some(prev) = &request.prev_result {
            found.extend(check::against_prev_result(&attachment, prev));
        }
        if found.is_empty() { Ok(()) } else { Err(Error::Differs(found)) }
    }

    async fn collect_garbage(&self, valid: &[ValidAttachment]) -> Result<Vec<AttachmentKey>, Error> {
        crate::step!("gc.collect", Error::Injected("gc.collect"));
        let called = SystemTime::now();
        let valid: HashSet<_> = valid.iter().map(|it| (&it.container_id, &it.ifname)).collect();
        // Whatever is still being added now has started before its runtime could have listed it.
        let stale: Vec<AttachmentKey> = self
            .table
            .borrow()
            .iter()
            .filter(|it| {
                it.state != State::Pending && !valid.contains(&(&it.key.container_id, &it.key.ifname))
            })
            .map(|it| it.key.clone())
            .collect();
        let mut errors = Vec::new();
        let mut gone = Vec::new();
        for (key, outcome) in self.take_down_all(stale, |it| it.created <= called).await {
            match outcome {
                Ok(Some(_)) => gone.push(key),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        Error::collect(errors).map_or(Ok(gone), Err)
    }

    /// Takes many attachments down at once, each in its turn, so that the kernel sees them as a group. One that a
    /// DEL and an ADD have replaced before its turn came is no longer `meant`.
    pub(super) async fn take_down_all(
        &self,
        keys: Vec<AttachmentKey>,
        meant: impl Fn(&Attachment) -> bool,
    ) -> Vec<(AttachmentKey, Result<Option<Attachment>, Error>)> {
        let meant = &meant;
        let each = keys.into_iter().map(|key| async move {
            let _turn = self.queue.turn(&key).await;
            let still = self.table.borrow().get(&key).is_some_and(meant);
            let outcome = if still { self.take_down(&key).await } else { Ok(None) };
            (key, outcome)
        });
        join_all(each).await
    }

    async fn link_changed(&self, change: &Change) -> Fate {
        let Change::LinkRemoved { name, .. } = change else { return Fate::NotOurs };
        if let Some(host_link) = attachment::host_link_of_shaper(name) {
            return self.shaper_removed(&host_link).await;
        }
        let Some(key) = self.table.borrow().by_link(name).map(|attachment| attachment.key.clone()) else {
            return Fate::NotOurs;
        };
        let _turn = self.queue.turn(&key).await;
        let ready =
            self.table.borrow().get(&key).is_some_and(|it| it.state == State::Ready && it.host_link == *name);
        // A DEL or a new ADD may have had its turn in between: look again before anything is freed.
        if !ready || self.kernel.link_exists(name).await.unwrap_or(true) {
            return Fate::NotOurs;
        }
        match self.take_down(&key).await {
            Ok(Some(attachment)) => Fate::Freed(Box::new(attachment)),
            _ => Fate::NotOurs,
        }
    }

    async fn retry_deleting(&self) -> usize {
        // No link of ours tells of the end of an imported pod: its namespace does.
        let over =
            |it: &Attachment| it.state == State::Deleting || (it.imported && !reconcile::lives_elsewhere(it));
        let all: Vec<AttachmentKey> =
            self.table.borrow().iter().filter(|it| over(it)).map(|it| it.key.clone()).collect();
        let again = self.take_down_all(all, over).await;
        again.iter().filter(|(_, outcome)| outcome.is_err()).count()
    }
}

/// Capability arguments that this network cannot honour, or that make no sense, are refused, never ignored.
fn refuse_unsupported(runtime: &RuntimeConfig) -> Result<(), Error> {
    if runtime.ip_ranges.is_some() {
        let what =
            "the capability argument ipRanges is not supported by this network: remove it from the pod";
        return Err(Error::Unsupported(what.to_owned()));
    }
    bandwidth::asked(runtime).map(drop)
}

fn mac_for(leases: &[Lease]) -> MacAddr {
    let v4 = leases.iter().find_map(|lease| match lease.address {
        IpAddr::V4(address) => Some(MacAddr::from_ipv4(address)),
        IpAddr::V6(_) => None,
    });
    let v6 = || {
        leases.iter().find_map(|lease| match lease.address {
            IpAddr::V6(address) => Some(MacAddr::from_ipv6(address)),
            IpAddr::V4(_) => None,
        })
    };
    v4.or_else(v6).unwrap_or_default()
}

impl Driver for Bridge {
    fn prepare(&self) -> Answer<'_, Result<Vec<String>, Error>> {
        Box::pin(self.prepare_node())
    }

    fn reconcile(&self, records: Vec<Attachment>) -> Answer<'_, Result<Reconciled, Error>> {
        Box::pin(reconcile::run(self, records))
    }

    fn add(&self, request: AddRequest) -> Answer<'_, Result<Added, Error>> {
        Box::pin(self.attach(request))
    }

    fn del(&self, request: DelRequest) -> Answer<'_, Result<Option<Attachment>, Error>> {
        Box::pin(async move {
            let _turn = self.queue.turn(&request.key).await;
            if !self.table.borrow().matches(&request.key, request.only) {
                return Ok(None);
            }
            self.take_down(&request.key).await
        })
    }

    fn check(&self, request: CheckRequest) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.compare(request))
    }

    fn gc<'a>(&'a self, valid: &'a [ValidAttachment]) -> Answer<'a, Result<Vec<AttachmentKey>, Error>> {
        Box::pin(self.collect_garbage(valid))
    }

    fn stands(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn status(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn changed<'a>(&'a self, change: &'a Change) -> Answer<'a, Fate> {
        Box::pin(self.link_changed(change))
    }

    fn retry(&self) -> Answer<'_, usize> {
        Box::pin(self.retry_deleting())
    }

    fn rules(&self) -> Option<NetworkRules> {
        Some(NetworkRules {
            bridge: self.settings.bridge.clone(),
            subnets: self.subnets(),
            masquerade: self.settings.masquerade,
            no_masquerade: self.settings.no_masquerade.clone(),
            forwarding: self.settings.forwarding,
            anti_spoofing: self.settings.anti_spoofing,
            block: block::of(&self.settings.block),
        })
    }

    fn port_maps(&self) -> Vec<PortMap> {
        let table = self.table.borrow();
        // Those that are being added come last: where two want one port, the older one has it.
        let of_state = |state: State| table.iter().filter(move |it| it.state == state).flat_map(ports::of);
        of_state(State::Ready).chain(of_state(State::Pending)).collect()
    }

    fn identities(&self) -> Vec<PodPort> {
        self.all_identities()
    }

    fn report(&self) -> Report {
        let table = self.table.borrow();
        let unable = table.pool.exhausted().map(|_| "no free address is left".to_owned());
        Report {
            driver: "bridge",
            bridge: self.settings.bridge.clone(),
            mtu: self.mtu.get(),
            ranges: table.pool.usage(),
            attachments: table.len(),
            unable,
        }
    }

    fn attachments(&self) -> Vec<Attachment> {
        self.table.borrow().iter().cloned().collect()
    }
}
