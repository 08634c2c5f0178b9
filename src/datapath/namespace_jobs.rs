//! The threads that enter pods' namespaces. Each keeps a socket of the node's namespace; per job it enters
//! the pod's, opens a socket there, works on both and comes back.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use tokio::sync::oneshot;

use super::netns::{self, Entered};
use super::reaper::Delete;
use super::socket::Socket;
use super::worker::{self, Queue, Sender};
use super::{AttachError, KernelError, PodLink, PodLinkSpec, PodView, attach, inspect, message};

/// What the threads can be asked for.
pub(super) enum Job {
    Attach(Box<PodLinkSpec>, OwnedFd, oneshot::Sender<Result<Made, AttachError>>),
    Inspect {
        ifname: String,
        netns: OwnedFd,
        host_link: String,
        reply: oneshot::Sender<Result<PodView, KernelError>>,
    },
    Delete {
        ifname: String,
        netns: OwnedFd,
        reply: oneshot::Sender<Result<bool, KernelError>>,
    },
}

/// A pod's link on its way to whoever asked. If they are gone, nobody would ever know of it: dropped
/// without [`Made::take`], it has the reaper delete the link.
pub(super) struct Made {
    link: Option<PodLink>,
    names: Vec<String>,
    reaper: Sender<Vec<Delete>>,
}

impl Made {
    /// The link, now in the hands of the caller.
    pub(super) fn take(mut self) -> Option<PodLink> {
        self.link.take()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.link.is_some() {
            let names = std::mem::take(&mut self.names);
            // Without a reaper the process is ending; the next start takes down what nobody owns.
            self.reaper.send(names.into_iter().map(|name| Delete { name, reply: None }).collect());
        }
    }
}

/// What one thread has.
struct Worker {
    door: Door,
    /// A socket in the node's namespace; it stays there wherever the thread is.
    host: Socket,
    reaper: Sender<Vec<Delete>>,
}

/// The way into pods' namespaces and back.
pub(super) struct Door {
    home: OwnedFd,
    home_id: (u64, u64),
}

/// Starts one thread.
pub(super) fn start(
    number: usize,
    queue: Queue<Job>,
    reaper: Sender<Vec<Delete>>,
) -> Result<(), KernelError> {
    let fail = |error: std::io::Error| KernelError::from_io(&error, "open", "the node's network namespace");
    let home = netns::own().map_err(fail)?;
    let home_id = netns::id(&home).map_err(fail)?;
    let mut worker = Worker { door: Door { home, home_id }, host: Socket::open()?, reaper };
    worker::spawn(&format!("hc-netns-{number}"), move || {
        while let Some(job) = queue.next() {
            worker.serve(job);
        }
    })
}

impl Worker {
    fn serve(&mut self, job: Job) {
        match job {
            Job::Attach(spec, netns, reply) => {
                let made = attach::attach(&self.door, &mut self.host, &spec, &netns).map(|link| Made {
                    link: Some(link),
                    names: spec.links(),
                    reaper: self.reaper.clone(),
                });
                // If nobody takes it, dropping it undoes the link.
                drop(reply.send(made));
            }
            Job::Inspect { ifname, netns, host_link, reply } => {
                drop(reply.send(inspect::inspect(&self.door, &mut self.host, &ifname, &netns, &host_link)));
            }
            Job::Delete { ifname, netns, reply } => drop(reply.send(self.door.delete(&ifname, &netns))),
        }
    }
}

impl Door {
    /// Tells a pod's namespace from everything else a descriptor can be.
    pub(super) fn check(&self, netns: impl AsFd) -> Result<(), AttachError> {
        if !netns::is_netns(&netns) {
            return Err(AttachError::NotANetns);
        }
        let id = netns::id(&netns)
            .map_err(|error| KernelError::from_io(&error, "look at", "the pod's network namespace"))?;
        if id == self.home_id { Err(AttachError::HostNetns) } else { Ok(()) }
    }

    /// Enters a pod's namespace and opens a socket there; it is left when the guard is dropped.
    pub(super) fn enter(&self, netns: impl AsFd) -> Result<(Entered<'_>, Socket), KernelError> {
        let entered = Entered::enter(netns, self.home.as_fd())
            .map_err(|errno| KernelError::new(errno as i32, "enter", "the pod's network namespace"))?;
        Ok((entered, Socket::open()?))
    }

    /// The same, for callers that need no more than an errno when the descriptor is no pod's namespace.
    pub(super) fn enter_checked(&self, netns: impl AsFd) -> Result<(Entered<'_>, Socket), KernelError> {
        match self.check(&netns) {
            Ok(()) => self.enter(netns),
            Err(AttachError::Kernel(error)) => Err(error),
            Err(other) => Err(KernelError::new(Errno::EINVAL as i32, "enter", "the pod's network namespace")
                .with_text(other.to_string())),
        }
    }

    fn delete(&self, ifname: &str, netns: &OwnedFd) -> Result<bool, KernelError> {
        let (entered, mut pod) = self.enter_checked(netns)?;
        // The socket stays in the namespace; the thread need not.
        drop(entered);
        let Some(link) = super::links::find(&mut pod, ifname)? else { return Ok(false) };
        match pod.one(message::delete_link(link.index, ifname)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_missing() => Ok(true),
            Err(error) => Err(error),
        }
    }
}
