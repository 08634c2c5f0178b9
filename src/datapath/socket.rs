//! A synchronous rtnetlink socket: several requests in one send, every answer matched by its sequence
//! number, dumps that are whole and consistent, and the kernel's own words in every error.

use std::os::fd::AsFd;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::KernelError;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
/// A dump was interrupted by a change and may be inconsistent.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// An error holds only the header of the request it answers.
const NLM_F_CAPPED: u16 = 0x100;
/// An error holds attributes behind the request.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const HEADER: usize = 16;
/// The kernel fills at most 32 KiB per datagram of a dump, but for links with very many virtual functions.
pub(super) const BUFFER: usize = 32 * 1024;

/// Requests per send. Each answer takes the better part of a kilobyte of the receive buffer (208 KiB by
/// default) before we read the first.
const PER_SEND: usize = 64;
/// How often a dump is tried again when a change got in its way.
const DUMP_TRIES: usize = 20;
/// An answer is there when the send returns; one that is not after this long never comes.
const ANSWER_SECONDS: i64 = 30;

/// One request: the message, its flags beside `NLM_F_REQUEST` and `NLM_F_ACK`, and what to call it when
/// it fails.
pub(super) struct Request {
    pub(super) message: RouteNetlinkMessage,
    pub(super) flags: u16,
    pub(super) operation: &'static str,
    pub(super) object: String,
}

/// A message of an answer: what follows the netlink header.
pub(super) type Answer = Vec<u8>;

/// What became of one request.
pub(super) type Outcome = Result<Vec<Answer>, KernelError>;

/// A socket; it belongs to the namespace in which it was opened, wherever its thread goes later.
pub(super) struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens an rtnetlink socket in the calling thread's network namespace.
    pub(super) fn open() -> Result<Self, KernelError> {
        let open = || {
            let inner = netlink_sys::Socket::new(NETLINK_ROUTE)?;
            // Connected: what other processes send to our port is refused by the kernel. It is bound by that, too.
            inner.connect(&SocketAddr::new(0, 0))?;
            inner.set_ext_ack(true)?;
            inner.set_cap_ack(true)?;
            // Without it the kernel ignores the filters of a dump instead of refusing those it lacks.
            inner.set_netlink_get_strict_chk(true)?;
            setsockopt(&inner, sockopt::ReceiveTimeout, &TimeVal::seconds(ANSWER_SECONDS))?;
            Ok(inner)
        };
        let inner = open()
            .map_err(|error: std::io::Error| KernelError::from_io(&error, "open socket", "rtnetlink"))?;
        Ok(Self { inner, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends all requests, several in one message; the kernel works through all of them in order, also
    /// after one that fails. The outcomes are in the order of the requests. The outer error is one of the
    /// socket: what became of the requests is then unknown.
    pub(super) fn batch(&mut self, requests: Vec<Request>) -> Result<Vec<Outcome>, KernelError> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let part = requests.by_ref().take(PER_SEND).collect();
            self.send_part(part, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    /// Sends one request and gives its answer.
    pub(super) fn one(&mut self, request: Request) -> Outcome {
        let (operation, object) = (request.operation, request.object.clone());
        let mut outcomes = self.batch(vec![request])?;
        outcomes.pop().unwrap_or_else(|| Err(KernelError::new(Errno::EPROTO as i32, operation, object)))
    }

    /// Everything that the request names, from one consistent walk through the kernel's table.
    pub(super) fn dump(&mut self, request: Request) -> Outcome {
        let Request { message, operation, object, .. } = request;
        for _ in 0..DUMP_TRIES {
            let request = Request { message: message.clone(), flags: 0, operation, object: object.clone() };
            match self.dump_once(&request) {
                Ok(Some(answers)) => return Ok(answers),
                Ok(None) => {}
                Err(error) if error.errno == Errno::EMSGSIZE as i32 => {}
                Err(error) => return Err(error),
            }
        }
        Err(KernelError::new(Errno::EAGAIN as i32, operation, object)
            .with_text(format!("the table changed during each of {DUMP_TRIES} readings")))
    }

    fn send_part(&mut self, part: Vec<Request>, outcomes: &mut Vec<Outcome>) -> Result<(), KernelError> {
        let mut bytes = Vec::with_capacity(512);
        let first = self.sequence.wrapping_add(1);
        let mut open: Vec<(Request, Vec<Answer>, Option<Outcome>)> = Vec::with_capacity(part.len());
        let last = part.len().saturating_sub(1);
        for (position, request) in part.into_iter().enumerate() {
            // The kernel answers in order, and errors come unasked: when the last is acknowledged, all are.
            let ack = if position == last { NLM_F_ACK } else { 0 };
            self.encode(&request, NLM_F_REQUEST | ack | request.flags, &mut bytes);
            open.push((request, Vec::new(), None));
        }
        let name = open.first().map_or(("send", ""), |(r, ..)| (r.operation, r.object.as_str()));
        self.send(&bytes).map_err(|errno| KernelError::new(errno as i32, name.0, name.1))?;
        while open.last().is_some_and(|(.., outcome)| outcome.is_none()) {
            let length = self.receive().map_err(|errno| unanswered(errno, &open))?;
            for message in Messages::new(&self.buffer[..length]) {
                let slot = message.sequence.wrapping_sub(first) as usize;
                // Another sequence number is the late answer to a request that was given up.
                let Some((request, answers, outcome)) = open.get_mut(slot) else { continue };
                match message.kind {
                    NLMSG_NOOP | NLMSG_DONE => {}
                    NLMSG_ERROR if outcome.is_none() => {
                        *outcome = Some(match message.error(HEADER_BEHIND_ERROR) {
                            None => Ok(std::mem::take(answers)),
                            Some(refusal) => Err(refusal.into_error(request.operation, &request.object)),
                        });
                    }
                    _ => answers.push(message.body.to_vec()),
                }
            }
        }
        outcomes.extend(open.into_iter().map(|(_, answers, outcome)| outcome.unwrap_or(Ok(answers))));
        Ok(())
    }

    /// One reading; none when a change got in its way.
    fn dump_once(&mut self, request: &Request) -> Result<Option<Vec<Answer>>, KernelError> {
        let fail = |errno: Errno| KernelError::new(errno as i32, request.operation, request.object.as_str());
        let mut bytes = Vec::with_capacity(64);
        self.encode(request, NLM_F_REQUEST | NLM_F_DUMP, &mut bytes);
        let sequence = self.sequence;
        self.send(&bytes).map_err(fail)?;
        let (mut answers, mut consistent, mut done) = (Vec::new(), true, false);
        while !done {
            let length = self.receive().map_err(fail)?;
            for message in Messages::new(&self.buffer[..length]).filter(|m| m.sequence == sequence) {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_NOOP => {}
                    NLMSG_OVERRUN => return Err(fail(Errno::EOVERFLOW)),
                    NLMSG_DONE => {
                        done = true;
                        if let Some(refusal) = message.error(0) {
                            return Err(refusal.into_error(request.operation, &request.object));
                        }
                    }
                    NLMSG_ERROR => {
                        done = true;
                        if let Some(refusal) = message.error(HEADER_BEHIND_ERROR) {
                            return Err(refusal.into_error(request.operation, &request.object));
                        }
                    }
                    _ => answers.push(message.body.to_vec()),
                }
            }
        }
        Ok(consistent.then_some(answers))
    }

    /// Appends the message under the next sequence number.
    fn encode(&mut self, request: &Request, flags: u16, bytes: &mut Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1);
        let payload = NetlinkPayload::from(request.message.clone());
        let mut message = NetlinkMessage::new(netlink_packet_core::NetlinkHeader::default(), payload);
        message.header.flags = flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let start = bytes.len();
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        loop {
            match self.inner.send(bytes, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)),
            }
        }
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        receive(&self.inner, &mut self.buffer).map_err(|errno| match errno {
            Errno::EAGAIN => Errno::ETIMEDOUT,
            other => other,
        })
    }
}

/// Reads one datagram, whole. One that is larger than the buffer is lost, and the buffer then grows to hold
/// the next of its size: `EMSGSIZE`, and the caller asks again.
pub(super) fn receive(socket: &impl AsFd, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    loop {
        match recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
            Ok(length) if length <= buffer.len() => return Ok(length),
            Ok(length) => {
                buffer.resize(length.next_power_of_two(), 0);
                return Err(Errno::EMSGSIZE);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn unanswered(errno: Errno, open: &[(Request, Vec<Answer>, Option<Outcome>)]) -> KernelError {
    let request = open.iter().find(|(.., outcome)| outcome.is_none()).map(|(request, ..)| request);
    let (operation, object) = request.map_or(("read answer", ""), |r| (r.operation, r.object.as_str()));
    KernelError::new(errno as i32, operation, object)
}

/// One message of a datagram.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    flags: u16,
    sequence: u32,
    pub(super) body: &'a [u8],
}

/// In an error, the header of the request stands between the number and the attributes.
const HEADER_BEHIND_ERROR: usize = HEADER;

impl Message<'_> {
    /// What an error or the end of a dump says; none when all is well. `behind` is what stands between the
    /// number and the attributes.
    fn error(&self, behind: usize) -> Option<Refusal> {
        let code =
            self.body.get(..4).map_or(0, |code| i32::from_ne_bytes([code[0], code[1], code[2], code[3]]));
        if code >= 0 {
            return None;
        }
        let skip = match behind {
            0 => 0,
            header if self.flags & NLM_F_CAPPED != 0 => header,
            _ => read_u32(self.body, 4).map_or(0, |length| (length as usize).next_multiple_of(4)),
        };
        let attributes = self.body.get(4 + skip..).filter(|_| self.flags & NLM_F_ACK_TLVS != 0);
        Some(Refusal { errno: code.saturating_neg(), text: attributes.and_then(extended_ack) })
    }
}

struct Refusal {
    errno: i32,
    text: Option<String>,
}

impl Refusal {
    fn into_error(self, operation: &'static str, object: &str) -> KernelError {
        KernelError { errno: self.errno, operation, object: object.to_owned(), text: self.text }
    }
}

fn extended_ack(attributes: &[u8]) -> Option<String> {
    super::parse::attributes(attributes)
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, value)| super::parse::text(value))
        .filter(|text| !text.is_empty())
}

/// The messages of a datagram, up to the first that is not whole.
pub(super) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    pub(super) fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = read_u32(self.0, 0)? as usize;
        let message = self.0.get(..length).filter(|_| length >= HEADER)?;
        let kind_and_flags = read_u32(message, 4)?.to_ne_bytes();
        let sequence = read_u32(message, 8)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([kind_and_flags[0], kind_and_flags[1]]),
            flags: u16::from_ne_bytes([kind_and_flags[2], kind_and_flags[3]]),
            sequence,
            body: &message[HEADER..],
        })
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_extended_acknowledgement_is_found_behind_a_capped_and_a_whole_request() {
        for (flags, request) in [(NLM_F_CAPPED, 16_u32), (0, 40)] {
            let mut body = (-22_i32).to_ne_bytes().to_vec();
            body.extend(request.to_ne_bytes());
            body.resize(4 + if flags == 0 { 40 } else { 16 }, 0);
            body.extend(attribute(2, &[1, 0, 0, 0]));
            body.extend(attribute(NLMSGERR_ATTR_MSG, b"Invalid MTU\0"));
            let bytes = message(NLMSG_ERROR, flags | NLM_F_ACK_TLVS, 7, &body);
            let found = Messages::new(&bytes).next().unwrap();
            let refusal = found.error(HEADER_BEHIND_ERROR).unwrap();
            assert_eq!((found.sequence, refusal.errno), (7, 22));
            assert_eq!(refusal.text.as_deref(), Some("Invalid MTU"));
        }
    }

    #[test]
    fn an_acknowledgement_is_no_error_and_half_a_message_is_none() {
        let mut bytes = message(NLMSG_ERROR, NLM_F_CAPPED, 1, &[0; 20]);
        bytes.extend(&message(NLMSG_DONE, 0, 2, &[0; 4])[..10]);
        let found: Vec<_> = Messages::new(&bytes).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].error(HEADER_BEHIND_ERROR).is_none());
        assert_eq!(Messages::new(&[3, 0, 0, 0, 0, 0]).count(), 0);
        assert_eq!(Messages::new(&[0; 32]).count(), 0);
    }

    #[test]
    fn every_request_of_a_batch_has_its_own_outcome() {
        use super::super::message::link_by_name;
        let mut socket = Socket::open().unwrap();
        let batch = |names: &[&str]| names.iter().map(|name| link_by_name(name)).collect();
        for names in [["lo", "hc-nowhere", "lo"], ["hc-nowhere", "lo", "lo"], ["lo", "lo", "hc-nowhere"]] {
            let outcomes = socket.batch(batch(&names)).unwrap();
            let found: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().map(Vec::len).ok()).collect();
            assert_eq!(found, names.map(|name| (name == "lo").then_some(1)));
        }
        assert_eq!(socket.batch(batch(&["lo"; 150])).unwrap().len(), 150);
        assert!(socket.batch(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn a_refusal_carries_the_kernels_words() {
        let mut socket = Socket::open().unwrap();
        let request = super::super::message::link_by_name("hc-nowhere");
        let error = socket.one(request).err().unwrap();
        assert_eq!(error.errno, Errno::ENODEV as i32);
        assert!(error.is_missing());
        assert!(error.to_string().starts_with("cannot look up link hc-nowhere: "), "{error}");
    }
}
