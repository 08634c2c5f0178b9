//! An ADD of a chain with all that it writes, for a thread that may wait for disk and plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::attachment::{Attachment, Slots, State};
use crate::cni::{AddResult, MacAddr};

use super::super::Error;
use super::chain::{Chain, Subject};
use super::kept::runtime_of;

/// An addition on a thread of its own: on disk, by the plugins, and what came of it on disk.
pub(super) struct Addition {
    pub(super) chain: Chain,
    pub(super) store: Arc<Slots>,
    pub(super) record: Attachment,
    pub(super) netns: PathBuf,
    pub(super) until: Instant,
    pub(super) caller: CancellationToken,
}

impl Addition {
    /// The record as it is on disk, and what the plugins said; an error when they were not called, and nothing is there.
    pub(super) fn carry_out(self) -> Result<(Attachment, Result<AddResult, Error>), Error> {
        let Self { chain, store, mut record, netns, until, caller } = self;
        crate::step!("delegate.record", Error::Injected("delegate.record"));
        store.put(&record)?;
        let mut last = String::new();
        let added = call_add(&chain, &record, &netns, until, &caller, &mut last);
        let value = serde_json::from_str(&last).unwrap_or_default();
        let result = AddResult::from_version(chain.version, &value).unwrap_or_default();
        keep_result(&mut record, last, &result);
        // The chain ends early when its caller is gone; a crash now shall not leave that as an attachment.
        if added.is_ok() && !caller.is_cancelled() {
            record.state = State::Ready;
        }
        // Of a chain that failed half-way, too: the DELs that follow want the last result, now or after a crash.
        let outcome = commit(&store, &record).and(added).map(|()| result);
        Ok((record, outcome))
    }
}

fn call_add(
    chain: &Chain,
    record: &Attachment,
    netns: &Path,
    until: Instant,
    caller: &CancellationToken,
    last: &mut String,
) -> Result<(), Error> {
    let Some(delegated) = record.delegated.as_deref() else { return Ok(()) };
    let runtime = runtime_of(delegated);
    let subject = Subject::of(record, delegated, Some(netns), &runtime);
    crate::step!("delegate.add", Error::Injected("delegate.add"));
    Ok(chain.add(subject, until, || !caller.is_cancelled(), last)?)
}

fn commit(store: &Slots, record: &Attachment) -> Result<(), Error> {
    crate::step!("delegate.commit", Error::Injected("delegate.commit"));
    Ok(store.amend(record)?)
}

/// Keeps the result: as the plugin gave it for the next calls, and what people want to see of it.
fn keep_result(record: &mut Attachment, text: String, result: &AddResult) {
    record.addresses = result.ips.iter().map(|ip| ip.address).collect();
    record.gateways = result.ips.iter().filter_map(|ip| ip.gateway).collect();
    let inside = result.interfaces.iter().find(|interface| interface.sandbox.is_some());
    record.mac = inside.and_then(|it| it.mac.as_deref()?.parse::<MacAddr>().ok());
    record.mtu = inside.and_then(|it| it.mtu);
    record.result = Some(result.clone());
    if let Some(delegated) = &mut record.delegated {
        delegated.result = text;
    }
}
