//! The blocking client: what it tells apart.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use hostcni::wire::Invoke;
use hostcni::wire::client::{CallError, Client};

use crate::peer::{Place, Rude, full, read_call, stale};

const BOUND: Duration = Duration::from_millis(300);

fn soon() -> Instant {
    Instant::now() + BOUND
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn could_not_connect_says_why() {
    let place = Place::new();
    let kind = || Client::connect(&place.socket(), soon()).map(drop).unwrap_err().kind();
    assert_eq!(kind(), ErrorKind::NotFound);
    stale(&place.socket());
    assert_eq!(kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_full_backlog_is_waited_for_until_the_deadline() {
    let place = Place::new();
    let _full = full(&place.socket());
    let began = Instant::now();
    let error = Client::connect(&place.socket(), soon()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() >= BOUND && began.elapsed() < BOUND * 20, "{:?}", began.elapsed());
}

#[test]
fn closed_without_an_answer_and_no_answer_in_time_are_two_things() {
    let place = Place::new();
    let peer = Rude::silent(&place.socket());
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    assert!(matches!(client.status(soon()), Err(CallError::Timeout)));
    drop((client, peer));
    std::fs::remove_file(place.socket()).unwrap();
    let _peer = Rude::says(&place.socket(), b"{\"parameters\"");
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    assert!(matches!(client.status(later()), Err(CallError::Closed)));
}

#[test]
fn a_server_that_does_not_read_cannot_hold_the_client() {
    let place = Place::new();
    let _peer = Rude::silent(&place.socket());
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    let call = Invoke { config: "x".repeat(1_000_000), ..Invoke::default() };
    let began = Instant::now();
    assert!(matches!(client.invoke(&call, None, soon()), Err(CallError::Timeout)));
    assert!(began.elapsed() < BOUND * 20, "{:?}", began.elapsed());
}

#[test]
fn a_server_that_reads_slowly_cannot_either() {
    let place = Place::new();
    let _peer = Rude::new(&place.socket(), |mut stream| {
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while std::io::Read::read(&mut stream, &mut some).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        None
    });
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    let call = Invoke { config: "x".repeat(1_000_000), ..Invoke::default() };
    let began = Instant::now();
    assert!(matches!(client.invoke(&call, None, soon()), Err(CallError::Timeout)));
    assert!(began.elapsed() < BOUND * 20, "{:?}", began.elapsed());
}

#[test]
fn why_a_server_closed_is_read_though_the_call_was_not_taken() {
    let place = Place::new();
    let _peer = Rude::new(&place.socket(), |mut stream| {
        stream
            .write_all(b"{\"error\":\"io.hostcni.Node.MessageTooLarge\",\"parameters\":{\"limit\":10}}\0")
            .unwrap();
        None
    });
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    let call = Invoke { config: "x".repeat(1_000_000), ..Invoke::default() };
    let error = client.invoke(&call, None, later()).unwrap_err();
    assert!(matches!(&error, CallError::Protocol(text) if text.contains("MessageTooLarge")), "{error:?}");
}

#[test]
fn an_answer_without_an_end_is_cut_off() {
    let place = Place::new();
    let _peer = Rude::new(&place.socket(), |mut stream| {
        read_call(&mut stream);
        std::thread::spawn(move || while stream.write_all(&[b'x'; 4096]).is_ok() {});
        None
    });
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    assert!(matches!(client.status(later()), Err(CallError::Protocol(_))));
}

#[test]
fn answers_of_older_and_newer_servers_are_understood() {
    let place = Place::new();
    let _peer = Rude::new(&place.socket(), |mut stream| {
        for answer in [
            &b"{}\0"[..],
            b"{\"parameters\":null}\0",
            b"{\"parameters\":{\"new\":[{}],\"pid\":7},\"continues\":false,\"x\":1}\0",
            b"{\"error\":\"io.hostcni.Node.CniError\",\"parameters\":{\"code\":4711,\"new\":1}}\0",
        ] {
            read_call(&mut stream);
            stream.write_all(answer).unwrap();
        }
        None
    });
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    assert_eq!(client.status(later()).unwrap().pid, 0);
    assert_eq!(client.invoke(&Invoke::default(), None, later()).unwrap().result, "");
    assert_eq!(client.status(later()).unwrap().pid, 7);
    let error = client.invoke(&Invoke::default(), None, later()).unwrap_err();
    assert!(matches!(&error, CallError::Cni(error) if error.code.as_u32() == 4711), "{error:?}");
}

#[test]
fn every_method_has_its_answer() {
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok("r".to_owned())));
    let mut client = Client::connect(&place.socket(), later()).unwrap();
    assert_eq!(client.invoke(&Invoke::default(), None, later()).unwrap().result, "r");
    assert!(client.status(later()).unwrap().ready);
    assert!(client.wait_ready(BOUND, later()).unwrap());
    assert!(client.list_attachments(later()).unwrap().is_empty());
    let events: Vec<_> = client.monitor().unwrap().collect();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.as_ref().is_ok_and(|event| event.kind == "ready")), "{events:?}");
}
