//! The bare kernel: hostcni's own messages for a pod's link, without process, wire, leases and records.

use std::fs::File;
use std::os::fd::OwnedFd;

use hostcni::datapath::{BridgeSpec, Kernel, PodLinkSpec, PodRoute};
use tokio::runtime::{Builder, Runtime};

use crate::namespace::Namespace;

/// Netlink threads in a namespace of their own.
pub struct Direct {
    runtime: Runtime,
    kernel: Kernel,
}

impl Direct {
    /// With the bridge made.
    pub fn new(node: &Namespace) -> Self {
        node.inside(|| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
            let kernel = Kernel::start(2).expect("netlink is there");
            let bridge = BridgeSpec {
                name: "hostcni0".into(),
                mac: [0x0a, 0x58, 10, 96, 0, 1],
                mtu: 1500,
                addresses: vec!["10.96.0.1/16".parse().expect("an address")],
            };
            runtime.block_on(kernel.ensure_bridge(&bridge)).expect("a bridge can be made");
            Self { runtime, kernel }
        })
    }

    /// Makes the link of the pod of this number.
    pub fn add(&self, number: u16, pod: &Namespace, ifname: &str) -> Result<(), String> {
        let [high, low] = number.to_be_bytes();
        let spec = PodLinkSpec {
            host_link: format!("hcpod{number}"),
            alias: format!("hostcni:bench/{number}/{ifname}"),
            bridge: "hostcni0".into(),
            ifname: ifname.into(),
            mac: [0x0a, 0x58, 10, 96, high, low],
            mtu: 1500,
            addresses: vec![format!("10.96.{high}.{low}/16").parse().expect("an address")],
            routes: vec![PodRoute {
                dst: "0.0.0.0/0".parse().expect("a prefix"),
                gateway: Some("10.96.0.1".parse().expect("an address")),
                priority: None,
                mtu: None,
                advmss: None,
            }],
            hairpin: true,
            isolated: false,
            shaping: None,
        };
        let netns = OwnedFd::from(File::open(pod.path()).map_err(|error| error.to_string())?);
        self.runtime.block_on(self.kernel.attach(spec, netns)).map(drop).map_err(|error| error.to_string())
    }

    /// Deletes it.
    pub fn delete(&self, number: u16) -> Result<(), String> {
        let deleted = self.runtime.block_on(self.kernel.delete_link(&format!("hcpod{number}")));
        deleted.map(drop).map_err(|error| error.to_string())
    }
}
