//! The async handle to the kernel's threads.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use tokio::sync::mpsc as channel;

use super::monitor::Monitor;
use super::reaper::Delete;
use super::worker::{ask, queue};
use super::{
    AttachError, BridgeReport, BridgeSpec, Change, KernelError, Link, PodLink, PodLinkSpec, PodView, links,
    namespace_jobs, reaper,
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
    links: mpsc::Sender<links::Job>,
    reaper: mpsc::Sender<Delete>,
    namespaces: mpsc::Sender<namespace_jobs::Job>,
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
        let (links, link_jobs) = queue();
        links::start(link_jobs)?;
        let (reaper, deletions) = queue();
        reaper::start(deletions)?;
        let (namespaces, jobs) = queue();
        for number in 0..workers.max(1) {
            namespace_jobs::start(number, jobs.clone(), reaper.clone())?;
        }
        let monitor = Monitor::start()?;
        Ok(Self { inner: Arc::new(Inner { links, reaper, namespaces, monitor }) })
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
        let job = |reply| Delete { name: name.to_owned(), reply: Some(reply) };
        ask(&self.inner.reaper, "delete link", name, job).await?
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

    /// Everything that changes in the node's links and addresses from now on. The receiver must be read:
    /// what is not read is kept.
    pub fn watch(&self) -> Result<channel::UnboundedReceiver<Change>, KernelError> {
        Ok(self.inner.monitor.watch())
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
}
