//! Rate limits of a pod's link: a token bucket on its host end for what the pod receives, and one on an ifb of
//! its own, to which the host end leads what the pod sends.
//!
//! Promises that limits stand before the pod's end of a new link goes up, and that one that cannot be set up leaves an
//! error that names what the kernel lacks. The bridge and its rules see a pod's packets behind the ifb as before it.

use nix::libc;

use super::socket::Socket;
use super::{KernelError, Link, links, message, tc};

/// A tick of the kernel's packet scheduler, in nanoseconds (`PSCHED_SHIFT`).
const TICK: u128 = 64;
/// How long a packet may wait for its turn, beside the burst, as a part of a second.
const QUEUE_PARTS: u64 = 40;
/// A queue takes two segmentation-offloaded packets at least, and no more than this for a burst.
const QUEUE_BURST: std::ops::RangeInclusive<u32> = 128 << 10..=1 << 20;

/// A rate limit: a bucket of tokens that fills at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, at least 1.
    pub rate: u64,
    /// Size of the bucket in bytes. Packets that are larger are dropped: at least a frame.
    pub burst: u32,
}

impl Limit {
    /// The time in ticks that the rate takes for a whole bucket.
    pub(super) fn ticks(self) -> u64 {
        let ticks = u128::from(self.burst) * 1_000_000_000 / u128::from(self.rate.max(1)) / TICK;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Bytes that may wait for tokens; more are dropped. Not the whole of a burst, which may be gigabytes: nobody is
    /// served by packets that wait for minutes.
    pub(super) fn queue(self) -> u32 {
        let burst = self.burst.clamp(*QUEUE_BURST.start(), *QUEUE_BURST.end());
        u32::try_from(self.rate / QUEUE_PARTS).unwrap_or(u32::MAX).saturating_add(burst)
    }

    /// Whether that is this limit. The kernel tells a bucket's size only as the low bits of a rounded time.
    pub fn is(self, seen: Bucket) -> bool {
        let wanted = self.ticks();
        #[allow(clippy::cast_possible_truncation)] // as the kernel does (tbf_dump)
        let distance = seen.ticks.wrapping_sub(wanted as u32).cast_signed().unsigned_abs();
        seen.rate == self.rate && u64::from(distance) <= (wanted >> 30) + 2
    }
}

/// A token bucket as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes per second.
    pub rate: u64,
    /// The time for a whole bucket, in units of 64 ns, modulo 2³².
    pub ticks: u32,
}

impl Bucket {
    /// The limit that this is, its burst as exactly as can be told.
    pub fn limit(self) -> Limit {
        let burst = u128::from(self.ticks) * TICK * u128::from(self.rate) / 1_000_000_000;
        Limit { rate: self.rate, burst: u32::try_from(burst).unwrap_or(u32::MAX) }
    }
}

/// The limits of a pod's link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shaping {
    /// Of what the pod receives.
    pub to_pod: Option<Limit>,
    /// Of what it sends.
    pub from_pod: Option<Limit>,
    /// Name of the ifb for what it sends; there is none without a limit of that.
    pub shaper: String,
    /// Its alias, at most 255 bytes.
    pub alias: String,
}

impl Shaping {
    /// Whether the kernel has all of it.
    pub fn holds(&self, shaped: &Shaped) -> bool {
        let is = |limit: Option<Limit>, seen: Option<Bucket>| {
            limit.is_none_or(|it| seen.is_some_and(|s| it.is(s)))
        };
        is(self.to_pod, shaped.to_pod)
            && is(self.from_pod, shaped.from_pod)
            && (self.from_pod.is_none() || (shaped.shaper && shaped.redirected))
    }
}

/// The limits that the kernel has for a pod's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shaped {
    /// The bucket of the host end.
    pub to_pod: Option<Bucket>,
    /// Whether the ifb is there and up.
    pub shaper: bool,
    /// Whether all that the pod sends is led to it.
    pub redirected: bool,
    /// Its bucket.
    pub from_pod: Option<Bucket>,
}

/// Sets the limits of a link that has none.
pub(super) fn apply(socket: &mut Socket, link: &Link, shaping: &Shaping) -> Result<(), KernelError> {
    if let Some(limit) = shaping.from_pod {
        let shaper = ensure_shaper(socket, link.mtu, shaping)?;
        // The bucket before the way to it.
        set_limit(socket, shaper.index, &shaper.name, limit)?;
        may_fail()?;
        let mut outcomes = socket
            .batch(vec![
                tc::add_ingress(link.index, &link.name),
                tc::redirect(link.index, &link.name, shaper.index),
            ])?
            .into_iter();
        for needs in [
            "the ingress qdisc: module sch_ingress",
            "the u32 classifier or the mirred action: modules cls_u32, act_mirred",
        ] {
            outcomes.next().map_or(Ok(()), |outcome| outcome.map(drop)).map_err(|e| lacking(e, needs))?;
        }
    }
    match shaping.to_pod {
        Some(limit) => set_limit(socket, link.index, &link.name, limit),
        None => Ok(()),
    }
}

/// Makes the limits of a link be those; whether anything was amiss.
pub(super) fn repair(socket: &mut Socket, name: &str, shaping: &Shaping) -> Result<bool, KernelError> {
    let link = links::find(socket, name)?
        .ok_or_else(|| KernelError::new(libc::ENODEV, "limit the rate of link", name))?;
    let shaped = read(socket, &link, &shaping.shaper)?;
    if shaping.holds(&shaped) {
        return Ok(false);
    }
    if shaping.from_pod.is_some() {
        match socket.one(tc::delete_ingress(link.index, &link.name)) {
            Ok(_) => {}
            // "Invalid handle" and "cannot find": there is none.
            Err(error) if error.is_missing() || error.errno == libc::EINVAL => {}
            Err(error) => return Err(error),
        }
    }
    apply(socket, &link, shaping)?;
    Ok(true)
}

/// The limits that the link of that name has.
pub(super) fn look(socket: &mut Socket, name: &str, shaper: &str) -> Result<Shaped, KernelError> {
    match links::find(socket, name)? {
        Some(link) => read(socket, &link, shaper),
        None => Ok(Shaped::default()),
    }
}

fn read(socket: &mut Socket, link: &Link, shaper: &str) -> Result<Shaped, KernelError> {
    let mut shaped = Shaped { to_pod: bucket(socket, link)?, ..Shaped::default() };
    let Some(shaper) = links::find(socket, shaper)? else { return Ok(shaped) };
    shaped.shaper = shaper.up;
    shaped.from_pod = bucket(socket, &shaper)?;
    let filters = socket.dump(tc::filters(link.index, &link.name))?;
    shaped.redirected = filters.iter().find_map(|filter| tc::redirected_to(filter)) == Some(shaper.index);
    Ok(shaped)
}

fn bucket(socket: &mut Socket, link: &Link) -> Result<Option<Bucket>, KernelError> {
    match socket.one(tc::root_qdisc(link.index, &link.name)) {
        Ok(answers) => Ok(answers.first().and_then(|answer| tc::bucket(answer))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The ifb, made or found. Its name is a hash of the pod's: one that is there is a left-over of the same pod.
fn ensure_shaper(socket: &mut Socket, mtu: u32, shaping: &Shaping) -> Result<Link, KernelError> {
    let name = &shaping.shaper;
    match socket.one(message::create_ifb(name, mtu)) {
        Ok(_) => {}
        Err(error) if error.is_exists() => {}
        Err(error) => return Err(lacking(error, "intermediate functional blocks: module ifb")),
    }
    let link = match links::find(socket, name)? {
        Some(link) if link.kind.as_deref() == Some("ifb") => link,
        Some(_) => return Err(KernelError::new(libc::EOPNOTSUPP, "use as ifb the link", name.as_str())),
        None => return Err(KernelError::new(libc::ENODEV, "create ifb", name.as_str())),
    };
    socket.one(message::set_alias_up(name, &shaping.alias))?;
    Ok(link)
}

fn set_limit(socket: &mut Socket, index: u32, name: &str, limit: Limit) -> Result<(), KernelError> {
    let set = socket.one(tc::set_limit(index, name, limit));
    set.map(drop).map_err(|error| lacking(error, "the token bucket filter: module sch_tbf"))
}

/// A place where a test can make the limits fail half-way.
#[cfg_attr(not(feature = "failpoints"), allow(clippy::unnecessary_wraps))]
fn may_fail() -> Result<(), KernelError> {
    crate::step!("datapath.shape", KernelError::message("shape", "the pod's link", "a test made it fail"));
    Ok(())
}

/// Names what the kernel lacks where its answer says that it lacks something.
fn lacking(error: KernelError, what: &str) -> KernelError {
    if ![libc::ENOENT, libc::EOPNOTSUPP].contains(&error.errno) {
        return error;
    }
    error.and(&format!("bandwidth limits need {what}, which this kernel lacks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_by_what_the_kernel_says_of_it() {
        for rate in [1, 1_250, 6_250_000, 25_000_000, 125_000_000_000] {
            for burst in [1_518, 125_000, i32::MAX.unsigned_abs() / 8, u32::MAX] {
                let limit = Limit { rate, burst };
                #[allow(clippy::cast_possible_truncation)]
                let seen = Bucket { rate, ticks: limit.ticks() as u32 };
                assert!(limit.is(seen), "{limit:?}");
                assert!(!limit.is(Bucket { rate: rate + 1, ..seen }));
                assert!(!limit.is(Bucket { ticks: seen.ticks.wrapping_add(1 << 30), ..seen }));
                if limit.ticks() < u64::from(u32::MAX) {
                    assert!(seen.limit().is(seen), "what is told of it is the same limit: {limit:?}");
                }
            }
        }
    }

    #[test]
    fn a_queue_holds_packets_and_not_the_whole_burst() {
        let queue = |rate, burst| Limit { rate, burst }.queue();
        assert_eq!(queue(1, 1_518), 128 << 10);
        assert_eq!(queue(40_000_000, 500_000), 1_500_000);
        assert_eq!(queue(1_250_000, u32::MAX), (1 << 20) + 31_250);
        assert_eq!(queue(u64::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let lacks = |errno| {
            let error = KernelError::new(errno, "limit the rate of link", "hc0").with_text("kind is unknown");
            lacking(error, "the token bucket filter: module sch_tbf").to_string()
        };
        for errno in [libc::ENOENT, libc::EOPNOTSUPP] {
            let text = lacks(errno);
            assert!(
                text.contains("kind is unknown; bandwidth limits need the token bucket filter"),
                "{text}"
            );
            assert!(text.ends_with("module sch_tbf, which this kernel lacks)"), "{text}");
        }
        assert!(!lacks(libc::EPERM).contains("lacks"));
    }
}
