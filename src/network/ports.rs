//! Host ports: the elements that lead them to a pod, and whose they are.

use std::net::IpAddr;

use crate::attachment::Attachment;
use crate::cni::{PortMapping, Protocol};
use crate::datapath::conntrack::Stale;
use crate::datapath::{self, ElementBatch, PortMap};

use super::{Bridge, Error};

/// The port maps of an attachment: one for each mapping and each family of the pod's that the mapping's host address
/// allows. Of several addresses of one family the first: a host port leads to one place.
pub fn of(attachment: &Attachment) -> Vec<PortMap> {
    let first = |ipv4: bool| {
        attachment.addresses.iter().map(ipnet::IpNet::addr).find(|address| address.is_ipv4() == ipv4)
    };
    let addresses: Vec<IpAddr> = [true, false].into_iter().filter_map(first).collect();
    let maps = attachment.port_mappings.iter().flat_map(|mapping| {
        let fits = |address: &&IpAddr| mapping.host_ip.is_none_or(|host| host.is_ipv4() == address.is_ipv4());
        addresses.iter().filter(fits).map(|address| port_map(mapping, *address)).collect::<Vec<_>>()
    });
    maps.collect()
}

fn port_map(mapping: &PortMapping, pod_address: IpAddr) -> PortMap {
    PortMap {
        protocol: protocol(mapping.protocol),
        // The unspecified address means any of its family.
        host_address: mapping.host_ip.filter(|host| !host.is_unspecified()),
        host_port: mapping.host_port,
        pod_address,
        pod_port: mapping.container_port,
    }
}

pub fn protocol(protocol: Protocol) -> datapath::Protocol {
    match protocol {
        Protocol::Tcp => datapath::Protocol::Tcp,
        Protocol::Udp => datapath::Protocol::Udp,
        Protocol::Sctp => datapath::Protocol::Sctp,
    }
}

fn batch(maps: &[PortMap], mut put: impl FnMut(&mut ElementBatch, datapath::Element)) -> ElementBatch {
    let mut batch = ElementBatch::new();
    for element in maps.iter().filter_map(PortMap::element) {
        put(&mut batch, element);
    }
    batch
}

impl Bridge {
    /// A host port at an address that is not the node's would never be reached.
    pub(super) async fn refuse_foreign_hosts(&self, mappings: &[PortMapping]) -> Result<(), Error> {
        for mapping in mappings {
            let Some(host) = mapping.host_ip.filter(|host| !host.is_unspecified()) else { continue };
            if !self.kernel.is_local(host).await? {
                return Err(Error::Unsupported(format!(
                    "host port {}/{}: this node has no address {host}: set hostIP to one it has, or leave it out",
                    mapping.host_port,
                    port_map(mapping, host).protocol
                )));
            }
        }
        Ok(())
    }

    /// Leads the host ports to the pod. One that is taken already is an error that names its holder.
    pub(super) async fn open_ports(&self, attachment: &Attachment) -> Result<(), Error> {
        let maps = of(attachment);
        for mapping in &attachment.port_mappings {
            if !maps.iter().any(|map| map.host_port == mapping.host_port) {
                let text =
                    format!("host port {}: the pod has no address of its hostIP's family", mapping.host_port);
                return Err(Error::Unsupported(text));
            }
        }
        if maps.is_empty() {
            return Ok(());
        }
        let elements = batch(&maps, |batch, element| {
            batch.add(element);
        });
        if let Err(error) = self.kernel.update_elements(elements).await {
            return Err(self.refused(&maps, error).await);
        }
        self.kernel.flush_flows(maps, Stale::BeforeAdd).await?;
        Ok(())
    }

    /// Why the kernel took none of the elements.
    async fn refused(&self, maps: &[PortMap], error: datapath::UpdateError) -> Error {
        if error.table_missing() {
            return Error::RulesMissing;
        }
        if error.conflict().is_some() {
            for map in maps {
                if let Ok(Some((address, _))) = self.kernel.holder(map.clone()).await
                    && address != map.pod_address
                {
                    return Error::PortTaken(self.taken(map, address));
                }
            }
        }
        error.into()
    }

    fn taken(&self, map: &PortMap, address: IpAddr) -> String {
        let table = self.table.borrow();
        let holder = table.pool.owner(address).and_then(|key| table.get(key)).map_or_else(
            || address.to_string(),
            |holder| match &holder.pod {
                Some(pod) => format!("pod {}/{} ({address})", pod.namespace, pod.name),
                None => format!("container {} ({address})", holder.key.container_id),
            },
        );
        format!("host port {}/{} leads to {holder} already: use another one", map.host_port, map.protocol)
    }

    /// Takes the elements of the host ports away; what is gone already is no error.
    pub(super) async fn close_ports(&self, attachment: &Attachment) -> Result<(), Error> {
        let held = of(attachment);
        if held.is_empty() {
            return Ok(());
        }
        let mut first = None;
        for map in &held {
            // An ADD that met a taken port never had it: only what leads to this pod goes. One by one, since
            // a missing element takes its whole batch along.
            match self.kernel.holder(map.clone()).await {
                Ok(Some((address, _))) if address == map.pod_address => {}
                Ok(_) => continue,
                Err(error) if error.is_missing() => continue,
                Err(error) => {
                    first.get_or_insert(Error::Kernel(error));
                    continue;
                }
            }
            let elements = batch(std::slice::from_ref(map), |batch, element| {
                batch.delete(element);
            });
            if let Err(error) = self.kernel.update_elements(elements).await
                && !error.only_missing()
                && !error.table_missing()
            {
                first.get_or_insert(Error::from(error));
            }
        }
        // The port leads nowhere by now; an old flow that cannot be looked up is no reason to keep the address.
        if let Err(error) = self.kernel.flush_flows(held, Stale::AfterDelete).await {
            tracing::warn!(%error, attachment = %attachment.key, "cannot forget the flows of a host port");
        }
        first.map_or(Ok(()), Err)
    }
}
