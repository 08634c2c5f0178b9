//! Plain text on stderr, for a person at a terminal or a build log.

use std::io::Write;

use super::record::{Record, Sink, Values};

/// One line an event: level, message, and the fields that the message does not repeat.
pub(super) struct Text;

impl Text {
    /// In one write, so that lines of several processes do not mix; a closed stderr is nobody's loss.
    #[allow(clippy::unused_self)] // a sink without state
    pub(super) fn write(&self, record: &Record) {
        let _ = std::io::stderr().write_all(line(record).as_bytes());
    }
}

impl Sink for Text {
    fn put(&self, record: Record) {
        self.write(&record);
    }
}

fn line(record: &Record) -> String {
    let mut message = String::new();
    let mut fields = String::new();
    for (name, value) in record.spans.iter().flat_map(Values::named).chain(record.event.named()) {
        if name == "message" {
            message = value.to_string();
        } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            // Upper-case fields belong to events, whose message says the same.
            fields.extend([" ", name, "=", &value.to_string()]);
        }
    }
    format!("{}: {message}{fields}\n", record.event.metadata.level().as_str().to_ascii_lowercase())
}
