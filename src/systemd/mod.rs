//! systemd's interfaces, each behind a small safe module.
//!
//! Owns: socket activation, notifications, the watchdog's interval, the boot id, the unit's pending job,
//! and the journal with every event hostcni reports. Promises that nothing here blocks its caller for long:
//! journal entries go by a bounded queue, systemd is asked with a deadline. May use no other room, so the
//! types here are plain strings and numbers.

/// Sockets passed by systemd.
pub mod activation;
/// The id of this boot.
pub mod boot;
/// As much of D-Bus as is needed.
mod dbus;
/// firewalld, over the system bus.
pub mod firewalld;
/// The job systemd is running for a unit.
pub mod job;
/// Events, message ids and the way to the journal.
pub mod journal;
/// Readiness, status and watchdog messages to systemd.
pub mod notify;
/// The watchdog's interval.
pub mod watchdog;

/// The shipped units and files.
#[cfg(test)]
mod shipped;
