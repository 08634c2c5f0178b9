//! Taking attachments down: DEL, roll-back, GC, links that vanished, and what could not be taken down before.

use std::collections::HashSet;
use std::time::SystemTime;

use futures_util::future::join_all;

use crate::attachment::{self, Attachment, State};
use crate::cni::{AttachmentKey, Command, ValidAttachment};
use crate::datapath::Change;

use super::driver::Fate;
use super::steps::Steps;
use super::{Bridge, Error, bandwidth, reconcile};

impl Bridge {
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

    pub(super) async fn collect_garbage(
        &self,
        valid: &[ValidAttachment],
    ) -> Result<Vec<AttachmentKey>, Error> {
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

    pub(super) async fn link_changed(&self, change: &Change) -> Fate {
        let Change::LinkRemoved { name, .. } = change else { return Fate::NotOurs };
        if let Some(host_link) = attachment::host_link_of_shaper(name) {
            return self.restore_limits(&host_link).await;
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

    pub(super) async fn retry_deleting(&self) -> usize {
        // No link of ours tells of the end of an imported pod: its namespace does.
        let over =
            |it: &Attachment| it.state == State::Deleting || (it.imported && !reconcile::lives_elsewhere(it));
        let all: Vec<AttachmentKey> =
            self.table.borrow().iter().filter(|it| over(it)).map(|it| it.key.clone()).collect();
        let again = self.take_down_all(all, over).await;
        again.iter().filter(|(_, outcome)| outcome.is_err()).count()
    }
}
