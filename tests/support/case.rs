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
    on(Node::new, name.rsplit("::").next().unwrap_or(name), promise)
}

/// The same on another kind of node.
pub fn on(make: fn() -> Node, name: &str, promise: fn(&mut Node)) -> Trial {
    Trial::test(name, move || {
        let mut node = held(make).map_err(Failed::from)?;
        held(|| promise(&mut node)).map_err(|said| {
            let evidence = held(|| node.evidence()).unwrap_or_else(|said| said);
            Failed::from(format!("{said}\n{evidence}"))
        })
    })
}

/// What `step` gives, or what its panic said.
fn held<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(step)).map_err(|payload| {
        let said = PANIC.take();
        let handed_on = || Some(payload.downcast_ref::<String>()?.clone()); // by another thread
        if said.is_empty() { handed_on().unwrap_or_else(|| "a panic".to_owned()) } else { said }
    })
}

/// `cases![boot::a_name, boot::another]`: the trials of these functions, by their names.
#[macro_export]
macro_rules! cases {
    ($($path:path),+ $(,)?) => { vec![$($crate::support::case::case(stringify!($path), $path)),+] };
}
