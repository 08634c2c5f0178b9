//! The one error of this room: what the kernel refused, to whom, and why.
//!
//! Promises that the words of a missing object never look like a missing file or command to a container
//! runtime: CRI-O and containerd take "not found" and "no such file or directory" in a DEL's error for
//! "already gone" and would forget the pod.

use std::fmt;
use std::io;

use nix::libc;

/// The result of an operation of the kernel.
pub type Result<T> = std::result::Result<T, KernelError>;

/// Something the kernel (or a tool that speaks for it) refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// The errno, positive. 0 when the failure has none (a tool's exit code, a malformed answer): then
    /// `text` says what happened.
    pub errno: i32,
    /// What was tried, as a verb phrase that reads after "cannot": "create link", "add element".
    pub operation: &'static str,
    /// To what it was tried: a link's name, a file, an element.
    pub object: String,
    /// What the kernel said beyond the errno (its extended acknowledgement), or a tool's stderr.
    pub text: Option<String>,
}

impl KernelError {
    /// An errno (positive) without further words.
    pub fn new(errno: i32, operation: &'static str, object: impl Into<String>) -> Self {
        Self { errno: errno.abs(), operation, object: object.into(), text: None }
    }

    /// A failure that has no errno, only words.
    pub fn message(operation: &'static str, object: impl Into<String>, text: impl Into<String>) -> Self {
        Self { errno: 0, operation, object: object.into(), text: Some(text.into()) }
    }

    /// An I/O error; one without an errno keeps its words.
    pub fn from_io(error: &io::Error, operation: &'static str, object: impl Into<String>) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::new(errno, operation, object),
            None => Self::message(operation, object, error.to_string()),
        }
    }

    /// Adds what the kernel said beyond the errno; an empty text adds nothing.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.text = Some(text);
        }
        self
    }

    /// Adds text behind what the kernel said.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        let text = self.text.as_ref().map_or_else(|| more.to_owned(), |text| format!("{text}; {more}"));
        self.with_text(text)
    }

    /// Whether the object was there already (for an element: under the same key, with another value).
    pub fn is_exists(&self) -> bool {
        self.errno == libc::EEXIST
    }

    /// Whether the object, or what it stands in, is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ESRCH | libc::EADDRNOTAVAIL)
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, self.object)?;
        match (self.errno, &self.text) {
            (0, None) => Ok(()),
            (0, Some(text)) => write!(f, ": {}", harmless(text)),
            (errno, None) => write!(f, ": {}", errno_text(errno)),
            (errno, Some(text)) => write!(f, ": {} ({})", errno_text(errno), harmless(text)),
        }
    }
}

impl std::error::Error for KernelError {}

/// The errno in words: the C library's, but for the two that a runtime would misread.
fn errno_text(errno: i32) -> String {
    match errno {
        libc::ENOENT => "it does not exist (ENOENT)".to_owned(),
        libc::ESRCH => "it does not exist (ESRCH)".to_owned(),
        _ => nix::errno::Errno::from_raw(errno).desc().to_lowercase(),
    }
}

/// Foreign words (nft's stderr quotes the C library) with the dangerous phrases replaced. Only phrases in
/// ASCII are looked for, so the byte positions of the lower-cased copy hold for the text itself.
fn harmless(text: &str) -> String {
    const PHRASES: [(&str, &str); 2] =
        [("no such file or directory", "does not exist"), ("not found", "missing")];
    let mut out = text.to_owned();
    for (phrase, instead) in PHRASES {
        while let Some(at) = out.to_ascii_lowercase().find(phrase) {
            out.replace_range(at..at + phrase.len(), instead);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_operation_object_and_reason() {
        let error = KernelError::new(libc::EBUSY, "create link", "hc0").with_text("name in use");
        assert_eq!(error.to_string(), "cannot create link hc0: device or resource busy (name in use)");
        assert_eq!(KernelError::new(-libc::EPERM, "x", "y").errno, libc::EPERM);
    }

    #[test]
    fn a_missing_object_never_reads_like_a_missing_file() {
        let error = KernelError::new(libc::ENOENT, "delete link", "hc0")
            .with_text("Could not: No such file or directory; NOT FOUND");
        let text = error.to_string().to_lowercase();
        assert!(error.is_missing());
        assert!(!text.contains("not found"), "{text}");
        assert!(!text.contains("no such file or directory"), "{text}");
        let nodev = KernelError::new(libc::ENODEV, "a", "b").to_string();
        assert_eq!(nodev, "cannot a b: no such device");
    }

    #[test]
    fn an_io_error_without_an_errno_keeps_its_words() {
        let error = KernelError::from_io(&io::Error::other("broken"), "read", "f");
        assert_eq!((error.errno, error.to_string()), (0, "cannot read f: broken".to_owned()));
    }
}
