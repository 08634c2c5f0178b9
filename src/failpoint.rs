//! `step!("name")` marks a step at which a test can make hostcni fail, wait or die. Without the
//! `failpoints` feature it is nothing at all.

/// Every step, so that a test can visit each. Kept sorted.
pub const STEPS: &[&str] = &[];

/// A step that a test may turn into an error, a delay or the end of the process.
///
/// `step!("a.b")` can only delay or kill; `step!("a.b", expr)` returns `Err(expr)` from the enclosing
/// function when the failpoint says `return`.
#[macro_export]
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        fail::fail_point!($name);
    };
    ($name:literal, $error:expr) => {
        #[cfg(feature = "failpoints")]
        fail::fail_point!($name, |_| Err($error));
    };
}
