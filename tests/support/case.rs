//! A case is a promise and a node to hold it on. Its failure comes with what the node has to say.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use libtest_mimic::{Failed, Trial};

use super::node::Node;

thread_local! {
    /// What the last panic of this thread said, and where.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what a panic says for the report of its case, instead of printing it between the others' lines.
pub fn keep_panics() {
    panic::set_hook(Box::new(|info| PANIC.set(info.to_string())));
}

/// One case: gets a node whose disk is there and which is not booted yet.
pub fn case(name: &str, promise: fn(&mut Node)) -> Trial {
    // `node::boot::a_name` reads as the promise it is.
    let name = name.rsplit("::").next().unwrap_or(name).to_owned();
    Trial::test(name, move || {
        let held = |step: &mut dyn FnMut()| panic::catch_unwind(AssertUnwindSafe(step)).is_ok();
        let mut node = None;
        if !held(&mut || node = Some(Node::new())) {
            return Err(Failed::from(PANIC.take()));
        }
        let mut node = node.ok_or("no node")?;
        if held(&mut || promise(&mut node)) {
            return Ok(());
        }
        let said = PANIC.take();
        let evidence = panic::catch_unwind(AssertUnwindSafe(|| node.evidence()));
        Err(Failed::from(format!("{said}\n{}", evidence.unwrap_or_else(|_| PANIC.take()))))
    })
}

/// `cases![boot::a_name, boot::another]`: the trials of these functions, by their names.
#[macro_export]
macro_rules! cases {
    ($($path:path),+ $(,)?) => { vec![$($crate::support::case::case(stringify!($path), $path)),+] };
}
