//! A real node: a Debian root under its own systemd, in namespaces of its own, with hostcni installed by
//! `make install`. Its disk is an overlay that survives its reboots and power cuts. All of it goes when the
//! `Node` is dropped, or when this process dies in any way: see `node-holder`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;
use std::{fs, process, thread};

use super::observe::{Place, both};
use super::wait::{LONG, until_some};

/// Exit status of `systemd-nspawn` when the node asked for a reboot.
const REBOOT: &str = "gone 133";
/// `PATH` in the node, as systemd has it.
const SEARCH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// One node, off or on.
pub struct Node {
    holder: Child,
    /// Orders to the holder; its end is the node's.
    orders: Option<ChildStdin>,
    /// What the holder tells.
    told: Mutex<mpsc::Receiver<String>>,
    /// The disk as the holder sees it.
    disk: PathBuf,
    /// The node's process 1, while it is on.
    leader: Option<u32>,
}

impl Node {
    /// A node with a fresh disk, switched off.
    ///
    /// # Panics
    /// Where no node can be had (that takes root and the packages of `tests/support/packages node`), with
    /// the reason.
    pub fn new() -> Self {
        Self::over(lower())
    }

    /// A node without hostcni.
    pub fn bare() -> Self {
        Self::over(bare())
    }

    fn over(lower: &str) -> Self {
        let name = format!("hostcni-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut holder = Command::new(support("node-holder"))
            .args([&name, lower])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node-holder starts");
        let orders = holder.stdin.take();
        let output = holder.stdout.take().expect("it was asked for");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let line = told.recv_timeout(LONG).expect("node-holder makes a disk; it says above what is missing");
        let inside = line.strip_prefix("root /").expect("its first line names the disk");
        let disk = PathBuf::from(format!("/proc/{}/root", holder.id())).join(inside);
        Self { holder, orders, told: Mutex::new(told), disk, leader: None }
    }

    /// Switches the node on; comes back as soon as commands can be run in it.
    pub fn power_on(&mut self) {
        assert!(self.leader.is_none(), "the node is on");
        self.order("boot");
        let holder = self.holder.id();
        self.leader = Some(until_some("the node's systemd", LONG, || leader_below(holder)));
        until_some("the node's system bus", LONG, || {
            self.told_gone();
            self.succeeds("systemctl show-environment").then_some(())
        });
    }

    /// Switches the node on and waits until its systemd has nothing left to start.
    pub fn boot(&mut self) {
        self.power_on();
        self.settle();
    }

    /// Waits until systemd has nothing left to start; says `running` or `degraded`.
    pub fn settle(&self) -> String {
        until_some("the boot's end", LONG, || {
            let output = self.run("systemctl is-system-running --wait");
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            matches!(state.as_str(), "running" | "degraded").then_some(state)
        })
    }

    /// An orderly reboot, up to the next boot's [`Node::settle`].
    pub fn reboot(&mut self) {
        self.go_down();
        self.boot();
    }

    /// The first half of a reboot: down in order, and off, so that the disk can be looked at.
    pub fn go_down(&mut self) {
        self.shut_down("reboot", REBOOT);
    }

    /// An orderly end: `systemctl poweroff`.
    pub fn power_off(&mut self) {
        self.shut_down("poweroff", "gone 0");
    }

    /// The end without any order: every process gone at once, the disk as it is.
    pub fn cut_power(&mut self) {
        let leader = self.leader.take().expect("the node is on");
        signal(leader, "KILL");
        let line = self.next_told("its end");
        assert_ne!(line, REBOOT, "that was a reboot");
    }

    /// A path on the disk, on or off.
    pub fn path(&self, path: &str) -> PathBuf {
        self.disk.join(path.trim_start_matches('/'))
    }

    /// A path as the running node sees it, with its `/run` and `/tmp`.
    pub fn live(&self, path: &str) -> PathBuf {
        let leader = self.leader.expect("the node is on");
        PathBuf::from(format!("/proc/{leader}/root")).join(path.trim_start_matches('/'))
    }

    /// Whether there is something at a path of the disk, be it a dangling link.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// A file of the disk, if it is there.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// Writes a file of the disk, with the directories above it.
    #[track_caller]
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("the directory can be made");
        fs::write(&path, text).expect("the file can be written");
    }

    /// Starts a line of shell in the node and goes on.
    pub fn start(&self, line: &str) -> Running {
        let mut command = self.command("/bin/sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { line: line.to_owned(), child: Some(command.spawn().expect("nsenter starts")) }
    }

    /// Whether it is switched on.
    pub fn is_on(&self) -> bool {
        self.leader.is_some()
    }

    /// Enables or disables units while the node is off.
    #[track_caller]
    pub fn unit_files(&self, verb: &str, units: &[&str]) {
        let output = Command::new("systemctl").arg("--root").arg(&self.disk).arg(verb).args(units).output();
        let output = output.expect("systemctl is there");
        assert!(output.status.success(), "systemctl {verb} {units:?}: {}", both(&output));
    }

    /// The host's number of the node's process 1.
    pub fn leader(&self) -> u32 {
        self.leader.expect("the node is on")
    }

    /// What a person would look at first after a failure, whatever state the node is in.
    pub fn evidence(&self) -> String {
        let journal = Command::new("journalctl")
            .args(["-q", "--no-pager", "-o", "short-precise", "-n", "250", "-D"])
            .arg(self.path("/var/log/journal"))
            .output();
        let mut text = format!("--- journal\n{}", journal.map_or_else(|e| e.to_string(), |o| both(&o)));
        if self.leader.is_some() {
            for line in [
                "systemctl --no-pager status 'hostcni*'",
                "systemctl list-units --failed --no-legend; systemctl list-jobs --no-legend",
                "ls -la /etc/cni/net.d /run/hostcni /var/lib/hostcni",
                "ip -br address; ip route; ip -6 route",
                "cat /var/log/runtime-like",
            ] {
                text = text + "--- " + line + "\n" + &both(&self.run(line));
            }
        }
        text
    }

    fn shut_down(&mut self, verb: &str, end: &str) {
        self.ok(&format!("systemctl --no-block {verb}"));
        let line = self.next_told("an orderly end");
        self.leader = None;
        assert_eq!(line, end, "how the node ended after {verb}");
    }

    fn order(&mut self, word: &str) {
        let orders = self.orders.as_mut().expect("the node has not been given up");
        writeln!(orders, "{word}").expect("the holder listens");
    }

    fn next_told(&self, what: &str) -> String {
        let told = self.told.lock().expect("nobody panics with it");
        told.recv_timeout(2 * LONG).unwrap_or_else(|_| panic!("waited in vain for the node's {what}"))
    }

    /// A node that ended by itself while it was expected to come up.
    fn told_gone(&self) {
        if let Ok(line) = self.told.lock().expect("nobody panics with it").try_recv() {
            panic!("the node ended while booting: {line}");
        }
    }
}

impl Place for Node {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.leader().to_string(), "--", "/usr/bin/env", "-i"]);
        command.args([SEARCH, "HOME=/root", "LANG=C.UTF-8", program]);
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.orders.take());
        for _ in 0..500 {
            if let Ok(Some(_)) = self.holder.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A command that runs in a node meanwhile; killed when dropped.
pub struct Running {
    line: String,
    child: Option<Child>,
}

impl Running {
    /// Waits for its end.
    pub fn wait(mut self) -> Output {
        let child = self.child.take().expect("it is waited for once");
        child.wait_with_output().expect("its output can be read")
    }

    /// Waits for its end, which has to be a good one; its standard output, trimmed.
    #[track_caller]
    pub fn wait_ok(self) -> String {
        let line = self.line.clone();
        let output = self.wait();
        assert!(output.status.success(), "`{line}`: {}\n{}", output.status, both(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process of the node by the host's number of it.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.is_ok_and(|s| s.success()), "process {pid} takes a {name}");
}

/// The lower directories of every node: hostcni and the tests' own files, over Debian. Made once a run.
fn lower() -> &'static str {
    static LOWER: OnceLock<String> = OnceLock::new();
    LOWER.get_or_init(|| {
        let layer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-layer");
        let _ = fs::remove_dir_all(&layer);
        script("node-layer", &[&layer.to_string_lossy(), concat!("BUILT=", env!("CARGO_BIN_EXE_hostcni"))]);
        format!("{}:{}", layer.display(), script("node-root", &[]))
    })
}

/// The same without hostcni.
fn bare() -> &'static str {
    static LOWER: OnceLock<String> = OnceLock::new();
    LOWER.get_or_init(|| {
        let layer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-layer-bare");
        let _ = fs::remove_dir_all(&layer);
        script("node-layer", &[&layer.to_string_lossy(), "bare"]);
        format!("{}:{}", layer.display(), script("node-root", &[]))
    })
}

/// An earlier hostcni.
pub fn older() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("older");
    script("older", &[&directory.to_string_lossy()]).into()
}

fn script(name: &str, args: &[&str]) -> String {
    let output = Command::new(support(name)).args(args).stderr(Stdio::piped()).output();
    let output = output.expect("the script starts");
    assert!(output.status.success(), "tests/support/{name}: {}", both(&output));
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

fn support(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name)
}

/// The process below `ancestor` that is a node's systemd: the child of an nspawn that has become it. Before
/// that it is nspawn's own helper, whose namespaces are not the node's yet.
fn leader_below(ancestor: u32) -> Option<u32> {
    let processes: HashMap<u32, (String, u32)> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (head, tail) = stat.rsplit_once(") ")?;
            let name = head.split_once('(')?.1.to_owned();
            Some((pid, (name, tail.split(' ').nth(1)?.parse().ok()?)))
        })
        .collect();
    let below = |mut pid: u32| loop {
        match processes.get(&pid) {
            Some((_, parent)) if *parent == ancestor => break true,
            Some((_, parent)) => pid = *parent,
            None => break false,
        }
    };
    let is = |pid: &u32, name: &str| processes.get(pid).is_some_and(|(found, _)| found == name);
    let found = |(pid, (name, parent)): (&u32, &(String, u32))| {
        (name == "systemd" && is(parent, "systemd-nspawn") && below(*pid)).then_some(*pid)
    };
    processes.iter().find_map(found)
}
