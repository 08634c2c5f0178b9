//! A thin synchronous nfnetlink socket: requests, dumps, batches, and the kernel's answers in full.
//!
//! Owns sequence numbers and the reading of acknowledgements (errno, extended text, offset of the offending
//! attribute). Knows no table and no element. A request does its work inside `sendmsg`, so whoever calls
//! this is on a thread of its own, never on the runtime's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
    NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily, NetfilterSubsystem,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::error::{KernelError, Result};

/// The kernel answers before `sendmsg` returns; a receive that takes longer means a lost answer.
const RECEIVE_TIMEOUT_SECONDS: i64 = 5;
/// A batch and the acknowledgements of a refused one have to fit; the system's default is 208 KiB, about
/// 1,300 elements.
const BUFFER: usize = 4 << 20;
/// What the kernel sends at once is smaller: a part of a dump (`netlink_recvmsg()`) and an event (`NLMSG_GOODSIZE`).
const DATAGRAM: usize = 32 << 10;
/// A message's header, and the netfilter header after it.
pub(super) const NLMSG_HEADER: usize = 16;
pub(super) const NFGEN_HEADER: usize = 4;
/// Attributes of an extended acknowledgement (`linux/netlink.h`).
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// What the kernel said about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ack {
    /// The message's sequence number.
    pub sequence: u32,
    /// 0, or the errno, positive.
    pub errno: i32,
    /// The extended acknowledgement's words.
    pub text: Option<String>,
    /// Where in the request, in bytes from its start, the offending attribute is.
    pub offset: Option<u32>,
}

/// One message as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw {
    /// `subsystem << 8 | message`.
    pub kind: u16,
    /// The port of the socket on whose behalf it was sent.
    pub port: u32,
    /// The netfilter header's family.
    pub family: u8,
    /// The attributes.
    pub attributes: Vec<u8>,
}

/// An open nfnetlink socket of the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct NfSocket {
    socket: Socket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl AsFd for NfSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NfSocket {
    /// Opens, binds, and asks for extended acknowledgements without the request quoted back.
    pub fn open() -> Result<Self> {
        let fail = |error: &io::Error| KernelError::from_io(error, "open", "an nfnetlink socket");
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(|e| fail(&e))?;
        let address = socket.bind_auto().map_err(|e| fail(&e))?;
        socket.set_ext_ack(true).map_err(|e| fail(&e))?;
        socket.set_cap_ack(true).map_err(|e| fail(&e))?;
        let timeout = TimeVal::new(RECEIVE_TIMEOUT_SECONDS, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeout).map_err(|e| fail(&e.into()))?;
        // Needs CAP_NET_ADMIN in the initial user namespace; without it the default size has to do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
        let _ = setsockopt(&socket, sockopt::SndBufForce, &BUFFER);
        Ok(Self { socket, port: address.port_number(), sequence: 0, buffer: Vec::with_capacity(DATAGRAM) })
    }

    /// The socket's netlink port: what the kernel names as the author of a change.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// The plain socket, for what is not a request (joining a group).
    pub fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Sends one request and gives the objects it answers with. `object` is named in errors.
    pub fn request(
        &mut self,
        message: NetfilterMessage,
        dump: bool,
        operation: &'static str,
        object: &str,
    ) -> Result<Vec<Raw>> {
        let flags = NLM_F_REQUEST | if dump { NLM_F_DUMP } else { NLM_F_ACK };
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        push(&mut bytes, message, flags, sequence);
        self.send(&bytes).map_err(|e| KernelError::from_io(&e, operation, object))?;
        let mut found = Vec::new();
        loop {
            let received = self.receive().map_err(|e| KernelError::from_io(&e, operation, object))?;
            for message in messages(&received) {
                if message.sequence_number() != sequence {
                    continue;
                }
                match message.message_type() {
                    NLMSG_NOOP => {}
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => {
                        let ack = ack(&message);
                        if ack.errno == 0 {
                            return Ok(found);
                        }
                        let error = KernelError::new(ack.errno, operation, object);
                        return Err(error.with_text(ack.text.unwrap_or_default()));
                    }
                    _ => found.extend(raw(&message)),
                }
            }
        }
    }

    /// Sends `messages` as one transaction of nftables. Gives the acknowledgements that are errors, with the
    /// index of the message each is about; `None` is the batch as a whole. Empty means: all of it is done.
    pub fn batch(&mut self, changes: Vec<(NetfilterMessage, u16)>) -> io::Result<Vec<(Option<usize>, Ack)>> {
        let count = u32::try_from(changes.len()).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let begin = self.next_sequence();
        let bytes = encode_batch(changes, begin);
        let last = begin + count;
        self.sequence = last + 1;
        self.send(&bytes)?;
        let mut refused = Vec::new();
        loop {
            let received = self.receive()?;
            for message in messages(&received) {
                let sequence = message.sequence_number();
                if message.message_type() != NLMSG_ERROR || sequence < begin || sequence > last + 1 {
                    continue;
                }
                let ack = ack(&message);
                if ack.errno != 0 {
                    let index = (sequence > begin).then(|| (sequence - begin - 1) as usize);
                    refused.push((index, ack));
                    if sequence == begin {
                        return Ok(refused); // no subsystem, no memory or a failed commit: more may not come
                    }
                }
                if sequence == last {
                    return Ok(refused);
                }
            }
        }
    }

    /// One datagram: one or more messages.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, nix::libc::MSG_TRUNC) {
                Ok((length, _)) if length > self.buffer.len() => {
                    return Err(io::Error::from_raw_os_error(nix::libc::EMSGSIZE));
                }
                Ok((_, from)) if from.port_number() == 0 => return Ok(self.buffer.clone()),
                Ok(_) => {} // another process wrote to our port: not the kernel's word
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::from_raw_os_error(nix::libc::ETIMEDOUT));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
                Ok(_) => return Ok(()), // a datagram: whole or not at all
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Numbers wrap after four billion requests; a batch must not straddle that.
    fn next_sequence(&mut self) -> u32 {
        self.sequence = if self.sequence > u32::MAX / 2 { 1 } else { self.sequence + 1 };
        self.sequence
    }
}

/// The bytes of a transaction: begin, the changes with `begin + 1 + index` as their numbers, end. Only the
/// last change asks for an acknowledgement: the kernel answers in order, and errors come unasked.
pub(super) fn encode_batch(changes: Vec<(NetfilterMessage, u16)>, begin: u32) -> Vec<u8> {
    let count = changes.len();
    let mut bytes = Vec::with_capacity(64 + count * 160);
    push(&mut bytes, control(ControlMessage::BatchBegin), NLM_F_REQUEST, begin);
    let mut sequence = begin;
    for (index, (message, flags)) in changes.into_iter().enumerate() {
        sequence += 1;
        let ack = if index + 1 == count { NLM_F_ACK } else { 0 };
        push(&mut bytes, message, flags | NLM_F_REQUEST | ack, sequence);
    }
    push(&mut bytes, control(ControlMessage::BatchEnd), NLM_F_REQUEST, sequence + 1);
    bytes
}

/// The messages of a datagram; a malformed rest is dropped.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(rest).ok()?;
        let length = (message.length() as usize).max(NLMSG_HEADER);
        rest = rest.get((length + 3) & !3..).unwrap_or_default();
        Some(message)
    })
}

/// A netfilter message taken apart, if it is one.
pub(super) fn raw(message: &NetlinkBuffer<&[u8]>) -> Option<Raw> {
    let payload = message.payload();
    let header = NetfilterHeader::parse(payload).ok()?;
    Some(Raw {
        kind: message.message_type(),
        port: message.port_number(),
        family: header.family.into(),
        attributes: payload[NFGEN_HEADER..].to_vec(),
    })
}

/// The attributes of a message or of a nest; a malformed rest is dropped.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(bytes).map_while(std::result::Result::ok)
}

/// The value of the attribute `kind`, if there is one.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|nla| nla.kind() == kind).map(|nla| value(nla.into_inner()))
}

/// An attribute's value: `NlaBuffer::value` borrows from the buffer and not from what is below it.
fn value(nla: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_ne_bytes([nla[0], nla[1]])).clamp(4, nla.len());
    &nla[4..length]
}

/// A string attribute's text: without the terminating zero.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn ack(message: &NetlinkBuffer<&[u8]>) -> Ack {
    let payload = message.payload();
    let code = payload.first_chunk::<4>().map_or(-nix::libc::EBADMSG, |b| i32::from_ne_bytes(*b));
    let mut ack =
        Ack { sequence: message.sequence_number(), errno: code.wrapping_neg(), text: None, offset: None };
    if message.flags() & NLM_F_ACK_TLVS == 0 {
        return ack;
    }
    // errno, then the request: its header alone when capped (an error whose cap was not granted: all of it).
    let quoted =
        payload.get(4..8).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_ne_bytes(*b) as usize);
    let skip =
        if message.flags() & NLM_F_CAPPED != 0 || code == 0 { NLMSG_HEADER } else { (quoted + 3) & !3 };
    let tlvs = payload.get(4 + skip..).unwrap_or_default();
    ack.text = attribute(tlvs, NLMSGERR_ATTR_MSG).map(text);
    ack.offset = attribute(tlvs, NLMSGERR_ATTR_OFFS)
        .and_then(|v| v.first_chunk::<4>())
        .map(|b| u32::from_ne_bytes(*b));
    ack
}

fn control(message: ControlMessage) -> NetfilterMessage {
    // The batch's header names the subsystem it is for.
    let subsystem = u16::from(u8::from(NetfilterSubsystem::NfTables));
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem), message)
}

fn push(bytes: &mut Vec<u8>, message: NetfilterMessage, flags: u16, sequence: u32) {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message: NetlinkMessage<NetfilterMessage> =
        NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let start = bytes.len();
    bytes.resize(start + ((message.buffer_len() + 3) & !3), 0);
    message.serialize(&mut bytes[start..]);
}

/// A message of `family` with netfilter's version 0.
pub(super) fn message(
    family: NetfilterProtoFamily,
    inner: impl Into<NetfilterMessageInner>,
) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_acknowledgement_is_read_in_full() {
        let mut payload = (-17i32).to_ne_bytes().to_vec();
        payload.extend([0u8; NLMSG_HEADER]);
        payload.extend([8, 0, 1, 0, b'o', b'h', b'o', 0]);
        payload.extend([8, 0, 2, 0]);
        payload.extend(20u32.to_ne_bytes());
        let mut bytes = u32::try_from(payload.len() + NLMSG_HEADER).unwrap().to_ne_bytes().to_vec();
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend((NLM_F_ACK_TLVS | NLM_F_CAPPED).to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        let all: Vec<_> = messages(&bytes).map(|m| ack(&m)).collect();
        assert_eq!(all, [Ack { sequence: 7, errno: 17, text: Some("oho".into()), offset: Some(20) }]);
    }

    #[test]
    fn a_damaged_datagram_ends_the_reading_and_nothing_else() {
        assert_eq!(messages(&[]).count(), 0);
        assert_eq!(messages(&[1, 2, 3]).count(), 0);
        assert_eq!(messages(&[0xff; 64]).count(), 0);
        assert_eq!(attribute(&[3, 0, 1, 0, 9], 1), None);
        assert_eq!(attribute(&[9, 0, 1, 0, 9], 1), None);
        assert_eq!(attribute(&[5, 0, 1, 0, 9], 1), Some(&[9u8][..]));
    }
}
