//! Tests of the room. Those that are files in, text out are folders in `tests/trees/`.

#![allow(clippy::unwrap_used)] // a test says what it expects by failing

use super::fragment::{BlockFragment, Fragment, RangeFragment, RouteFragment, Table};
use super::{Merged, Origin, Settings, SettingsError, decode, files, input, load, model};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const VENDOR: &str = "packaging/usr/lib/hostcni/config.toml";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(text: &str) -> Arc<files::Source> {
    Arc::new(files::Source { path: "/f.toml".into(), text: text.into() })
}

/// As [`super::merge`] of one file with this text.
fn merged(text: &str) -> Result<Merged, SettingsError> {
    let (mut problems, source) = (Vec::new(), source(text));
    let fragment = decode::decode(&source, &mut problems);
    let input = input::Input::merge(vec![(fragment, source)], &mut problems);
    if problems.is_empty() {
        Ok(Merged { input, files: Vec::new() })
    } else {
        Err(SettingsError::new(problems))
    }
}

fn settings(text: &str) -> Result<Settings, SettingsError> {
    merged(text).and_then(|merged| merged.validate())
}

/// The vendor's file with its options in force: `#key = value` is one, `# Text` is not. Those without a default are
/// marked, and come along when `all`.
fn uncommented(all: bool) -> String {
    let text = fs::read_to_string(repository().join(VENDOR)).unwrap();
    text.lines()
        .filter_map(|line| {
            let option = line.strip_prefix('#').filter(|rest| !rest.is_empty() && !rest.starts_with(' '));
            match option {
                Some(option) if option.ends_with("# no default") && !all => None,
                Some(option) => Some(format!("{option}\n")),
                None => Some(format!("{line}\n")),
            }
        })
        .collect()
}

#[test]
fn the_vendors_file_as_shipped_changes_nothing() {
    let text = fs::read_to_string(repository().join(VENDOR)).unwrap();
    let shipped = merged(&text).unwrap();
    assert_eq!(shipped.validate().unwrap(), settings("").unwrap());
    assert!(shipped.origins().entries().iter().all(|entry| entry.origin == Origin::Default));
}

#[test]
fn the_vendors_file_uncommented_says_what_the_code_does() {
    let text = uncommented(false);
    assert_eq!(settings(&text).unwrap(), settings("").unwrap());
    for entry in merged(&text).unwrap().origins().entries() {
        // The long forms are empty by default, and stand there as examples.
        let example = matches!(entry.option.as_str(), "range" | "route" | "block");
        let mentioned = entry.origin != Origin::Default;
        assert_eq!(mentioned, entry.value.is_some() && !example, "{} in {VENDOR}", entry.key());
    }
}

#[test]
fn the_vendors_file_mentions_every_option_with_a_value_that_is_allowed() {
    let text = uncommented(true).replace("subnets = [\"10.128.0.0/23\"]", "subnets = []");
    assert!(settings(&text).is_ok(), "{}", settings(&text).unwrap_err());
    for entry in merged(&text).unwrap().origins().entries() {
        assert!(entry.origin != Origin::Default && entry.value.is_some(), "{} in {VENDOR}", entry.key());
    }
    let fragment: Fragment = decode::decode(&source(&text), &mut Vec::new());
    let Table(network) = fragment.network[0].get_ref();
    // Without `..`: an option that is added must be mentioned.
    let Table(RangeFragment { subnet, range_start, range_end, gateway, exclude, set }) =
        network.range.as_ref().unwrap().get_ref()[0].get_ref();
    assert!(subnet.is_some() && range_start.is_some() && range_end.is_some() && gateway.is_some());
    assert!(!exclude.is_empty() && set.is_some());
    let Table(RouteFragment { dst, gateway, mtu, advmss, priority }) =
        network.route.as_ref().unwrap().get_ref()[0].get_ref();
    assert!(dst.is_some() && gateway.is_some() && mtu.is_some() && advmss.is_some() && priority.is_some());
    let blocks = network.block.as_ref().unwrap().get_ref();
    let Table(BlockFragment { to, ports, except: _ }) = blocks[0].get_ref();
    assert!(to.is_some() && ports.is_some() && blocks[1].get_ref().0.except.is_some());
}

#[test]
fn every_example_is_a_configuration() {
    let directory = repository().join("packaging/usr/share/doc/hostcni/examples");
    let mut seen = 0;
    for example in fs::read_dir(directory).unwrap() {
        let path = example.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(settings(&text).is_ok(), "{}: {}", path.display(), settings(&text).unwrap_err());
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn subnets_of_two_families_give_every_pod_two_addresses() {
    let text = "[[network]]\nname = \"a\"\nsubnets = [\"fd01::/64\", \"10.0.0.0/24\", \"10.9.0.0/24\"]";
    let model::DriverSettings::Bridge(bridge) = settings(text).unwrap().networks.remove(0).driver else {
        panic!("a bridge is the default")
    };
    let sets: Vec<Vec<String>> = bridge
        .ranges
        .iter()
        .map(|set| set.ranges().iter().map(|range| range.subnet().to_string()).collect())
        .collect();
    assert_eq!(sets, [vec!["fd01::/64"], vec!["10.0.0.0/24", "10.9.0.0/24"]]);
}

#[test]
fn a_networks_mac_address_never_changes() {
    let mac = |name: &str| model::bridge_mac(&name.parse().unwrap()).to_string();
    assert_eq!(mac("openshift-sdn"), MAC_OF_OPENSHIFT_SDN);
    assert_ne!(mac("openshift-sdn"), mac("openshift-sdm"));
}

/// A bridge of that name has it on every node; changing it would cut running pods off.
const MAC_OF_OPENSHIFT_SDN: &str = "0e:d5:f3:95:72:79";

#[test]
fn times_are_read_in_all_their_forms() {
    for (text, millis) in [
        ("45s", 45_000),
        ("500ms", 500),
        ("2min", 120_000),
        ("2 min", 120_000),
        ("1m", 60_000),
        ("1h", 3_600_000),
        ("7", 7_000),
    ] {
        assert_eq!(super::parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in
        ["", "s", "-1s", "1.5s", "1d", "٣s", "45 s s", "99999999999999999999s", "18446744073709551615h"]
    {
        assert!(super::parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn an_option_is_found_by_its_key_with_and_without_the_network() {
    let origins = merged("[[network]]\nname = \"a.b\"\nconf.restart = \"remove\"").unwrap().origins();
    let here = Origin::File { path: "/f.toml".into(), line: 3 };
    assert_eq!(origins.of("network.a.b.conf.restart"), Some(&here));
    for prefix in ["network.conf.restart", "network.a.b.conf.restart"] {
        assert_eq!(origins.below(prefix).unwrap().entries().len(), 1, "{prefix}");
    }
    assert_eq!(origins.below("network.conf").unwrap().entries().len(), 5);
    assert_eq!(origins.below("network.con"), Err(Some("network.conf".into())));
    assert_eq!(origins.below("nonsense"), Err(None));
    let one = origins.below("network.conf.restart").unwrap().to_toml();
    assert!(one.starts_with("[[network]]\nname = \"a.b\"\n\n[network.conf]\nrestart = \"remove\""), "{one}");
}

#[test]
fn json_names_every_option_with_its_origin() {
    let json = merged("server.workers = 4").unwrap().origins().to_json();
    let workers = json.as_array().unwrap().iter().find(|it| it["key"] == "server.workers").unwrap();
    assert_eq!(
        *workers,
        serde_json::json!({"key": "server.workers", "network": null, "value": 4, "origin": "file",
                           "file": "/f.toml", "line": 1})
    );
}

#[test]
fn a_fifo_or_a_huge_file_at_a_configurations_path_is_refused_at_once() {
    let root = tempfile::tempdir().unwrap();
    let drop_ins = root.path().join("etc/hostcni/config.d");
    fs::create_dir_all(&drop_ins).unwrap();
    nix::unistd::mkfifo(&drop_ins.join("10-fifo.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(drop_ins.join("20-huge.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    let told = load(root.path()).unwrap_err().to_string();
    assert!(told.contains("10-fifo.toml: a FIFO, not a file"), "{told}");
    assert!(told.contains("20-huge.toml: larger than"), "{told}");
}

#[test]
fn more_drop_ins_than_anyone_has_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let drop_ins = root.path().join("usr/lib/hostcni/config.d");
    fs::create_dir_all(&drop_ins).unwrap();
    for number in 0..300 {
        fs::write(drop_ins.join(format!("{number}.toml")), "").unwrap();
    }
    assert!(load(root.path()).unwrap_err().to_string().contains("300 files in config.d"));
}

#[test]
fn a_file_with_endless_problems_is_told_of_briefly() {
    let text = (0..10_000).map(|number| format!("unknown{number} = 1")).collect::<Vec<_>>().join("\n");
    let error = merged(&text).unwrap_err();
    assert!(error.problems().len() <= 51);
    assert!(error.to_string().ends_with("/f.toml:10000: more problems, not shown"));
}

#[test]
fn a_deeply_nested_file_is_an_error_and_no_crash() {
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}1", "{ a = ".repeat(100_000)),
        "a.".repeat(100_000),
    ] {
        assert!(merged(&text).is_err());
    }
}

/// The vendor's file with a line or a value changed here and there: a configuration often enough that the later stages
/// see something too.
fn likely_text() -> impl Strategy<Value = String> {
    let text = uncommented(true).replace("subnets = [\"10.128.0.0/23\"]", "subnets = []");
    let lines: Vec<String> = text.lines().filter(|it| !it.starts_with('#')).map(str::to_owned).collect();
    let values = prop::sample::select(vec![
        "",
        "0",
        "-1",
        "true",
        "nan",
        "\"\"",
        "\"\\u0000\"",
        "[]",
        "[\"10.0.0.0/8\", \"::/0\"]",
        "\"10.128.0.0/30\"",
        "{ subnet = \"fd00::/127\" }",
        "[{ subnet = \"10.0.0.0/31\" }]",
        "9223372036854775807",
        "1979-05-27",
    ]);
    prop::collection::vec(prop::option::weighted(0.02, values), lines.len()).prop_map(move |changed| {
        let line = |(line, value): (&String, Option<&str>)| match (line.split_once('='), value) {
            (_, Some("")) => String::new(),
            (Some((key, _)), Some(value)) => format!("{key}= {value}"),
            _ => line.clone(),
        };
        lines.iter().zip(changed).map(line).collect::<Vec<_>>().join("\n")
    })
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/hostcni")).unwrap();
        fs::write(root.path().join("etc/hostcni/config.toml"), bytes).unwrap();
        if let Err(error) = load(root.path()) {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(!error.to_string().contains(|c: char| c.is_control() && c != '\n'), "escaped");
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _ = settings(&text);
    }

    #[test]
    fn no_likely_text_makes_it_panic_and_what_is_shown_says_the_same(text in likely_text()) {
        if let Ok(merged) = merged(&text) {
            let shown = merged.origins().to_toml();
            prop_assert_eq!(settings(&shown).ok(), merged.validate().ok());
        }
    }
}
