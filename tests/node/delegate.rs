//! Other CNI plugins behind hostcni: the outage that began it all, before and after, and what gates their conf.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::pods::container;
use super::product::*;
use crate::support::cni::Call;
use crate::support::cri::Pod;
use crate::support::node::Node;
use crate::support::observe::Place;
use crate::support::server::is_in_use;
use crate::support::wait::{until, within};

/// Where Debian puts the reference plugins.
const BRIDGE: &str = "/usr/lib/cni/bridge";
/// What `host-local` keeps of the network.
const LEASES: &str = "/var/lib/cni/networks/openshift-sdn";
const PODS: usize = 20;

fn bridge() -> Value {
    json!({"type": "bridge", "bridge": "cni0", "isGateway": true,
           "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.90.0.0/27"}]], "routes": [{"dst": "0.0.0.0/0"}]}})
}

/// The node's configuration with that chain, and the sandbox opened as the documentation says.
fn configure(node: &Node, plugins: &Value, more: &str) {
    let list = json!({"cniVersion": "1.0.0", "name": "openshift-sdn", "plugins": plugins});
    let text = format!(
        "[[network]]\nname = \"openshift-sdn\"\ndriver = \"delegate\"\n\
         [network.delegate]\nconflist = '''{list}'''\n{more}\n"
    );
    node.write(CONFIG, &text);
    let opened = node.read("/usr/share/doc/hostcni/examples/delegate.conf").expect("it is installed");
    node.write("/etc/systemd/system/hostcni.service.d/delegate.conf", &opened);
}

/// The addresses that `host-local` holds, on or off.
fn leases(node: &Node) -> Vec<String> {
    let entries = fs::read_dir(node.path(LEASES)).into_iter().flatten();
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// Records of what other plugins made.
fn delegated(node: &Node) -> usize {
    let entries = fs::read_dir(node.path("/var/lib/hostcni/delegated")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file() && is_in_use(path)).count()
}

/// What a runtime does without hostcni: it calls the plugin of the list.
fn directly(node: &Node, pod: &str) -> crate::support::cni::Answer {
    let mut config = bridge();
    config["cniVersion"] = "1.0.0".into();
    config["name"] = "openshift-sdn".into();
    node.ok(&format!("ip netns add {pod}"));
    Call::new("ADD", pod, &config.to_string()).with("CNI_PATH", "/usr/lib/cni").through(BRIDGE).send(node)
}

pub fn addresses_leak_at_a_power_cut_without_hostcni_and_never_with_it(node: &mut Node) {
    // Before: the runtime calls the plugins itself, and after the power cut nobody sends a DEL.
    node.unit_files("disable", &["hostcni.service", "hostcni.socket"]);
    node.boot();
    for pod in 0..PODS {
        directly(node, &format!("pod{pod}")).result();
    }
    node.ok("sync");
    node.cut_power();
    node.boot();
    assert_eq!(leases(node).len(), PODS, "the outage: addresses of pods that are gone");
    let started =
        (PODS..PODS + 15).take_while(|pod| directly(node, &format!("pod{pod}")).succeeded()).count();
    assert_eq!(started, 29 - PODS, "and then the node starts no pod any more");

    // After: the same plugins behind hostcni, on a disk without those left-overs.
    node.ok(&format!("rm -rf {LEASES} && sync"));
    node.cut_power();
    configure(node, &json!([bridge()]), "");
    node.unit_files("enable", &["hostcni.service", "hostcni.socket"]);
    for boot in 0..10 {
        node.boot();
        until_active(node);
        assert_eq!((leases(node), delegated(node)), (Vec::new(), 0), "boot {boot}");
        for pod in 0..PODS {
            add(node, &format!("pod{pod}")).result();
        }
        assert_eq!((leases(node).len(), delegated(node)), (PODS, PODS));
        if boot % 2 == 0 {
            node.ok("sync");
            node.cut_power();
        } else {
            node.go_down();
        }
        assert_eq!(leases(node).len(), PODS, "nobody sent a DEL");
    }
    node.boot();
    until_active(node);
    assert_eq!((leases(node), delegated(node)), (Vec::new(), 0));
}

pub fn a_runtimes_pods_have_the_network_of_the_plugins_and_leave_nothing(node: &mut Node) {
    let tuning = json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "511"}});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    configure(node, &json!([bridge(), tuning, bandwidth]), "");
    node.boot();
    assert_eq!(active(node), "active");
    let mut cri = runtime(node);
    let one = container(node, "one");
    node.ok("ctr task exec --exec-id ping one /bin/ping -c1 -W5 10.90.0.1");
    assert_eq!(node.ok("ctr task exec --exec-id cat one /bin/cat /proc/sys/net/core/somaxconn"), "511");
    until("NetworkReady", || cri.network_ready().unwrap().0);
    let id = cri.run_pod(Pod::named("web")).unwrap();
    let addresses = cri.addresses(&id).unwrap();
    node.ok(&format!("ping -q -c1 -W5 {}", addresses[0]));
    assert_eq!((leases(node).len(), delegated(node)), (2, 2));
    node.ok("systemctl restart hostcni.service");
    assert_eq!((leases(node).len(), delegated(node)), (2, 2), "a restart is none of the pods' business");
    cri.stop_pod(&id).unwrap();
    cri.remove_pod(&id).unwrap();
    node.ok("ctr task kill -s KILL one");
    one.wait();
    assert_eq!((leases(node), delegated(node)), (Vec::new(), 0));
    let refused =
        node.ok("journalctl --sync; journalctl -q -b -u hostcni.service -p warning -o cat --no-pager");
    assert_eq!(refused, "", "nothing in the sandbox stands in the way");
}

pub fn an_outer_daemon_that_comes_late_goes_and_comes_back_gates_the_conf(node: &mut Node) {
    node.write(
        "/etc/systemd/system/ovs-like.socket",
        "[Socket]\nListenStream=/run/ovs-like/db.sock\nAccept=yes\nRemoveOnStop=yes\nTriggerLimitIntervalSec=0\n",
    );
    node.write(
        "/etc/systemd/system/ovs-like@.service",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=-/bin/true\nStandardInput=socket\n",
    );
    let ready = "ready = { sockets = [\"/run/ovs-like/db.sock\"], wait = \"3s\", grace = \"2s\" }";
    configure(node, &json!([bridge()]), ready);
    node.power_on();
    until("it to say what is awaited", || {
        let words = node.ok("systemctl show --value -p StatusText hostcni.service");
        words.contains(
            "waiting for what network openshift-sdn stands on: nobody accepts at /run/ovs-like/db.sock",
        )
    });
    assert!(!node.has(CONF));
    until_active(node);
    assert!(!node.has(CONF), "the service is up, for what stands on it; the conf is not");
    let waits = |node: &Node| status(node)["networks"][0]["lacks"].as_str().unwrap_or_default().to_owned();
    assert!(waits(node).contains("ovs-like"), "{}", waits(node));

    for round in 0..2 {
        node.ok("systemctl start ovs-like.socket");
        until("the conf", || node.has(CONF));
        assert_eq!(waits(node), "");
        add(node, &format!("pod{round}")).result();
        node.ok("systemctl restart hostcni.service");
        assert!(node.has(CONF), "at hand, so a restart has it at once");
        node.ok("systemctl stop ovs-like.socket");
        let gone = within(Duration::from_secs(30), "the conf to go", || !node.has(CONF));
        assert!(gone >= Duration::from_millis(500), "a grace was given: {gone:?}");
        assert_eq!(active(node), "active");
    }
    node.ok("systemctl restart hostcni.service");
    assert!(!node.has(CONF), "started without it, and no conf");
    assert_eq!(delegated(node), 2, "the pods stay");
    node.ok("systemctl start ovs-like.socket");
    until("the conf", || node.has(CONF));
    // A stop is a stop: what comes back then changes nothing.
    node.ok("systemctl stop ovs-like.socket hostcni.service && systemctl start ovs-like.socket");
    assert!(!node.has(CONF));
}
