//! The RPM: what is in it, and what a node does with it. Built here from the archives, as `make rpm` builds it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test fails
#![allow(clippy::wildcard_imports)] // `product` is the vocabulary of every case

mod support;
#[path = "node_package"]
mod package {
    pub mod build;
    pub mod contents;
    pub mod life;
}
#[path = "node/product.rs"]
#[allow(dead_code)]
mod product;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use package::*;
use support::node::Node;

fn main() -> ExitCode {
    support::case::keep_panics();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let plain = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let cases = vec![
        plain("the_files_are_those_of_make_install_and_rpms_own", contents::files),
        plain("scripts_requires_and_provides_are_as_written_down", contents::golden),
        plain("two_builds_of_one_commit_are_the_same_bytes", contents::reproducible),
        plain("rpmlint_finds_nothing_but_what_is_argued", contents::lint),
        support::case::on(
            Node::bare,
            "a_package_is_installed_upgraded_under_load_downgraded_and_removed",
            life::whole_life,
        ),
    ];
    libtest_mimic::run(&arguments, cases).exit_code()
}
