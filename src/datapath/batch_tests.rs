use std::fmt::Write;

use super::*;
use crate::datapath::elements::{PortMap, Protocol};

fn hex(bytes: &[u8]) -> String {
    bytes.chunks(16).fold(String::new(), |mut text, row| {
        for byte in row {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
        text
    })
}

fn port_map(port: u16) -> Element {
    let pod_address = "10.1.0.2".parse().unwrap();
    let map =
        PortMap { protocol: Protocol::Tcp, host_address: None, host_port: port, pod_address, pod_port: 8080 };
    map.element().unwrap()
}

#[test]
fn the_bytes_of_a_batch_are_these() {
    let mut batch = ElementBatch::new();
    batch.add(port_map(80)).delete(port_map(81));
    let bytes = nfnl::encode_batch(batch.messages(), 7);
    // Begin (subsystem 10), NFT_MSG_NEWSETELEM with NLM_F_CREATE, NFT_MSG_DELSETELEM with NLM_F_ACK, end.
    // Seen to be what the kernel takes by tests/net_nft.rs; little endian.
    let golden = "\
        14000000100001000700000000000000\n\
        0000000a580000000c0a010408000000\n\
        00000000010000000c000100686f7374\n\
        636e69000d000200706f72746d617034\n\
        00000000280003802400018010000180\n\
        0c000100060000000050000010000280\n\
        0c0001000a0100021f90000048000000\n\
        0e0a0500090000000000000001000000\n\
        0c000100686f7374636e69000d000200\n\
        706f72746d6170340000000018000380\n\
        14000180100001800c00010006000000\n\
        0051000014000000110001000a000000\n\
        000000000000000a\n";
    assert_eq!(hex(&bytes), golden);
}

#[test]
fn the_same_change_twice_is_one() {
    let mut batch = ElementBatch::new();
    batch.delete(port_map(80)).delete(port_map(80)).add(port_map(80));
    assert_eq!(batch.len(), 2);
}

#[test]
fn what_a_refusal_means_is_told_by_errno_direction_and_offset() {
    let mut batch = ElementBatch::new();
    batch.add(port_map(80)).delete(port_map(81));
    let kind = |index, errno, offset| {
        batch.refusal(Some(index), Ack { sequence: 0, errno, text: None, offset }).kind
    };
    assert_eq!(kind(0, libc::EEXIST, Some(52)), RefusalKind::Conflict);
    assert_eq!(kind(0, libc::ENOENT, None), RefusalKind::TableMissing);
    assert_eq!(kind(1, libc::ENOENT, Some(20)), RefusalKind::TableMissing);
    assert_eq!(kind(1, libc::ENOENT, Some(52)), RefusalKind::Missing);
    assert_eq!(kind(1, libc::ENOENT, None), RefusalKind::MissingOrTable);
    assert_eq!(kind(0, libc::EPERM, None), RefusalKind::Other);
}
