//! The messages of traffic control: one function builds one request or reads one answer. No I/O.
//!
//! Only what every kernel with traffic control has: a `tbf` for the rate, `ingress` with a `u32` filter and
//! `mirred` to lead what a pod sends to an `ifb`. Structures are those of `linux/pkt_sched.h`, `linux/pkt_cls.h` and
//! `linux/tc_act/tc_mirred.h`.

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::parse::{attributes, text};
use super::socket::Request;
use super::{Bucket, Limit};

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_EGRESS_REDIR: i32 = 1;
const TC_ACT_STOLEN: i32 = 4;
const TC_U32_TERMINAL: u8 = 1;
/// Lengths are counted as they are: no table of them is needed.
const TC_LINKLAYER_ETHERNET: u8 = 1;
const ETH_P_ALL: u16 = 3;
/// struct tcmsg
const HEADER: usize = 20;
/// struct `tc_tbf_qopt`, and where its rate and its buffer stand.
const TBF_PARMS: usize = 36;
const TBF_RATE: usize = 8;
const TBF_BUFFER: usize = 28;
/// struct `tc_mirred`, and where action and link stand.
const MIRRED_EACTION: usize = 20;
const MIRRED_IFINDEX: usize = 24;

/// The handle of every ingress qdisc.
const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: 0 };

fn nest(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; inner.buffer_len()];
    inner.emit(&mut bytes);
    DefaultNla::new(kind, bytes)
}

fn message(link: u32, parent: TcHandle, kind: Option<&str>, options: Option<&[DefaultNla]>) -> TcMessage {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.parent = parent;
    message.attributes.extend(kind.map(|kind| TcAttribute::Kind(kind.to_owned())));
    message.attributes.extend(options.map(|options| TcAttribute::Other(nest(TCA_OPTIONS, options))));
    message
}

/// A token bucket as the link's root qdisc, in place of what was there.
pub(super) fn set_limit(link: u32, name: &str, limit: Limit) -> Request {
    let low = u32::try_from(limit.rate).unwrap_or(u32::MAX);
    let mut parameters = vec![0_u8; TBF_PARMS];
    parameters[1] = TC_LINKLAYER_ETHERNET;
    parameters[TBF_RATE..][..4].copy_from_slice(&low.to_ne_bytes());
    parameters[24..][..4].copy_from_slice(&limit.queue().to_ne_bytes());
    let ticks = u32::try_from(limit.ticks()).unwrap_or(u32::MAX);
    parameters[TBF_BUFFER..][..4].copy_from_slice(&ticks.to_ne_bytes());
    let mut options = vec![
        DefaultNla::new(TCA_TBF_PARMS, parameters),
        // Exact, and without the limit of the ticks' 32 bits.
        DefaultNla::new(TCA_TBF_BURST, limit.burst.to_ne_bytes().to_vec()),
    ];
    if u64::from(low) != limit.rate {
        options.push(DefaultNla::new(TCA_TBF_RATE64, limit.rate.to_ne_bytes().to_vec()));
    }
    Request {
        message: RouteNetlinkMessage::NewQueueDiscipline(message(
            link,
            TcHandle::ROOT,
            Some("tbf"),
            Some(&options),
        )),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
        operation: "limit the rate of link",
        object: name.to_owned(),
    }
}

/// A place for filters on what comes in by the link.
pub(super) fn add_ingress(link: u32, name: &str) -> Request {
    Request {
        message: RouteNetlinkMessage::NewQueueDiscipline(message(
            link,
            TcHandle::INGRESS,
            Some("ingress"),
            None,
        )),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        operation: "add an ingress qdisc to link",
        object: name.to_owned(),
    }
}

/// That place away, with all its filters.
pub(super) fn delete_ingress(link: u32, name: &str) -> Request {
    Request {
        message: RouteNetlinkMessage::DelQueueDiscipline(message(link, TcHandle::INGRESS, None, None)),
        flags: 0,
        operation: "delete the ingress qdisc of link",
        object: name.to_owned(),
    }
}

/// All that comes in by the link leaves by the other one first. The other one, an ifb, gives it back.
pub(super) fn redirect(link: u32, name: &str, to: u32) -> Request {
    // No key: every packet matches. A key, even one of zeros, lets a packet pass that is too short for it.
    let mut selector = vec![0_u8; 16];
    selector[0] = TC_U32_TERMINAL;
    let mut mirred = vec![0_u8; 28];
    mirred[8..][..4].copy_from_slice(&TC_ACT_STOLEN.to_ne_bytes());
    mirred[MIRRED_EACTION..][..4].copy_from_slice(&TCA_EGRESS_REDIR.to_ne_bytes());
    mirred[MIRRED_IFINDEX..][..4].copy_from_slice(&to.to_ne_bytes());
    let action = nest(
        1,
        &[
            DefaultNla::new(TCA_ACT_KIND, b"mirred\0".to_vec()),
            nest(TCA_ACT_OPTIONS, &[DefaultNla::new(TCA_MIRRED_PARMS, mirred)]),
        ],
    );
    let options = [DefaultNla::new(TCA_U32_SEL, selector), nest(TCA_U32_ACT, &[action])];
    let mut message = message(link, INGRESS, Some("u32"), Some(&options));
    // Priority 1, every protocol.
    message.header.info = 1 << 16 | u32::from(ETH_P_ALL.to_be());
    Request {
        message: RouteNetlinkMessage::NewTrafficFilter(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        operation: "redirect what comes in by link",
        object: name.to_owned(),
    }
}

/// The link's root qdisc. (Kernels before 6.10 answer only with the echo.)
pub(super) fn root_qdisc(link: u32, name: &str) -> Request {
    Request {
        message: RouteNetlinkMessage::GetQueueDiscipline(message(link, TcHandle::ROOT, None, None)),
        flags: NLM_F_ECHO,
        operation: "look up the root qdisc of link",
        object: name.to_owned(),
    }
}

/// The filters on what comes in by the link (a dump); none where there is no ingress qdisc.
pub(super) fn filters(link: u32, name: &str) -> Request {
    Request {
        message: RouteNetlinkMessage::GetTrafficFilter(message(link, INGRESS, None, None)),
        flags: 0,
        operation: "read the filters of link",
        object: name.to_owned(),
    }
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// The options of an answer about something of that kind.
fn options_of<'a>(body: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let all = body.get(HEADER..)?;
    if text(attribute(all, TCA_KIND)?) == kind { attribute(all, TCA_OPTIONS) } else { None }
}

/// The token bucket in an answer about a qdisc, if it is one.
pub(super) fn bucket(body: &[u8]) -> Option<Bucket> {
    let options = options_of(body, "tbf")?;
    let parameters = attribute(options, TCA_TBF_PARMS)?;
    let large = attribute(options, TCA_TBF_RATE64)
        .and_then(|rate| rate.get(..8)?.try_into().ok())
        .map(u64::from_ne_bytes);
    Some(Bucket {
        rate: large.unwrap_or(u64::from(u32_at(parameters, TBF_RATE)?)),
        ticks: u32_at(parameters, TBF_BUFFER)?,
    })
}

/// Where a filter of ours leads to, if this is one: the index of the link, 0 when that link is gone.
pub(super) fn redirected_to(body: &[u8]) -> Option<u32> {
    let actions = attribute(options_of(body, "u32")?, TCA_U32_ACT)?;
    attributes(actions).find_map(|(_, action)| {
        let mirred = attribute(attribute(action, TCA_ACT_OPTIONS)?, TCA_MIRRED_PARMS)?;
        let redirects = u32_at(mirred, MIRRED_EACTION)? == TCA_EGRESS_REDIR.cast_unsigned();
        u32_at(mirred, MIRRED_IFINDEX).filter(|_| redirects)
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    fn body(request: Request) -> Vec<u8> {
        let (RouteNetlinkMessage::NewQueueDiscipline(message)
        | RouteNetlinkMessage::NewTrafficFilter(message)) = request.message
        else {
            panic!("a message of traffic control")
        };
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for rate in [1, 125_000, u64::from(u32::MAX), 5 << 32] {
            let limit = Limit { rate, burst: 300_000 };
            let read = bucket(&body(set_limit(7, "hc", limit))).unwrap();
            assert_eq!(read.rate, rate);
        }
        assert_eq!(redirected_to(&body(redirect(7, "hc", 9))), Some(9));
        assert_eq!(redirected_to(&body(set_limit(7, "hc", Limit { rate: 1, burst: 1 }))), None);
        assert_eq!(bucket(&body(redirect(7, "hc", 9))), None);
    }

    #[test]
    fn half_an_answer_is_none() {
        let whole = body(redirect(7, "hc", 9));
        for length in 0..whole.len() - 4 {
            assert_eq!(redirected_to(&whole[..length]), None, "{length}");
        }
        let whole = body(set_limit(7, "hc", Limit { rate: 1, burst: 1 }));
        for length in 0..HEADER + 12 {
            assert_eq!(bucket(&whole[..length]), None, "{length}");
        }
    }
}
