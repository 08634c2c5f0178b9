//! As much of HTTP/1.1 (RFC 9112) as one `GET /metrics` needs: the head of a request in, an answer out. No I/O.

use super::Format;

/// A request's head that is longer is refused; Prometheus' own has some 400 bytes.
pub(super) const MAX_HEAD: usize = 8 << 10;

/// What a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// In which text.
    pub(super) format: Format,
    /// Whether the text itself, or (HEAD) only what would be said about it.
    pub(super) body: bool,
}

/// Why a request is not answered with metrics: an answer's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This is not HTTP/1.x.
    Malformed,
    /// There is nothing but `/metrics`.
    NotFound,
    /// It can only be read.
    Method,
    /// The head did not come to its end in time.
    Slow,
    /// The head is longer than [`MAX_HEAD`].
    TooLarge,
}

/// The length of a head that is complete: up to the empty line.
pub(super) fn head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|start| start + 4)
}

/// What a complete head asks for.
pub(super) fn parse(head: &[u8]) -> Result<Wanted, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = request[..] else { return Err(Refusal::Malformed) };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !target.starts_with('/') {
        return Err(Refusal::Malformed);
    }
    if target.split('?').next() != Some("/metrics") {
        return Err(Refusal::NotFound);
    }
    let body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Err(Refusal::Method),
    };
    let mut accept = String::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
        if name.eq_ignore_ascii_case("accept") {
            accept += &value.to_ascii_lowercase();
            accept.push(',');
        }
    }
    Ok(Wanted { format: format(&accept), body })
}

/// OpenMetrics for everybody but those who ask for plain text and do not name it.
fn format(accept: &str) -> Format {
    let takes = |kind: &str| accept.split(',').any(|range| range.trim_start().starts_with(kind));
    let plain = takes("text/plain") && !takes("application/openmetrics-text");
    if plain { Format::Prometheus } else { Format::OpenMetrics }
}

/// The head of the answer with metrics of that length.
pub(super) fn found(format: Format, length: usize) -> String {
    let kind = match format {
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Prometheus => prometheus_client::encoding::prometheus_text::CONTENT_TYPE,
    };
    answer("200 OK", kind, "", length)
}

/// The whole answer to a request that is refused.
pub(super) fn refused(why: Refusal) -> String {
    let (status, more, text) = match why {
        Refusal::Malformed => ("400 Bad Request", "", "this is not an HTTP/1.1 request\n"),
        Refusal::NotFound => ("404 Not Found", "", "there is nothing but /metrics here\n"),
        Refusal::Method => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "only GET and HEAD\n"),
        Refusal::Slow => ("408 Request Timeout", "", "the request did not come in time\n"),
        Refusal::TooLarge => ("431 Request Header Fields Too Large", "", "more than 8 KiB of header\n"),
    };
    answer(status, "text/plain; charset=utf-8", more, text.len()) + text
}

/// One answer a connection: a reader comes every few seconds, and a place that is free serves the next one.
fn answer(status: &str, kind: &str, more: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\n{more}Connection: close\r\n\r\n"
    )
}
