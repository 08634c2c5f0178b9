//! Host ports and the flows that outlive their pods.

use serde_json::json;

use crate::support::cni::Call;
use crate::support::namespace::Namespace;
use crate::support::observe::Here;
use crate::support::server::{HOSTCNI, Server};
use crate::support::wait;

/// UDP has no end: a client that goes on from the same port keeps its flow, and with it the translation to a
/// pod that is gone, or to the host itself (kubernetes#95258).
#[test]
fn a_udp_client_that_never_stops_finds_the_next_holder_of_the_host_port() {
    use std::net::UdpSocket;

    let server = Server::new();
    let world = server.world();
    let clients = ["198.51.100.1:5300", "[2001:db8::1]:5300"].map(|target| {
        let client = world.inside(|| UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")));
        let client = client.expect("the world has addresses");
        client.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let target: std::net::SocketAddr = target.parse().unwrap();
        let mapped = match target.ip() {
            std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
            std::net::IpAddr::V6(address) => address,
        };
        (client, std::net::SocketAddr::from((mapped, target.port())))
    });
    let mut config = server.config.clone();
    config["runtimeConfig"] =
        json!({"portMappings": [{"hostPort": 5300, "containerPort": 53, "protocol": "udp"}]});
    let send = |command: &str, name: &str, pod: &Namespace| {
        Call::new(command, name, &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
            .result()
    };
    // Before any pod: the node itself gets the packets, and remembers the flows.
    for (client, target) in &clients {
        client.send_to(b"early", target).unwrap();
        let _ = client.recv_from(&mut [0; 16]);
    }
    for name in ["first", "second"] {
        let pod = Namespace::new();
        send("ADD", name, &pod);
        let listener = pod.inside(|| UdpSocket::bind("[::]:53")).expect("the pod has addresses");
        listener.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        for (client, target) in &clients {
            wait::until(&format!("{name} to be asked at {target}"), || {
                client.send_to(name.as_bytes(), target).unwrap();
                let mut buffer = [0; 16];
                listener.recv_from(&mut buffer).is_ok_and(|(length, _)| &buffer[..length] == name.as_bytes())
            });
        }
        send("DEL", name, &pod);
    }
    server.holds_nothing();
}
