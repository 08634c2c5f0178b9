//! The format of records and spooled DELs, across versions.

use serde_json::{Value, json};

use super::*;

fn parse(value: &Value) -> Result<Attachment, String> {
    Attachment::parse(value.to_string().as_bytes())
}

#[test]
fn the_format_is_the_one_that_was_shipped() {
    let expected = json!({
        "version": 1,
        "key": {"network": "openshift-sdn", "containerId": "pod", "ifname": "eth0"},
        "state": "ready",
        "created": 1_764_569_485_123_456_u64,
        "netns": "/run/netns/x",
        "netns_id": {"dev": 4, "ino": 4_026_532_000_u64},
        "addresses": ["10.128.0.5/23", "fd01::5/64"],
        "gateways": ["10.128.0.1", "fd01::1"],
        "mac": "0a:58:0a:80:00:05",
        "mtu": 1450,
        "host_link": host_link_name(&key("pod")),
        "pod": {"namespace": "shop", "name": "db-0", "uid": "u-1"},
        "cni_version": "0.4.0",
        "result": {"ips": [{"address": "10.128.0.5/23", "gateway": "10.128.0.1"}], "dns": {}},
        "port_mappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    });
    assert_eq!(serde_json::to_value(full("pod")).unwrap(), expected);
    assert_eq!(parse(&expected).unwrap(), full("pod"));

    let expected = json!({
        "version": 1,
        "at": 7,
        "key": {"network": "openshift-sdn", "containerId": "pod", "ifname": "eth0"},
        "args": "K8S_POD_NAME=db-0",
        "config": "{\"cniVersion\": \"1.10\", \"name\": \"openshift-sdn\"}",
        "netns": "/run/netns/x",
    });
    assert_eq!(serde_json::to_value(del("pod", 7)).unwrap(), expected);
    assert_eq!(serde_json::from_value::<SpooledDel>(expected).unwrap(), del("pod", 7));
}

#[test]
fn a_record_of_an_older_version_lacks_fields_and_is_read() {
    let old = json!({"key": serde_json::to_value(key("pod")).unwrap(), "state": "deleting"});
    let record = parse(&old).unwrap();
    let expected =
        Attachment { version: 0, state: State::Deleting, created: at(0), ..Attachment::new(key("pod")) };
    assert_eq!(record, expected);
    assert_eq!(record.host_link, host_link_name(&key("pod")));
}

#[test]
fn every_field_but_key_and_state_may_lack() {
    let whole = serde_json::to_value(full("pod")).unwrap();
    for field in whole.as_object().unwrap().keys() {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(field);
        let needed = ["key", "state"].contains(&field.as_str());
        assert_eq!(parse(&less).is_err(), needed, "{field}");
    }
    let whole = serde_json::to_value(del("pod", 7)).unwrap();
    for field in whole.as_object().unwrap().keys() {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(field);
        let needed = ["key", "at"].contains(&field.as_str());
        assert_eq!(serde_json::from_value::<SpooledDel>(less).is_err(), needed, "{field}");
    }
}

#[test]
fn a_record_of_a_newer_version_has_more_and_is_read() {
    let mut new = serde_json::to_value(full("pod")).unwrap();
    new["version"] = json!(99);
    new["cni_version"] = json!("9.0.0");
    new["colour"] = json!({"rate": 1});
    new["key"]["tenant"] = json!("x");
    new["result"]["interfaces"] = json!([{"name": "eth0", "colour": "red"}]);
    let record = parse(&new).unwrap();
    assert_eq!(record.version, 99);
    assert_eq!(record.cni_version, CniVersion::CURRENT);
    assert_eq!(record.addresses, full("pod").addresses);

    let mut new = serde_json::to_value(del("pod", 7)).unwrap();
    new["reason"] = json!(["x"]);
    assert_eq!(serde_json::from_value::<SpooledDel>(new).unwrap(), del("pod", 7));
}

#[test]
fn a_record_with_another_links_name_is_none() {
    for link in ["eth0", "hostcni0", &host_link_name(&key("other"))] {
        let mut record = serde_json::to_value(full("pod")).unwrap();
        record["host_link"] = json!(link);
        let why = parse(&record).unwrap_err();
        assert!(why.starts_with("names link"), "a DEL would take {link} away: {why}");
    }
}

#[test]
fn a_record_with_an_impossible_value_is_none() {
    for (field, value) in [
        ("state", json!("sleeping")),
        ("state", json!(1)),
        ("addresses", json!(["10.0.0.1"])),
        ("addresses", json!(["10.0.0.1/33"])),
        ("gateways", json!(["x"])),
        ("mac", json!("x")),
        ("mtu", json!(-1)),
        ("created", json!(-1)),
        ("created", json!("yesterday")),
        ("key", json!({"network": "../x", "containerId": "pod", "ifname": "eth0"})),
    ] {
        let mut record = serde_json::to_value(full("pod")).unwrap();
        record[field] = value.clone();
        assert!(parse(&record).is_err(), "{field} = {value}");
    }
}

#[test]
fn any_moment_survives_a_file_to_the_microsecond() {
    for (moment, back) in [
        (at(0), at(0)),
        (at(1), at(1)),
        (at(1_764_569_485_123_456) + Duration::from_nanos(999), at(1_764_569_485_123_456)),
        (UNIX_EPOCH - Duration::from_secs(9), at(0)),
    ] {
        let record = Attachment { created: moment, ..full("pod") };
        let text = serde_json::to_vec(&record).unwrap();
        assert_eq!(Attachment::parse(&text).unwrap().created, back);
    }
    let mut record = serde_json::to_value(full("pod")).unwrap();
    record["created"] = json!(u64::MAX);
    assert!(parse(&record).is_ok(), "a moment of the far future is no reason to lose the record");
}
