//! What hostcni's nftables tables hold for an attachment.

use std::net::Ipv6Addr;

use serde_json::Value;

use crate::cni::MacAddr;
use crate::datapath::TABLE;
use crate::doctor::json;
use crate::wire::AttachmentInfo;

/// The elements that name its link or one of its addresses, one line each.
pub fn of(attachment: &AttachmentInfo) -> Vec<String> {
    let bare = |address: &String| address.split('/').next().unwrap_or_default().to_owned();
    let names: Vec<String> =
        attachment.addresses.iter().map(bare).chain([attachment.host_link.clone()]).collect();
    let tables = ["inet", "bridge"]
        .into_iter()
        .filter_map(|family| Some((family, json("nft", &["-j", "list", "table", family, TABLE])?)));
    tables.flat_map(|(family, table)| in_table(family, &table, &names)).collect()
}

fn in_table(family: &str, table: &Value, names: &[String]) -> Vec<String> {
    let objects = table["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines = Vec::new();
    let kinds = |object| ["set", "map"].into_iter().find_map(|kind| Some((kind, Value::get(object, kind)?)));
    for (kind, set) in objects.iter().filter_map(kinds) {
        let elements = set["elem"].as_array().map(Vec::as_slice).unwrap_or_default();
        for element in elements.iter().filter(|element| mentions(element, names)) {
            let name = set["name"].as_str().unwrap_or_default();
            lines.push(format!("{family} {TABLE}, {kind} {name}: {}", words(element)));
        }
    }
    lines
}

fn mentions(element: &Value, names: &[String]) -> bool {
    match element {
        Value::String(text) => names.contains(text),
        Value::Array(parts) => parts.iter().any(|part| mentions(part, names)),
        Value::Object(parts) => parts.values().any(|part| mentions(part, names)),
        _ => false,
    }
}

/// An element as `nft list` writes it.
fn words(element: &Value) -> String {
    let joined = |parts: &[Value], by: &str| parts.iter().map(words).collect::<Vec<_>>().join(by);
    match element {
        // What is part of a header field `nft` knows as a number only.
        Value::String(text) => {
            let number = text.strip_prefix("0x").and_then(|digits| u128::from_str_radix(digits, 16).ok());
            number.map_or_else(|| text.clone(), |number| Ipv6Addr::from(number).to_string())
        }
        Value::Number(number) => match number.as_u64() {
            Some(wide) if wide > u64::from(u32::MAX) => {
                let [_, _, mac @ ..] = wide.to_be_bytes();
                MacAddr::new(mac).to_string()
            }
            _ => number.to_string(),
        },
        // A map's element: key and value.
        Value::Array(parts) => joined(parts, " : "),
        Value::Object(_) => {
            if let Some(parts) = element["concat"].as_array() {
                joined(parts, " . ")
            } else if let Some(prefix) = element.get("prefix") {
                format!("{}/{}", words(&prefix["addr"]), prefix["len"])
            } else if let Some(inner) = element["elem"].get("val") {
                words(inner)
            } else {
                element.to_string()
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_found_by_what_they_mention_and_read_as_nft_writes_them() {
        let table = json!({"nftables": [
            {"metainfo": {}},
            {"set": {"name": "pods", "elem": [
                {"concat": ["hc1", "0a:58:0a:80:00:05", "10.128.0.5"]},
                {"concat": ["hc1", 11_373_249_560_578_u64, "0xfe800000000000000000000000000005"]},
                {"concat": ["hc2", "x", "10.128.0.50"]},
                {"prefix": {"addr": "10.128.0.5", "len": 32}},
            ]}},
            {"map": {"name": "ports", "elem": [[{"concat": ["tcp", 8080]}, {"elem": {"val": "10.128.0.5"}}]]}},
        ]});
        let names = ["10.128.0.5".to_owned(), "hc1".to_owned()];
        assert_eq!(
            in_table("inet", &table, &names),
            [
                "inet hostcni, set pods: hc1 . 0a:58:0a:80:00:05 . 10.128.0.5",
                "inet hostcni, set pods: hc1 . 0a:58:0a:80:00:02 . fe80::5",
                "inet hostcni, set pods: 10.128.0.5/32",
                "inet hostcni, map ports: tcp . 8080 : 10.128.0.5",
            ]
        );
    }
}
