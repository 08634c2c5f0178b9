//! The native driver: an own bridge, a veth pair per pod, addresses from an own pool.
//!
//! One path makes an attachment (`add`) and one takes it down (`take_down`); DEL, roll-back, GC and the start-up's
//! undoing all use the second, which goes through every step whatever fails on the way. Here: the bridge itself, and
//! which path serves which verb.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ipnet::IpNet;

use crate::attachment::{Attachment, State, Store};
use crate::cni::{AttachmentKey, NetworkName, ValidAttachment};
use crate::datapath::{BridgeSpec, Change, Kernel, NetworkRules, PodPort, PortMap};
use crate::ipam::{Pool, RangeSet};
use crate::settings::BridgeSettings;

use super::driver::{AddRequest, Added, Answer, CheckRequest, DelRequest, Driver, Fate, Reconciled, Report};
use super::{Error, KeyedQueue, Table, block, ports, reconcile};

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
        let mtu = self.find_mtu().await?;
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

    /// The configured MTU, or the uplink's less the overhead. An uplink that is away for a while changes nothing.
    async fn find_mtu(&self) -> Result<u32, Error> {
        if let Some(mtu) = self.settings.mtu {
            return Ok(mtu);
        }
        match self.kernel.uplink_mtu().await? {
            Some((uplink, mtu)) => self.less_overhead(&uplink, mtu),
            None if self.index.get() != 0 => Ok(self.mtu.get()),
            None => self.less_overhead("a node without a default route", FALLBACK_MTU),
        }
    }

    fn less_overhead(&self, uplink: &str, mtu: u32) -> Result<u32, Error> {
        let overhead = self.settings.mtu_overhead;
        let left = mtu.saturating_sub(overhead);
        // RFC 791 and RFC 8200, section 5.
        let least = if self.subnets().iter().any(|net| net.addr().is_ipv6()) { 1280 } else { 68 };
        if left >= least {
            return Ok(left);
        }
        Err(Error::Unsupported(format!(
            "network {}: the MTU of {uplink}, {mtu}, less mtu_overhead = {overhead} leaves {left}, and pods need {least}: \
             lower mtu_overhead, or set mtu",
            self.name
        )))
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

    fn tend(&self) -> Answer<'_, Vec<Fate>> {
        Box::pin(self.tend_limits())
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
            deleting: table.iter().filter(|it| it.state == State::Deleting).count(),
            unable,
        }
    }

    fn attachments(&self) -> Vec<Attachment> {
        self.table.borrow().iter().cloned().collect()
    }
}
