//! Promises about a pod's link.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use hostcni::datapath::{AttachError, KernelError, PodRoute};

use crate::support::{BRIDGE, Pod, eventually, ip, links, on_a_node, pod_spec, sysctl};

fn kernel_error(error: AttachError) -> KernelError {
    match error {
        AttachError::Kernel(error) => error,
        other => panic!("not the kernel's: {other:?}"),
    }
}

#[test]
fn a_pod_gets_its_link_as_asked() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let made = node.attach(&pod, 7);

        let host = &ip("link show dev hcpod7")[0];
        assert_eq!(host["ifindex"], made.host_index);
        assert_eq!(host["master"], BRIDGE);
        assert_eq!(host["ifalias"], "hostcni:net/container7/eth0");
        assert_eq!(host["mtu"], 1450);
        assert_eq!((&host["num_tx_queues"], &host["num_rx_queues"]), (&1.into(), &1.into()));
        assert!(host["flags"].as_array().unwrap().contains(&"UP".into()));
        assert_eq!(host["linkinfo"]["info_slave_data"]["hairpin"], true);
        assert_eq!(host["linkinfo"]["info_slave_data"]["isolated"], false);
        assert_eq!(host["address"], text_of(made.host_mac));
        assert_eq!(host["link_index"], made.pod_index);

        let inside = &pod.ip("link show dev eth0")[0];
        assert_eq!(inside["ifindex"], made.pod_index);
        assert_eq!(inside["address"], "0a:58:0a:80:00:07");
        assert_eq!(inside["mtu"], 1450);
        assert_eq!((&inside["num_tx_queues"], &inside["num_rx_queues"]), (&1.into(), &1.into()));
        assert_eq!(inside["operstate"], "UP");
        assert_eq!(pod.addresses("eth0"), ["10.128.0.7/23", "fd01::7/64"]);
        assert_eq!(pod.addresses("lo"), ["127.0.0.1/8", "::1/128"]);
        let default = &pod.ip("-4 route show default")[0];
        assert_eq!((&default["gateway"], &default["dev"]), (&"10.128.0.1".into(), &"eth0".into()));
        let default = &pod.ip("-6 route show default")[0];
        assert_eq!((&default["gateway"], &default["dev"]), (&"fd01::1".into(), &"eth0".into()));
        assert_eq!(made.skipped_routes, []);
    });
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[test]
fn an_ipv6_address_is_usable_at_once_and_router_advertisements_are_ignored() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        let shown = pod.ip("-6 address show dev eth0 scope global");
        let address = &shown[0]["addr_info"][0];
        assert_eq!(address["local"], "fd01::7");
        assert_eq!(address["tentative"], serde_json::Value::Null);
        assert_eq!(address["nodad"], true);
        assert_eq!(pod.inside(|| sysctl("ipv6/conf/eth0/accept_ra")), "0");
        assert_eq!(sysctl(&format!("ipv6/conf/{BRIDGE}/accept_ra")), "0");
    });
}

/// Whether a connection from inside the pod reaches a listener on the calling thread's namespace.
fn reaches(pod: &Pod, listener: &TcpListener) -> bool {
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let connected = pod.inside(move || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2));
        stream.and_then(|mut stream| stream.write_all(b"x")).is_ok()
    });
    if connected {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(false).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 1);
    }
    connected
}

#[test]
fn a_pod_reaches_the_node_and_other_pods_at_once() {
    on_a_node(|node| {
        node.bridge();
        let (one, two) = (Pod::new(), Pod::new());
        node.attach(&one, 7);
        for address in ["10.128.0.1:0", "[fd01::1]:0"] {
            assert!(reaches(&one, &TcpListener::bind(address).unwrap()), "{address}");
        }
        node.attach(&two, 8);
        for address in ["10.128.0.8:0", "[fd01::8]:0"] {
            let listener = two.inside(move || TcpListener::bind(address).unwrap());
            assert!(reaches(&one, &listener), "{address}");
        }
    });
}

#[test]
fn isolated_pods_reach_the_node_but_not_each_other() {
    on_a_node(|node| {
        node.bridge();
        let pods = [7, 8].map(|number| {
            let pod = Pod::new();
            let mut spec = pod_spec(number);
            spec.isolated = true;
            node.run(node.kernel.attach(spec, pod.descriptor())).unwrap();
            pod
        });
        assert!(reaches(&pods[0], &TcpListener::bind("10.128.0.1:0").unwrap()));
        let listener = pods[1].inside(|| TcpListener::bind("10.128.0.8:0").unwrap());
        assert!(!reaches(&pods[0], &listener));
    });
}

#[test]
fn an_interface_that_the_pod_has_already_is_told_and_left_alone() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        let before = (links(), pod.ip("address show"), pod.ip("route show"));
        let error = node.run(node.kernel.attach(pod_spec(8), pod.descriptor())).unwrap_err();
        assert_eq!(error, AttachError::InterfaceExists { ifname: "eth0".into() });
        assert_eq!(before, (links(), pod.ip("address show"), pod.ip("route show")));
    });
}

#[test]
fn a_host_link_that_is_there_already_is_told_and_left_alone() {
    on_a_node(|node| {
        node.bridge();
        let (one, two) = (Pod::new(), Pod::new());
        node.attach(&one, 7);
        let error = node.run(node.kernel.attach(pod_spec(7), two.descriptor())).unwrap_err();
        let error = kernel_error(error);
        assert!(error.is_exists());
        assert!(error.to_string().contains("hcpod7"), "{error}");
        assert_eq!(one.links(), ["eth0", "lo"]);
        assert_eq!(two.links(), ["lo"]);
        assert_eq!(links(), ["hcpod7", BRIDGE, "lo"]);
    });
}

#[test]
fn a_descriptor_that_is_no_pods_namespace_is_refused() {
    on_a_node(|node| {
        node.bridge();
        let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
        let attach = |netns| node.run(node.kernel.attach(pod_spec(7), netns)).unwrap_err();
        assert_eq!(attach(open("/dev/null")), AttachError::NotANetns);
        assert_eq!(attach(open("/proc/self/ns/mnt")), AttachError::NotANetns);
        assert_eq!(attach(open("/proc/thread-self/ns/net")), AttachError::HostNetns);
        assert_eq!(links(), [BRIDGE, "lo"]);
    });
}

#[test]
fn a_failed_attach_leaves_nothing() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let route = PodRoute {
            dst: "192.0.2.0/24".parse().unwrap(),
            gateway: Some("224.0.0.9".parse().unwrap()),
            priority: None,
            mtu: None,
            advmss: None,
        };
        let mut bad_route = pod_spec(7);
        bad_route.routes.push(route);
        let mut bad_address = pod_spec(7);
        bad_address.addresses.push("224.0.0.1/24".parse().unwrap());
        bad_address.addresses.push("ff02::5/64".parse().unwrap());
        let mut bad_alias = pod_spec(7);
        bad_alias.alias = "a".repeat(300);
        let mut bad_name = pod_spec(7);
        bad_name.ifname = "a name too long for a link".into();
        let mut bad_mtu = pod_spec(7);
        bad_mtu.mtu = 3;
        let mut bad_mac = pod_spec(7);
        bad_mac.mac = [1, 0, 0, 0, 0, 0];
        for spec in [bad_route, bad_address, bad_alias, bad_name, bad_mtu, bad_mac] {
            let error = kernel_error(node.run(node.kernel.attach(spec, pod.descriptor())).unwrap_err());
            eprintln!("{error}");
            assert_ne!(error.errno, 0);
            assert_eq!(links(), [BRIDGE, "lo"], "{error}");
            assert_eq!(pod.links(), ["lo"], "{error}");
        }
        node.attach(&pod, 7);
    });
}

#[test]
fn a_missing_bridge_and_a_link_that_is_no_bridge_are_named() {
    on_a_node(|node| {
        let pod = Pod::new();
        let attach =
            || kernel_error(node.run(node.kernel.attach(pod_spec(7), pod.descriptor())).unwrap_err());
        let error = attach();
        assert!(error.is_missing());
        assert!(error.to_string().contains(BRIDGE), "{error}");
        ip(&format!("link add {BRIDGE} type veth peer name other"));
        let error = attach();
        assert!(error.to_string().contains(BRIDGE), "{error}");
        assert_eq!(pod.links(), ["lo"]);
    });
}

#[test]
fn a_kernels_refusal_carries_its_own_words() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let mut spec = pod_spec(7);
        // No router has a multicast address.
        spec.routes[0].gateway = Some("224.0.0.9".parse().unwrap());
        let error = kernel_error(node.run(node.kernel.attach(spec, pod.descriptor())).unwrap_err());
        assert_eq!(error.operation, "add route");
        assert_eq!(error.object, "to 0.0.0.0/0 by 224.0.0.9 on eth0");
        assert!(error.text.is_some(), "{error}");
    });
}

#[test]
fn an_attach_that_nobody_waits_for_any_more_leaves_nothing() {
    on_a_node(|node| {
        node.bridge();
        for micros in (0..1500).step_by(100) {
            let pod = Pod::new();
            node.run(async {
                let attach = node.kernel.attach(pod_spec(7), pod.descriptor());
                let _ = tokio::time::timeout(Duration::from_micros(micros), attach).await.map(drop);
            });
            // What was made in time is ours to delete; both ways the link is gone in the end.
            eventually("the link is gone", || {
                node.run(node.kernel.delete_link("hcpod7")).unwrap();
                links() == [BRIDGE, "lo"]
            });
        }
        let pod = Pod::new();
        node.run(async {
            let mut attach = std::pin::pin!(node.kernel.attach(pod_spec(7), pod.descriptor()));
            // Polled until the work has begun, then given up before the answer is looked at.
            let begun =
                std::future::poll_fn(|context| Poll::Ready(attach.as_mut().poll(context).is_pending()));
            if begun.await {
                std::thread::sleep(Duration::from_millis(50));
            } else {
                node.kernel.delete_link("hcpod7").await.unwrap();
            }
        });
        eventually("the link is gone by itself", || links() == [BRIDGE, "lo"]);
    });
}

#[test]
fn a_second_interface_keeps_the_routes_of_the_first() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        let mut second = pod_spec(8);
        second.ifname = "net1".into();
        let made = node.run(node.kernel.attach(second, pod.descriptor())).unwrap();
        assert_eq!(made.skipped_routes, pod_spec(8).routes);
        assert_eq!(pod.ip("-4 route show default")[0]["dev"], "eth0");
    });
}

#[test]
fn routes_take_a_gateway_off_the_subnet_a_metric_and_an_mtu() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let mut spec = pod_spec(7);
        spec.addresses = vec!["10.128.0.7/32".parse().unwrap()];
        spec.routes = vec![
            PodRoute {
                dst: "0.0.0.0/0".parse().unwrap(),
                gateway: Some("169.254.1.1".parse().unwrap()),
                priority: Some(50),
                mtu: Some(1400),
                advmss: Some(1300),
            },
            PodRoute {
                dst: "192.0.2.0/24".parse().unwrap(),
                gateway: None,
                priority: None,
                mtu: None,
                advmss: None,
            },
        ];
        node.run(node.kernel.attach(spec, pod.descriptor())).unwrap();
        let default = &pod.ip("-4 route show default")[0];
        assert_eq!(default["gateway"], "169.254.1.1");
        assert_eq!(default["metric"], 50);
        assert_eq!(default["metrics"][0]["mtu"], 1400);
        assert_eq!(default["metrics"][0]["advmss"], 1300);
        assert_eq!(pod.ip("-4 route show 192.0.2.0/24")[0]["scope"], "link");
    });
}

#[test]
fn a_pod_with_ipv6_switched_off_gets_its_ipv6_address() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        pod.inside(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap());
        node.attach(&pod, 7);
        assert_eq!(pod.addresses("eth0"), ["10.128.0.7/23", "fd01::7/64"]);
    });
}

#[test]
fn an_interface_may_have_a_dot_in_its_name() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let mut spec = pod_spec(7);
        spec.ifname = "net1.100".into();
        node.run(node.kernel.attach(spec, pod.descriptor())).unwrap();
        assert_eq!(pod.inside(|| sysctl("ipv6/conf/net1.100/accept_ra")), "0");
        assert_eq!(pod.addresses("net1.100"), ["10.128.0.7/23", "fd01::7/64"]);
    });
}

#[test]
fn many_pods_at_once_each_get_their_own_link() {
    on_a_node(|node| {
        node.bridge();
        let pods: Vec<_> = (2..42).map(|number| (number, Pod::new())).collect();
        node.run(async {
            let mut tasks = Vec::new();
            for (number, pod) in &pods {
                tasks.push(Box::pin(node.kernel.attach(pod_spec(*number), pod.descriptor())));
            }
            // All are in the queue of the threads before the first answer is read.
            let mut open = tasks;
            std::future::poll_fn(|context| {
                open.retain_mut(|task| match task.as_mut().poll(context) {
                    Poll::Ready(result) => {
                        result.unwrap();
                        false
                    }
                    Poll::Pending => true,
                });
                if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        for (number, pod) in &pods {
            assert_eq!(pod.addresses("eth0")[0], format!("10.128.0.{number}/23"));
        }
        assert_eq!(links().len(), 42);
    });
}
