//! The one place that starts a process.
//!
//! Promises: no descriptor but the three standard ones reaches the child, whatever the server holds and
//! however it got it (a pod's namespace kept open by a child would never go away); the child and what it
//! started are dead when [`run`] returns; output is bounded; the child's words are in English, since they
//! end in logs. Blocks its thread: never call it from the runtime's.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::error::{KernelError, Result};

/// What is kept of each of the child's two outputs, in bytes; more is read and dropped.
pub const MAX_OUTPUT: usize = 1 << 20;
/// Where programs are looked for: units and containers may have no PATH, or one without `sbin`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What systemd and the tests tell the server, and nobody else.
const OURS: [&str; 10] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "JOURNAL_STREAM",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "FAILPOINTS",
];

/// How a child ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// At most [`MAX_OUTPUT`] bytes each; what is not UTF-8 is replaced.
    pub stdout: String,
    /// See `stdout`.
    pub stderr: String,
}

impl Output {
    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs `program` (a path, or a name looked for in the usual places) to its end with `stdin` as its input.
///
/// An exit code other than 0 is not an error of this function. Errors: the program cannot be started, or it
/// was killed because `deadline` passed (ETIMEDOUT).
pub fn run(program: &str, arguments: &[&str], stdin: &str, deadline: Duration) -> Result<Output> {
    run_seen(program, arguments, stdin, deadline, |_| {})
}

/// As [`run`]; `started` gets the child's process id before the child gets any input.
pub fn run_seen(
    program: &str,
    arguments: &[&str],
    stdin: &str,
    deadline: Duration,
    started: impl FnOnce(u32),
) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C");
    to_its_end(command, program, stdin, deadline, false, started)
}

/// Runs somebody else's program as a runtime would: with the server's own environment and `variables`, less what is
/// between systemd and the server. When it ends by itself, what it left running lives on.
///
/// Errors as of [`run`]. The child dies with the thread that called.
pub fn run_foreign(
    program: &Path,
    variables: &[(&str, String)],
    stdin: &str,
    deadline: Duration,
) -> Result<Output> {
    let mut command = Command::new(program);
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", PATH);
    }
    for name in OURS {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    to_its_end(command, &program.to_string_lossy(), stdin, deadline, true, |_| {})
}

fn to_its_end(
    mut command: Command,
    program: &str,
    stdin: &str,
    deadline: Duration,
    foreign: bool,
    started: impl FnOnce(u32),
) -> Result<Output> {
    let until = Instant::now() + deadline;
    let fail = |error: &io::Error| KernelError::from_io(error, "run", program);
    let child = start(&mut command, foreign).map_err(|e| fail(&e))?;
    let mut group = Group { child, reaped: false };
    started(group.child.id());
    let (stdout, stderr) = exchange(&mut group.child, stdin.as_bytes(), until).map_err(|e| fail(&e))?;
    let status = if foreign { group.spare() } else { group.reap() }.map_err(|e| fail(&e))?;
    Ok(output(status, &stdout, &stderr))
}

/// Starts the child in a process group of its own, with every inherited descriptor marked close-on-exec.
fn start(command: &mut Command, mortal: bool) -> io::Result<Child> {
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY: the closure runs between fork and exec and makes system calls only: it allocates nothing and
    // takes no lock. Marking instead of closing leaves std's own pipe, by which it reports a failed exec.
    unsafe {
        command.pre_exec(move || {
            // A server that was killed must not have its plugins go on behind the back of the next one.
            if mortal && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            let flag = libc::CLOSE_RANGE_CLOEXEC;
            match libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, flag) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()), // better no child than one that keeps a pod's namespace
            }
        });
    }
    command.spawn()
}

/// Feeds the child and listens to it until it has exited. A grandchild that holds the pipes is not waited for.
fn exchange(child: &mut Child, mut input: &[u8], until: Instant) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let exited = pidfd(child)?;
    let mut stdin = child.stdin.take();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    for fd in
        [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)]
            .into_iter()
            .flatten()
    {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        if input.is_empty() {
            stdin = None; // the child sees the end of its input
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        let mut fds = vec![PollFd::new(exited.as_fd(), PollFlags::POLLIN)];
        fds.extend(stdin.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLOUT)));
        fds.extend(stdout.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        fds.extend(stderr.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        // Rounded up, so that a last fraction of a millisecond does not spin.
        let wait = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, wait) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = fds[0].any().unwrap_or(false);
        if let Some(pipe) = &mut stdin {
            input = feed(pipe, input);
        }
        drain(&mut stdout, &mut out);
        drain(&mut stderr, &mut err);
        if gone {
            return Ok((out, err));
        }
    }
}

/// Writes what the pipe takes and gives the rest; nothing is left once the child reads no more.
fn feed<'a>(pipe: &mut impl Write, input: &'a [u8]) -> &'a [u8] {
    match pipe.write(input) {
        Ok(written) => &input[written..],
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => input,
        Err(_) => &[],
    }
}

/// Reads what is there; the pipe is dropped at its end.
fn drain(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) {
    let mut chunk = [0; 8192];
    while let Some(open) = pipe {
        match open.read(&mut chunk) {
            Ok(0) => *pipe = None,
            Ok(read) => into.extend_from_slice(&chunk[..read.min(MAX_OUTPUT - into.len())]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => *pipe = None,
        }
    }
}

/// A descriptor that becomes readable when the child exits.
fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

fn output(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Output {
    Output {
        code: status.code(),
        signal: status.signal(),
        stdout: String::from_utf8_lossy(stdout).into_owned(),
        stderr: String::from_utf8_lossy(stderr).into_owned(),
    }
}

/// A child that leaves nothing behind: its group is killed and it is reaped, on every way out.
struct Group {
    child: Child,
    reaped: bool,
}

impl Group {
    /// How the child ended; waits for it, and lets nothing of its group live on.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        // Only before the child is reaped: after that the kernel may give its number to another group.
        if let Ok(group) = i32::try_from(self.child.id())
            && !self.reaped
        {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        self.reaped = true;
        self.child.wait()
    }

    /// How a child that has ended by itself ended.
    fn spare(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn input_output_and_exit_code_pass() {
        let output = run("sh", &["-c", "cat; echo no >&2; exit 3"], "hello", 5 * SECOND).unwrap();
        assert_eq!((output.code, output.success()), (Some(3), false));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("hello", "no\n"));
    }

    #[test]
    fn a_long_input_and_a_long_output_do_not_wait_for_each_other() {
        let input = "x".repeat(3 * MAX_OUTPUT);
        let output = run("cat", &[], &input, 10 * SECOND).unwrap();
        assert_eq!(output.stdout.len(), MAX_OUTPUT);
        assert!(run("true", &[], &input, 10 * SECOND).unwrap().success(), "a child that reads nothing");
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_its_children() {
        let begin = Instant::now();
        let error = run("sh", &["-c", "sleep 987 & sleep 987"], "", SECOND / 5).unwrap_err();
        assert_eq!((error.errno, error.object.as_str()), (libc::ETIMEDOUT, "sh"));
        assert!(begin.elapsed() < 3 * SECOND);
    }

    #[test]
    fn a_grandchild_that_holds_the_pipes_is_not_waited_for_and_dies() {
        let begin = Instant::now();
        let output = run("sh", &["-c", "sleep 986 & echo $!"], "", 10 * SECOND).unwrap();
        assert!(begin.elapsed() < 5 * SECOND);
        let state = format!("/proc/{}/stat", output.stdout.trim());
        let dead = (0..100).any(|_| {
            std::thread::sleep(SECOND / 100);
            std::fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "))
        });
        assert!(dead);
    }

    #[test]
    fn a_foreign_program_has_its_variables_and_is_killed_with_its_children_only_at_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let lives = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let variables = [("CNI_COMMAND", "ADD".to_owned())];
        let path = script("leaves", "echo $CNI_COMMAND; sleep 3 >/dev/null 2>&1 & echo $!");
        let output = run_foreign(&path, &variables, "", 5 * SECOND).unwrap();
        let (command, left) = output.stdout.split_once('\n').unwrap();
        assert_eq!(command, "ADD");
        assert!(lives(left), "what a plugin starts is its own business");
        let told = directory.path().join("pid");
        let path = script("hangs", &format!("sleep 985 & echo $! >{}; wait", told.display()));
        let error = run_foreign(&path, &variables, "", SECOND).unwrap_err();
        assert_eq!(error.errno, libc::ETIMEDOUT);
        let left = std::fs::read_to_string(&told).unwrap();
        assert!((0..100).any(|_| {
            std::thread::sleep(SECOND / 100);
            !lives(&left)
        }));
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let error = run("no-such-program", &[], "", SECOND).unwrap_err();
        assert!(error.is_missing());
        assert!(error.to_string().contains("cannot run no-such-program"), "{error}");
    }

    #[test]
    fn no_descriptor_reaches_the_child_and_no_variable_but_two() {
        let (kept, _other) = nix::unistd::pipe().unwrap(); // without O_CLOEXEC, as zlink leaves them
        let output = run("sh", &["-c", "ls /proc/self/fd; env"], "", 5 * SECOND).unwrap();
        drop(kept);
        // 3 is the directory that ls itself reads.
        let fds: Vec<&str> = output.stdout.lines().take_while(|line| line.parse::<u32>().is_ok()).collect();
        assert_eq!(fds, ["0", "1", "2", "3"], "{}", output.stdout);
        assert!(output.stdout.contains("LC_ALL=C") && !output.stdout.contains("CARGO"), "{}", output.stdout);
    }
}
