//! The attachments and leases of one network in memory, in step with the files.
//!
//! Every change goes to the file first: memory never knows of an attachment that a crash would forget.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::attachment::{Attachment, State, Store, StoreError};
use crate::cni::AttachmentKey;
use crate::ipam::Pool;

use super::Only;

/// Attachments and leases of one network.
#[derive(Debug)]
pub struct Table {
    store: Rc<Store>,
    // Boxed: a map keeps up to half of its room free, and a record is half a kilobyte.
    attachments: HashMap<AttachmentKey, Box<Attachment>>,
    links: HashMap<String, AttachmentKey>,
    /// The last answer given for each attachment.
    serials: HashMap<AttachmentKey, u64>,
    last_serial: u64,
    /// The leases.
    pub pool: Pool,
}

impl Table {
    /// An empty table over the given ranges.
    pub fn new(store: Rc<Store>, pool: Pool) -> Self {
        Self {
            store,
            attachments: HashMap::new(),
            links: HashMap::new(),
            serials: HashMap::new(),
            last_serial: 0,
            pool,
        }
    }

    /// The attachment, if there is one.
    pub fn get(&self, key: &AttachmentKey) -> Option<&Attachment> {
        self.attachments.get(key).map(Box::as_ref)
    }

    /// The attachment whose host end is the link of that name.
    pub fn by_link(&self, link: &str) -> Option<&Attachment> {
        self.get(self.links.get(link)?)
    }

    /// Writes the attachment and remembers it.
    pub fn put(&mut self, attachment: Attachment) -> Result<(), StoreError> {
        self.store.put(&attachment)?;
        self.remember(attachment);
        Ok(())
    }

    /// Remembers an attachment that is on disk already.
    pub fn remember(&mut self, attachment: Attachment) {
        self.links.insert(attachment.host_link.clone(), attachment.key.clone());
        self.attachments.insert(attachment.key.clone(), Box::new(attachment));
    }

    /// A new answer with this attachment is on its way.
    pub fn answered(&mut self, key: &AttachmentKey) -> u64 {
        self.last_serial += 1;
        self.serials.insert(key.clone(), self.last_serial);
        self.last_serial
    }

    /// Whether the condition holds for the attachment now; one that is unknown may still have a link.
    pub fn matches(&self, key: &AttachmentKey, only: Only) -> bool {
        match only {
            Only::Always => true,
            Only::IfOlder(moment) => self.get(key).is_none_or(|attachment| attachment.created <= moment),
            Only::IfSerial(serial) => self.serials.get(key) == Some(&serial),
        }
    }

    /// Marks the attachment as being deleted. A file that cannot be written is no reason not to delete.
    pub fn deleting(&mut self, key: &AttachmentKey) -> Option<Attachment> {
        let attachment = self.attachments.get_mut(key)?;
        if attachment.state != State::Deleting {
            attachment.state = State::Deleting;
            // The next start undoes `pending`, keeps `ready` only while its link is there: either way the
            // deletion is not lost.
            let _ = self.store.put(attachment);
        }
        Some(attachment.as_ref().clone())
    }

    /// Frees the leases and forgets the attachment; its file goes last.
    pub fn forget(&mut self, key: &AttachmentKey) -> Result<Vec<IpAddr>, StoreError> {
        let freed = self.pool.release(key);
        if let Some(attachment) = self.attachments.remove(key) {
            self.links.remove(&attachment.host_link);
            self.serials.remove(key);
        }
        self.store.remove(key)?;
        Ok(freed)
    }

    /// Every attachment.
    pub fn iter(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments.values().map(Box::as_ref)
    }

    /// How many attachments.
    pub fn len(&self) -> usize {
        self.attachments.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.attachments.is_empty()
    }
}
