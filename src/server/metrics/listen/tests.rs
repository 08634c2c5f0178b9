use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(test)
}

/// What a reader gets that says `pieces` one after the other and then only listens.
fn answer(pieces: &[&[u8]]) -> String {
    run(async {
        let (mut near, far) = tokio::io::duplex(64);
        let speaking = async {
            for piece in pieces {
                // Whoever was refused is not listened to any more.
                let _ = near.write_all(piece).await;
            }
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap()
        };
        tokio::join!(speaking, serving(far)).0
    })
}

async fn serving(far: DuplexStream) -> io::Result<()> {
    serve(far, |format| match format {
        Format::OpenMetrics => "open # EOF\n".into(),
        Format::Prometheus => "plain\n".into(),
    })
    .await
}

fn status(head: &str) -> String {
    answer(&[head.as_bytes()]).lines().next().unwrap().to_owned()
}

#[test]
fn a_reader_gets_the_metrics_as_openmetrics_and_the_end_of_the_connection() {
    let said = answer(&[b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"]);
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let kind = "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(kind) && head.contains("\r\nContent-Length: 11\r\n"), "{head}");
    assert!(head.ends_with("\r\nConnection: close"), "{head}");
    assert_eq!(body, "open # EOF\n");
}

#[test]
fn plain_text_is_for_those_who_know_nothing_else() {
    let ask = |accept: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{accept}\r\n\r\n");
        answer(&[head.as_bytes()]).split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    // As Prometheus, curl, and promtool's users ask.
    let prometheus =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    assert_eq!(ask(prometheus), "open # EOF\n");
    assert_eq!(ask("accept: */*"), "open # EOF\n");
    assert_eq!(ask("ACCEPT: text/plain"), "plain\n");
    assert_eq!(ask("Accept: image/png\r\nAccept: text/plain;version=0.0.4"), "plain\n");
}

#[test]
fn only_the_head_of_the_answer_is_for_whoever_asks_for_no_more() {
    let said = answer(&[b"HEAD /metrics HTTP/1.0\r\n\r\n"]);
    assert!(said.contains("\r\nContent-Length: 11\r\n") && said.ends_with("\r\n\r\n"), "{said}");
}

#[test]
fn a_request_may_come_in_pieces_and_with_more_behind_it() {
    let said = answer(&[b"GET /met", b"rics?x=1 HTTP/1.1\r", b"\nHost: a\r\n\r", b"\nGET /more"]);
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
}

#[test]
fn everything_else_is_refused_with_its_reason() {
    for (head, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("GET /metricsandmore HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405 Method Not Allowed"),
        ("GET /metrics\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET  /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET http://a/metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("PRI * HTTP/2.0\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ] {
        assert_eq!(status(head), expected, "{head:?}");
    }
    let bytes = answer(&[b"GET /metrics HTTP/1.1\r\nX: \xff\xfe\r\n\r\n"]);
    assert!(bytes.starts_with("HTTP/1.1 400 "), "{bytes}");
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD));
    assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
    let longest = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD - 30));
    assert_eq!(longest.len(), MAX_HEAD);
    assert_eq!(status(&longest), "HTTP/1.1 200 OK");
}

#[test]
fn whoever_does_not_come_to_the_point_is_told_so_and_cut_off() {
    let begun = Instant::now();
    assert_eq!(status("GET /metrics HTTP/1.1\r\n"), "HTTP/1.1 408 Request Timeout");
    assert!(begun.elapsed() >= ASKING && begun.elapsed() < ASKING + Duration::from_secs(5));
}

#[test]
fn whoever_goes_or_does_not_listen_is_let_go() {
    run(async {
        let (near, far) = tokio::io::duplex(64);
        drop(near);
        assert_eq!(serving(far).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(serving(far).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    });
}

#[test]
fn no_head_however_cut_or_changed_panics() {
    let head = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain, */*\r\n\r\n";
    for length in 0..=head.len() {
        assert_eq!(http::head(&head[..length]), (length == head.len()).then_some(length));
        let _ = http::parse(&head[..length]);
    }
    for at in 0..head.len() {
        for byte in [0, b' ', b'\r', b'\n', b':', 0xc3, 0xff] {
            let mut changed = head.to_vec();
            changed[at] = byte;
            let _ = http::parse(&changed);
        }
    }
}
