//! A pod receives and sends as fast as its limits say, and what limits it goes with it.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::cni::{Answer, Call};
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place, ip, links};
use crate::support::server::Server;
use crate::support::wait::until;

const MBIT: f64 = 1e6;

/// A call with limits.
fn call(server: &Server, command: &str, name: &str, pod: &Namespace, limits: &Value) -> Call {
    server.call_with(command, name, pod, ("bandwidth", limits))
}

fn add(server: &Server, name: &str, pod: &Namespace, limits: &Value) -> Answer {
    call(server, "ADD", name, pod, limits).send(&Here)
}

fn both(rate: u64, burst: u64) -> Value {
    json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
}

/// The ifbs of the node.
fn shapers(server: &Server) -> Vec<String> {
    links(&server.node).into_iter().filter(|link| link.starts_with("hi")).collect()
}

/// The kinds of the qdiscs of the node's pods, without those that every link has.
fn qdiscs(server: &Server) -> Vec<String> {
    let all: Vec<Value> = serde_json::from_str(&server.node.ok("tc -j qdisc show")).expect("tc prints JSON");
    let of_pods = all.iter().filter(|it| it["dev"].as_str().is_some_and(|dev| dev.starts_with('h')));
    let mut kinds: Vec<String> = of_pods.filter_map(|it| Some(it["kind"].as_str()?.to_owned())).collect();
    kinds.retain(|kind| ["tbf", "ingress"].contains(&kind.as_str()));
    kinds.sort();
    kinds
}

/// An iperf3 server in a pod; it ends with this.
struct Iperf(Child);

impl Iperf {
    fn new(pod: &Namespace) -> Self {
        let server =
            pod.command("iperf3").arg("-s").stdout(Stdio::null()).spawn().expect("iperf3 is installed");
        until("iperf3 to listen", || pod.succeeds("ss -Hltn sport = 5201 | grep -q 5201"));
        Self(server)
    }
}

impl Drop for Iperf {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bits per second on the link between the node and the pod, as what the receiver got of TCP's payload and 66 bytes of
/// headers with each 1448 of it (the limits count whole frames, as the kernel does).
fn measured(node: &Namespace, address: &str, from_pod: bool, seconds: u32) -> f64 {
    let reverse = if from_pod { "-R" } else { "" };
    let text = node.ok(&format!("iperf3 -J -c {address} -O 1 -t {seconds} {reverse}"));
    let result: Value = serde_json::from_str(&text).expect("iperf3 prints JSON");
    let payload = result["end"]["sum_received"]["bits_per_second"].as_f64().expect("a number");
    payload * f64::from(1448 + 66) / 1448.0
}

/// The machine may be busy; a limit that does not hold fails each time.
#[track_caller]
fn holds(node: &Namespace, address: &str, from_pod: bool, wanted: f64) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let rate = measured(node, address, from_pod, 4);
        seen.push(format!("{:.1}", rate / MBIT));
        if (rate / wanted - 1.0).abs() < 0.05 {
            println!("{:.0} Mbit/s, from the pod {from_pod}: {seen:?}", wanted / MBIT);
            return;
        }
    }
    panic!("{:.0} Mbit/s were set, from the pod {from_pod}, and measured {seen:?}", wanted / MBIT);
}

#[test]
fn a_pod_receives_and_sends_at_its_limits_and_another_without_any_is_much_faster() {
    let server = Server::new();
    let mut pods = Vec::new();
    for (name, rate, burst) in [("slow", 50_000_000_u64, 1_000_000_u64), ("fast", 200_000_000, 4_000_000)] {
        let pod = Namespace::new();
        let addresses = add(&server, name, &pod, &both(rate, burst)).addresses();
        let _iperf = Iperf::new(&pod);
        #[allow(clippy::cast_precision_loss)]
        let wanted = rate as f64;
        holds(&server.node, &addresses[0], false, wanted);
        holds(&server.node, &addresses[1], true, wanted);
        pods.push(pod);
    }
    // Directions are told apart: what is limited one way is not the other way.
    let pod = Namespace::new();
    let one_way = json!({"egressRate": 50_000_000, "egressBurst": 1_000_000});
    let address = &add(&server, "one-way", &pod, &one_way).addresses()[0];
    let iperf = Iperf::new(&pod);
    holds(&server.node, address, true, 50.0 * MBIT);
    let limited = measured(&server.node, address, true, 2);
    assert!(measured(&server.node, address, false, 2) > 10.0 * limited, "the other way");
    drop(iperf);
    let plain = Namespace::new();
    let address = &server.add("plain", &plain).addresses()[0];
    let _iperf = Iperf::new(&plain);
    assert!(measured(&server.node, address, true, 2) > 10.0 * limited, "without limits");
    assert_eq!(shapers(&server).len(), 3, "only who has a limit of what it sends has an ifb");
}

#[test]
fn limits_are_refused_by_half_and_taken_with_any_burst() {
    let server = Server::new();
    let pod = Namespace::new();
    for (key, other, value) in [
        ("ingressRate", "ingressBurst", 1_000_000_u64),
        ("ingressBurst", "ingressRate", 1_000_000),
        ("egressRate", "egressBurst", 1_000_000),
        ("egressBurst", "egressRate", u64::from(u32::MAX)),
    ] {
        for limits in [json!({key: value}), json!({key: value, other: 0})] {
            let answer = add(&server, "half", &pod, &limits);
            assert_eq!(answer.code(), 2, "{}", answer.text());
            assert!(answer.text().contains(&format!("{key} {value} without {other}")), "{}", answer.text());
        }
    }
    server.holds_nothing();

    // A burst smaller than a frame, and what kubelet, containerd and CRI-O write for a burst that does not matter.
    let ocicni = u64::from(u32::MAX) * 8 - 1;
    for burst in [1_600, u64::from(i32::MAX.unsigned_abs()), u64::from(u32::MAX), ocicni, u64::MAX] {
        for rate in [8_000_000, 40_000_000_000] {
            let pod = Namespace::new();
            let answer = add(&server, "whole", &pod, &both(rate, burst));
            assert_eq!(qdiscs(&server), ["ingress", "tbf", "tbf"]);
            pod.ok("ping -q -c 2 -i 0.2 -W 2 -s 1472 10.128.0.1");
            server.check("whole", &pod, &answer.result()).result();
            server.del("whole", "").result();
        }
    }
    add(&server, "none", &pod, &both(0, 0)).result();
    assert_eq!(qdiscs(&server), Vec::<String>::new(), "0 is no limit");
    server.del("none", "").result();
    server.holds_nothing();
}

#[test]
fn what_limits_a_pod_goes_with_it() {
    let server = Server::new();
    let pod = Namespace::new();
    let limits = both(10_000_000, 1_000_000);
    let first = add(&server, "pod", &pod, &limits).result();
    assert_eq!(shapers(&server).len(), 1);
    let shaper = &ip(&server.node, "link show type ifb")[0];
    assert!(shaper["ifalias"].as_str().unwrap().starts_with("hostcni:test/pod/eth0"), "{shaper}");

    // The same again is the same, with other limits another, with none none.
    assert_eq!(add(&server, "pod", &pod, &limits).result(), first);
    let index = |server: &Server| ip(&server.node, "link show type ifb")[0]["ifindex"].clone();
    let before = index(&server);
    assert_eq!(before, shaper["ifindex"], "nothing was made anew");
    add(&server, "pod", &pod, &both(20_000_000, 1_000_000)).result();
    assert_ne!(index(&server), before);
    assert!(server.node.ok("tc qdisc show").contains("rate 20Mbit"));
    server.add("pod", &pod).result();
    assert_eq!((shapers(&server), qdiscs(&server)), (vec![], vec![]));

    // By DEL, also without a record; and with the namespace.
    add(&server, "pod", &pod, &limits).result();
    server.del("pod", "").result();
    assert_eq!((shapers(&server), qdiscs(&server)), (vec![], vec![]));
    add(&server, "dies", &Namespace::new(), &limits).result();
    until("the lease and the ifb to go with the namespace", || {
        server.attachments().is_empty() && shapers(&server).is_empty()
    });
    server.holds_nothing();
}

#[test]
fn a_failed_add_leaves_no_limit_behind() {
    for step in ["datapath.shape", "add.elements", "add.answer"] {
        let fault = [("FAILPOINTS", format!("{step}=1*return->off"))];
        let server = Server::with_environment(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#, &fault);
        let pod = Namespace::new();
        let failed = add(&server, "pod", &pod, &both(10_000_000, 1_000_000));
        assert!(!failed.succeeded(), "{step}: {}", failed.text());
        assert_eq!((shapers(&server), qdiscs(&server)), (vec![], vec![]), "{step}");
        server.holds_nothing();
        add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
        assert_eq!(qdiscs(&server), ["ingress", "tbf", "tbf"], "{step}");
    }
}

#[test]
fn a_crash_leaves_no_limit_behind() {
    for step in ["datapath.shape", "add.elements", "del.link", "del.forget"] {
        let fault = [("FAILPOINTS", format!("{step}=1*return(die)->off"))];
        let mut server = Server::with_environment(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#, &fault);
        let pod = Namespace::new();
        let limits = both(10_000_000, 1_000_000);
        let died = call(&server, "ADD", "pod", &pod, &limits).start(&Here);
        let mut answered = Some(died);
        if step.starts_with("del") {
            answered.take().expect("it was just asked").answer().result();
            answered = Some(server.call("DEL", "pod", "").start(&Here));
        }
        server.child.wait().expect("it dies");
        answered.take().expect("it was just asked").kill();
        server.environment.clear();
        server.start_again();
        assert_eq!((shapers(&server), qdiscs(&server)), (vec![], vec![]), "{step}: {}", server.log());
        server.del("pod", "").result();
        server.holds_nothing();
    }
}

#[test]
fn check_names_what_somebody_changed_and_a_start_puts_it_back() {
    let mut server = Server::new();
    let pod = Namespace::new();
    let result = add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
    server.check("pod", &pod, &result).result();
    let (host, shaper) = (server.veths().remove(0), shapers(&server).remove(0));
    for (command, said) in [
        (format!("tc qdisc del dev {host} root"), format!("the ingress limit is gone from {host}")),
        (format!("tc qdisc del dev {host} ingress"), format!("not led from {host} to {shaper}")),
        (format!("tc filter del dev {host} ingress"), format!("not led from {host} to {shaper}")),
        (format!("tc qdisc del dev {shaper} root"), format!("the egress limit is gone from {shaper}")),
        (format!("ip link set {shaper} down"), format!("interface {shaper}, which limits")),
        (
            format!("tc qdisc change dev {host} root tbf rate 90mbit burst 125000 limit 200000"),
            format!("the ingress limit of {host} is 90000000 bit/s"),
        ),
        (
            format!("tc qdisc change dev {shaper} root tbf rate 10mbit burst 50000 limit 200000"),
            format!("the egress limit of {shaper} is 10000000 bit/s with bursts of 50000 bytes instead"),
        ),
    ] {
        server.node.ok(&command);
        let differs = server.check("pod", &pod, &result);
        assert_eq!(differs.code(), 104, "{command}");
        assert!(differs.text().contains(&said), "{command}: {}", differs.text());
        server.kill();
        server.start_again();
        server.check("pod", &pod, &result).result();
        pod.ok("ping -q -c 1 -W 2 10.128.0.1");
    }

    // Without its ifb the pod could send nothing: that one is not left to the next start.
    server.node.ok(&format!("ip link del {shaper}"));
    until("the ifb to be made again", || server.check("pod", &pod, &result).succeeded());
    pod.ok("ping -q -c 1 -W 2 10.128.0.1");
    assert!(server.log().contains("limited the bandwidth of test/pod/eth0 again"), "{}", server.log());
}

#[test]
fn limits_that_somebody_takes_away_are_back_within_half_a_minute() {
    let server = Server::new();
    let pod = Namespace::new();
    let result = add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
    let host = server.veths().remove(0);
    server.node.ok(&format!("tc qdisc del dev {host} root; tc qdisc del dev {host} ingress"));
    assert_eq!(server.check("pod", &pod, &result).code(), 104);
    until("the limits to be set again", || server.check("pod", &pod, &result).succeeded());
    pod.ok("ping -q -c 1 -W 2 10.128.0.1");
    assert!(server.log().contains("limited the bandwidth of test/pod/eth0 again"), "{}", server.log());
}

#[test]
fn limits_that_cannot_be_set_again_are_a_failure_and_no_repair() {
    let fault = [("FAILPOINTS", "datapath.shape=1*off->return".to_owned())];
    let server = Server::with_environment(r#"subnets = ["10.128.0.0/23", "fd01::/64"]"#, &fault);
    let pod = Namespace::new();
    add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
    let shaper = shapers(&server).remove(0);
    server.node.ok(&format!("ip link del {shaper}"));
    until("the failure to be told", || {
        server.log().contains("cannot limit the bandwidth of test/pod/eth0 again: ")
    });
    assert!(!server.log().contains("limited the bandwidth of"), "{}", server.log());
    server.del("pod", "").result();
    server.holds_nothing();
}

#[test]
fn a_start_removes_ifbs_of_pods_that_are_gone_and_no_others() {
    let mut server = Server::new();
    let pod = Namespace::new();
    add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
    let (host, shaper) = (server.veths().remove(0), shapers(&server).remove(0));
    server.kill();
    // As a crash or somebody's `ip link del` leaves them; and some of others.
    server.node.ok(&format!("ip link del {host}"));
    server.node.ok("ip link add hi0123456789abc type ifb; ip link add ifb7 type ifb");
    server
        .node
        .ok("ip link add hi0123456789abd type ifb; ip link set hi0123456789abd alias hostcni:other/x/eth0");
    for record in server.attachments() {
        std::fs::remove_file(record).unwrap();
    }
    server.start_again();
    let left = links(&server.node);
    assert!(!left.contains(&shaper), "{}", server.log());
    for others in ["hi0123456789abc", "hi0123456789abd", "ifb7"] {
        assert!(left.iter().any(|link| link == others), "{others}: {left:?}");
    }
    // As others would see them.
    server.node.ok("ip link del hi0123456789abc; ip link del hi0123456789abd");
    server.holds_nothing();
}

#[test]
fn a_pod_whose_record_is_lost_keeps_its_limits() {
    let mut server = Server::new();
    let pod = Namespace::new();
    add(&server, "pod", &pod, &json!({"egressRate": 10_000_000, "egressBurst": 1_000_000})).result();
    let shaper = shapers(&server);
    server.kill();
    for record in server.attachments() {
        std::fs::remove_file(record).unwrap();
    }
    server.start_again();
    assert_eq!((shapers(&server), qdiscs(&server).len()), (shaper, 2), "{}", server.log());
    let record = std::fs::read_to_string(&server.attachments()[0]).unwrap();
    assert!(record.contains("\"egressRate\":10000000"), "{record}");
    server.del("pod", "").result();
    assert_eq!(shapers(&server), Vec::<String>::new());
    server.holds_nothing();
}

#[test]
fn a_pod_too_long_named_for_an_alias_keeps_its_limits_over_a_restart() {
    let mut server = Server::new();
    let pod = Namespace::new();
    let name = "c".repeat(300);
    let result = add(&server, &name, &pod, &both(10_000_000, 1_000_000)).result();
    let before = ip(&server.node, "link show type ifb")[0]["ifindex"].clone();
    server.kill();
    server.start_again();
    assert_eq!(ip(&server.node, "link show type ifb")[0]["ifindex"], before, "{}", server.log());
    server.check(&name, &pod, &result).result();
    server.del(&name, "").result();
    server.holds_nothing();
}

#[test]
fn a_limited_pod_still_sends_from_its_own_addresses_only() {
    let server = Server::new();
    let pod = Namespace::new();
    add(&server, "pod", &pod, &both(10_000_000, 1_000_000)).result();
    pod.ok("ip address add 10.128.1.77/23 dev eth0; ip address add fd01::77/64 dev eth0 nodad");
    for (own, other, gateway) in
        [("10.128.0.2", "10.128.1.77", "10.128.0.1"), ("fd01::2", "fd01::77", "fd01::1")]
    {
        assert!(pod.succeeds(&format!("ping -q -c 2 -i 0.3 -W 2 -I {own} {gateway}")), "from {own}");
        assert!(!pod.succeeds(&format!("ping -q -c 2 -i 0.3 -W 2 -I {other} {gateway}")), "from {other}");
    }
}
