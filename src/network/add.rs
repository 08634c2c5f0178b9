//! ADD: from a request to an attachment that is made, recorded and answered.
//!
//! What fails on the way is taken down again by the one path that DEL goes too.

use std::net::IpAddr;
use std::time::SystemTime;

use ipnet::IpNet;

use crate::attachment::{self, Attachment, NetnsId, State};
use crate::cni::{AddResult, AttachmentKey, Command, Interface, IpConfig, MacAddr, Route, RuntimeConfig};
use crate::datapath::{AttachError, PodLink, PodLinkSpec, PodRoute, netns};
use crate::ipam::{AllocateError, Lease, Selection};

use super::driver::{AddRequest, Added};
use super::steps::Steps;
use super::{Bridge, Error, bandwidth};

impl Bridge {
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
        let mut routes: Vec<PodRoute> = Vec::new();
        for route in leases.iter().filter_map(default) {
            // Of several addresses of one family, the first one's gateway.
            if !routes.iter().any(|other| other.dst == route.dst) {
                routes.push(route);
            }
        }
        routes.extend(configured);
        routes
    }

    pub(super) async fn attach(&self, request: AddRequest) -> Result<Added, Error> {
        bandwidth::asked(&request.runtime)?;
        let selection = self.selection(&request.runtime)?;
        let _turn = self.queue.turn(&request.key).await;
        if request.caller.is_cancelled() {
            return Err(Error::CallerGone);
        }
        self.refuse_foreign_hosts(&request.runtime.port_mappings).await?;
        if let Some(result) = self.same_again(&request, selection.as_ref()).await? {
            return Ok(self.answered(&request.key, result));
        }
        let outcome = match self.make(&request, selection.as_ref()).await {
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
    async fn same_again(
        &self,
        request: &AddRequest,
        selection: Option<&Selection>,
    ) -> Result<Option<AddResult>, Error> {
        let Some(attachment) = self.table.borrow().get(&request.key).cloned() else { return Ok(None) };
        let same = attachment.state == State::Ready
            && attachment.netns_id == Some(NetnsId::of(netns::id(&request.netns).unwrap_or_default()))
            && attachment.port_mappings == request.runtime.port_mappings
            && attachment.bandwidth == bandwidth::asked(&request.runtime)?
            && request.runtime.mac.is_none_or(|mac| attachment.mac == Some(mac))
            && has_addresses(&attachment, &request.runtime, selection);
        if same {
            let netns = request.netns.try_clone().map_err(|error| Error::InvalidNetns(error.to_string()))?;
            if attachment.result.is_some() && self.differences(&attachment, netns).await?.is_empty() {
                return Ok(attachment.result);
            }
        }
        self.take_down(&request.key).await?;
        Ok(None)
    }

    async fn make(&self, request: &AddRequest, selection: Option<&Selection>) -> Result<AddResult, Error> {
        let mut steps = Steps::of(Command::Add, &request.key);
        crate::step!("add.lease", Error::Injected("add.lease"));
        let (leases, mut attachment) = self.lease(request, selection)?;
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

    /// What of the ranges that the pod asks for this network has; none where it asks for none.
    fn selection(&self, runtime: &RuntimeConfig) -> Result<Option<Selection>, Error> {
        if runtime.ip_ranges.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.table.borrow().pool.select(&runtime.ip_ranges)?))
    }

    fn lease(
        &self,
        request: &AddRequest,
        selection: Option<&Selection>,
    ) -> Result<(Vec<Lease>, Attachment), Error> {
        let requested: Vec<IpAddr> = request.runtime.ips.iter().map(IpNet::addr).collect();
        let pool = &mut self.table.borrow_mut().pool;
        let leases = match selection {
            None => pool.allocate(&request.key, &requested),
            Some(selection) => pool.allocate_from(&request.key, &requested, selection),
        };
        let leases = leases.map_err(|error| match error {
            AllocateError::Exhausted { .. } => Error::exhausted(&pool.usage()),
            AllocateError::SelectionExhausted(range) => Error::RangeExhausted(range),
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

    fn result(
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
                .filter(|route| !link.skipped_routes.contains(route))
                .map(|route| Route {
                    mtu: route.mtu,
                    advmss: route.advmss,
                    priority: route.priority,
                    ..Route::new(route.dst, route.gateway)
                })
                .collect::<Box<[_]>>()
                .into_vec(),
            dns: self.settings.dns.clone(),
        }
    }
}

/// Whether the attachment's addresses are such as the pod asks for.
fn has_addresses(attachment: &Attachment, runtime: &RuntimeConfig, selection: Option<&Selection>) -> bool {
    let has: Vec<IpAddr> = attachment.addresses.iter().map(IpNet::addr).collect();
    runtime.ips.iter().all(|ip| has.contains(&ip.addr()))
        && selection.is_none_or(|selection| selection.is_met_by(&has))
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
