//! Eyes of our own: `ip -j`, `nft -j`, `ss`, `journalctl`. Nothing here asks hostcni.

use std::process::{Command, Output};

use serde_json::Value;

/// Where a command can be run: in a node, in a network namespace.
pub trait Place {
    /// A command that will run there, without the environment of the test.
    fn command(&self, program: &str) -> Command;

    /// Runs a line of shell there; its status is the caller's concern.
    fn run(&self, line: &str) -> Output {
        self.command("/bin/sh").args(["-c", line]).output().expect("the shell starts")
    }

    /// Runs a line of shell there that has to succeed; its standard output, trimmed.
    ///
    /// # Panics
    /// When it fails; the message holds all it said.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "`{line}`: {}\n{}", output.status, both(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Whether a line of shell succeeds there.
    fn succeeds(&self, line: &str) -> bool {
        self.run(line).status.success()
    }
}

/// The machine that runs the tests itself.
pub struct Here;

impl Place for Here {
    fn command(&self, program: &str) -> Command {
        Command::new(program)
    }
}

/// Standard output and error of a command, for messages.
pub fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// `ip -j -d ARGS`, as JSON. Nothing found is an empty list.
#[track_caller]
pub fn ip(place: &impl Place, args: &str) -> Vec<Value> {
    let text = place.ok(&format!("ip -j -d {args}"));
    if text.is_empty() { Vec::new() } else { serde_json::from_str(&text).expect("ip prints JSON") }
}

/// The names of the links there.
pub fn links(place: &impl Place) -> Vec<String> {
    ip(place, "link show").iter().filter_map(|link| Some(link["ifname"].as_str()?.to_owned())).collect()
}

/// The global addresses of a link there, as `address/prefix`.
pub fn addresses(place: &impl Place, link: &str) -> Vec<String> {
    ip(place, &format!("address show dev {link} scope global"))
        .iter()
        .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default())
        .filter_map(|entry| Some(format!("{}/{}", entry["local"].as_str()?, entry["prefixlen"])))
        .collect()
}

/// `nft -j list ruleset`, its objects.
#[track_caller]
pub fn nft(place: &impl Place) -> Vec<Value> {
    let all: Value = serde_json::from_str(&place.ok("nft -j list ruleset")).expect("nft prints JSON");
    all["nftables"].as_array().cloned().unwrap_or_default()
}

/// `ss -H ARGS`, its lines.
#[track_caller]
pub fn ss(place: &impl Place, args: &str) -> Vec<String> {
    place.ok(&format!("ss -H {args}")).lines().map(str::to_owned).collect()
}

/// `journalctl -o json ARGS`, its entries in order.
#[track_caller]
pub fn journal(place: &impl Place, args: &str) -> Vec<Value> {
    place
        .ok(&format!("journalctl --sync; journalctl -q --no-pager -o json {args}"))
        .lines()
        .map(|line| serde_json::from_str(line).expect("journalctl prints JSON lines"))
        .collect()
}

/// A property of a systemd unit, as `systemctl show` prints it.
#[track_caller]
pub fn property(place: &impl Place, unit: &str, name: &str) -> String {
    place.ok(&format!("systemctl show --value -p {name} {unit}"))
}
