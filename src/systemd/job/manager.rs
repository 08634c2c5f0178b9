//! What systemd's own objects are asked: `ListJobs() -> a(usssoo)`, and `Get(ss) -> v` of a service's property that is a
//! number.

use std::path::Path;
use std::time::Instant;

use crate::systemd::dbus::message::{Call, Reader};
use crate::systemd::dbus::{Connection, DbusError};

const SYSTEMD: &str = "org.freedesktop.systemd1";

const LIST_JOBS: Call<'_> = Call {
    destination: SYSTEMD,
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    member: "ListJobs",
    arguments: &[],
};

/// What a job is and for which unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) unit: String,
    pub(super) kind: String,
}

pub(super) fn list_jobs(path: &Path, deadline: Instant) -> Result<Vec<Job>, DbusError> {
    let body = Connection::open(path, deadline)?.call(&LIST_JOBS, deadline)?;
    parse_jobs(&body).ok_or(DbusError::Malformed)
}

/// A property of type `u` of a service.
pub(super) fn number(path: &Path, deadline: Instant, unit: &str, name: &str) -> Result<u32, DbusError> {
    let call = Call {
        destination: SYSTEMD,
        path: &unit_path(unit),
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        arguments: &["org.freedesktop.systemd1.Service", name],
    };
    let body = Connection::open(path, deadline)?.call(&call, deadline)?;
    parse_number(&body).ok_or(DbusError::Malformed)
}

/// `a(usssoo)`: id, unit, type, state, job path, unit path.
fn parse_jobs(body: &[u8]) -> Option<Vec<Job>> {
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
fn parse_number(body: &[u8]) -> Option<u32> {
    let mut reader = Reader { bytes: body, at: 0 };
    (reader.signature()? == "u").then(|| reader.u32())?
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
pub(super) mod tests {
    use super::*;
    use crate::systemd::dbus::message::{Writer, message};

    /// A reply to `Get` with a variant of the given type and a number.
    pub(in crate::systemd::job) fn number_reply(signature: u8, value: u32) -> Vec<u8> {
        let mut body = Writer { bytes: vec![1, signature, 0] };
        body.u32(value);
        reply("v", &body.bytes)
    }

    fn reply(signature: &str, body: &[u8]) -> Vec<u8> {
        let mut fields = Writer::default();
        fields.bytes.extend([5, 1, b'u', 0]);
        fields.u32(1);
        fields.signature(signature);
        message(2, 9, &fields.bytes, body)
    }

    #[test]
    fn a_units_object_is_named_as_systemd_names_it() {
        assert_eq!(unit_path("hostcni.service"), "/org/freedesktop/systemd1/unit/hostcni_2eservice");
    }

    /// A signal as systemd sends it unasked.
    pub(in crate::systemd::job) fn signal() -> Vec<u8> {
        let mut fields = Writer::default();
        fields.field(1, b'o', "/org/freedesktop/systemd1");
        fields.field(2, b's', "org.freedesktop.systemd1.Manager");
        fields.field(3, b's', "Reloading");
        message(4, 7, &fields.bytes, &[1, 0, 0, 0])
    }

    /// A reply to `ListJobs` with (unit, type) each.
    pub(in crate::systemd::job) fn jobs_reply(jobs: &[(&str, &str)]) -> Vec<u8> {
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
        fields.bytes.extend([5, 1, b'u', 0]);
        fields.u32(1);
        message(2, 9, &fields.bytes, &body.bytes)
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
