//! The watchdog's interval (`WatchdogSec=`).

use std::time::Duration;

/// How often to call [`super::notify::watchdog`]: half of what systemd waits, as `sd_watchdog_enabled(3)`
/// recommends. None when no watchdog is set for this process.
pub fn interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| limit / 2)
}
