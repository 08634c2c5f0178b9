//! The one place that starts a process.
//!
//! Promises: no descriptor but the three standard ones reaches the child, whatever the server holds and
//! however it got it (a pod's namespace kept open by a child would never go away); the child and what it
//! started are dead when [`run`] returns; output is bounded; the child's words are in English, since they
//! end in logs. Blocks its thread: never call it from the runtime's.

mod child;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;

use super::error::{KernelError, Result};
use child::{Child, Program};

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
    let fail = |error: io::Error| KernelError::from_io(&error, "run", program);
    let prepare = || {
        let mut child = Program::new(&find(program)?, false)?;
        arguments.iter().try_for_each(|argument| child.argument(argument))?;
        child.variable("PATH".as_ref(), PATH.as_ref())?;
        child.variable("LC_ALL".as_ref(), "C".as_ref())?;
        child.start()
    };
    let mut child = prepare().map_err(fail)?;
    started(child.id());
    let mut to_its_end = || {
        let (stdout, stderr) = exchange(&mut child, stdin.as_bytes(), Instant::now() + deadline)?;
        Ok(output(child.reap()?, &stdout, &stderr))
    };
    to_its_end().map_err(fail)
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
    let to_its_end = || {
        let mut child = Program::new(program, true)?;
        for (name, value) in inherited(variables) {
            child.variable(&name, &value)?;
        }
        for (name, value) in variables {
            child.variable(name.as_ref(), value.as_ref())?;
        }
        let mut child = child.start()?;
        let (stdout, stderr) = exchange(&mut child, stdin.as_bytes(), Instant::now() + deadline)?;
        Ok(output(child.spare()?, &stdout, &stderr))
    };
    to_its_end().map_err(|error: io::Error| KernelError::from_io(&error, "run", program.to_string_lossy()))
}

/// The server's own environment, without what is given anew; always with a PATH.
fn inherited(variables: &[(&str, String)]) -> impl Iterator<Item = (OsString, OsString)> {
    let given = |name: &OsStr| variables.iter().any(|(given, _)| name == *given);
    let no_path = std::env::var_os("PATH").is_none().then(|| ("PATH".into(), PATH.into()));
    std::env::vars_os()
        .filter(move |(name, _)| !OURS.iter().any(|ours| name == ours) && !given(name))
        .chain(no_path)
}

/// Where a program given by its name is.
fn find(program: &str) -> io::Result<PathBuf> {
    if program.contains('/') {
        return Ok(program.into());
    }
    let mut places = PATH.split(':').map(|directory| Path::new(directory).join(program));
    places.find(|path| path.is_file()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Feeds the child and listens to it until it has exited. A grandchild that holds the pipes is not waited for.
fn exchange(child: &mut Child, mut input: &[u8], until: Instant) -> io::Result<(Vec<u8>, Vec<u8>)> {
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
        let mut fds = vec![PollFd::new(child.exited.as_fd(), PollFlags::POLLIN)];
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

fn output(status: WaitStatus, stdout: &[u8], stderr: &[u8]) -> Output {
    let (code, signal) = match status {
        WaitStatus::Exited(_, code) => (Some(code), None),
        WaitStatus::Signaled(_, signal, _) => (None, Some(signal as i32)),
        // Only asked for with flags that are not used here.
        _ => (None, None),
    };
    Output {
        code,
        signal,
        stdout: String::from_utf8_lossy(stdout).into_owned(),
        stderr: String::from_utf8_lossy(stderr).into_owned(),
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
    fn a_child_begins_without_blocked_or_ignored_signals_in_a_group_of_its_own() {
        let status = run("cat", &["/proc/self/status"], "", 5 * SECOND).unwrap().stdout;
        let of =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        // 32 and 33 are the C library's own.
        let signals = |name: &str| u64::from_str_radix(&of(name), 16).unwrap() & !(3 << 31);
        assert_eq!((signals("SigBlk:"), signals("SigIgn:")), (0, 0));
        assert_eq!(of("NSpgid:"), of("Pid:"));
    }

    #[test]
    fn a_program_that_cannot_be_executed_says_why_and_leaves_no_child() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugin");
        std::fs::write(&path, "no program").unwrap();
        let error = run_foreign(&path, &[], "", SECOND).unwrap_err();
        assert_eq!(error.errno, libc::EACCES, "{error}");
        let own = format!("/proc/{}/task/{}/children", std::process::id(), nix::unistd::gettid());
        assert_eq!(std::fs::read_to_string(own).unwrap_or_default(), "");
    }

    /// Where the links of a directory lead.
    fn links(directory: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir(directory).unwrap().flatten();
        all.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
    }

    #[test]
    fn many_threads_start_many_programs_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let held = directory.path().join("held");
        std::fs::write(&held, "").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let held = &held;
                scope.spawn(move || {
                    for turn in 0..200 {
                        // Of each thread's own, and without O_CLOEXEC while others start programs.
                        let flags = OFlag::O_RDONLY;
                        let kept = nix::fcntl::open(held, flags, nix::sys::stat::Mode::empty()).unwrap();
                        let input = format!("{thread} {turn}");
                        let line = "ls -l /proc/self/fd | grep -c held; cat";
                        let said = match turn % 8 {
                            0 => run("sh", &["-c", line], &input, 60 * SECOND).unwrap().stdout,
                            1 => {
                                assert!(run_foreign(held, &[], "", SECOND).is_err(), "it is no program");
                                format!("0\n{input}")
                            }
                            _ => format!("0\n{}", run("cat", &[], &input, 60 * SECOND).unwrap().stdout),
                        };
                        assert_eq!(said, format!("0\n{input}"));
                        drop(kept);
                    }
                });
            }
        });
        assert!(!links("/proc/self/fd").contains(&held), "a descriptor is left");
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
