//! What identifies an attachment.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ContainerId, IfName, NetworkName};

/// "a single attachment is uniquely identified by the tuple of network name, `CNI_CONTAINERID` and
/// `CNI_IFNAME`" (SPEC.md, "Attachment parameters", in short).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentKey {
    /// The network.
    pub network: NetworkName,
    /// The container.
    pub container_id: ContainerId,
    /// The interface in the container.
    pub ifname: IfName,
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container_id, self.ifname)
    }
}
