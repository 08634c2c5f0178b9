//! Promises about deleting links.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use hostcni::datapath::KernelError;

use crate::support::{BRIDGE, Node, Pod, eventually, ip, links, on_a_node};

/// Asks for all deletions at once and waits for every answer.
fn delete_all(node: &Node, names: &[String]) -> Vec<Result<bool, KernelError>> {
    type Deletion<'a> = Pin<Box<dyn Future<Output = Result<bool, KernelError>> + 'a>>;
    let mut open: Vec<Deletion<'_>> =
        names.iter().map(|name| Box::pin(node.kernel.delete_link(name)) as Deletion<'_>).collect();
    let mut answers: Vec<Option<Result<bool, KernelError>>> = names.iter().map(|_| None).collect();
    node.run(std::future::poll_fn(|context| {
        for (future, answer) in open.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                *answer = Some(result);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    }));
    answers.into_iter().flatten().collect()
}

/// Makes links on the node: pairs whose other ends are there too (`hcN` and `peerN`).
fn make_pairs(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers
        .map(|number| {
            ip(&format!("link add hc{number} type veth peer name peer{number}"));
            format!("hc{number}")
        })
        .collect()
}

#[test]
fn a_deleted_link_is_gone_when_the_answer_comes_and_a_second_time_there_was_none() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        assert_eq!(node.run(node.kernel.delete_link("hcpod7")), Ok(true));
        assert_eq!(links(), [BRIDGE, "lo"]);
        assert_eq!(pod.links(), ["lo"]);
        assert_eq!(node.run(node.kernel.delete_link("hcpod7")), Ok(false));
    });
}

#[test]
fn a_burst_of_deletions_costs_about_as_much_as_a_few() {
    on_a_node(|node| {
        let alone = make_pairs(0..5);
        let start = Instant::now();
        for name in &alone {
            node.run(node.kernel.delete_link(name)).unwrap();
        }
        let one = start.elapsed() / 5;
        let names = make_pairs(0..100);
        let start = Instant::now();
        let answers = delete_all(node, &names);
        let burst = start.elapsed();
        assert!(answers.iter().all(|answer| *answer == Ok(true)), "{answers:?}");
        assert_eq!(links(), ["lo"]);
        eprintln!("one {one:?}, a hundred {burst:?}");
        assert!(burst < one * 33, "one took {one:?}, a hundred at once {burst:?}");
    });
}

#[test]
fn a_bad_member_of_a_burst_fails_alone_and_nothing_else_is_touched() {
    on_a_node(|node| {
        ip("link add foreign type bridge");
        // In the numbers that the reaper begins with.
        ip("link add foreign2 group 1751318528 type veth peer name foreign4");
        ip("link add foreign3 group 1751318530 type bridge");
        ip("link add mine type bridge");
        let mut names = make_pairs(0..20);
        // The first keeps the reaper busy while the others gather.
        names.insert(1, "lo".into());
        names.insert(5, "hc-missing".into());
        names.insert(9, "a-name-too-long-for-a-link".into());
        names.insert(12, "mine".into());
        names.push("hc3".into());
        let answers = delete_all(node, &names);
        for (name, answer) in names.iter().zip(&answers) {
            match name.as_str() {
                "lo" | "a-name-too-long-for-a-link" => assert!(answer.is_err(), "{name}: {answer:?}"),
                "hc-missing" => assert_eq!(answer, &Ok(false)),
                "hc3" => assert!(answer.is_ok()),
                _ => assert_eq!(answer, &Ok(true), "{name}"),
            }
        }
        assert_eq!(links(), ["foreign", "foreign2", "foreign3", "foreign4", "lo"]);
        let groups = ip("link show");
        assert_eq!(groups[0]["group"], "default", "the loopback is in no group of ours");
    });
}

#[test]
fn both_ends_of_one_pair_in_a_burst_are_one_deletion() {
    on_a_node(|node| {
        make_pairs(0..3);
        let names = ["hc0", "peer0", "hc1", "hc2", "peer2"].map(String::from);
        let answers = delete_all(node, &names);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(links(), ["lo"]);
    });
}

#[test]
fn a_link_whose_pod_is_gone_is_gone() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        drop(pod);
        eventually("the link went with its pod", || links() == [BRIDGE, "lo"]);
        assert_eq!(node.run(node.kernel.delete_link("hcpod7")), Ok(false));
    });
}

#[test]
fn a_deletion_is_carried_out_though_nobody_waits_for_it() {
    on_a_node(|node| {
        make_pairs(0..1);
        node.run(async {
            let deletion = node.kernel.delete_link("hc0");
            let _ = tokio::time::timeout(std::time::Duration::ZERO, deletion).await;
        });
        eventually("the link is gone", || links() == ["lo"]);
    });
}

#[test]
fn an_interface_can_be_deleted_inside_its_pod() {
    on_a_node(|node| {
        node.bridge();
        let pod = Pod::new();
        node.attach(&pod, 7);
        let delete = || node.run(node.kernel.delete_pod_interface(pod.descriptor(), "eth0"));
        assert_eq!(delete(), Ok(true));
        assert_eq!((links(), pod.links()), (vec![BRIDGE.into(), "lo".into()], vec!["lo".into()]));
        assert_eq!(delete(), Ok(false));
        let own = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let error = node.run(node.kernel.delete_pod_interface(own.into(), BRIDGE)).unwrap_err();
        assert!(error.to_string().contains("the node's own"), "{error}");
        assert_eq!(links(), [BRIDGE, "lo"]);
    });
}
