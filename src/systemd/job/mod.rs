//! What systemd is doing with a unit right now.
//!
//! `ExecStop=` and `ExecStopPost=` run in a restart as in a stop; only the pending job tells them apart
//! (systemd 252: `restart` for `restart` and `try-restart`, `stop` for a stop and for a shutdown, none after
//! a crash, `start` in the failing start of a restart). Asked over systemd's own private socket, which needs
//! neither the message bus nor a `systemctl` process, with a deadline: when systemd does not answer, the
//! caller hears `Unknown` and takes the safe side.

/// What systemd's own objects are asked.
mod manager;

use std::path::Path;
use std::time::{Duration, Instant};

/// Where systemd listens for root, bus or no bus.
const PRIVATE_SOCKET: &str = "/run/systemd/private";

/// How long systemd may take to answer.
const BOUND: Duration = Duration::from_secs(2);

/// The job that systemd has for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingJob {
    /// None: after a crash, or when nothing is going on.
    None,
    /// The unit is to come back at once.
    Restart,
    /// The unit is to stay down; also in a shutdown.
    Stop,
    /// The unit is being started.
    Start,
    /// Another kind of job, by systemd's name for it.
    Other(String),
    /// systemd could not be asked; the reason.
    Unknown(String),
}

impl PendingJob {
    fn from_type(kind: &str) -> Self {
        match kind {
            "restart" | "try-restart" => Self::Restart,
            "stop" => Self::Stop,
            "start" | "reload-or-start" => Self::Start,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// The job systemd has for `unit` (a full name, such as `hostcni.service`). Takes at most 2 s.
pub fn pending(unit: &str) -> PendingJob {
    pending_at(Path::new(PRIVATE_SOCKET), unit, Instant::now() + BOUND)
}

fn pending_at(socket: &Path, unit: &str, deadline: Instant) -> PendingJob {
    match manager::list_jobs(socket, deadline) {
        Ok(jobs) => jobs
            .iter()
            .find(|job| job.unit == unit)
            .map_or(PendingJob::None, |job| PendingJob::from_type(&job.kind)),
        Err(error) => PendingJob::Unknown(format!("cannot ask systemd at {}: {error}", socket.display())),
    }
}

/// How often systemd has started a service again by itself since somebody last started it (`NRestarts`); None when
/// systemd cannot be asked. It does not change while a process of the service runs. Takes at most 2 s.
pub fn restarts(unit: &str) -> Option<u32> {
    restarts_at(Path::new(PRIVATE_SOCKET), unit, Instant::now() + BOUND)
}

fn restarts_at(socket: &Path, unit: &str, deadline: Instant) -> Option<u32> {
    manager::number(socket, deadline, unit, "NRestarts")
        .inspect_err(|error| tracing::debug!(%error, unit, "cannot ask systemd for NRestarts"))
        .ok()
}

/// The service this process belongs to, by its control group; None outside a service.
pub fn own_unit() -> Option<String> {
    std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| unit_of(&text))
}

/// The innermost service named in a `/proc/PID/cgroup` text. systemd's own hierarchy decides: the unified
/// one (`0::`), or `name=systemd` where the legacy hierarchies are mounted.
fn unit_of(text: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (controllers.is_empty() || controllers == "name=systemd").then_some(path)
        })
        .find_map(|path| path.rsplit('/').find(|part| part.ends_with(".service")))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_unit_is_read_from_the_control_group() {
        assert_eq!(unit_of("0::/system.slice/hostcni.service\n").as_deref(), Some("hostcni.service"));
        let legacy =
            "5:memory:/x/other.service\n1:name=systemd:/system.slice/hostcni.service/.control\n0::/\n";
        assert_eq!(unit_of(legacy).as_deref(), Some("hostcni.service"));
        assert_eq!(unit_of("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        assert_eq!(unit_of("nonsense"), None);
    }

    #[test]
    fn a_restart_is_told_from_a_stop_and_from_no_job() {
        assert_eq!(PendingJob::from_type("try-restart"), PendingJob::Restart);
        let jobs = [("crio.service", "stop"), ("hostcni.service", "restart")];
        let (socket, _dir) = fake_systemd(&jobs);
        let deadline = Instant::now() + Duration::from_secs(5);
        assert_eq!(pending_at(&socket, "hostcni.service", deadline), PendingJob::Restart);
        let (socket, _dir) = fake_systemd(&jobs);
        assert_eq!(pending_at(&socket, "crio.service", deadline), PendingJob::Stop);
        let (socket, _dir) = fake_systemd(&jobs);
        assert_eq!(pending_at(&socket, "other.service", deadline), PendingJob::None);
        let (socket, _dir) = fake_systemd(&[]);
        assert_eq!(pending_at(&socket, "hostcni.service", deadline), PendingJob::None);
    }

    #[test]
    fn a_systemd_that_does_not_answer_is_unknown_within_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("private");
        assert!(matches!(pending_at(&socket, "a.service", Instant::now() + BOUND), PendingJob::Unknown(_)));
        let _silent = UnixListener::bind(&socket).unwrap();
        let begin = Instant::now();
        let answer = pending_at(&socket, "a.service", begin + Duration::from_millis(200));
        assert!(matches!(answer, PendingJob::Unknown(_)), "{answer:?}");
        assert!(begin.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn the_restarts_of_a_service_are_systemds_number_and_unknown_without_systemd() {
        let deadline = Instant::now() + Duration::from_secs(5);
        let (socket, dir) = fake(manager::tests::number_reply(b'u', 3));
        assert_eq!(restarts_at(&socket, "hostcni.service", deadline), Some(3));
        let (socket, _dir) = fake(manager::tests::number_reply(b's', 3));
        assert_eq!(restarts_at(&socket, "hostcni.service", deadline), None);
        assert_eq!(restarts_at(&dir.path().join("nobody"), "hostcni.service", deadline), None);
    }

    fn fake_systemd(jobs: &[(&str, &str)]) -> (std::path::PathBuf, tempfile::TempDir) {
        fake(manager::tests::jobs_reply(jobs))
    }

    /// Answers one call, with a signal before the reply as systemd may send one.
    fn fake(reply: Vec<u8>) -> (std::path::PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Not a byte of the call may come with the greeting: systemd 252 would not look at it.
            let mut greeting = [0; 64];
            let mut length = 0;
            while !greeting[..length].ends_with(b"BEGIN\r\n") {
                length += stream.read(&mut greeting[length..]).unwrap();
            }
            stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(&manager::tests::signal()).unwrap();
            stream.write_all(&reply).unwrap();
        });
        (path, dir)
    }
}
