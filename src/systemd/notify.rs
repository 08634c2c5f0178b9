//! Messages to systemd about this process. Infallible: outside systemd they go nowhere, and a failure to
//! send is a debug line, since nothing can be done about it and the service must go on.

use std::time::Duration;

use sd_notify::NotifyState;

/// Whether systemd asked to be notified.
pub fn enabled() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The start (or reload) is complete; `status` is what `systemctl status` shows.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// What `systemctl status` shows.
pub fn status(status: &str) {
    send(&[NotifyState::Status(&one_line(status))]);
}

/// The stop has begun.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// A reload has begun; [`ready`] ends it. Carries the time stamp that systemd 253 and later insist on and
/// that 252 ignores.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock, not telling of the reload"),
    }
}

/// Asks for `more` time from now for the start, reload or stop that is going on.
pub fn extend_start(more: Duration) {
    send(&[NotifyState::ExtendTimeoutUsec(u32::try_from(more.as_micros()).unwrap_or(u32::MAX))]);
}

/// The server is alive and well. Logs nothing: this path must work when the journal does not.
pub fn watchdog() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd, ignoring");
    }
}

/// The protocol has one assignment a line: a line break in a status would start another one.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_status_cannot_smuggle_in_another_assignment() {
        assert_eq!(super::one_line("cannot start:\nREADY=1"), "cannot start: READY=1");
    }
}
