//! Configurations as file trees: `tests/trees/NN-name/` is a root with `etc/` and `usr/`, and `expected` is what comes
//! out: the merged configuration as `hostcni config show` prints it, or every problem. A new case is a folder, no code.
//!
//! `UPDATE_EXPECTED=1 cargo test --test trees` writes the `expected` files anew; read the difference.

#![allow(clippy::expect_used)] // without the folder there is nothing to test

use hostcni::settings::{self, Settings, SettingsError};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
    let mut directories: Vec<PathBuf> = fs::read_dir(&trees)
        .expect("tests/trees is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    directories.sort();
    let trials = directories.into_iter().map(|tree| {
        let name = tree.file_name().expect("a name").to_string_lossy().into_owned();
        Trial::test(name, move || run(&tree))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn run(tree: &Path) -> Result<(), Failed> {
    let out = match settings::merge(tree) {
        Err(error) => told(tree, &error),
        Ok(merged) => match merged.validate() {
            Err(error) => told(tree, &error),
            Ok(settings) => {
                let text = merged.origins().to_toml();
                says_the_same(&text, &settings)?;
                text.replace(&format!("{}/", tree.display()), "/")
            }
        },
    };
    let expected = tree.join("expected");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&expected, &out)?;
    }
    let expected = fs::read_to_string(&expected)?;
    if out == expected { Ok(()) } else { Err(format!("expected:\n{expected}\ncame:\n{out}").into()) }
}

/// An error as a person reads it, without where the tree happens to lie.
fn told(tree: &Path, error: &SettingsError) -> String {
    format!("{error}\n").replace(&format!("{}/", tree.display()), "/")
}

/// What `config show` prints is a configuration that says the same.
fn says_the_same(text: &str, settings: &Settings) -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let directory = root.path().join("etc/hostcni");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("config.toml"), text)?;
    let again =
        settings::load(root.path()).map_err(|error| format!("{text}\nis no configuration: {error}"))?;
    if again.settings == *settings { Ok(()) } else { Err(format!("not the same settings:\n{text}").into()) }
}
