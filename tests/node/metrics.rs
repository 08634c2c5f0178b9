//! The metrics of a node's server: off by default, true, readable by Prometheus, and no burden.

#![allow(clippy::float_cmp)] // counts are whole

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, both, property, ss};
use crate::support::wait::{LONG, until, until_some};

const SOCKET: &str = "/run/hostcni/metrics.sock";
const UNIT: &str = "hostcni-metrics.socket";

pub fn metrics_are_off_until_somebody_wants_them_and_then_tell_what_happened(node: &mut Node) {
    boot(node);
    assert_eq!(property(node, UNIT, "UnitFileState"), "disabled");
    assert!(!node.live(SOCKET).exists(), "nobody listens");
    // The socket of a service that runs is refused by systemd, and nothing else comes of it.
    assert!(!node.succeeds(&format!("systemctl start {UNIT}")));
    assert_eq!(active(node), "active");

    node.ok(&format!("systemctl enable {UNIT} && systemctl restart hostcni.service"));
    assert_eq!(property(node, UNIT, "ActiveState"), "active");
    assert_eq!(node.ok(&format!("stat -c %a:%u {SOCKET}")), "600:0");
    let text = scrape(node, "");
    assert_eq!(value(&text, "hostcni_ready"), 1.0);
    let ready = value(&text, "hostcni_time_to_ready_seconds");
    assert!(ready > 0.0 && ready < LONG.as_secs_f64(), "{ready}");
    let began = "date -d \"$(systemctl show -P ExecMainStartTimestamp hostcni.service)\" +%s";
    let began: f64 = node.ok(began).parse().expect("a number");
    assert!((value(&text, "hostcni_start_time_seconds") - began).abs() < 2.0, "since {began}: {text}");
    let version = node.ok("hostcni --version");
    let version = version.rsplit(' ').next().unwrap_or_default();
    assert_eq!(value(&text, &format!("hostcni_build_info{{version=\"{version}\"}}")), 1.0);

    add(node, "web").result();
    add(node, "mail").result();
    let config = conf(node);
    let taken = Call::new("ADD", "other", &config).with("CNI_NETNS", "/run/netns/web").send(node);
    assert_eq!(taken.code(), 102);
    Call::new("DEL", "mail", &config).send(node).result();
    // A text may be a quarter of a second old.
    until_value(node, &request("DEL", "ok"), 1.0);
    let text = scrape(node, "");
    for (series, expected) in [
        (request("ADD", "ok"), 2.0),
        (request("ADD", "102"), 1.0),
        (request("DEL", "ok"), 1.0),
        (request("GC", "ok"), 0.0),
        ("hostcni_requests_in_flight{verb=\"ADD\"}".to_owned(), 0.0),
        ("hostcni_attachments{network=\"openshift-sdn\"}".to_owned(), 1.0),
        ("hostcni_network_able{network=\"openshift-sdn\"}".to_owned(), 1.0),
        (range("used", "10.128.0.0/23"), 1.0),
        // Without the network's own address, the last one, and the gateway's.
        (range("free", "10.128.0.0/23"), 512.0 - 3.0 - 1.0),
        (range("used", "fd01:0:0:1::/64"), 1.0),
        ("hostcni_spooled_dels".to_owned(), 0.0),
        ("hostcni_service_restarts_total".to_owned(), 0.0),
        ("hostcni_repairs_total{object=\"conf\"}".to_owned(), 0.0),
        ("hostcni_journal_entries_lost_total".to_owned(), 0.0),
    ] {
        assert_eq!(value(&text, &series), expected, "{series}");
    }
    let sum = "hostcni_request_duration_seconds_sum{verb=\"DEL\",outcome=\"ok\"}";
    assert!(value(&text, sum) > 0.0 && value(&text, sum) < LONG.as_secs_f64());
    for thread in ["links", "reaper", "netns", "nft"] {
        for what in ["wait", "work"] {
            let count = format!("hostcni_netlink_{what}_seconds_count{{thread=\"{thread}\"}}");
            assert!(value(&text, &count) >= 1.0, "{count}");
        }
    }
    until("the watchdog's question", || value(&scrape(node, ""), "hostcni_rtnl_probe_seconds_count") >= 1.0);

    // What others do to it.
    node.ok(&format!("rm {CONF}"));
    until_value(node, "hostcni_repairs_total{object=\"conf\"}", 1.0);
    node.ok("nft delete table inet hostcni");
    until_value(node, "hostcni_repairs_total{object=\"nftables\"}", 1.0);
    node.ok("ip address del 10.128.0.1/23 dev hostcni0");
    until_value(node, "hostcni_repairs_total{object=\"node\"}", 1.0);
    node.ok("ip netns del web");
    until_value(node, "hostcni_leases_reclaimed_total", 1.0);
    until_value(node, &range("used", "10.128.0.0/23"), 0.0);

    // A crash is systemd's to tell of; a DEL that found no server is told of by the one that finds it.
    node.ok(&format!("kill -KILL {}", server(node)));
    until("systemd's new start", || property(node, "hostcni.service", "NRestarts") == "1");
    until_active(node);
    until_value(node, "hostcni_service_restarts_total", 1.0);
    add(node, "late").result();
    node.ok("systemctl stop hostcni.socket hostcni.service");
    assert_eq!(property(node, UNIT, "ActiveState"), "inactive", "a reader shall not start the service");
    Call::new("DEL", "late", &config).send(node).result();
    assert_eq!(spooled(node).len(), 1);
    node.ok("systemctl start hostcni.service");
    let text = scrape(node, "");
    assert_eq!(value(&text, "hostcni_spool_replays_total{outcome=\"ok\"}"), 1.0);
    assert_eq!(value(&text, "hostcni_spooled_dels"), 0.0);
    nothing_left(node);
    lint(&scrape(node, "Accept: text/plain\r\n"));

    node.ok(&format!(
        "systemctl disable {UNIT} && systemctl stop {UNIT} && systemctl restart hostcni.service"
    ));
    assert!(!node.live(SOCKET).exists(), "nobody listens");
    assert_eq!(active(node), "active");
}

pub fn prometheus_reads_a_port_of_the_loopback_interface_and_no_other_is_taken(node: &mut Node) {
    listen(node, "127.0.0.1:9463");
    boot(node);
    node.ok(&format!("systemctl enable {UNIT} && systemctl restart hostcni.service"));
    let listening = ss(node, "-tln sport = :9463");
    assert!(listening.len() == 1 && listening[0].contains("127.0.0.1:9463"), "{listening:?}");
    add(node, "web").result();

    let prometheus = Prometheus::start(node);
    until("Prometheus to have read it", || prometheus.says("up{job=\"hostcni\"}", "1"));
    until("Prometheus to know what it read", || prometheus.says("hostcni_ready", "1"));
    assert!(prometheus.says("hostcni_request_duration_seconds_count{verb=\"ADD\",outcome=\"ok\"}", "1"));
    // The type came with the text: it was read as OpenMetrics.
    assert!(prometheus.says("sum(hostcni_repairs_total)", "0"));
    drop(prometheus);

    // Open to others: no start, and the reason where the operator looks.
    for address in ["0.0.0.0:9463", "[::]:9463"] {
        listen(node, address);
        node.ok("systemctl daemon-reload");
        assert!(!node.succeeds("systemctl restart hostcni.service"));
        let status = property(node, "hostcni.service", "StatusText");
        assert!(status.contains(&format!("the socket named metrics listens on {address}")), "{status}");
        assert!(!node.has(CONF), "nobody answers");
    }
    listen(node, "[::1]:9463");
    node.ok("systemctl daemon-reload && systemctl restart hostcni.service");
    let said = node
        .ok("bash -c 'exec 3<>/dev/tcp/::1/9463; printf \"GET /metrics HTTP/1.1\\r\\n\\r\\n\" >&3; cat <&3'");
    assert_eq!(value(&said, "hostcni_ready"), 1.0);
}

pub fn readers_who_say_nothing_or_nonsense_keep_no_request_waiting(node: &mut Node) {
    boot(node);
    node.ok(&format!("systemctl enable {UNIT} && systemctl restart hostcni.service"));
    let (pid, config) = (server(node), conf(node));
    let descriptors = || node.ok(&format!("ls /proc/{pid}/fd | wc -l"));
    until("the start's descriptors to be closed", || {
        let before = descriptors();
        thread::sleep(Duration::from_millis(300));
        before == descriptors()
    });
    let before = descriptors();
    let path = node.live(SOCKET);
    let end = Instant::now() + Duration::from_secs(12);
    thread::scope(|scope| {
        for kind in 0..12 {
            let path = &path;
            scope.spawn(move || {
                while Instant::now() < end {
                    let Ok(mut peer) = UnixStream::connect(path) else { continue };
                    peer.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
                    peer.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
                    misbehave(&mut peer, kind);
                }
            });
        }
        let mut longest = Duration::ZERO;
        let mut count = 0;
        while Instant::now() + Duration::from_secs(2) < end {
            let pod = format!("pod{count}");
            let answer = add(node, &pod);
            longest = longest.max(answer.took);
            answer.result();
            let answer = Call::new("DEL", &pod, &config).send(node);
            longest = longest.max(answer.took);
            answer.result();
            count += 1;
        }
        println!("{count} ADDs and DELs beside bad readers: at most {longest:?}");
        assert!(count > 3 && longest < Duration::from_secs(5), "{count}, at most {longest:?}");
    });
    // Whoever comes now is served, and nothing is left of the others.
    let text = scrape(node, "");
    assert!(value(&text, &request("ADD", "ok")) > 3.0);
    until("the readers to be gone", || descriptors() == before);
    assert_eq!(server(node), pid, "the same server");
    assert_eq!(property(node, "hostcni.service", "NRestarts"), "0");
    nothing_left(node);
}

fn misbehave(peer: &mut UnixStream, kind: u32) {
    let mut sink = [0; 4096];
    let answered = match kind % 4 {
        // Nothing.
        0 => Ok(()),
        // Everything but a request.
        1 => peer.write_all(&vec![0xff; 64 << 10]),
        // A byte now and then.
        2 => b"GET /metrics HTTP/1.1\r\n".iter().try_for_each(|byte| {
            thread::sleep(Duration::from_millis(200));
            peer.write_all(&[*byte])
        }),
        // A question, and no ear for the answer.
        _ => {
            let asked = peer.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            thread::sleep(Duration::from_millis(50));
            let _ = peer.shutdown(Shutdown::Both);
            asked
        }
    };
    if answered.is_ok() {
        while peer.read(&mut sink).is_ok_and(|length| length > 0) {}
    }
}

/// What the node's socket answers to a good question.
#[track_caller]
fn scrape(node: &Node, header: &str) -> String {
    let mut peer = until_some("a reader's place", LONG, || UnixStream::connect(node.live(SOCKET)).ok());
    peer.set_read_timeout(Some(LONG)).unwrap();
    write!(peer, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").unwrap();
    let mut said = String::new();
    peer.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

/// The value of a series.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{series} in {text}")).trim().parse().expect("a number")
}

#[track_caller]
fn until_value(node: &Node, series: &str, expected: f64) {
    until(&format!("{series} to be {expected}"), || {
        (value(&scrape(node, ""), series) - expected).abs() < f64::EPSILON
    });
}

fn request(verb: &str, outcome: &str) -> String {
    format!("hostcni_request_duration_seconds_count{{verb=\"{verb}\",outcome=\"{outcome}\"}}")
}

fn range(what: &str, subnet: &str) -> String {
    format!("hostcni_leases_{what}{{network=\"openshift-sdn\",subnet=\"{subnet}\"}}")
}

/// Prometheus' own judge has nothing to say.
#[track_caller]
fn lint(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("needs promtool");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success() && both(&output).is_empty(), "{}", both(&output));
}

/// Gives the socket another address, from its next start on.
fn listen(node: &Node, address: &str) {
    let lines = format!("[Socket]\nListenStream=\nListenStream={address}\n");
    node.write(&format!("/etc/systemd/system/{UNIT}.d/address.conf"), &lines);
}

/// A Prometheus with the shipped rules in the node's network.
struct Prometheus {
    process: Child,
    network: String,
    directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(node: &Node) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = concat!(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n",
            "rule_files: [",
            env!("CARGO_MANIFEST_DIR"),
            "/packaging/usr/share/hostcni/monitoring/hostcni.rules.yml]\n",
            "scrape_configs:\n  - job_name: hostcni\n    static_configs: [{targets: ['127.0.0.1:9463']}]\n",
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let network = format!("--net=/proc/{}/ns/net", node.leader());
        let process = Command::new("nsenter")
            .args([&network, "--", "prometheus", "--web.listen-address=127.0.0.1:9090"])
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .expect("needs prometheus");
        Self { process, network, directory }
    }

    /// Whether it has exactly one series for a query, with that value.
    fn says(&self, query: &str, value: &str) -> bool {
        let output = Command::new("nsenter")
            .args([&self.network, "--", "promtool", "query", "instant", "http://127.0.0.1:9090", query])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.lines().count() == 1 && said.contains(&format!("=> {value} @"))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            println!("{}", log.unwrap_or_default());
        }
    }
}
