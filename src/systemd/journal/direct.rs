//! The short-lived processes' way to the journal: one non-blocking datagram per entry, no thread.
//!
//! The plugin and the helpers are bounded in time, so an entry that journald does not take at once is
//! dropped. The format is journald's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::Level;

use super::record::{Record, Sink, Values};

const SOCKET: &str = "/run/systemd/journal/socket";

/// Longer values are cut: a datagram has to fit the socket's send buffer, some 200 KiB by default.
const MAX_VALUE: usize = 32 << 10;

/// A connection to journald that never waits.
pub(super) struct Direct {
    socket: UnixDatagram,
    identifier: String,
}

impl Direct {
    /// Fails where there is no journald.
    pub(super) fn new(identifier: &str) -> io::Result<Self> {
        Self::connect(Path::new(SOCKET), identifier)
    }

    fn connect(path: &Path, identifier: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(Self { socket, identifier: identifier.to_owned() })
    }

    /// Nobody is told when it fails: this is where failures are told.
    pub(super) fn write(&self, record: &Record) {
        let _ = self.socket.send(&encode(record, &self.identifier));
    }
}

impl Sink for Direct {
    fn put(&self, record: Record) {
        self.write(&record);
    }
}

fn encode(record: &Record, identifier: &str) -> Vec<u8> {
    let mut entry = Vec::with_capacity(512);
    let metadata = record.event.metadata;
    put(&mut entry, "PRIORITY", priority(*metadata.level()));
    put(&mut entry, "SYSLOG_FACILITY", "3");
    put(&mut entry, "SYSLOG_IDENTIFIER", identifier);
    put(&mut entry, "TARGET", metadata.target());
    for values in record.spans.iter().chain([&record.event]) {
        put_all(&mut entry, values);
    }
    entry
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

fn put_all(entry: &mut Vec<u8>, values: &Values) {
    for (name, value) in values.named() {
        put(entry, &field_name(name), &value.to_string());
    }
}

/// journald takes upper-case letters, digits and underscores, and no leading underscore.
fn field_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|char| if char == '.' { '_' } else { char.to_ascii_uppercase() })
        .filter(|char| *char == '_' || char.is_ascii_alphanumeric())
        .collect();
    name.trim_start_matches('_').to_owned()
}

fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    // journald takes any bytes, so cutting a character in two does no harm.
    let value = &value.as_bytes()[..value.len().min(MAX_VALUE)];
    entry.extend(name.as_bytes());
    entry.push(b'\n');
    entry.extend((value.len() as u64).to_le_bytes());
    entry.extend(value);
    entry.push(b'\n');
}
