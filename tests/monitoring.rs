//! The alerts and the dashboard speak of metrics that there are, and say what they mean. (That docs/metrics.md describes
//! exactly the metrics that there are is a test beside them.)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const RULES: &str = "packaging/usr/share/hostcni/monitoring/hostcni.rules.yml";
const CASES: &str = "tests/monitoring/hostcni.rules.test.yml";
const DASHBOARD: &str = "packaging/usr/share/hostcni/monitoring/hostcni.json";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output().expect("needs promtool");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&said));
}

/// The names of the time series of every metric.
fn series() -> BTreeSet<String> {
    let mut series = BTreeSet::new();
    for row in read("docs/metrics.md").lines().filter(|row| row.starts_with("| `hostcni_")) {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`'));
        let (name, kind) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let ends: &[&str] = if kind == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
        series.extend(ends.iter().map(|end| format!("{name}{end}")));
    }
    assert!(series.len() > 25, "they were found: {series:?}");
    series
}

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("hostcni_")).map(str::to_owned).collect()
}

/// Every expression of the dashboard.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("the dashboard is JSON");
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().expect("it has panels") {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert!(panel["type"] == "row" || !targets.is_empty(), "a panel without a target: {panel}");
        expressions.extend(targets.iter().map(|it| it["expr"].as_str().expect("an expression").to_owned()));
    }
    for variable in dashboard["templating"]["list"].as_array().expect("it has variables") {
        let query = variable["definition"].as_str().unwrap_or_default();
        if let Some((selector, _)) = query.strip_prefix("label_values(").and_then(|it| it.rsplit_once(',')) {
            expressions.push(selector.to_owned());
        }
    }
    assert!(expressions.len() > 20, "they were found: {expressions:?}");
    expressions
}

#[test]
fn the_rules_hold_for_those_nodes_that_they_are_about() {
    promtool(&["check", "rules"], &path(RULES));
    promtool(&["test", "rules"], &path(CASES));
}

#[test]
fn every_alert_is_tried() {
    let cases = read(CASES);
    let mut alerts = 0;
    for name in read(RULES).lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = cases.split("- alertname: ").any(|case| {
            case.lines().next() == Some(name)
                && case.lines().any(|line| line.trim_start().starts_with("- exp_labels:"))
        });
        assert!(fires, "no case in which {name} fires");
        alerts += 1;
    }
    assert!(alerts > 8, "{alerts}");
}

#[test]
fn rules_and_dashboard_speak_only_of_metrics_that_there_are() {
    let series = series();
    // The prose of an alert may name a histogram as a whole.
    let of_rules: BTreeSet<String> =
        named(&read(RULES)).into_iter().filter(|name| !series.contains(&format!("{name}_bucket"))).collect();
    for name in of_rules.iter().chain(&named(&expressions().join(" "))) {
        assert!(series.contains(name), "{name} is no metric");
    }
    // And the dashboard leaves none out.
    let shown = named(&expressions().join(" "));
    let of = |name: &str| {
        let stem = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        stem.unwrap_or(name).to_owned()
    };
    let shown: BTreeSet<String> = shown.iter().map(|name| of(name)).collect();
    let missing: Vec<&String> = series.iter().filter(|name| !shown.contains(&of(name))).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn the_dashboards_expressions_are_promql() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, expression) in expressions().iter().enumerate() {
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$__interval", "1m")
            .replace("$job", "hostcni")
            .replace("$instance", ".*");
        assert!(!expression.contains('$'), "a variable that is not known here: {expression}");
        let quoted = serde_json::to_string(&expression).expect("a string is JSON");
        rules += "      - record: panel:";
        rules += &number.to_string();
        rules += "\n        expr: ";
        rules += &quoted;
        rules += "\n";
    }
    let file = directory.path().join("dashboard.yml");
    fs::write(&file, rules).expect("below a directory of our own");
    promtool(&["check", "rules"], &file);
}
