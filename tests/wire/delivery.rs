//! What the plugin does to reach a server, and what becomes of a request that nobody answers.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::peer::{Place, Rude, channel, full, read_call, stale, touch};
use crate::support::cni::Asked;
use crate::support::observe::Here;
use crate::support::wait;

const RESULT: &str = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}"#;

#[test]
fn an_add_waits_for_a_socket_that_appears_later() {
    for file_first in [false, true] {
        let place = Place::new();
        if file_first {
            stale(&place.socket());
        }
        let mut add = place.call("ADD", 30).start(&Here);
        std::thread::sleep(Duration::from_millis(500));
        assert!(add.waits());
        let _ = fs::remove_file(place.socket());
        let _server = place.serve(|_, _| Some(Ok(RESULT.to_owned())));
        assert_eq!(add.answer().result()["ips"][0]["address"], "10.0.0.2/24");
    }
}

#[test]
fn an_add_is_carried_to_the_next_server_when_the_first_one_dies_over_it() {
    let place = Place::new();
    let asked = AtomicUsize::new(0);
    let _server =
        place.serve(move |_, _| (asked.fetch_add(1, Ordering::Relaxed) >= 3).then(|| Ok(RESULT.to_owned())));
    assert!(place.call("ADD", 30).send(&Here).result().is_object());
}

#[test]
fn what_nobody_answers_is_code_11_within_the_bound() {
    for command in ["ADD", "CHECK", "GC"] {
        let place = Place::new();
        let mut config = place.config(1);
        config["prevResult"] = serde_json::json!({ "cniVersion": "1.1.0" });
        config["cni.dev/valid-attachments"] = serde_json::json!([]);
        let call = || {
            crate::support::cni::Call::new(command, "c1", &config.to_string()).through(crate::peer::HOSTCNI)
        };
        let call = || call().with("CNI_NETNS", "/proc/self/ns/net");
        let absent = call().send(&Here);
        assert_eq!(absent.code(), 11, "{command}: {}", absent.text());
        assert!(absent.text().contains("does not exist") && absent.text().contains("systemctl status"));
        let _peer = Rude::silent(&place.socket());
        let silent = call().send(&Here);
        assert_eq!(silent.code(), 11, "{command}: {}", silent.text());
        for answer in [absent, silent] {
            assert!(answer.took < Duration::from_secs(10), "{command} took {:?}", answer.took);
        }
        assert!(!place.spool().exists(), "only a DEL is written down");
    }
}

#[test]
fn an_add_that_cannot_ever_connect_says_so_at_once() {
    let place = Place::new();
    let mut config = place.config(30);
    config["socket"] = format!("/{}", "x".repeat(200)).into();
    let call = crate::support::cni::Call::new("ADD", "c1", &config.to_string()).through(crate::peer::HOSTCNI);
    let answer = call.with("CNI_NETNS", "/proc/self/ns/net").send(&Here);
    assert_eq!(answer.code(), 11, "{}", answer.text());
    assert!(answer.took < Duration::from_secs(20), "{:?}", answer.took);
}

/// Sends a DEL to whatever is at the socket: it has to succeed in silence and be on disk.
#[track_caller]
fn is_spooled(place: &Place, why: &str) {
    let answer = place.call("DEL", 1).with("CNI_ARGS", "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n").send(&Here);
    answer.result();
    assert_eq!(answer.text(), "", "{why}");
    assert!(answer.took < Duration::from_secs(10), "{why} took {:?}", answer.took);
    let dels = place.spooled();
    let [del] = dels.as_slice() else { panic!("{why}: {dels:?}") };
    assert_eq!(del.key.to_string(), "net/c1/eth0", "{why}");
    assert_eq!(del.config, place.config(1).to_string(), "{why}");
    assert_eq!(del.netns.as_deref(), Some("/proc/self/ns/net"), "{why}");
    assert_eq!(del.args, "K8S_POD_NAME=p;K8S_POD_NAMESPACE=n", "{why}");
}

#[test]
fn a_del_without_a_socket_is_written_down() {
    is_spooled(&Place::new(), "no socket");
}

#[test]
fn a_del_that_is_refused_is_written_down() {
    let place = Place::new();
    stale(&place.socket());
    is_spooled(&place, "nobody listens");
}

#[test]
fn a_del_to_something_that_is_no_socket_is_written_down() {
    let place = Place::new();
    touch(&place.socket());
    is_spooled(&place, "a file");
}

#[test]
fn a_del_to_a_full_backlog_is_written_down_at_its_bound() {
    let place = Place::new();
    let _full = full(&place.socket());
    is_spooled(&place, "a full backlog");
}

#[test]
fn a_del_to_a_silent_server_is_written_down_at_its_bound() {
    let place = Place::new();
    let _peer = Rude::silent(&place.socket());
    is_spooled(&place, "silence");
}

#[test]
fn a_del_whose_connection_is_closed_is_written_down() {
    let place = Place::new();
    let _server = place.serve(|_, _| None);
    is_spooled(&place, "closed");
}

#[test]
fn a_del_whose_answer_makes_no_sense_is_written_down() {
    for answer in [
        &b"\0"[..],
        b"{\"parameters\":{\"result\":\"\"}}",
        b"]\0",
        b"[]\0",
        b"{\"error\":\"org.varlink.service.MethodNotFound\"}\0",
        b"{\"parameters\":{\"result\":7}}\0",
    ] {
        let place = Place::new();
        let _peer = Rude::says(&place.socket(), answer);
        is_spooled(&place, &String::from_utf8_lossy(answer));
    }
}

#[test]
fn a_del_whose_answer_comes_drop_by_drop_is_written_down_at_its_bound() {
    let place = Place::new();
    let _peer = Rude::new(&place.socket(), |mut stream| {
        read_call(&mut stream);
        std::thread::spawn(move || {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        None
    });
    is_spooled(&place, "a trickle");
}

#[test]
fn a_del_too_large_for_the_wire_is_written_down_and_an_add_refused() {
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok(String::new())));
    let mut config = place.config(5);
    // Each quote is two bytes on the wire.
    config["x"] = vec![""; 300_000].into();
    let call = |command| {
        crate::support::cni::Call::new(command, "c1", &config.to_string())
            .through(crate::peer::HOSTCNI)
            .with("CNI_NETNS", "/proc/self/ns/net")
    };
    assert!(config.to_string().len() < 1 << 20);
    call("DEL").send(&Here).result();
    assert_eq!(place.spooled()[0].config, config.to_string());
    let add = call("ADD").send(&Here);
    assert_eq!(add.code(), 6, "{}", add.text());
}

#[test]
fn a_del_that_is_answered_is_not_written_down() {
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok(String::new())));
    assert_eq!(place.call("DEL", 5).send(&Here).text(), "");
    assert!(!place.spool().exists());
}

#[test]
fn a_del_that_can_be_neither_delivered_nor_written_down_fails_in_words_no_runtime_takes_for_success() {
    let place = Place::new();
    touch(&place.spool());
    let answer = place.call("DEL", 1).send(&Here);
    assert_eq!(answer.code(), 5);
    let text = answer.text().to_lowercase();
    assert!(!text.contains("not found") && !text.contains("no such file"), "{text}");
}

#[test]
fn status_says_50_at_once_without_a_server_and_within_its_bound_with_a_silent_one() {
    let place = Place::new();
    let absent = place.call("STATUS", 60).send(&Here);
    assert_eq!(absent.code(), 50);
    assert!(absent.took < Duration::from_millis(1500), "no waiting: {:?}", absent.took);
    let _peer = Rude::silent(&place.socket());
    let silent = place.call("STATUS", 60).send(&Here);
    assert_eq!(silent.code(), 50);
    assert!(
        silent.took >= Duration::from_secs(1) && silent.took < Duration::from_secs(6),
        "{:?}",
        silent.took
    );
}

#[test]
fn status_says_50_when_the_server_closes() {
    let place = Place::new();
    let _server = place.serve(|_, _| None);
    assert_eq!(place.call("STATUS", 60).send(&Here).code(), 50);
}

#[test]
fn the_server_sees_the_end_of_a_plugin_that_is_killed() {
    let place = Place::new();
    let (closed, next) = channel();
    let _peer = Rude::new(&place.socket(), move |mut stream| {
        read_call(&mut stream);
        closed.send("asked").expect("the test waits");
        let mut byte = [0];
        closed
            .send(if std::io::Read::read(&mut stream, &mut byte).is_ok_and(|it| it == 0) {
                "gone"
            } else {
                "?"
            })
            .ok();
        None
    });
    let add: Asked = place.call("ADD", 30).start(&Here);
    assert_eq!(next(), "asked");
    add.kill();
    assert_eq!(next(), "gone");
}

#[test]
fn others_are_served_while_clients_misbehave() {
    use std::os::unix::net::UnixStream;
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok(RESULT.to_owned())));
    let connect = || UnixStream::connect(place.socket()).expect("it listens");
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(connect());
        let mut half = connect();
        half.write_all(b"{\"method\":\"io.hostcni.Node.Inv").expect("there is room");
        silent.push(half);
        let mut garbage = connect();
        let _ = garbage.write_all(b"GET / HTTP/1.1\r\n\r\n\0");
        silent.push(garbage);
    }
    let mut flood = connect();
    let huge = std::thread::spawn(move || flood.write_all(&vec![b'x'; 2 << 20]).is_err());
    wait::until("the huge message is refused", || huge.is_finished());
    assert!(huge.join().expect("no panic"), "2 MiB are not taken");
    for _ in 0..5 {
        assert!(place.call("ADD", 30).send(&Here).result().is_object());
    }
    drop(silent);
}
