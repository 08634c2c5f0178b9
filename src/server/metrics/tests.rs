use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::cni::Command;
use crate::datapath::{Spent, Thread};

/// With everything that appears only when it happens.
fn eventful() -> Metrics {
    let metrics = Metrics::default();
    metrics.requests.answered(Some(Command::Add), None, Duration::from_millis(3));
    metrics.requests.answered(Some(Command::Add), Some(100), Duration::from_millis(2));
    metrics.requests.answered(Some(Command::Del), Some(4711), Duration::from_millis(2));
    metrics.requests.answered(None, Some(6), Duration::from_millis(1));
    metrics.repaired(Repair::Nftables);
    metrics.replayed(true);
    metrics.replayed(false);
    metrics.ready_after(Duration::from_millis(45));
    metrics.restarted(3);
    metrics.reconciled(&Reconciled { kept: 2, failures: vec![String::new()], ..Reconciled::default() });
    metrics.threads.observer()(Thread::Links, Spent::Working, Duration::from_millis(20));
    metrics.facts.example();
    metrics
}

/// The value of a line, by its name and labels.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
}

#[test]
fn what_happened_is_what_is_read() {
    let metrics = eventful();
    let under_way = metrics.requests.begin(Command::Del);
    let text = metrics.write(Format::OpenMetrics);
    for (series, expected) in [
        ("hostcni_request_duration_seconds_count{verb=\"ADD\",outcome=\"ok\"}", 1.0),
        ("hostcni_request_duration_seconds_sum{verb=\"ADD\",outcome=\"100\"}", 0.002),
        ("hostcni_request_duration_seconds_bucket{le=\"0.0025\",verb=\"ADD\",outcome=\"ok\"}", 0.0),
        ("hostcni_request_duration_seconds_bucket{le=\"0.005\",verb=\"ADD\",outcome=\"ok\"}", 1.0),
        ("hostcni_request_duration_seconds_count{verb=\"DEL\",outcome=\"other\"}", 1.0),
        ("hostcni_request_duration_seconds_count{verb=\"other\",outcome=\"6\"}", 1.0),
        ("hostcni_request_duration_seconds_count{verb=\"GC\",outcome=\"ok\"}", 0.0),
        ("hostcni_requests_in_flight{verb=\"DEL\"}", 1.0),
        ("hostcni_repairs_total{object=\"nftables\"}", 1.0),
        ("hostcni_repairs_total{object=\"conf\"}", 0.0),
        ("hostcni_spool_replays_total{outcome=\"failed\"}", 1.0),
        ("hostcni_time_to_ready_seconds", 0.045),
        ("hostcni_service_restarts_total", 3.0),
        ("hostcni_reconciled{result=\"kept\"}", 2.0),
        ("hostcni_reconciled{result=\"failed\"}", 1.0),
        ("hostcni_netlink_work_seconds_sum{thread=\"links\"}", 0.02),
        ("hostcni_netlink_wait_seconds_count{thread=\"netns\"}", 0.0),
        (concat!("hostcni_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        let value = value(&text, series);
        assert!((value - expected).abs() < 1e-9, "{series} is {value}, not {expected}");
    }
    assert!(value(&text, "hostcni_start_time_seconds") > 1.7e9);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    drop(under_way);
    let text = metrics.write(Format::OpenMetrics);
    assert!(value(&text, "hostcni_requests_in_flight{verb=\"DEL\"}").abs() < 1e-9);
}

#[test]
fn what_is_not_known_is_left_out() {
    let text = Metrics::default().write(Format::OpenMetrics);
    for name in ["hostcni_time_to_ready_seconds", "hostcni_service_restarts", "hostcni_reconciled"] {
        assert!(!text.contains(name), "{text}");
    }
}

/// Name, type and unit of every family, as OpenMetrics says them.
fn families(text: &str) -> BTreeMap<String, (String, String)> {
    let mut families = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => {
                families.insert(name.to_owned(), (kind.to_owned(), String::new()));
            }
            ["#", "UNIT", name, unit] => families.get_mut(name).unwrap().1 = unit.to_owned(),
            _ => {}
        }
    }
    families
}

#[test]
fn names_keep_to_the_rules_of_openmetrics() {
    let text = eventful().write(Format::OpenMetrics);
    let families = families(&text);
    assert!(families.len() > 20, "{families:?}");
    for (name, (kind, unit)) in &families {
        assert!(name.starts_with("hostcni_"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert!(unit.is_empty() || (unit == "seconds" && name.ends_with("_seconds")), "{name} in {unit}");
        assert_eq!(unit == "seconds", name.ends_with("_seconds"), "{name} in {unit}");
        for end in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
            assert!(!name.ends_with(end), "{name}: the ending is the type's");
        }
        assert!(["counter", "gauge", "histogram", "info"].contains(&kind.as_str()), "{name} is a {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
    // One help text a family, and each sample belongs to one.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of = |end: &str| name.strip_suffix(end).is_some_and(|name| families.contains_key(name));
        let whole = families.contains_key(name);
        assert!(
            whole || ["_total", "_info", "_count", "_sum", "_bucket"].iter().any(|end| of(end)),
            "{line}"
        );
    }
}

/// docs/metrics.md has a row for each: `name` | type | unit | labels | meaning.
#[test]
fn every_metric_is_described_and_every_description_has_its_metric() {
    let document = include_str!("../../../docs/metrics.md");
    let mut described = BTreeSet::new();
    for row in document.lines().filter(|line| line.starts_with("| `hostcni_")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let labels: BTreeSet<String> =
            cells[4].split(',').map(|label| label.trim().trim_matches('`').to_owned()).collect();
        described.insert((cells[1].to_owned(), cells[2].to_owned(), cells[3].to_owned(), labels));
    }
    let text = eventful().write(Format::OpenMetrics);
    let there: BTreeSet<_> = families(&text)
        .into_iter()
        .map(|(family, (kind, unit))| {
            let end = match kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let labels = labels(&text, &family);
            (family + end, kind, unit, labels)
        })
        .collect();
    assert_eq!(described, there);
}

/// The labels of a family's samples, but for a histogram's own.
fn labels(text: &str, family: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with(family)) {
        let name = line.split(['{', ' ']).next().unwrap();
        if !["", "_total", "_info", "_count"].contains(&&name[family.len()..]) {
            continue;
        }
        let within = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).unwrap_or_default().0;
        labels.extend(within.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned())));
    }
    if labels.is_empty() {
        labels.insert(String::new());
    }
    labels
}
