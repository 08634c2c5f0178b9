//! The server's half against peers of every kind.

use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream as Peer;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::time::timeout;

use super::*;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(30);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, test).await.expect("nothing here takes long") })
}

/// A peer and the server's end.
fn pair() -> (Peer, Connection) {
    let (peer, ours) = Peer::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (peer, Connection::over(UnixStream::from_std(ours).unwrap()))
}

fn message(call: &Value) -> Vec<u8> {
    let mut bytes = call.to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[allow(clippy::needless_pass_by_value)] // so that it is called with json!(…)
fn call(method: &str, parameters: Value) -> Value {
    json!({ "method": format!("{INTERFACE}.{method}"), "parameters": parameters })
}

fn send(peer: &mut Peer, call: &Value) {
    peer.write_all(&message(call)).unwrap();
}

fn send_with(peer: &Peer, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let sent = sendmsg::<()>(peer.as_raw_fd(), &[IoSlice::new(bytes)], &rights, MsgFlags::empty(), None);
    assert_eq!(sent.unwrap(), bytes.len());
}

/// What is there to be read, as JSON.
fn replies(peer: &mut Peer) -> Vec<Value> {
    peer.set_read_timeout(Some(SHORT)).unwrap();
    let mut bytes = Vec::new();
    let _ = peer.read_to_end(&mut bytes);
    let ended = bytes.split(|byte| *byte == 0).filter(|it| !it.is_empty());
    ended.map(|it| serde_json::from_slice(it).unwrap()).collect()
}

/// Sends a call that the service half answers by itself, and gives the answer.
async fn answered(call: Value) -> Value {
    let (mut peer, mut connection) = pair();
    send(&mut peer, &call);
    assert!(timeout(SHORT, connection.receive()).await.is_err(), "it is no call for the server: {call}");
    replies(&mut peer).pop().expect("an answer")
}

#[test]
fn a_call_of_the_limit_is_read_and_one_byte_more_is_refused_with_the_reason() {
    run(async {
        for (surplus, fits) in [(0, true), (1, false), (MAX_MESSAGE, false)] {
            let (mut peer, mut connection) = pair();
            let mut bytes = call("Invoke", json!({ "config": "" })).to_string();
            let room = MAX_MESSAGE - bytes.len() + surplus;
            bytes.insert_str(bytes.len() - 3, &"x".repeat(room));
            bytes.push('\0');
            let writer = std::thread::spawn(move || {
                let _ = peer.write_all(bytes.as_bytes());
                peer
            });
            let received = connection.receive().await;
            drop(connection);
            let mut peer = writer.join().unwrap();
            match received {
                Ok(Call::Invoke(invoke, None)) => assert!(fits && invoke.config.len() == room),
                Err(ReceiveError::Protocol(_)) => {
                    assert!(!fits);
                    assert_eq!(replies(&mut peer)[0]["error"], MESSAGE_TOO_LARGE);
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_descriptor_goes_to_the_call_it_came_with_and_is_close_on_exec() {
    run(async {
        let (mut peer, mut connection) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        // All there before the first is read.
        send(&mut peer, &call("Status", json!({})));
        send_with(&peer, &message(&call("Invoke", json!({ "netnsFd": 0 }))), &[null.as_fd()]);
        send(&mut peer, &call("Invoke", json!({})));
        assert!(matches!(connection.receive().await, Ok(Call::Status)));
        let Ok(Call::Invoke(_, Some(netns))) = connection.receive().await else {
            panic!("with a descriptor")
        };
        let flags = FdFlag::from_bits_truncate(fcntl(&netns, FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
        assert!(matches!(connection.receive().await, Ok(Call::Invoke(_, None))));
    });
}

#[test]
fn a_descriptor_that_comes_before_the_rest_of_its_call_is_kept() {
    run(async {
        let (mut peer, mut connection) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        let bytes = message(&call("Invoke", json!({ "netnsFd": 0, "config": "x".repeat(100_000) })));
        send_with(&peer, &bytes[..1], &[null.as_fd()]);
        assert!(timeout(SHORT, connection.receive()).await.is_err(), "half a call");
        peer.write_all(&bytes[1..50_000]).unwrap();
        assert!(timeout(SHORT, connection.receive()).await.is_err(), "a cancelled receive loses nothing");
        peer.write_all(&bytes[50_000..]).unwrap();
        assert!(matches!(connection.receive().await, Ok(Call::Invoke(_, Some(_)))));
    });
}

#[test]
fn surplus_descriptors_are_closed() {
    run(async {
        let (mut peer, mut connection) = pair();
        // The pipe ends when nobody has its writing end any more.
        let (mut end, writing) = std::io::pipe().unwrap();
        let many = vec![writing.as_fd(); 200];
        let bytes = message(&call("Invoke", json!({ "netnsFd": 0 })));
        send_with(&peer, &bytes[..10], &many);
        send_with(&peer, &bytes[10..20], &many);
        peer.write_all(&bytes[20..]).unwrap();
        drop(writing);
        let Ok(Call::Invoke(_, Some(netns))) = connection.receive().await else {
            panic!("with a descriptor")
        };
        drop(netns);
        let watched = std::thread::spawn(move || end.read(&mut [0]).unwrap());
        assert_eq!(watched.join().unwrap(), 0);
        // One that does not exist is an error, and not the server's end.
        let call = call("Invoke", json!({ "netnsFd": 3 }));
        assert_eq!(answered(call).await["parameters"]["parameter"], "netnsFd");
    });
}

#[test]
fn gone_resolves_at_the_end_and_leaves_the_next_call_in_the_socket() {
    run(async {
        let (mut peer, mut connection) = pair();
        send(&mut peer, &call("Status", json!({})));
        send(&mut peer, &call("ListAttachments", json!({})));
        assert!(matches!(connection.receive().await, Ok(Call::Status)));
        for _ in 0..3 {
            assert!(timeout(SHORT, connection.gone()).await.is_err(), "it is still there");
        }
        assert!(matches!(connection.receive().await, Ok(Call::ListAttachments)));
        assert!(timeout(SHORT, connection.gone()).await.is_err());
        send(&mut peer, &call("Monitor", json!({})));
        assert!(timeout(SHORT, connection.gone()).await.is_err());
        drop(peer);
        connection.gone().await;
        connection.gone().await;
    });
}

#[test]
fn a_peer_that_goes_is_closed_wherever_it_stopped() {
    run(async {
        for sent in ["", "{", "{\"method\":\"io.hostcni.Node.Status\"}"] {
            let (mut peer, mut connection) = pair();
            peer.write_all(sent.as_bytes()).unwrap();
            drop(peer);
            assert!(matches!(connection.receive().await, Err(ReceiveError::Closed)), "{sent}");
        }
    });
}

#[test]
fn what_is_no_call_ends_the_connection() {
    run(async {
        let deep = format!("{{\"method\":\"io.hostcni.Node.Status\",\"x\":{}", "[".repeat(500_000));
        let garbage = ["", "]", "null", "[]", "{}", "{\"method\":7}", "\u{fffd}", deep.as_str()];
        for text in garbage {
            let (peer, mut connection) = pair();
            let bytes = [text.as_bytes(), &[0]].concat();
            let writer = std::thread::spawn(move || (&peer).write_all(&bytes).map(|()| peer));
            let text = &text[..text.len().min(40)];
            assert!(matches!(connection.receive().await, Err(ReceiveError::Protocol(_))), "{text}");
            drop(writer.join().unwrap());
        }
    });
}

#[test]
fn deep_nesting_and_unknown_parameters_do_no_harm() {
    run(async {
        let (mut peer, mut connection) = pair();
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let text = r#"{"method":"io.hostcni.Node.Invoke","parameters":{"new":DEEP,"config":"c"},"x":DEEP}"#;
        let text = text.replace("DEEP", &deep) + "\0";
        let writer = std::thread::spawn(move || peer.write_all(text.as_bytes()).map(|()| peer));
        let Ok(Call::Invoke(invoke, None)) = connection.receive().await else { panic!("a call") };
        assert_eq!(invoke.config, "c");
        drop(writer.join().unwrap());
    });
}

#[test]
fn the_protocols_own_errors_are_the_standards() {
    run(async {
        let error = |name: &str| json!(format!("org.varlink.service.{name}"));
        let cases = [
            (json!({ "method": "io.hostcni.Node.Fly" }), "MethodNotFound", "method", "io.hostcni.Node.Fly"),
            (
                json!({ "method": "org.varlink.service.Fly" }),
                "MethodNotFound",
                "method",
                "org.varlink.service.Fly",
            ),
            (json!({ "method": "org.example.Fly" }), "InterfaceNotFound", "interface", "org.example"),
            (json!({ "method": "fly" }), "InterfaceNotFound", "interface", "fly"),
            (
                call("Invoke", json!({ "command": "ADD", "ifName": 5 })),
                "InvalidParameter",
                "parameter",
                "ifName",
            ),
            (call("Invoke", json!([1])), "InvalidParameter", "parameter", "parameters"),
            (call("WaitReady", json!({})), "InvalidParameter", "parameter", "timeout"),
            (call("WaitReady", json!({ "timeout": -1 })), "InvalidParameter", "parameter", "timeout"),
            (
                json!({ "method": "io.hostcni.Node.Status", "upgrade": true }),
                "MethodNotImplemented",
                "method",
                "io.hostcni.Node.Status",
            ),
        ];
        for (call, name, parameter, value) in cases {
            let answer = answered(call.clone()).await;
            assert_eq!(answer["error"], error(name), "{call}");
            assert_eq!(answer["parameters"], json!({ parameter: value }), "{call}");
        }
        assert_eq!(answered(call("Monitor", json!({}))).await["error"], error("ExpectedMore"));
    });
}

#[test]
fn a_oneway_call_gets_no_answer_and_flags_that_exclude_each_other_end_the_connection() {
    run(async {
        let (mut peer, mut connection) = pair();
        for method in ["org.varlink.service.GetInfo", "io.hostcni.Node.Fly", "io.hostcni.Node.Status"] {
            send(&mut peer, &json!({ "method": method, "oneway": true }));
        }
        assert!(matches!(connection.receive().await, Ok(Call::Status)));
        connection.reply_status(&StatusReply::default()).await.unwrap();
        assert_eq!(replies(&mut peer), Vec::<Value>::new());
        send(&mut peer, &json!({ "method": "io.hostcni.Node.Status", "oneway": true, "more": true }));
        assert!(matches!(connection.receive().await, Err(ReceiveError::Protocol(_))));
    });
}

#[test]
fn more_is_for_monitor_and_harmless_elsewhere() {
    run(async {
        let (mut peer, mut connection) = pair();
        send(&mut peer, &json!({ "method": "io.hostcni.Node.Status", "more": true }));
        assert!(matches!(connection.receive().await, Ok(Call::Status)));
        connection.reply_status(&StatusReply::default()).await.unwrap();
        assert_eq!(replies(&mut peer)[0].get("continues"), None);
        send(&mut peer, &json!({ "method": "io.hostcni.Node.Monitor", "more": true }));
        assert!(matches!(connection.receive().await, Ok(Call::Monitor)));
        connection.reply_event(&MonitorEvent::default(), true).await.unwrap();
        connection.reply_event(&MonitorEvent::default(), false).await.unwrap();
        let replies = replies(&mut peer);
        assert_eq!((&replies[0]["continues"], replies[1].get("continues")), (&json!(true), None));
    });
}

#[test]
fn a_peer_that_does_not_take_its_answer_is_given_up() {
    run(async {
        let (_peer, mut connection) = pair();
        let many = vec![AttachmentInfo { container_id: "c".repeat(1000), ..AttachmentInfo::default() }; 5000];
        let error = connection.reply_attachments(&many).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
fn a_peer_that_never_stops_sending_does_not_keep_others_from_their_turn() {
    run(async {
        let (mut peer, mut connection) = pair();
        let flood = message(&json!({ "method": "org.varlink.service.GetInfo", "oneway": true })).repeat(1000);
        let writer = std::thread::spawn(move || while peer.write_all(&flood).is_ok() {});
        for _ in 0..5 {
            assert!(timeout(SHORT, connection.receive()).await.is_err(), "the clock gets its turn");
        }
        drop(connection);
        writer.join().unwrap();
    });
}
