//! Promises about looking at a pod.

use hostcni::datapath::PodView;

use crate::support::{Node, Pod, ip, on_a_node, pod_spec};

fn look(node: &Node, pod: &Pod) -> PodView {
    node.run(node.kernel.inspect("eth0", pod.descriptor(), "hcpod7")).unwrap()
}

#[test]
fn an_intact_pod_is_seen_as_it_was_made() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        let made = node.attach(&pod, 7);
        let view = look(node, &pod);
        let link = view.pod.unwrap();
        assert_eq!((link.index, link.name.as_str(), link.up), (made.pod_index, "eth0", true));
        assert_eq!((link.mac, link.mtu), (Some([0x0a, 0x58, 10, 128, 0, 7]), 1450));
        assert_eq!(link.peer_index, Some(made.host_index));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(view.addresses, pod_spec(7).addresses);
        assert_eq!(view.other_routes, []);
        let mut routes = view.routes;
        for route in &mut routes {
            route.priority = None;
        }
        assert_eq!(routes, pod_spec(7).routes);
        assert_eq!(view.host.unwrap().index, made.host_index);
        assert!(view.lo_up);
    });
}

#[test]
fn what_somebody_changed_is_seen() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        pod.ip("address delete 10.128.0.7/23 dev eth0");
        pod.ip("link set lo down");
        pod.ip("link add other type bridge");
        pod.ip("link set other up");
        pod.ip("route add 192.0.2.0/24 dev other");
        ip("link set hcpod7 down nomaster");
        let view = look(node, &pod);
        assert_eq!(view.addresses, ["fd01::7/64".parse().unwrap()]);
        assert!(!view.lo_up);
        assert_eq!(view.routes.len(), 1, "the IPv4 route went with its address: {:?}", view.routes);
        assert!(view.other_routes.iter().any(|route| route.dst == "192.0.2.0/24".parse().unwrap()));
        let host = view.host.unwrap();
        assert_eq!((host.up, host.master, host.hairpin), (false, None, None));
    });
}

#[test]
fn a_pod_without_the_interface_is_seen_as_such() {
    on_a_node(|node| {
        let pod = Pod::new();
        let view = look(node, &pod);
        assert_eq!((view.pod, view.host, view.lo_up), (None, None, false));
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = node.run(node.kernel.inspect("eth0", file.into(), "hcpod7")).unwrap_err();
        assert!(error.to_string().contains("not a network namespace"), "{error}");
    });
}
