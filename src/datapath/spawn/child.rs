//! Starting a process without copying this one's memory map.
//!
//! `fork()` copies the page tables of a server that holds many pods, and makes every page that is written
//! afterwards a fault: with 8 MiB in use that is more than the whole life of a small program. std's `Command`
//! forks as soon as something has to be done between fork and exec, and here something has. So the child shares
//! our memory until it executes (`CLONE_VM | CLONE_VFORK`, as `posix_spawn` has it), and the calling thread waits.

use std::ffi::{CString, OsStr};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_char, c_int};
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

/// What the child has of the stack before it executes: some system calls deep.
const STACK: usize = 64 << 10;

/// What is executed, and with what.
pub(super) struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Whether it dies with the thread that started it.
    mortal: bool,
}

/// A started child, in a process group of its own, with pipes at its three standard descriptors.
pub(super) struct Child {
    pid: Pid,
    /// Readable when the child has exited.
    pub(super) exited: OwnedFd,
    pub(super) stdin: Option<PipeWriter>,
    pub(super) stdout: Option<PipeReader>,
    pub(super) stderr: Option<PipeReader>,
    reaped: bool,
}

impl Program {
    pub(super) fn new(path: &Path, mortal: bool) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { arguments: vec![path.clone()], path, environment: Vec::new(), mortal })
    }

    pub(super) fn argument(&mut self, argument: &str) -> io::Result<()> {
        self.arguments.push(CString::new(argument)?);
        Ok(())
    }

    pub(super) fn variable(&mut self, name: &OsStr, value: &OsStr) -> io::Result<()> {
        self.environment.push(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        Ok(())
    }

    /// Starts it in the directory `/`. No other descriptor of ours reaches it.
    pub(super) fn start(&self) -> io::Result<Child> {
        let (stdin, ours_in) = io::pipe()?;
        let (ours_out, stdout) = io::pipe()?;
        let (ours_err, stderr) = io::pipe()?;
        let standard = [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let parent = nix::unistd::getpid();
        let failed = AtomicI32::new(0);
        let mut stack = vec![0; STACK];
        let body = Box::new(|| {
            // SAFETY: this is the child, before it executes; see `become_it`.
            let errno = unsafe { self.become_it(parent, standard, &arguments, &environment) };
            failed.store(errno as c_int, Ordering::Relaxed);
            // No destructor, no handler: all memory is the parent's.
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(127) }
        });
        // A handler of ours must not run in the child, on the parent's memory.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: CLONE_VFORK: the calling thread stands still, so what `body` borrows and the stack outlive the child's
        // use of them. The other threads run on; `body` takes no lock and allocates nothing.
        let started = unsafe {
            clone(body, &mut stack, CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK, Some(libc::SIGCHLD))
        };
        before.thread_set_mask()?;
        let pid = started?;
        let errno = failed.load(Ordering::Relaxed);
        if errno != 0 {
            let _ = reap(pid);
            return Err(io::Error::from_raw_os_error(errno));
        }
        let exited = rustix::process::Pid::from_raw(pid.as_raw())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let exited = exited.inspect_err(|_| {
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = reap(pid);
        })?;
        let (stdin, stdout, stderr) = (Some(ours_in), Some(ours_out), Some(ours_err));
        Ok(Child { pid, exited, stdin, stdout, stderr, reaped: false })
    }

    /// Executes the program; comes back with the reason why not.
    ///
    /// # Safety
    ///
    /// For a child that shares its parent's memory but not its descriptors, directory and signal handlers. Only system
    /// calls: no allocation and no lock.
    unsafe fn become_it(
        &self,
        parent: Pid,
        standard: [c_int; 3],
        arguments: &[*const c_char],
        environment: &[*const c_char],
    ) -> Errno {
        let check = |outcome: c_int| if outcome < 0 { Err(Errno::last()) } else { Ok(()) };
        // SAFETY: system calls on values that live until the parent goes on.
        let done = unsafe {
            let prepare = || -> Result<(), Errno> {
                check(libc::setpgid(0, 0))?;
                // A server that was killed must not have its plugins go on behind the back of the next one.
                if self.mortal {
                    check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                    // Nobody tells of a parent that died before.
                    if libc::getppid() != parent.as_raw() {
                        return Err(Errno::ESRCH);
                    }
                }
                // Whatever the server holds and however it got it: a pod's namespace that a child keeps open would never
                // go away.
                if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) != 0 {
                    return Err(Errno::last());
                }
                for (target, fd) in (0..).zip(standard) {
                    check(libc::dup2(fd, target))?;
                }
                check(libc::chdir(c"/".as_ptr()))?;
                // What we handle or ignore the program shall meet as it usually does.
                for signal in 1..=64 {
                    libc::signal(signal, libc::SIG_DFL);
                }
                let none = SigSet::empty();
                check(libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ref(), std::ptr::null_mut()))
            };
            prepare().map(|()| libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()))
        };
        done.err().unwrap_or_else(Errno::last)
    }
}

impl Child {
    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// How the child ended; waits for it, and lets nothing of its group live on.
    pub(super) fn reap(&mut self) -> io::Result<WaitStatus> {
        // Only before the child is reaped: after that the kernel may give its number to another group.
        if !self.reaped {
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
        self.spare()
    }

    /// How a child that has ended by itself ended.
    pub(super) fn spare(&mut self) -> io::Result<WaitStatus> {
        self.reaped = true;
        reap(self.pid)
    }
}

/// A child leaves nothing behind: its group is killed and it is reaped, on every way out.
impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.reap();
        }
    }
}

fn reap(pid: Pid) -> io::Result<WaitStatus> {
    loop {
        match waitpid(pid, None) {
            Err(Errno::EINTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// The array that execve takes: it ends with a null.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}
