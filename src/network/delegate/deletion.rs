//! A DEL of a chain with all that it writes, for a thread that may wait for disk and plugins.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::attachment::{Attachment, Slots};
use crate::cni::ConfList;

use super::super::Error;
use super::chain::{Chain, Subject};
use super::kept::runtime_of;
use super::notice::Tell;

/// A deletion on a thread of its own: on disk, by the plugins, and off the disk.
pub(super) struct Deletion {
    pub(super) store: Arc<Slots>,
    pub(super) tell: Tell,
    pub(super) record: Attachment,
    pub(super) netns: Option<PathBuf>,
    pub(super) marked: Arc<AtomicBool>,
}

impl Deletion {
    pub(super) fn carry_out(self) -> Result<(), Error> {
        crate::step!("delegate.mark", Error::Injected("delegate.mark"));
        if !self.marked.load(Ordering::Relaxed) {
            // A full disk is no reason to keep what can be deleted: the record as it is has its DEL at the next boot.
            self.marked.store(self.store.amend(&self.record).is_ok(), Ordering::Relaxed);
        }
        let record = self.record;
        let Some(delegated) = record.delegated.as_deref() else { return Ok(()) };
        let list = ConfList::parse(&delegated.conflist, &record.key.network).map_err(|error| {
            Error::Unsupported(format!("the recorded network configuration list: {error}"))
        })?;
        let version = delegated.version.unwrap_or(list.versions[0]);
        let (directories, timeout) = (delegated.plugin_dirs.clone(), delegated.timeout());
        let chain = Chain { list, version, directories, timeout, tell: self.tell };
        let runtime = runtime_of(delegated);
        let subject = Subject::of(&record, delegated, self.netns.as_deref(), &runtime);
        crate::step!("delegate.del", Error::Injected("delegate.del"));
        let failures = chain.del(subject, &delegated.result);
        Error::collect(failures.into_iter().map(Error::Delegate).collect()).map_or(Ok(()), Err)?;
        crate::step!("delegate.forget", Error::State(crate::attachment::StoreError::injected()));
        // Not synced: a record that comes back with the power has its DEL once more.
        Ok(self.store.remove(&record.key)?)
    }
}
