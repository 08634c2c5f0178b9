//! The promises of records, store and spool, on a real file system.

mod disk;
mod names;
mod records;
mod slots;
mod spool;
mod store;
mod whatever;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::cni::{AddResult, AttachmentKey, CniVersion, MacAddr, PodIdentity, PortMapping};

fn key(container: &str) -> AttachmentKey {
    AttachmentKey {
        network: "openshift-sdn".parse().unwrap(),
        container_id: container.parse().unwrap(),
        ifname: "eth0".parse().unwrap(),
    }
}

fn at(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

/// A record with a value in every field.
fn full(container: &str) -> Attachment {
    let mapping = r#"{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}"#;
    let result = r#"{"ips": [{"address": "10.128.0.5/23", "gateway": "10.128.0.1"}]}"#;
    Attachment {
        state: State::Ready,
        created: at(1_764_569_485_123_456),
        netns: Some("/run/netns/x".to_owned()),
        netns_id: Some(NetnsId::of((4, 4_026_532_000))),
        addresses: vec!["10.128.0.5/23".parse().unwrap(), "fd01::5/64".parse().unwrap()],
        gateways: vec!["10.128.0.1".parse().unwrap(), "fd01::1".parse().unwrap()],
        mac: Some(MacAddr::new([0x0a, 0x58, 10, 128, 0, 5])),
        mtu: Some(1450),
        pod: Some(PodIdentity {
            namespace: "shop".to_owned(),
            name: "db-0".to_owned(),
            uid: "u-1".to_owned(),
        }),
        cni_version: CniVersion::V0_4_0,
        result: Some(serde_json::from_str::<AddResult>(result).unwrap()),
        port_mappings: vec![serde_json::from_str::<PortMapping>(mapping).unwrap()],
        ..Attachment::new(key(container))
    }
}

fn del(container: &str, micros: u64) -> SpooledDel {
    SpooledDel {
        version: SpooledDel::FORMAT,
        at: at(micros),
        key: key(container),
        args: "K8S_POD_NAME=db-0".to_owned(),
        config: r#"{"cniVersion": "1.10", "name": "openshift-sdn"}"#.to_owned(),
        netns: Some("/run/netns/x".to_owned()),
    }
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The only file in a directory.
fn only(directory: &Path) -> PathBuf {
    let names = names(directory);
    assert_eq!(names.len(), 1, "{names:?}");
    directory.join(&names[0])
}

/// Puts what never was ours into a directory, and says what must be told of it.
fn foreign(directory: &Path) -> Vec<(OsString, &'static str)> {
    let longest = OsString::from_vec(vec![0xff; 255]);
    let upper = OsString::from(format!("{}.json", "ABCD".repeat(8)));
    for name in ["README".into(), ".hidden".into(), ".json".into(), longest.clone(), upper.clone()] {
        fs::write(directory.join::<OsString>(name), "hello").unwrap();
    }
    fs::create_dir_all(directory.join("folder/full/of")).unwrap();
    fs::create_dir_all(directory.join(".tmp-folder")).unwrap();
    symlink("/etc/passwd", directory.join(".tmp-link")).unwrap();
    symlink("nowhere", directory.join("dangling")).unwrap();
    let names = ["README", ".hidden", ".json", "folder", ".tmp-folder", ".tmp-link", "dangling"];
    names
        .map(OsString::from)
        .into_iter()
        .chain([longest, upper])
        .map(|name| (name, "is not a file of hostcni's"))
        .collect()
}

/// Each wrong file was told with its reason, and nothing else was.
#[track_caller]
fn told(set_aside: &[(PathBuf, String)], mut wrong: Vec<(OsString, &'static str)>) {
    let mut found: Vec<(OsString, &str)> =
        set_aside.iter().map(|(path, why)| (path.file_name().unwrap().to_owned(), why.as_str())).collect();
    found.sort();
    wrong.sort();
    assert_eq!(found.len(), wrong.len(), "{found:#?}");
    for ((name, why), (expected, part)) in found.iter().zip(&wrong) {
        assert_eq!(name, expected);
        assert!(why.contains(part) && !why.contains("cannot be moved"), "{name:?}: {why}");
    }
}
