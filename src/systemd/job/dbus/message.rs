//! Calls and replies in the D-Bus specification's wire format ("Message Protocol", "Marshaling"). A reply that does not
//! parse is an error and never a panic.

/// What a job is and for which unit.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::systemd::job) struct Job {
    pub(in crate::systemd::job) unit: String,
    pub(in crate::systemd::job) kind: String,
}

const METHOD_CALL: u8 = 1;
pub(super) const METHOD_RETURN: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const SERIAL: u32 = 1;

/// `a(usssoo)`: id, unit, type, state, job path, unit path.
pub(super) fn parse_jobs(body: &[u8]) -> Option<Vec<Job>> {
    let mut reader = Reader { bytes: body, at: 0 };
    let length = reader.length()?;
    reader.align(8);
    let end = reader.at.checked_add(length)?;
    let mut jobs = Vec::new();
    while reader.at < end {
        reader.align(8);
        reader.u32()?;
        let unit = reader.string()?;
        let kind = reader.string()?;
        for _ in 0..3 {
            reader.string()?;
        }
        jobs.push(Job { unit, kind });
    }
    Some(jobs)
}

/// `v` that holds a `u`.
pub(super) fn parse_number(body: &[u8]) -> Option<u32> {
    let mut reader = Reader { bytes: body, at: 0 };
    (reader.signature()? == "u").then(|| reader.u32())?
}

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl Reader<'_> {
    pub(super) fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.align(4);
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        self.u32().and_then(|value| usize::try_from(value).ok())
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    pub(super) fn string(&mut self) -> Option<String> {
        let length = self.length()?;
        self.text(length)
    }

    pub(super) fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.text(usize::from(length))
    }
}

/// Appends values in the wire's alignment.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// A header field of a one-letter string type.
    fn field(&mut self, code: u8, kind: u8, text: &str) {
        self.align(8);
        self.bytes.extend([code, 1, kind, 0]);
        self.string(text);
    }
}

/// Puts the fixed header in front of header fields and body.
fn message(kind: u8, serial: u32, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes.extend([b'l', kind, 0, 1]);
    writer.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    writer.u32(serial);
    writer.u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    writer.bytes.extend(fields);
    writer.align(8);
    writer.bytes.extend(body);
    writer.bytes
}

pub(super) fn list_jobs_call() -> Vec<u8> {
    let mut fields = Writer::default();
    fields.field(1, b'o', "/org/freedesktop/systemd1");
    fields.field(2, b's', "org.freedesktop.systemd1.Manager");
    fields.field(3, b's', "ListJobs");
    fields.field(6, b's', "org.freedesktop.systemd1");
    message(METHOD_CALL, SERIAL, &fields.bytes, &[])
}

pub(super) fn number_call(unit: &str, name: &str) -> Vec<u8> {
    let mut fields = Writer::default();
    fields.field(1, b'o', &unit_path(unit));
    fields.field(2, b's', "org.freedesktop.DBus.Properties");
    fields.field(3, b's', "Get");
    fields.field(6, b's', "org.freedesktop.systemd1");
    fields.align(8);
    // Header field 8, the body's signature: "ss".
    fields.bytes.extend([8, 1, b'g', 0, 2, b's', b's', 0]);
    let mut body = Writer::default();
    body.string("org.freedesktop.systemd1.Service");
    body.align(4);
    body.string(name);
    message(METHOD_CALL, SERIAL, &fields.bytes, &body.bytes)
}

/// A unit's object: what is no letter or digit is `_` and its number in hex.
fn unit_path(unit: &str) -> String {
    let named = |byte: u8| match byte {
        plain if plain.is_ascii_alphanumeric() => char::from(plain).to_string(),
        other => format!("_{other:02x}"),
    };
    unit.bytes().map(named).fold("/org/freedesktop/systemd1/unit/".to_owned(), |path, part| path + &part)
}

#[cfg(test)]
pub(in crate::systemd::job) mod tests {
    use super::*;

    pub(crate) fn number_call_length(unit: &str, name: &str) -> usize {
        number_call(unit, name).len()
    }

    /// A reply to `Get` with a variant of the given type and a number.
    pub(crate) fn number_reply(signature: u8, value: u32) -> Vec<u8> {
        let mut body = Writer { bytes: vec![1, signature, 0] };
        body.u32(value);
        reply(b"\x01v\0", &body.bytes)
    }

    fn reply(signature: &[u8], body: &[u8]) -> Vec<u8> {
        let mut fields = Writer::default();
        fields.bytes.extend([5, 1, b'u', 0]);
        fields.u32(SERIAL);
        fields.align(8);
        fields.bytes.extend([8, 1, b'g', 0]);
        fields.bytes.extend(signature);
        message(METHOD_RETURN, 9, &fields.bytes, body)
    }

    #[test]
    fn a_units_object_is_named_as_systemd_names_it() {
        assert_eq!(unit_path("hostcni.service"), "/org/freedesktop/systemd1/unit/hostcni_2eservice");
    }

    pub(crate) fn call_length() -> usize {
        list_jobs_call().len()
    }

    /// A signal as systemd sends it unasked.
    pub(crate) fn signal() -> Vec<u8> {
        let mut fields = Writer::default();
        fields.field(1, b'o', "/org/freedesktop/systemd1");
        fields.field(2, b's', "org.freedesktop.systemd1.Manager");
        fields.field(3, b's', "Reloading");
        message(4, 7, &fields.bytes, &[1, 0, 0, 0])
    }

    /// A reply to `ListJobs` with (unit, type) each.
    pub(crate) fn jobs_reply(jobs: &[(&str, &str)]) -> Vec<u8> {
        let mut items = Writer::default();
        for (unit, kind) in jobs {
            items.align(8);
            items.u32(17);
            for text in [
                unit,
                kind,
                "running",
                "/org/freedesktop/systemd1/job/17",
                "/org/freedesktop/systemd1/unit/x",
            ] {
                items.string(text);
            }
        }
        let mut body = Writer::default();
        body.u32(u32::try_from(items.bytes.len()).unwrap());
        body.align(8);
        body.bytes.extend(items.bytes);
        let mut fields = Writer::default();
        fields.align(8);
        fields.bytes.extend([5, 1, b'u', 0]);
        fields.u32(SERIAL);
        message(METHOD_RETURN, 9, &fields.bytes, &body.bytes)
    }

    #[test]
    fn no_truncation_of_a_reply_panics() {
        let reply = jobs_reply(&[("hostcni.service", "restart"), ("a.service", "stop")]);
        let body = &reply[16 + 8..];
        assert_eq!(parse_jobs(body).unwrap().len(), 2);
        for length in 0..body.len() {
            assert_eq!(parse_jobs(&body[..length]), None, "{length} bytes");
        }
        assert_eq!(parse_jobs(&[0xff; 64]), None);
        let body = [1, b'u', 0, 0, 7, 0, 0, 0];
        assert_eq!(parse_number(&body), Some(7));
        for length in 0..body.len() {
            assert_eq!(parse_number(&body[..length]), None, "{length} bytes");
        }
        assert_eq!(parse_number(&[1, b's', 0, 0, 7, 0, 0, 0]), None);
    }
}
