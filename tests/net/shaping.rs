//! Promises about rate limits.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use hostcni::datapath::{Limit, PodLinkSpec, Shaping};

use crate::support::{BRIDGE, Pod, eventually, links, on_a_node, pod_spec};

fn limited(number: u8) -> PodLinkSpec {
    let limit = Some(Limit { rate: 1_250_000, burst: 100_000 });
    let shaping = Shaping {
        to_pod: limit,
        from_pod: limit,
        shaper: format!("hipod{number}"),
        alias: format!("hostcni:net/container{number}/eth0"),
    };
    PodLinkSpec { shaping: Some(shaping), ..pod_spec(number) }
}

#[test]
fn a_limited_link_is_deleted_with_its_ifb_at_the_price_of_one() {
    on_a_node(|node| {
        node.bridge();
        let names = |number: u8| vec![format!("hcpod{number}"), format!("hipod{number}")];
        let (mut plain, mut both) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            let pod = Pod::new();
            node.attach(&pod, 7);
            let start = Instant::now();
            assert_eq!(node.run(node.kernel.delete_links(&names(7)[..1])), Ok(true));
            plain.push(start.elapsed());

            node.run(node.kernel.attach(limited(7), pod.descriptor())).unwrap();
            assert_eq!(links(), ["hcpod7", "hipod7", BRIDGE, "lo"]);
            let start = Instant::now();
            assert_eq!(node.run(node.kernel.delete_links(&names(7))), Ok(true));
            both.push(start.elapsed());
            assert_eq!(links(), [BRIDGE, "lo"]);
        }
        assert_eq!(node.run(node.kernel.delete_links(&names(7))), Ok(false), "a second time");
        plain.sort();
        both.sort();
        println!("a link {:?}, with its ifb {:?}", plain[4], both[4]);
        assert!(both[4] < plain[4] * 3 / 2 + Duration::from_millis(5), "{plain:?} {both:?}");
    });
}

#[test]
fn a_limited_attach_that_nobody_waits_for_any_more_leaves_nothing() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.run(async {
            let mut attach = std::pin::pin!(node.kernel.attach(limited(7), pod.descriptor()));
            // Polled until the work has begun, then given up before the answer is looked at.
            let poll =
                std::future::poll_fn(|context| Poll::Ready(attach.as_mut().poll(context).is_pending()));
            if poll.await {
                std::thread::sleep(Duration::from_millis(50));
            } else {
                node.kernel.delete_links(&["hcpod7".into(), "hipod7".into()]).await.unwrap();
            }
        });
        eventually("both links are gone by themselves", || links() == [BRIDGE, "lo"]);
    });
}

#[test]
fn an_interface_that_is_there_already_leaves_no_ifb() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        assert!(node.run(node.kernel.attach(limited(8), pod.descriptor())).is_err());
        assert_eq!(links(), ["hcpod7", BRIDGE, "lo"]);
    });
}
