//! Real containers: through `ctr run --cni`, and as pods through containerd's CRI, as kubelet asks for them.

use std::time::{Duration, Instant};

use super::product::*;
use crate::support::cri::Pod;
use crate::support::node::{Node, Running};
use crate::support::observe::Place;
use crate::support::wait::{until, within};

/// What a runtime may take to notice the conf.
const NOTICE: Duration = Duration::from_secs(1);

pub fn a_container_of_the_runtime_reaches_all_it_should_and_leaves_nothing(node: &mut Node) {
    boot(node);
    node.ok("systemctl start containerd.service");
    let one = container(node, "one");
    let two = container(node, "two");
    let inside =
        |name: &str| node.ok(&format!("ctr task exec --exec-id look {name} /bin/ip address show dev eth0"));
    let other: Vec<String> = attachments(node)
        .iter()
        .filter(|attachment| attachment["containerId"].as_str().is_some_and(|id| id.contains("two")))
        .flat_map(|attachment| attachment["addresses"].as_array().cloned().unwrap_or_default())
        .filter_map(|address| Some(address.as_str()?.split('/').next()?.to_owned()))
        .collect();
    assert_eq!(other.len(), 2, "both families");
    assert!(
        other.iter().all(|address| inside("two").contains(address.as_str())),
        "{other:?}: {}",
        inside("two")
    );

    let others = other.iter().map(String::as_str);
    for address in GATEWAYS.into_iter().chain(NODE).chain(WORLD).chain(others) {
        node.ok(&format!("ctr task exec --exec-id ping one /bin/ping -c1 -W5 {address}"));
    }
    for address in &other {
        node.ok(&format!("ping -q -c1 -W5 {address}"));
    }
    assert_eq!(host_links(node).len(), 2);

    for (name, running) in [("one", one), ("two", two)] {
        node.ok(&format!("ctr task kill -s KILL {name}"));
        running.wait();
    }
    nothing_left(node);
}

pub fn a_pod_runs_and_goes_through_the_cri_with_its_ports(node: &mut Node) {
    boot(node);
    let mut cri = runtime(node);
    until("NetworkReady", || cri.network_ready().unwrap().0);
    let pod = Pod { name: "web".to_owned(), ports: vec![(8080, 80)], ..Pod::default() };
    let id = cri.run_pod(pod.clone()).unwrap();
    let addresses = cri.addresses(&id).unwrap();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    for address in &addresses {
        node.ok(&format!("ping -q -c1 -W5 {address}"));
    }
    let attachment = attachments(node).into_iter().next().expect("the pod's attachment");
    assert_eq!(attachment["podName"], "web");
    assert_eq!(attachment["podNamespace"], "default");
    assert_eq!(attachment["podUid"], pod.uid());

    // A restart between ADD and DEL makes no difference to the runtime.
    node.ok("systemctl restart hostcni.service");
    cri.stop_pod(&id).unwrap();
    assert_eq!(leased(node), 0);
    cri.remove_pod(&id).unwrap();
    assert_eq!(cri.pods().unwrap(), Vec::<String>::new());
    nothing_left(node);
}

pub fn a_pod_has_the_bandwidth_of_its_annotations(node: &mut Node) {
    boot(node);
    let mut cri = runtime(node);
    until("NetworkReady", || cri.network_ready().unwrap().0);
    let limits = |node: &Node| {
        let all = node.ok("tc qdisc show");
        let rates =
            all.lines().filter_map(|line| Some(line.split_once(" rate ")?.1.split(' ').next()?.to_owned()));
        let mut rates: Vec<String> = rates.collect();
        rates.sort();
        rates
    };
    let annotations =
        vec![("kubernetes.io/ingress-bandwidth", "10M"), ("kubernetes.io/egress-bandwidth", "20M")];
    let id = cri.run_pod(Pod { annotations, ..Pod::named("slow") }).unwrap();
    assert_eq!(limits(node), ["10Mbit", "20Mbit"]);
    for address in cri.addresses(&id).unwrap() {
        node.ok(&format!("ping -q -c2 -W5 {address}"));
    }
    node.ok("systemctl restart hostcni.service");
    assert_eq!(limits(node), ["10Mbit", "20Mbit"], "after a restart");
    let plain = cri.run_pod(Pod::named("plain")).unwrap();
    assert_eq!(limits(node).len(), 2, "the other pod has none");
    for id in [id, plain] {
        cri.stop_pod(&id).unwrap();
        cri.remove_pod(&id).unwrap();
    }
    assert_eq!(limits(node), Vec::<String>::new());
    nothing_left(node);
}

pub fn a_runtime_started_first_follows_every_start_and_stop_within_a_second(node: &mut Node) {
    node.write(CONFIG, &dual_stack(""));
    node.unit_files("disable", &["hostcni.service"]);
    node.boot();
    let mut cri = runtime(node);
    assert!(!cri.network_ready().unwrap().0, "ready without hostcni");
    for _ in 0..10 {
        node.ok("systemctl start hostcni.service");
        within(NOTICE, "NetworkReady", || cri.network_ready().unwrap().0);
        node.ok("systemctl stop hostcni.service");
        within(NOTICE, "no NetworkReady", || !cri.network_ready().unwrap().0);
    }
    complains_only_of_a_missing_conf(node);
}

pub fn a_runtime_stays_ready_through_ten_restarts(node: &mut Node) {
    boot(node);
    let mut cri = runtime(node);
    until("NetworkReady", || cri.network_ready().unwrap().0);
    for round in 0..10 {
        let mut restart = node.start("systemctl restart hostcni.service");
        let mut until_after = None;
        // As long as the restart takes, and a little: a runtime's watch is not at once.
        while until_after.is_none_or(|end| Instant::now() < end) {
            let (ready, why) = cri.network_ready().unwrap();
            assert!(ready, "restart {round}: {why}");
            if until_after.is_none() && !restart.runs() {
                until_after = Some(Instant::now() + Duration::from_millis(200));
            }
        }
        restart.wait_ok();
    }
    let id = cri.run_pod(Pod::named("after")).unwrap();
    cri.remove_pod(&id).unwrap();
    complains_only_of_a_missing_conf(node);
    nothing_left(node);
}

pub fn a_conf_that_is_a_list_is_loaded_as_well(node: &mut Node) {
    let path = "/etc/cni/net.d/80-openshift-network.conflist";
    node.write(CONFIG, &dual_stack(&format!("path = \"{path}\"")));
    node.boot();
    assert!(node.has(path) && !node.has(CONF));
    let mut cri = runtime(node);
    until("NetworkReady", || cri.network_ready().unwrap().0);
    let id = cri.run_pod(Pod { name: "web".to_owned(), ports: vec![(8080, 80)], ..Pod::default() }).unwrap();
    assert_eq!(cri.addresses(&id).unwrap().len(), 2);
    cri.stop_pod(&id).unwrap();
    cri.remove_pod(&id).unwrap();
    nothing_left(node);
    node.ok("systemctl stop hostcni.service");
    assert!(!node.has(path));
}

/// A container in the foreground of a `ctr run --cni`, running when this returns.
pub(super) fn container(node: &Node, name: &str) -> Running {
    let running = node.start(&format!(
        "ctr run --rm --cni --runc-binary /usr/local/bin/crun-node --rootfs /srv/pod {name} /bin/sleep 1000"
    ));
    until("a running container", || node.succeeds(&format!("ctr task list | grep -Eq '^{name} .*RUNNING'")));
    running
}

/// Error lines in the runtime's log are those it writes whenever there is no conf.
#[track_caller]
fn complains_only_of_a_missing_conf(node: &Node) {
    let log = node.ok("journalctl --sync; journalctl -q -b -u containerd.service -o cat --no-pager");
    let missing = ["no network config found in /etc/cni/net.d", "cni plugin not initialized"];
    for line in log.lines().filter(|line| line.contains("level=error") || line.contains("level=fatal")) {
        assert!(missing.iter().any(|text| line.contains(text)), "{line}");
    }
}
