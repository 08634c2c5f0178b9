//! The attachments that other plugins made, of all networks, kept on disk until their DEL has succeeded.
//!
//! A record holds all that a DEL needs, so it is carried out with what the ADD used, whatever has become of
//! the configuration, the network or the server since.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::attachment::{self, Attachment, Delegated, Loaded, NetnsId, Slots, State, StoreError};
use crate::cni::{AttachmentKey, NetworkName};
use crate::datapath::netns::{self, Named};

use super::super::{Error, KeyedQueue, Only};
use super::deletion::Deletion;
use super::notice::{Notice, Tell};

/// How many deletions that nobody waits for run at a time: a boot has a node's worth of them.
const PARALLEL: usize = 16;
/// The pauses between two tries of a deletion.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long after an ADD its result is on the disk, should the kernel not have written it by then.
const SYNCED_AFTER: Duration = Duration::from_secs(1);

/// The attachments in memory, in step with the files.
pub struct Kept {
    store: Arc<Slots>,
    netns_dir: PathBuf,
    /// The boot that this server runs in.
    pub(super) boot: String,
    pub(super) tell: Tell,
    pub(super) queue: Rc<KeyedQueue>,
    table: RefCell<HashMap<AttachmentKey, Attachment>>,
    serials: RefCell<HashMap<AttachmentKey, u64>>,
    last_serial: Cell<u64>,
    tries: RefCell<HashMap<AttachmentKey, Try>>,
    parallel: Semaphore,
}

/// How often a deletion has failed, and when it is tried again; `due` is none while it is being tried.
#[derive(Debug, Clone, Copy, Default)]
struct Try {
    failures: u32,
    due: Option<Instant>,
}

/// The capability arguments of a record, as a map.
pub(super) fn runtime_of(delegated: &Delegated) -> Map<String, Value> {
    serde_json::from_str(&delegated.runtime_config).unwrap_or_default()
}

impl Kept {
    /// What is on disk; its second half is for the log. No file is touched but those that cannot be read.
    pub fn open(
        dir: &Path,
        netns_dir: &Path,
        boot: String,
        tell: Tell,
    ) -> Result<(Rc<Self>, Loaded), StoreError> {
        netns::forget_names(netns_dir);
        let store = Slots::new(dir);
        let mut loaded = store.load_all()?;
        let table = loaded.attachments.drain(..).map(|record| (record.key.clone(), record)).collect();
        let kept = Self {
            store: Arc::new(store),
            netns_dir: netns_dir.to_owned(),
            boot,
            tell,
            queue: Rc::default(),
            table: RefCell::new(table),
            serials: RefCell::default(),
            last_serial: Cell::new(0),
            tries: RefCell::default(),
            parallel: Semaphore::new(PARALLEL),
        };
        Ok((Rc::new(kept), loaded))
    }

    /// The attachment, if there is one.
    pub fn get(&self, key: &AttachmentKey) -> Option<Attachment> {
        self.table.borrow().get(key).cloned()
    }

    /// Every attachment.
    pub fn all(&self) -> Vec<Attachment> {
        self.table.borrow().values().cloned().collect()
    }

    /// How many the network has.
    pub fn count(&self, network: &NetworkName) -> usize {
        self.table.borrow().keys().filter(|key| key.network == *network).count()
    }

    /// How many of them are being deleted.
    pub fn deleting(&self, network: &NetworkName) -> usize {
        let table = self.table.borrow();
        table.values().filter(|it| it.key.network == *network && it.state == State::Deleting).count()
    }

    /// How many deletions have failed and are tried again.
    pub fn failing(&self, network: &NetworkName) -> usize {
        let tries = self.tries.borrow();
        tries.iter().filter(|(key, it)| key.network == *network && it.failures > 0).count()
    }

    /// Writes the record, so that a power cut does not lose it, and then knows of it.
    pub(super) async fn put(&self, attachment: Attachment) -> Result<(), Error> {
        let (store, record) = (self.store(), attachment.clone());
        aside(move || store.put(&record)).await??;
        self.know(attachment);
        Ok(())
    }

    /// Knows of the attachment; what is on disk is the caller's.
    pub(super) fn know(&self, attachment: Attachment) {
        self.table.borrow_mut().insert(attachment.key.clone(), attachment);
    }

    /// Knows of it no longer.
    pub(super) fn unknow(&self, key: &AttachmentKey) {
        self.table.borrow_mut().remove(key);
        self.serials.borrow_mut().remove(key);
    }

    /// The records on disk, for a thread that may wait for it.
    pub(super) fn store(&self) -> Arc<Slots> {
        Arc::clone(&self.store)
    }

    /// Takes what was added to the record to the disk, too, when its request is long answered.
    pub(super) fn sync_later(&self, key: &AttachmentKey) {
        let (store, key) = (self.store(), key.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SYNCED_AFTER).await;
            // What cannot be synced now the kernel writes later, or the next boot does without.
            drop(tokio::task::spawn_blocking(move || store.sync(&key)));
        });
    }

    /// A new answer with this attachment is on its way.
    pub(super) fn answered(&self, key: &AttachmentKey) -> u64 {
        self.last_serial.set(self.last_serial.get() + 1);
        self.serials.borrow_mut().insert(key.clone(), self.last_serial.get());
        self.last_serial.get()
    }

    /// Whether the condition holds for the attachment now.
    pub(super) fn matches(&self, key: &AttachmentKey, only: Only) -> bool {
        match only {
            Only::Always => true,
            Only::IfOlder(moment) => self.table.borrow().get(key).is_none_or(|it| it.created <= moment),
            Only::IfSerial(serial) => self.serials.borrow().get(key) == Some(&serial),
        }
    }

    /// A path to the pod's namespace for plugins, while it is there.
    pub(super) fn name(&self, key: &AttachmentKey, netns: &OwnedFd, known: &str) -> Result<Named, Error> {
        let name = attachment::host_link_name(key);
        Ok(netns::named(netns, Path::new(known), &self.netns_dir, &name)?)
    }

    /// The namespace of the attachment for its DEL: only the very one that its ADD had, and only of this boot.
    fn namespace(&self, record: &Attachment, given: Option<&OwnedFd>) -> Option<Named> {
        let wanted = record.netns_id?;
        let delegated = record.delegated.as_deref()?;
        if delegated.boot != self.boot {
            return None;
        }
        let known = record.netns.as_deref().unwrap_or_default();
        let is_it = |netns: &OwnedFd| netns::id(netns).is_ok_and(|id| NetnsId::of(id) == wanted);
        let own = netns::open(Path::new(known)).ok().filter(|opened| is_it(opened));
        let netns = own.as_ref().or(given.filter(|given| is_it(given)))?;
        // Without a path the plugins do what they can do without one, as for a namespace that is gone.
        self.name(&record.key, netns, known).ok()
    }

    /// Takes the attachment down with what its ADD used: all plugins, whatever fails. Its turn is the caller's, who
    /// sees in `marked` when the deletion is on disk.
    pub(super) async fn take_down(
        &self,
        key: &AttachmentKey,
        given: Option<&OwnedFd>,
        marked: Arc<AtomicBool>,
    ) -> Result<Option<Attachment>, Error> {
        let Some(before) = self.get(key) else {
            self.tries.borrow_mut().remove(key);
            return Ok(None);
        };
        let record = Attachment { state: State::Deleting, ..before.clone() };
        self.know(record.clone());
        marked.store(before.state == State::Deleting, Ordering::Relaxed);
        let named = self.namespace(&record, given);
        let deletion = Deletion {
            store: self.store(),
            tell: Arc::clone(&self.tell),
            record: record.clone(),
            netns: named.as_ref().map(|named| named.path().to_owned()),
            marked: Arc::clone(&marked),
        };
        match aside(move || deletion.carry_out()).await? {
            Ok(()) => {
                self.unknow(key);
                let tried = self.tries.borrow_mut().remove(key);
                if tried.is_some_and(|it| it.failures > 0) {
                    (self.tell)(Notice::DelDone { key, pod: record.pod.as_ref() });
                }
                Ok(Some(record))
            }
            Err(source) => {
                if !marked.load(Ordering::Relaxed) {
                    self.know(before);
                }
                self.again(&record, &source);
                Err(Error::StillThere { attachment: key.to_string(), source: Box::new(source) })
            }
        }
    }

    /// Notes that a deletion failed, and when it is tried again.
    fn again(&self, record: &Attachment, why: &Error) {
        let mut tries = self.tries.borrow_mut();
        let one = tries.entry(record.key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << one.failures.min(16)).min(LONGEST_PAUSE);
        one.failures += 1;
        one.due = Some(Instant::now() + pause);
        let failures = one.failures;
        drop(tries);
        let pod = record.pod.as_ref();
        (self.tell)(Notice::DelKept { key: &record.key, pod, failures, why: &why.to_string() });
    }

    /// Begins the deletion of everything that is not whole or not of this boot; the runtime may never ask.
    pub fn sweep(self: &Rc<Self>) -> Vec<JoinHandle<()>> {
        let left = |record: &&Attachment| {
            let boot = record.delegated.as_deref().map(|delegated| delegated.boot.as_str());
            record.state != State::Ready || boot != Some(self.boot.as_str())
        };
        let keys: Vec<AttachmentKey> =
            self.table.borrow().values().filter(left).map(|record| record.key.clone()).collect();
        keys.into_iter().map(|key| self.delete_meanwhile(key)).collect()
    }

    /// Tries again what is due; says how many deletions have failed so far.
    pub fn retry(self: &Rc<Self>) -> usize {
        let now = Instant::now();
        let due: Vec<AttachmentKey> = {
            let tries = self.tries.borrow();
            let is_due = |it: &Try| it.due.is_some_and(|due| due <= now);
            tries.iter().filter(|(_, it)| is_due(it)).map(|(key, _)| key.clone()).collect()
        };
        for key in due {
            drop(self.delete_meanwhile(key));
        }
        self.tries.borrow().len()
    }

    /// A deletion that nobody waits for.
    fn delete_meanwhile(self: &Rc<Self>, key: AttachmentKey) -> JoinHandle<()> {
        self.tries.borrow_mut().entry(key.clone()).or_default().due = None;
        // An ADD may come, and have the left-overs taken down itself, before this one's turn.
        let before = self.get(&key).map(|record| record.created);
        let kept = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _slot = kept.parallel.acquire().await;
            let _turn = kept.queue.turn(&key).await;
            if kept.get(&key).map(|record| record.created) == before {
                // What fails is told and tried again.
                let _ = kept.take_down(&key, None, Arc::default()).await;
            } else {
                kept.tries.borrow_mut().remove(&key);
            }
        })
    }
}

/// Does on another thread what may wait for the disk or for a plugin, all of it at once: each change of threads costs
/// more than a small file.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let request = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || request.in_scope(work)).await;
    done.map_err(|error| Error::Lost(error.to_string()))
}
