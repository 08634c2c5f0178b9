//! The fuzz targets over their corpus, one test for each: what fuzzing began with and what it has found.

#[path = "../fuzz/src/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn run(target: &str, body: fn(&[u8]) -> bool) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut failed = Vec::new();
    let (mut understood, mut refused) = (0, 0);
    for entry in std::fs::read_dir(&directory).expect("the corpus is there") {
        let path = entry.expect("readable").path();
        let data = std::fs::read(&path).expect("readable");
        // Whole, and cut off: a file that a power cut or a full disk has shortened.
        for length in [data.len(), data.len() / 2, data.len().saturating_sub(1)] {
            match catch_unwind(AssertUnwindSafe(|| body(&data[..length]))) {
                Ok(true) => understood += 1,
                Ok(false) => refused += 1,
                Err(_) => failed.push(format!("{} up to byte {length}", path.display())),
            }
        }
    }
    println!("{target}: {understood} understood, {refused} refused");
    assert!(understood >= 2 && refused >= 2, "a corpus of one kind: {understood} of {refused}");
    assert!(failed.is_empty(), "the reasons are above: {failed:#?}");
}

#[test]
fn calls_of_runtimes() {
    run("plugin", targets::plugin);
}

#[test]
fn configurations() {
    run("settings", targets::settings);
}

#[test]
fn files_where_the_conf_belongs() {
    run("conf", targets::conf);
}

#[test]
fn records_of_attachments() {
    run("attachment", targets::attachment);
}

#[test]
fn entries_of_the_spool() {
    run("spool", targets::spool);
}

#[test]
fn both_halves_of_the_wire() {
    run("wire", targets::wire);
}

/// A target without a test here would be fuzzed and never run again.
#[test]
fn every_target_is_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let text = include_str!("corpus.rs");
    for entry in std::fs::read_dir(directory).expect("the targets are there") {
        let path = entry.expect("readable").path();
        let target = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(text.contains(&format!("run(\"{target}\", targets::{target})")), "{target}");
    }
}
