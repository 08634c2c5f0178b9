//! Rate limits: from the capability argument `bandwidth` to the token buckets of a pod's link.
//!
//! Ingress is what the pod receives, egress what it sends, as in CONVENTIONS.md. Runtimes that know of no burst pass the
//! largest that they can write: what is more than the kernel takes is the most that it takes.

use crate::attachment::{self, Attachment, State};
use crate::cni::{Bandwidth, RuntimeConfig};
use crate::datapath::{Bucket, Limit, Link, Shaped, Shaping};

use super::driver::Fate;
use super::{Bridge, Error};

/// An Ethernet header and a VLAN tag.
const FRAME_HEADER: u32 = 18;

/// What the runtime asks for, if it asks for a limit.
pub fn asked(runtime: &RuntimeConfig) -> Result<Option<Bandwidth>, Error> {
    let Some(asked) = runtime.bandwidth else { return Ok(None) };
    for (direction, rate, burst) in [
        ("ingress", asked.ingress_rate, asked.ingress_burst),
        ("egress", asked.egress_rate, asked.egress_burst),
    ] {
        let text = match (rate, burst) {
            (0, 1..) => format!("{direction}Burst {burst} without {direction}Rate"),
            (1.., 0) => format!("{direction}Rate {rate} without {direction}Burst"),
            _ => continue,
        };
        let text = format!("the capability argument bandwidth has {text}: set both (bits per second, bits)");
        return Err(Error::Unsupported(text));
    }
    Ok(Some(asked).filter(|asked| !asked.is_unlimited()))
}

/// Bits to bytes. A bucket that is smaller than a frame would let none pass.
fn limit(rate: u64, burst: u64, mtu: u32) -> Option<Limit> {
    let burst = u32::try_from(burst / 8).unwrap_or(u32::MAX);
    (rate > 0).then(|| Limit { rate: rate.div_ceil(8), burst: burst.max(mtu.saturating_add(FRAME_HEADER)) })
}

/// The limits of an attachment as the kernel is to have them; none where there are none.
pub fn shaping(attachment: &Attachment, mtu: u32) -> Option<Shaping> {
    let asked = attachment.bandwidth?;
    let mtu = attachment.mtu.unwrap_or(mtu);
    Some(Shaping {
        to_pod: limit(asked.ingress_rate, asked.ingress_burst, mtu),
        from_pod: limit(asked.egress_rate, asked.egress_burst, mtu),
        shaper: attachment::shaper_name(&attachment.host_link),
        alias: attachment::host_link_alias(&attachment.key, &[]),
    })
}

/// The node's links of an attachment: the host end, and the ifb where there is or may be one.
pub fn links(host_link: &str, attachment: Option<&Attachment>) -> Vec<String> {
    let limited = |it: &Attachment| it.bandwidth.is_some_and(|asked| asked.egress_rate > 0);
    let shaper = attachment.is_none_or(limited).then(|| attachment::shaper_name(host_link));
    std::iter::once(host_link.to_owned()).chain(shaper).collect()
}

/// What of the limits is not as it should be, in words.
fn differences(host_link: &str, wanted: &Shaping, seen: &Shaped) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(limit) = wanted.to_pod {
        found.extend(difference("ingress", limit, seen.to_pod, host_link));
    }
    let Some(limit) = wanted.from_pod else { return found };
    let shaper = &wanted.shaper;
    if !seen.shaper {
        found.push(format!("interface {shaper}, which limits what the container sends, is gone or down"));
        return found;
    }
    found.extend(difference("egress", limit, seen.from_pod, shaper));
    if !seen.redirected {
        found.push(format!(
            "what the container sends is not led from {host_link} to {shaper}: egress is unlimited"
        ));
    }
    found
}

fn difference(direction: &str, wanted: Limit, seen: Option<Bucket>, link: &str) -> Option<String> {
    let text =
        |limit: Limit| format!("{} bit/s with bursts of {} bytes", u128::from(limit.rate) * 8, limit.burst);
    match seen {
        None => Some(format!("the {direction} limit is gone from {link}")),
        Some(seen) if !wanted.is(seen) => Some(format!(
            "the {direction} limit of {link} is {} instead of {}",
            text(seen.limit()),
            text(wanted)
        )),
        Some(_) => None,
    }
}

impl Bridge {
    /// What of the attachment's limits is not there, in words.
    pub(super) async fn missing_limits(&self, attachment: &Attachment) -> Result<Vec<String>, Error> {
        let Some(wanted) = shaping(attachment, self.mtu.get()) else { return Ok(Vec::new()) };
        let seen = self.kernel.shaped(&attachment.host_link, &wanted.shaper).await?;
        Ok(differences(&attachment.host_link, &wanted, &seen))
    }

    /// Sets the attachment's limits again where something is missing; whether it was.
    pub(super) async fn shape(&self, attachment: &Attachment) -> Result<bool, Error> {
        let Some(wanted) = shaping(attachment, self.mtu.get()) else { return Ok(false) };
        Ok(self.kernel.shape(&attachment.host_link, wanted).await?)
    }

    /// The limits that a link without a record has, as a runtime would have asked for them.
    pub(super) async fn limits_of(&self, host_link: &str) -> Result<Option<Bandwidth>, Error> {
        let seen = self.kernel.shaped(host_link, &attachment::shaper_name(host_link)).await?;
        let bits = |bucket: Option<Bucket>| {
            let limit = bucket.map(Bucket::limit);
            limit.map_or((0, 0), |it| (it.rate.saturating_mul(8), u64::from(it.burst) * 8))
        };
        let (ingress_rate, ingress_burst) = bits(seen.to_pod);
        let (egress_rate, egress_burst) = bits(seen.from_pod);
        let found = Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst };
        Ok(Some(found).filter(|found| !found.is_unlimited()))
    }

    /// Sets the limits of all pods again where somebody took them away: no event tells of most of it.
    pub(super) async fn tend_limits(&self) -> Vec<Fate> {
        let limited = |it: &&Attachment| it.bandwidth.is_some();
        let links: Vec<String> =
            self.table.borrow().iter().filter(limited).map(|it| it.host_link.clone()).collect();
        let mut fates = Vec::new();
        for link in links {
            fates.push(self.restore_limits(&link).await);
        }
        fates
    }

    /// Sets the limits of a pod again where something is missing, as an ifb that somebody deleted: it took the pod's
    /// way out along.
    pub(super) async fn restore_limits(&self, host_link: &str) -> Fate {
        let Some(key) = self.table.borrow().by_link(host_link).map(|it| it.key.clone()) else {
            return Fate::NotOurs;
        };
        let _turn = self.queue.turn(&key).await;
        let attachment = self.table.borrow().get(&key).filter(|it| it.state == State::Ready).cloned();
        let Some(attachment) = attachment else { return Fate::NotOurs };
        match self.shape(&attachment).await {
            Ok(true) => Fate::Repaired(format!("limited the bandwidth of {key} again")),
            Ok(false) => Fate::NotOurs,
            // The host end went along: its own event takes the attachment down.
            Err(_) if !self.kernel.link_exists(host_link).await.unwrap_or(true) => Fate::NotOurs,
            Err(error) => Fate::Failed(format!("cannot limit the bandwidth of {key} again: {error}")),
        }
    }
}

/// Whether the link is an ifb of this network whose pod nobody knows.
pub fn is_orphan(bridge: &Bridge, link: &Link) -> bool {
    let Some(host_link) = attachment::host_link_of_shaper(&link.name) else { return false };
    let alias = link.alias.as_deref().unwrap_or_default();
    let ours = attachment::is_short_alias_of(alias, &bridge.name)
        || attachment::parse_alias(alias).is_some_and(|(key, _)| {
            key.network == bridge.name && attachment::host_link_name(&key) == host_link
        });
    let known = bridge.table.borrow().by_link(&host_link).and_then(|it| it.bandwidth);
    link.kind.as_deref() == Some("ifb") && ours && known.is_none_or(|limits| limits.egress_rate == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ingress: (u64, u64), egress: (u64, u64)) -> Result<Option<Bandwidth>, String> {
        let bandwidth = Some(Bandwidth {
            ingress_rate: ingress.0,
            ingress_burst: ingress.1,
            egress_rate: egress.0,
            egress_burst: egress.1,
        });
        asked(&RuntimeConfig { bandwidth, ..RuntimeConfig::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rate_and_its_burst_come_together() {
        assert_eq!(asked(&RuntimeConfig::default()).unwrap(), None);
        assert_eq!(of((0, 0), (0, 0)), Ok(None));
        assert!(of((1, 1), (0, 0)).unwrap().is_some());
        assert!(of((0, 0), (1, 1)).unwrap().is_some());
        assert!(of((1, 0), (1, 1)).unwrap_err().contains("ingressRate 1 without ingressBurst"));
        assert!(of((1, 1), (0, 7)).unwrap_err().contains("egressBurst 7 without egressRate"));
    }

    #[test]
    fn bits_become_bytes_that_the_kernel_takes() {
        assert_eq!(limit(0, 0, 1500), None);
        assert_eq!(limit(50_000_000, 1_000_000, 1500), Some(Limit { rate: 6_250_000, burst: 125_000 }));
        // The example of CONVENTIONS.md: less than a frame.
        assert_eq!(limit(2048, 1600, 1500), Some(Limit { rate: 256, burst: 1518 }));
        // What kubelet, containerd and CRI-O pass for "no matter".
        let burst = |bits| limit(1, bits, 1500).map(|limit| limit.burst);
        assert_eq!(burst(i32::MAX.unsigned_abs().into()), Some(268_435_455));
        assert_eq!(burst(u32::MAX.into()), Some(536_870_911));
        assert_eq!(burst(u64::from(u32::MAX) * 8 - 1), Some(u32::MAX - 1));
        assert_eq!(burst(u64::MAX), Some(u32::MAX));
    }

    #[test]
    fn differences_name_the_link_and_both_limits() {
        let wanted = Shaping {
            to_pod: limit(8_000_000, 800_000, 1500),
            from_pod: limit(8_000_000, 800_000, 1500),
            shaper: "hi1".into(),
            alias: String::new(),
        };
        let none = differences("hc1", &wanted, &Shaped::default());
        assert_eq!(none.len(), 2, "{none:?}");
        let bucket = Some(Bucket { rate: 500_000, ticks: 0 });
        let other = Shaped { to_pod: bucket, shaper: true, redirected: false, from_pod: None };
        let other = differences("hc1", &wanted, &other).join("\n");
        assert_eq!(
            other,
            "the ingress limit of hc1 is 4000000 bit/s with bursts of 0 bytes instead of 8000000 bit/s with bursts of \
             100000 bytes\nthe egress limit is gone from hi1\nwhat the container sends is not led from hc1 to hi1: \
             egress is unlimited"
        );
    }
}
