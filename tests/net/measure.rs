//! What the kernel's work costs. Run alone: `cargo test --release --test net_datapath -- --ignored
//! --nocapture measure`.

use std::time::{Duration, Instant};

use crate::support::{Pod, on_a_node, pod_spec};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement, not a promise"]
fn measure_attach_and_delete() {
    on_a_node(|node| {
        node.bridge();
        let pods: Vec<_> = (2..102).map(|number| (number, Pod::new())).collect();
        let mut attach = Vec::new();
        for (number, pod) in &pods {
            let (spec, netns) = (pod_spec(*number), pod.descriptor());
            let start = Instant::now();
            node.run(node.kernel.attach(spec, netns)).unwrap();
            attach.push(start.elapsed());
        }
        println!("attach: median {:?}", median(attach));
        let mut inspect = Vec::new();
        for (number, pod) in &pods {
            let (host, netns) = (format!("hcpod{number}"), pod.descriptor());
            let start = Instant::now();
            node.run(node.kernel.inspect("eth0", netns, &host)).unwrap();
            inspect.push(start.elapsed());
        }
        println!("inspect: median {:?}", median(inspect));
        let start = Instant::now();
        node.run(node.kernel.links()).unwrap();
        println!("links (102): {:?}", start.elapsed());
        let mut delete = Vec::new();
        for (number, _) in pods.iter().take(20) {
            let start = Instant::now();
            node.run(node.kernel.delete_link(&format!("hcpod{number}"))).unwrap();
            delete.push(start.elapsed());
        }
        println!("delete alone: median {:?}", median(delete));
    });
}
