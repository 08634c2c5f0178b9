//! The arrows of docs/architecture.md: which room may use which, and where dangerous calls may stand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each room and the rooms it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("cni", &[]),
    ("ipam", &["cni"]),
    ("attachment", &["cni", "ipam"]),
    ("datapath", &[]),
    ("systemd", &["cni", "attachment"]),
    ("settings", &["cni", "ipam"]),
    ("netconf", &["settings", "cni", "systemd"]),
    ("wire", &["cni"]),
    ("plugin", &["cni", "wire", "attachment", "systemd", "datapath"]),
    ("network", &["cni", "ipam", "attachment", "datapath", "settings"]),
    ("server", &["cni", "attachment", "datapath", "network", "netconf", "settings", "systemd", "wire"]),
    ("doctor", &["datapath", "ipam", "netconf", "settings", "wire"]),
    ("explain", &["attachment", "cni", "datapath", "doctor", "wire"]),
    (
        "cli",
        &[
            "doctor",
            "explain",
            "cni",
            "ipam",
            "attachment",
            "datapath",
            "netconf",
            "plugin",
            "server",
            "settings",
            "systemd",
            "wire",
        ],
    ),
];

/// Words that may stand only in the named places (prefixes of paths below `src/`).
const PLACES: &[(&str, &[&str])] = &[
    ("setns(", &["datapath/"]),
    ("unsafe {", &["datapath/", "systemd/"]),
    ("Command::new", &["datapath/spawn.rs", "systemd/shipped.rs"]),
    // The panic hook: a runtime must get its error object, also from a build that aborts.
    ("std::process::exit", &["plugin/mod.rs"]),
    // Threads of their own that back off, and waits for another process's lock; never the server's one thread.
    ("thread::sleep", &["datapath/monitor.rs", "netconf/ledger.rs", "network/delegate/call.rs", "systemd/"]),
    ("set_var(", &[]),
    ("remove_var(", &[]),
    // (The metrics of its threads are called after it.)
    ("netlink_", &["datapath/", "server/metrics/threads.rs"]),
    ("zlink", &["wire/"]),
    ("sd_notify", &["systemd/"]),
    ("libsystemd", &["systemd/"]),
    ("use clap", &["cli/", "settings/"]),
    ("anyhow", &["cli/"]),
    ("todo!(", &[]),
    ("unimplemented!(", &[]),
];

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("below src").display().to_string();
                found.push((name, code(&fs::read_to_string(&path).expect("src is readable"))));
            }
        }
    }
    assert!(found.len() > 40, "the sources were found");
    found
}

/// A source without its comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn rooms_use_only_the_rooms_they_may() {
    let rooms: BTreeSet<&str> = ARROWS.iter().map(|(room, _)| *room).collect();
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        let Some((room, _)) = name.split_once('/') else { continue };
        let (_, allowed) =
            ARROWS.iter().find(|(it, _)| *it == room).unwrap_or_else(|| panic!("unknown room {room}"));
        for used in text.split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if rooms.contains(used.as_str()) && used != room && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn dangerous_calls_stand_only_where_they_may() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        if name.ends_with("tests.rs") {
            continue;
        }
        for (word, places) in PLACES {
            if text.contains(word) && !places.iter().any(|place| name.starts_with(place)) {
                wrong.push(format!("{name} has `{word}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_is_in_the_table_and_says_what_it_owns() {
    for (room, _) in ARROWS {
        let path = format!("{}/src/{room}/mod.rs", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text.starts_with("//! "), "{path} begins with what it owns");
    }
}

#[test]
fn the_list_of_failpoints_is_complete() {
    let mut found = BTreeSet::new();
    for (_, text) in sources() {
        let text: String = text.split_whitespace().collect();
        for (mark, prefix, fails) in [
            ("step!(\"", "", None),
            ("fail_at(\"", "start.", Some(true)),
            ("fail_now(\"", "start.", Some(true)),
        ] {
            for rest in text.split(mark).skip(1) {
                let (name, after) = rest.split_once('"').expect("the name's end");
                found.insert((format!("{prefix}{name}"), fails.unwrap_or(after.starts_with(','))));
            }
        }
    }
    let listed: BTreeSet<_> =
        hostcni::failpoint::STEPS.iter().map(|(name, fails)| ((*name).to_owned(), *fails)).collect();
    assert_eq!(found, listed);
    assert!(hostcni::failpoint::STEPS.is_sorted());
}

#[test]
fn a_release_has_no_failpoints() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = std::process::Command::new(cargo)
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p} {f}",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8_lossy(&tree.stdout);
    let named = |name: &str| tree.lines().any(|line| line.starts_with(name));
    assert!(named("hostcni v") && named("tokio v"), "that is the tree: {tree}");
    assert!(!named("fail v") && !tree.contains("failpoints"), "{tree}");
}

/// A promise whose test was renamed or removed is only a sentence.
#[test]
fn every_test_that_a_document_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    let mut directories = vec![root.join("tests"), root.join("src")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("it is readable") {
            let path = entry.expect("it is readable").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                code += &fs::read_to_string(path).expect("it is readable");
            }
        }
    }
    let text = fs::read_to_string(root.join("docs/reliability.md")).expect("it is readable");
    let named = text.split('`').skip(1).step_by(2).filter(|name| name.len() > 20 && name.contains('_'));
    let names: Vec<&str> =
        named.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')).collect();
    assert!(names.len() > 30, "the names were found: {names:?}");
    let missing: Vec<&&str> = names.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
