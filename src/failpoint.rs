//! `step!("name")` marks a step at which a test can make hostcni fail, wait or die. Without the
//! `failpoints` feature it is nothing at all.
//!
//! A test says in `FAILPOINTS` what is to happen: `add.link=return` fails there, `add.link=sleep(500)` or
//! `return(wait)` waits, `return(die)` ends the process by `SIGKILL`; `1*return(die)->off` does it once. The words
//! `fail`, `wait` and `die` tell on standard error that they were met, so that a test knows.

/// Every step, sorted, and whether it can fail rather than only wait or die. `tests/architecture.rs` keeps
/// the list complete; the fault loop of `tests/node` visits each.
pub const STEPS: &[(&str, bool)] = &[
    ("add.answer", true),
    ("add.commit", true),
    ("add.elements", true),
    ("add.lease", true),
    ("add.link", true),
    ("add.record", true),
    ("datapath.attach", true),
    ("datapath.shape", true),
    ("del.elements", true),
    ("del.forget", true),
    ("del.link", true),
    ("del.mark", true),
    ("delegate.add", true),
    ("delegate.commit", true),
    ("delegate.del", true),
    ("delegate.forget", true),
    ("delegate.mark", true),
    ("delegate.record", true),
    ("gc.collect", true),
    ("guard.restore", false),
    ("netconf.rename", true),
    ("netconf.unlink", true),
    ("plugin.deliver", false),
    ("prepare.bridge", true),
    ("prepare.rules", true),
    ("prepare.sysctl", true),
    ("reconcile.links", true),
    ("reconcile.undo", true),
    ("reload.read", false),
    ("spool.fsync", true),
    ("spool.rename", true),
    ("spool.replay", false),
    ("spool.write", true),
    ("start.attachments", true),
    ("start.behind", true),
    ("start.bridge", true),
    ("start.configuration", true),
    ("start.nftables", true),
    ("start.ready", true),
    ("start.socket", true),
    ("start.spool", true),
    ("start.sweep", true),
    ("stop.drain", false),
    ("store.put", true),
    ("store.remove", true),
];

/// A step that a test may turn into an error, a delay or the end of the process.
///
/// `step!("a.b")` can only delay or kill; `step!("a.b", expr)` returns `Err(expr)` from the enclosing
/// function when it is told to fail.
#[macro_export]
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::visit($name);
    };
    ($name:literal, $error:expr) => {
        #[cfg(feature = "failpoints")]
        if $crate::failpoint::visit($name) {
            return Err($error);
        }
    };
}

/// Does at a step what `FAILPOINTS` says; whether the step is to fail.
#[cfg(feature = "failpoints")]
#[allow(clippy::print_stderr)] // for the test that asked
pub fn visit(step: &str) -> bool {
    let Some(word) = fail::eval(step, |word| word) else { return false };
    if let Some(word) = &word {
        eprintln!("failpoint {step} {word}");
    }
    match word.as_deref() {
        Some("die") => {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
        Some("wait") => std::thread::park_timeout(std::time::Duration::from_millis(400)),
        _ => {}
    }
    word.as_deref() != Some("wait")
}

/// The error of a step that was told to fail, for the places whose own error is one of input and output.
#[cfg(feature = "failpoints")]
pub fn error() -> std::io::Error {
    std::io::Error::other("failpoint")
}
