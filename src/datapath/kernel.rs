//! The async handle to the kernel's threads.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::{mpsc as channel, oneshot};

use super::conntrack::Stale;
use super::monitor::Monitor;
use super::reaper::Delete;
use super::worker::{Observer, Sender, Thread, ask, queue};
use super::{
    AttachError, BridgeReport, BridgeSpec, Change, Element, ElementBatch, Interest, KernelError, Link,
    Loopback6, PodLink, PodLinkSpec, PodView, PortMap, Refusal, RefusalKind, Shaped, Shaping, TableFamily,
    UpdateError, links, namespace_jobs, nft_jobs, reaper, sysctl,
};

/// The handle: cheap to clone, usable from any task. The threads end when the last one is dropped.
///
/// A future that is dropped does not stop work that has begun: a deletion is carried out, and a pod's link
/// that nobody waits for any more is deleted again.
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
}

struct Inner {
    links: Sender<links::Job>,
    reaper: Sender<Vec<Delete>>,
    namespaces: Sender<namespace_jobs::Job>,
    nft: Sender<nft_jobs::Job>,
    monitor: Monitor,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Kernel {
    /// Starts the threads, in the network namespace of the calling thread: that is the node from now on.
    /// `workers` is the number of threads that enter pods' namespaces, at least 1.
    pub fn start(workers: usize) -> Result<Self, KernelError> {
        let unobserved: Observer = Arc::new(|_, _, _| {});
        Self::observed(workers, &unobserved)
    }

    /// The same, with somebody who is told how long each job waited and took.
    pub fn observed(workers: usize, observer: &Observer) -> Result<Self, KernelError> {
        let (links, link_jobs) = queue(Thread::Links, observer);
        links::start(link_jobs)?;
        let (reaper, deletions) = queue(Thread::Reaper, observer);
        reaper::start(deletions)?;
        let (namespaces, jobs) = queue(Thread::Namespaces, observer);
        for number in 0..workers.max(1) {
            namespace_jobs::start(number, jobs.clone(), reaper.clone())?;
        }
        let (nft, nft_jobs) = queue(Thread::Nft, observer);
        let touched = Arc::default();
        nft_jobs::start(nft_jobs, Arc::clone(&touched))?;
        let monitor = Monitor::start(touched)?;
        Ok(Self { inner: Arc::new(Inner { links, reaper, namespaces, nft, monitor }) })
    }

    /// Makes the bridge be as the specification says: creates it, or adopts one that is there and repairs
    /// it. A link of that name which is no bridge is refused (`EEXIST`), IPv6 addresses where IPv6 is
    /// switched off as well (`EAFNOSUPPORT`).
    pub async fn ensure_bridge(&self, spec: &BridgeSpec) -> Result<BridgeReport, KernelError> {
        let job = |reply| links::Job::Bridge(spec.clone(), reply);
        ask(&self.inner.links, "set up bridge", &spec.name, job).await?
    }

    /// Makes a pod's link in the namespace behind the descriptor. On failure nothing of it is left; the
    /// same holds when this future is dropped before it is done.
    pub async fn attach(&self, spec: PodLinkSpec, netns: OwnedFd) -> Result<PodLink, AttachError> {
        let name = spec.host_link.clone();
        let job = |reply| namespace_jobs::Job::Attach(Box::new(spec), netns, reply);
        let made = ask(&self.inner.namespaces, "create link", &name, job).await??;
        made.take().ok_or_else(|| {
            KernelError::message("create link", name, "it was given away before it arrived").into()
        })
    }

    /// How a pod's interface and its host end look now.
    pub async fn inspect(
        &self,
        ifname: &str,
        netns: OwnedFd,
        host_link: &str,
    ) -> Result<PodView, KernelError> {
        let (ifname, host) = (ifname.to_owned(), host_link.to_owned());
        let job = |reply| namespace_jobs::Job::Inspect { ifname, netns, host_link: host, reply };
        ask(&self.inner.namespaces, "inspect link", host_link, job).await?
    }

    /// Deletes the link of that name and answers when it is gone: true if there was one. Deletions that
    /// are asked for while another is in flight are carried out together.
    pub async fn delete_link(&self, name: &str) -> Result<bool, KernelError> {
        let job = |reply| vec![Delete { name: name.to_owned(), reply: Some(reply) }];
        ask(&self.inner.reaper, "delete link", name, job).await?
    }

    /// Deletes the links of those names together, at the price of one; true if there was any. Of several failures
    /// the first is told.
    pub async fn delete_links(&self, names: &[String]) -> Result<bool, KernelError> {
        if let [name] = names {
            return self.delete_link(name).await;
        }
        let gone = || KernelError::new(nix::libc::ECANCELED, "delete links", names.join(", "));
        let (mut jobs, mut answers) = (Vec::new(), Vec::new());
        for name in names {
            let (reply, answer) = oneshot::channel();
            jobs.push(Delete { name: name.clone(), reply: Some(reply) });
            answers.push(answer);
        }
        if !self.inner.reaper.send(jobs) {
            return Err(gone());
        }
        let mut outcome = Ok(false);
        for answer in answers {
            match (answer.await.map_err(|_| gone()).and_then(|outcome| outcome), &mut outcome) {
                (Ok(was), Ok(any)) => *any |= was,
                (Err(error), Ok(_)) => outcome = Err(error),
                (_, Err(_)) => {}
            }
        }
        outcome
    }

    /// Makes the rate limits of a pod's link be those; whether anything was amiss.
    pub async fn shape(&self, link: &str, shaping: Shaping) -> Result<bool, KernelError> {
        let job = |reply| links::Job::Shape(link.to_owned(), Box::new(shaping), reply);
        ask(&self.inner.links, "limit the rate of link", link, job).await?
    }

    /// The rate limits that a pod's link has, with the ifb of that name.
    pub async fn shaped(&self, link: &str, shaper: &str) -> Result<Shaped, KernelError> {
        let job = |reply| links::Job::Shaped(link.to_owned(), shaper.to_owned(), reply);
        ask(&self.inner.links, "look up the limits of link", link, job).await?
    }

    /// Deletes an interface inside a namespace (and so its other end): true if there was one.
    pub async fn delete_pod_interface(&self, netns: OwnedFd, ifname: &str) -> Result<bool, KernelError> {
        let job = |reply| namespace_jobs::Job::Delete { ifname: ifname.to_owned(), netns, reply };
        ask(&self.inner.namespaces, "delete link", ifname, job).await?
    }

    /// All links of the node, from one consistent reading.
    pub async fn links(&self) -> Result<Vec<Link>, KernelError> {
        ask(&self.inner.links, "read links", "of the node", links::Job::All).await?
    }

    /// The node's link of that name, if there is one.
    pub async fn link(&self, name: &str) -> Result<Option<Link>, KernelError> {
        let job = |reply| links::Job::One(name.to_owned(), reply);
        ask(&self.inner.links, "look up link", name, job).await?
    }

    /// Whether the node has a link of that name.
    pub async fn link_exists(&self, name: &str) -> Result<bool, KernelError> {
        Ok(self.link(name).await?.is_some())
    }

    /// Makes a pod's host end a port of the bridge again, with its flags as a port, and up.
    pub async fn enslave(
        &self,
        name: &str,
        bridge: &str,
        hairpin: bool,
        isolated: bool,
    ) -> Result<(), KernelError> {
        let port = links::Port { name: name.to_owned(), bridge: bridge.to_owned(), hairpin, isolated };
        ask(&self.inner.links, "make a port of the bridge of link", name, |reply| {
            links::Job::Port(port, reply)
        })
        .await?
    }

    /// What changes from now on in the node's links of interest, and in our nftables tables by others. The receiver
    /// must be read: what is not read is kept.
    pub fn watch(&self, interest: Interest) -> Result<channel::UnboundedReceiver<Change>, KernelError> {
        let watch = self.inner.monitor.watch(interest);
        watch.map_err(|error| KernelError::from_io(&error, "listen to", "the kernel's changes"))
    }

    /// Name and MTU in bytes of the link that the default route leaves by, IPv4's or else IPv6's; none
    /// without a default route.
    pub async fn uplink_mtu(&self) -> Result<Option<(String, u32)>, KernelError> {
        ask(&self.inner.links, "find", "the link of the default route", links::Job::Uplink).await?
    }

    /// A round trip through the links' thread and the kernel.
    pub async fn ping(&self) -> Result<(), KernelError> {
        ask(&self.inner.links, "reach", "the kernel", links::Job::Ping).await?
    }

    /// Gives settings under `/proc/sys/net` their values on the node. Goes on after a failure; gives what
    /// was changed and what failed.
    pub async fn ensure_sysctls(
        &self,
        settings: Vec<(String, String)>,
    ) -> Result<(Vec<sysctl::Change>, Vec<KernelError>), KernelError> {
        let job = |reply| links::Job::Sysctls(settings, reply);
        ask(&self.inner.links, "set", "the node's sysctls", job).await
    }

    /// Where the node does not forward IPv6 yet: lets every link that takes router advertisements go on doing so when
    /// it does, as an uplink has to whose default route comes from them. Not the bridges, nor their ports.
    pub async fn keep_router_advertisements(
        &self,
        bridges: Vec<String>,
    ) -> Result<Vec<sysctl::Change>, KernelError> {
        let job = |reply| links::Job::KeepAdvertisements(bridges, reply);
        ask(&self.inner.links, "set", "the node's accept_ra", job).await?
    }

    /// Makes the local route by which host ports answer on `::1`; true if it was missing.
    pub async fn ensure_loopback6(&self, route: Loopback6) -> Result<bool, KernelError> {
        let bridge = route.bridge.clone();
        ask(&self.inner.links, "add local route on", &bridge, |reply| links::Job::Loopback6(route, reply))
            .await?
    }

    /// Whether the address is one of the node's own, so that a host port can be reached at it.
    pub async fn is_local(&self, address: IpAddr) -> Result<bool, KernelError> {
        let job = |reply| links::Job::IsLocal(address, reply);
        ask(&self.inner.links, "look up route", "to an address", job).await?
    }

    /// Applies a ruleset text, whole or not at all. An error holds nft's own words.
    pub async fn apply_ruleset(&self, text: String) -> Result<(), KernelError> {
        let job = |reply| nft_jobs::Job::Apply(text, reply);
        ask(&self.inner.nft, "apply", "the nftables ruleset", job).await?
    }

    /// Commits a batch of elements, all of it or nothing.
    pub async fn update_elements(&self, batch: ElementBatch) -> Result<(), UpdateError> {
        let job = |reply| nft_jobs::Job::Update(batch, reply);
        match ask(&self.inner.nft, "change elements of", "the nftables table", job).await {
            Ok(result) => result,
            Err(error) => Err(UpdateError {
                refusals: vec![Refusal { element: None, kind: RefusalKind::Other, error }],
            }),
        }
    }

    /// Whether our table of family `inet` is there and nobody else changed any table of ours since the
    /// last ruleset was applied.
    pub async fn table_intact(&self) -> Result<bool, KernelError> {
        ask(&self.inner.nft, "look up", "the nftables table", nft_jobs::Job::Intact).await?
    }

    /// Whether our table of that family is there.
    pub async fn table_present(&self, family: TableFamily) -> Result<bool, KernelError> {
        let job = |reply| nft_jobs::Job::Present(family, reply);
        ask(&self.inner.nft, "look up", "the nftables table", job).await?
    }

    /// Whether this kernel has nftables tables of family `bridge`.
    pub async fn has_bridge_tables(&self) -> Result<bool, KernelError> {
        ask(&self.inner.nft, "try", "a bridge table", nft_jobs::Job::BridgeTables).await
    }

    /// Where a host port leads now: the holder's address and port. None: nobody has it.
    pub async fn holder(&self, port_map: PortMap) -> Result<Option<(IpAddr, u16)>, KernelError> {
        let job = |reply| nft_jobs::Job::Holder(Box::new(port_map), reply);
        ask(&self.inner.nft, "look up", "the holder of a host port", job).await?
    }

    /// Those of the elements that are not in their sets and maps.
    pub async fn missing_elements(&self, elements: Vec<Element>) -> Result<Vec<Element>, KernelError> {
        let job = |reply| nft_jobs::Job::Missing(elements, reply);
        ask(&self.inner.nft, "look up", "nftables elements", job).await?
    }

    /// Forgets the stale flows of UDP host ports; gives how many there were. See [`conntrack::flush`].
    ///
    /// [`conntrack::flush`]: super::conntrack::flush
    pub async fn flush_flows(&self, port_maps: Vec<PortMap>, stale: Stale) -> Result<usize, KernelError> {
        let job = |reply| nft_jobs::Job::Flush(port_maps, stale, reply);
        ask(&self.inner.nft, "forget", "stale UDP flows", job).await?
    }
}
