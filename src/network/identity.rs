//! What a pod's link may send from: the elements that hold it to its own addresses.

use crate::attachment::Attachment;
use crate::cni::MacAddr;
use crate::datapath::{Element, ElementBatch, PodPort};

use super::{Bridge, Error, ports};

/// The link with its addresses; none while its hardware address is not known, or when it is not ours.
fn of(attachment: &Attachment) -> Option<PodPort> {
    Some(PodPort {
        host_link: attachment.host_link.clone(),
        mac: attachment.mac.filter(|_| !attachment.imported).map(MacAddr::octets)?,
        addresses: attachment.addresses.iter().map(ipnet::IpNet::addr).collect(),
    })
}

impl Bridge {
    /// All pods' links, for the whole ruleset. Of a record that was lost the kernel does not tell the hardware address
    /// that its pod asked for: such a pod is held to nothing, and keeps its network.
    pub(super) fn all_identities(&self) -> Vec<PodPort> {
        let held = |_: &&Attachment| self.settings.anti_spoofing;
        self.table.borrow().iter().filter(held).filter_map(of).collect()
    }

    /// Lets the link send from its addresses.
    pub(super) async fn hold(&self, attachment: &Attachment) -> Result<(), Error> {
        let Some(pod) = of(attachment).filter(|_| self.settings.anti_spoofing) else { return Ok(()) };
        let mut batch = ElementBatch::new();
        for element in pod.elements() {
            batch.add(element);
        }
        match self.kernel.update_elements(batch).await {
            Err(error) if error.table_missing() => Err(Error::RulesMissing),
            other => Ok(other?),
        }
    }

    /// Takes the link's elements away; what is gone already is no error.
    pub(super) async fn let_go(&self, attachment: &Attachment) -> Result<(), Error> {
        let Some(pod) = of(attachment).filter(|_| self.settings.anti_spoofing) else { return Ok(()) };
        let elements = pod.elements();
        if self.delete_elements(&elements).await? {
            return Ok(());
        }
        // A missing one took its whole batch along.
        for element in &elements {
            self.delete_elements(std::slice::from_ref(element)).await?;
        }
        Ok(())
    }

    /// Whether all of them were there, and are gone.
    async fn delete_elements(&self, elements: &[Element]) -> Result<bool, Error> {
        let mut batch = ElementBatch::new();
        for element in elements {
            batch.delete(element.clone());
        }
        match self.kernel.update_elements(batch).await {
            Ok(()) => Ok(true),
            Err(error) if error.table_missing() => Ok(true),
            Err(error) if error.only_missing() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What of the attachment's elements is not there, in words.
    pub(super) async fn missing_rules(&self, attachment: &Attachment) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        if let Some(pod) = of(attachment).filter(|_| self.settings.anti_spoofing) {
            let gone = self.kernel.missing_elements(pod.elements()).await?;
            missing.extend(gone.iter().map(|element| format!("the identity {element} of the pod's link")));
        }
        for map in ports::of(attachment) {
            let leads = self.kernel.holder(map.clone()).await?;
            if leads != Some((map.pod_address, map.pod_port)) {
                missing.push(format!("host port {}/{} of {}", map.host_port, map.protocol, map.pod_address));
            }
        }
        Ok(missing)
    }
}
