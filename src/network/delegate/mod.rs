//! The driver that stands in front of other CNI plugins.
//!
//! Owns the calling of a network configuration list by the specification, and what must be kept so that no DEL
//! is ever lost. Promises: an attachment is on disk before the first plugin runs and until the last DEL has
//! succeeded; a chain that fails half-way is taken down; no plugin runs longer than its bound. Starts processes
//! through `datapath` only.

mod addition;
mod call;
mod chain;
mod deletion;
mod failure;
mod kept;
mod notice;

pub use failure::{Failure, Why};
pub use kept::Kept;
pub use notice::{Notice, Tell};

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::attachment::{Attachment, Delegated, NetnsId, State};
use crate::cni::{AddResult, AttachmentKey, CniVersion, NetworkName, ValidAttachment};
use crate::datapath::{Change, NetworkRules, PodPort, PortMap, netns};
use crate::settings::DelegateSettings;

use super::Error;
use super::driver::{AddRequest, Added, Answer, CheckRequest, DelRequest, Driver, Fate, Reconciled, Report};
use addition::Addition;
use chain::{Chain, Subject};
use kept::aside;

/// What an answer keeps back of its bound, for the way to the runtime.
const MARGIN: std::time::Duration = std::time::Duration::from_secs(2);

/// A network that other plugins make.
pub struct Delegate {
    name: NetworkName,
    settings: DelegateSettings,
    kept: Rc<Kept>,
    /// The version that all plugins of the list know, once they have been asked.
    version: Cell<Option<CniVersion>>,
}

impl Delegate {
    /// The network as configured; nothing is run yet.
    pub fn new(name: NetworkName, settings: DelegateSettings, kept: Rc<Kept>) -> Self {
        Self { name, settings, kept, version: Cell::new(None) }
    }

    /// The list with a version that every plugin knows; they are asked until all of them have answered.
    async fn chain(&self) -> Result<Chain, Error> {
        let settings = &self.settings;
        let version = if let Some(version) = self.version.get() {
            version
        } else {
            let (list, directories) = (settings.list.clone(), settings.plugin_dirs.clone());
            let bound = settings.bounds.check;
            aside(move || chain::reconcile(&list, &directories, bound)).await??
        };
        self.version.set(Some(version));
        Ok(Chain {
            list: settings.list.clone(),
            version,
            directories: settings.plugin_dirs.clone(),
            timeout: settings.timeout,
            tell: Arc::clone(&self.kept.tell),
        })
    }

    fn delegated(&self, args: &str, config: &str) -> Delegated {
        let runtime = serde_json::from_str::<Map<String, Value>>(config)
            .ok()
            .and_then(|config| config.get("runtimeConfig").filter(|it| it.is_object()).cloned());
        Delegated {
            boot: self.kept.boot.clone(),
            conflist: self.settings.list.text.clone(),
            plugin_dirs: self.settings.plugin_dirs.clone(),
            timeout: self.settings.timeout.as_secs(),
            args: args.to_owned(),
            version: self.version.get(),
            runtime_config: runtime.map(|it| it.to_string()).unwrap_or_default(),
            result: String::new(),
        }
    }

    async fn attach(&self, request: AddRequest) -> Result<Added, Error> {
        let until = Instant::now() + self.settings.bounds.add.saturating_sub(MARGIN);
        let _turn = self.kept.queue.turn(&request.key).await;
        if request.caller.is_cancelled() {
            return Err(Error::CallerGone);
        }
        let chain = self.chain().await?;
        let fresh = Attachment {
            netns: Some(request.netns_path.clone()),
            netns_id: netns::id(&request.netns).ok().map(NetnsId::of),
            pod: request.pod.clone(),
            cni_version: request.version,
            port_mappings: request.runtime.port_mappings.clone(),
            delegated: Some(Box::new(self.delegated(&request.args, &request.config))),
            ..Attachment::new(request.key.clone())
        };
        if let Some(known) = self.kept.get(&request.key) {
            if let Some(result) = same_again(&known, &fresh) {
                return Ok(Added { result, serial: self.kept.answered(&request.key) });
            }
            self.kept.take_down(&request.key, None, Arc::default()).await?;
        }
        let outcome = match self.make(chain, &request, fresh, until).await {
            Ok(_) if request.caller.is_cancelled() => Err(Error::CallerGone),
            outcome => outcome,
        };
        if outcome.is_err() {
            // What cannot be undone now is kept as `deleting`, told, and tried again.
            let _ = self.kept.take_down(&request.key, Some(&request.netns), Arc::default()).await;
        }
        Ok(Added { result: outcome?, serial: self.kept.answered(&request.key) })
    }

    async fn make(
        &self,
        chain: Chain,
        request: &AddRequest,
        record: Attachment,
        until: Instant,
    ) -> Result<AddResult, Error> {
        let key = &request.key;
        let named = self.kept.name(key, &request.netns, &request.netns_path)?;
        self.kept.know(record.clone());
        let (store, netns, caller) = (self.kept.store(), named.path().to_owned(), request.caller.clone());
        let addition = Addition { chain, store, record, netns, until, caller };
        match aside(move || addition.carry_out()).await? {
            Ok((record, outcome)) => {
                self.kept.know(record);
                self.kept.sync_later(key);
                outcome
            }
            Err(error) => {
                self.kept.unknow(key);
                Err(error)
            }
        }
    }

    /// Takes down; the runtime is told of success as soon as the deletion is on disk and its bound is near.
    async fn delete(&self, request: DelRequest) -> Result<Option<Attachment>, Error> {
        let fresh = self.kept.get(&request.key).is_none().then(|| Attachment {
            state: State::Deleting,
            netns: Some(request.netns_path.clone()).filter(|path| !path.is_empty()),
            netns_id: request.netns.as_ref().and_then(|netns| netns::id(netns).ok()).map(NetnsId::of),
            pod: request.pod.clone(),
            delegated: Some(Box::new(self.delegated(&request.args, &request.config))),
            ..Attachment::new(request.key.clone())
        });
        let own = self.settings.bounds.del.saturating_sub(MARGIN).max(MARGIN / 2);
        let bound = request.within.map_or(own, |within| within.min(own));
        delete(&self.kept, request, fresh, bound).await
    }

    async fn compare(&self, request: CheckRequest) -> Result<(), Error> {
        let _turn = self.kept.queue.turn(&request.key).await;
        let record = self
            .kept
            .get(&request.key)
            .filter(|record| record.state == State::Ready)
            .ok_or_else(|| Error::UnknownAttachment(request.key.to_string()))?;
        let chain = self.chain().await?;
        let known = record.netns.as_deref().unwrap_or_default();
        let named = self.kept.name(&request.key, &request.netns, known)?;
        let (netns, bound) = (named.path().to_owned(), self.settings.bounds.check);
        let checked = aside(move || {
            let Some(delegated) = record.delegated.as_deref() else { return Ok(()) };
            let runtime = kept::runtime_of(delegated);
            let subject = Subject::of(&record, delegated, Some(&netns), &runtime);
            chain.check(subject, &delegated.result, bound)
        });
        Ok(checked.await??)
    }

    /// DEL for each attachment that is not listed, then GC for the plugins that know it.
    async fn collect_garbage(&self, valid: &[ValidAttachment]) -> Result<Vec<AttachmentKey>, Error> {
        let called = SystemTime::now();
        let listed: HashSet<_> = valid.iter().map(|it| (&it.container_id, &it.ifname)).collect();
        let stale =
            self.kept.all().into_iter().map(|record| record.key).filter(|key| {
                key.network == self.name && !listed.contains(&(&key.container_id, &key.ifname))
            });
        let each = stale.map(|key| async move {
            let _turn = self.kept.queue.turn(&key).await;
            // Whatever is being added, or was added after the call, its runtime could not have listed.
            let meant =
                self.kept.get(&key).is_some_and(|it| it.state != State::Pending && it.created <= called);
            if meant {
                self.kept.take_down(&key, None, Arc::default()).await.map(|gone| gone.map(|it| it.key))
            } else {
                Ok(None)
            }
        });
        let (mut gone, mut errors) = (Vec::new(), Vec::new());
        for outcome in join_all(each).await {
            match outcome {
                Ok(key) => gone.extend(key),
                Err(error) => errors.push(error),
            }
        }
        let chain = self.chain().await?;
        let (name, valid, bound) = (self.name.clone(), valid.to_vec(), self.settings.bounds.gc);
        let failures = aside(move || chain.gc(name.as_str(), &valid, bound)).await?;
        errors.extend(failures.into_iter().map(Error::Delegate));
        Error::collect(errors).map_or(Ok(gone), Err)
    }

    async fn ready_chain(&self) -> Result<Chain, Error> {
        if let Some(missing) = chain::missing(&self.settings.list, &self.settings.plugin_dirs) {
            // Another one may come in its place, with other versions.
            self.version.set(None);
            return Err(missing.into());
        }
        self.chain().await
    }

    async fn able(&self) -> Result<(), Error> {
        let chain = self.ready_chain().await?;
        let (name, bound) = (self.name.clone(), self.settings.bounds.status);
        Ok(aside(move || chain.status(name.as_str(), bound)).await??)
    }
}

/// The old result when the ADD is the one that was answered with it.
fn same_again(known: &Attachment, asked: &Attachment) -> Option<AddResult> {
    let (Some(old), Some(new)) = (&known.delegated, &asked.delegated) else { return None };
    let called = |it: &Delegated| Delegated { result: String::new(), ..it.clone() };
    let same = known.state == State::Ready
        && known.netns_id.is_some()
        && known.netns_id == asked.netns_id
        && called(old) == called(new);
    known.result.clone().filter(|_| same)
}

/// Takes an attachment down within the bound of the answer; what takes longer, or fails, goes on later. `fresh`
/// is the record for an attachment that is not known: somebody else added it, and its DEL must not be lost.
pub(super) async fn delete(
    kept: &Rc<Kept>,
    request: DelRequest,
    fresh: Option<Attachment>,
    bound: std::time::Duration,
) -> Result<Option<Attachment>, Error> {
    let on_disk = Arc::new(AtomicBool::new(false));
    let work = tokio::task::spawn_local({
        let (kept, on_disk) = (Rc::clone(kept), Arc::clone(&on_disk));
        async move {
            let _turn = kept.queue.turn(&request.key).await;
            if !kept.matches(&request.key, request.only) {
                return Ok(None);
            }
            if kept.get(&request.key).is_none() {
                // Nothing but this would be left of it if the deletion failed.
                let Some(fresh) = fresh else { return Ok(None) };
                kept.put(fresh).await?;
            }
            kept.take_down(&request.key, request.netns.as_ref(), on_disk).await
        }
    });
    match tokio::time::timeout(bound, work).await {
        Ok(Ok(Ok(attachment))) => Ok(attachment),
        // It failed, was told, and is tried again; or it has not ended yet.
        _ if on_disk.load(Ordering::Relaxed) => Ok(None),
        Ok(Ok(Err(error))) => Err(error),
        Ok(Err(error)) => Err(Error::Lost(error.to_string())),
        Err(_) => Err(Error::Busy),
    }
}

impl Driver for Delegate {
    fn prepare(&self) -> Answer<'_, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn reconcile(&self, _: Vec<Attachment>) -> Answer<'_, Result<Reconciled, Error>> {
        let kept = self.kept.count(&self.name);
        Box::pin(async move { Ok(Reconciled { kept, ..Reconciled::default() }) })
    }

    fn add(&self, request: AddRequest) -> Answer<'_, Result<Added, Error>> {
        Box::pin(self.attach(request))
    }

    fn del(&self, request: DelRequest) -> Answer<'_, Result<Option<Attachment>, Error>> {
        Box::pin(self.delete(request))
    }

    fn check(&self, request: CheckRequest) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.compare(request))
    }

    fn gc<'a>(&'a self, valid: &'a [ValidAttachment]) -> Answer<'a, Result<Vec<AttachmentKey>, Error>> {
        Box::pin(self.collect_garbage(valid))
    }

    fn stands(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(async { self.ready_chain().await.map(drop) })
    }

    fn status(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.able())
    }

    fn changed<'a>(&'a self, _: &'a Change) -> Answer<'a, Fate> {
        Box::pin(async { Fate::NotOurs })
    }

    fn retry(&self) -> Answer<'_, usize> {
        let left = self.kept.failing(&self.name);
        Box::pin(async move { left })
    }

    fn tend(&self) -> Answer<'_, Vec<Fate>> {
        Box::pin(async { Vec::new() })
    }

    fn rules(&self) -> Option<NetworkRules> {
        None
    }

    fn port_maps(&self) -> Vec<PortMap> {
        Vec::new()
    }

    fn identities(&self) -> Vec<PodPort> {
        Vec::new()
    }

    fn report(&self) -> Report {
        Report {
            driver: "delegate",
            bridge: String::new(),
            mtu: 0,
            ranges: Vec::new(),
            attachments: self.kept.count(&self.name),
            deleting: self.kept.deleting(&self.name),
            unable: None,
        }
    }

    fn attachments(&self) -> Vec<Attachment> {
        self.kept.all().into_iter().filter(|record| record.key.network == self.name).collect()
    }
}
