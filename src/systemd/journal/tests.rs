//! The journal as the outside sees it: what arrives at journald's socket, and what happens when nobody reads.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::*;

const POD: PodFields<'_> = PodFields { namespace: "default", name: "web-0", uid: "3f2a" };
const ATTACHMENT: AttachmentFields<'_> =
    AttachmentFields { network: "openshift-sdn", container_id: "0123456789abcdef0123", ifname: "eth0" };

/// One of each.
fn every_event() -> Vec<Event<'static>> {
    let path = Path::new("/etc/cni/net.d/80-openshift-network.conf");
    let (attachment, pod) = (ATTACHMENT, Some(POD));
    vec![
        finished("ADD", None),
        Event::ServerReady { status: "2 networks", duration: Duration::from_millis(12) },
        Event::ServerStopping,
        Event::Reloaded,
        Event::ReloadFailed { error: "e" },
        Event::ConfPlaced { network: "openshift-sdn", path },
        Event::ConfRemoved { path, why: "the service stops" },
        Event::ConfKept { path },
        Event::ConfRefused { path, why: "the server is not ready" },
        Event::ConfRemoveFailed { path, error: "read-only file system" },
        Event::ForeignConf { path, why: "its type is calico" },
        Event::ShadowedConf { path, by: Path::new("/etc/cni/net.d/10-other.conf") },
        Event::DelSpooled { attachment, pod, why: "connection refused" },
        Event::DelReplayed { attachment, pod },
        Event::SpoolReplayed { count: 3, failed: 0 },
        Event::SpoolSetAside { path, why: "empty" },
        Event::StateSetAside { path, why: "empty" },
        Event::Reconciled { attachments: 1, undone: 2, leases_freed: 3, links_deleted: 4 },
        Event::LeaseFreed { attachment, pod, addresses: "10.128.0.5/23" },
        Event::Repaired { what: "the bridge hostcni0" },
        Event::StartFailed { step: "configuration", error: "line 3: unknown key" },
        Event::ServerUnreachable {
            command: "ADD",
            attachment: Some(attachment),
            pod,
            socket: Path::new("/run/hostcni/cni.sock"),
            error: "connection refused",
        },
        Event::AddRolledBack { attachment, pod, why: "the plugin is gone" },
        Event::Behind(Behind::PluginSaid {
            plugin: "bridge",
            command: "ADD",
            attachment: Some(attachment),
            pod,
            text: "out of luck",
        }),
        Event::Behind(Behind::DelKept { attachment, pod, failures: 2, why: "busy" }),
        Event::Behind(Behind::KeptDelDone { attachment, pod }),
        Event::Behind(Behind::NetworkWaits { network: "pods", why: "no socket" }),
        Event::Behind(Behind::NetworkBack { network: "pods" }),
        Event::Behind(Behind::BootSwept { count: 3, left: 0 }),
        Event::Firewall(Firewall::ForwardChanged { what: "a rule in iptables FORWARD" }),
        Event::Firewall(Firewall::ForwardRefused { why: "iptables is not there" }),
        Event::Firewall(Firewall::ZoneTaken { bridge: "hostcni0", zone: "trusted" }),
        Event::Firewall(Firewall::ZoneRefused { bridge: "hostcni0", zone: "trusted", why: "no such zone" }),
        Event::EntriesLost { count: 7 },
    ]
}

fn finished(command: &'static str, code: Option<u32>) -> Event<'static> {
    Event::RequestFinished {
        command,
        attachment: Some(ATTACHMENT),
        pod: Some(POD),
        addresses: if code.is_none() { "10.128.0.5/23" } else { "" },
        duration: Duration::from_micros(1250),
        code,
        msg: if code.is_none() { "" } else { "pool exhausted" },
    }
}

#[test]
fn every_event_has_its_own_message_id() {
    let events = every_event();
    let names: BTreeSet<_> = events.iter().map(Event::name).collect();
    assert_eq!(names.len(), MESSAGE_IDS.len(), "every_event() or MESSAGE_IDS lacks one");
    let ids: BTreeSet<_> = events.iter().map(Event::message_id).collect();
    assert_eq!(ids.len(), events.len());
    for id in ids {
        assert!(id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    }
}

/// The catalog as `journalctl -x` reads it: message id to text.
fn catalog() -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/usr/lib/systemd/catalog/hostcni.catalog");
    let text = std::fs::read_to_string(path).unwrap();
    let mut entries = BTreeMap::new();
    for entry in text.split("\n-- ").skip(1) {
        let (id, rest) = entry.split_once('\n').unwrap();
        assert!(entries.insert(id.trim().to_owned(), rest.to_owned()).is_none(), "{id} twice");
    }
    entries
}

#[test]
fn every_event_has_a_catalog_entry_and_every_entry_an_event() {
    let catalog = catalog();
    let documented: BTreeSet<_> = catalog.keys().map(String::as_str).collect();
    let emitted: BTreeSet<_> = MESSAGE_IDS.iter().map(|(_, id)| *id).collect();
    assert_eq!(documented, emitted);
}

#[test]
fn a_catalog_entry_says_what_and_what_to_do_with_fields_that_are_there() {
    let catalog = catalog();
    for event in every_event() {
        let text = &catalog[event.message_id()];
        assert!(text.starts_with("Subject: "), "{}", event.name());
        assert!(text.contains("\nDefined-By: hostcni\n"), "{}", event.name());
        let body = text.split_once("\n\n").unwrap_or_else(|| panic!("{} has no body", event.name())).1;
        assert!(body.trim().contains("\n\n"), "{} needs two paragraphs: what, and what to do", event.name());
        let fields = text.split('@').skip(1).step_by(2);
        let sent = fields_of(&event);
        for field in fields {
            assert!(sent.contains_key(field), "{} quotes {field}, which it does not send", event.name());
        }
    }
}

/// The fields of an event as they are sent, through `tracing` and back.
fn fields_of(event: &Event<'_>) -> BTreeMap<String, String> {
    #[derive(Clone, Default)]
    struct Collect(std::sync::Arc<std::sync::Mutex<BTreeMap<String, String>>>);
    impl Sink for Collect {
        fn put(&self, record: Record) {
            self.0
                .lock()
                .unwrap()
                .extend(record.event.named().map(|(name, value)| (name.into(), value.to_string())));
        }
    }
    let sink = Collect::default();
    let subscriber = tracing_subscriber::registry().with(Capture(sink.clone()));
    tracing::subscriber::with_default(subscriber, || emit(event));
    let fields = sink.0.lock().unwrap();
    fields.clone()
}

#[test]
fn a_pods_story_can_be_asked_for_by_the_documented_names() {
    let fields = fields_of(&finished("ADD", None));
    let expected = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "0123456789abcdef0123"),
        ("CNI_IFNAME", "eth0"),
        ("HOSTCNI_ADDRESS", "10.128.0.5/23"),
        ("HOSTCNI_DURATION_USEC", "1250"),
        ("HOSTCNI_NETWORK", "openshift-sdn"),
        ("K8S_POD_NAME", "web-0"),
        ("K8S_POD_NAMESPACE", "default"),
        ("K8S_POD_UID", "3f2a"),
        ("MESSAGE_ID", finished("ADD", None).message_id()),
        (
            "message",
            "ADD of pod default/web-0 (eth0 of container 0123456789ab in network openshift-sdn) done in 1.2 ms: 10.128.0.5/23",
        ),
    ];
    assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(fields_of(&finished("ADD", Some(100)))["HOSTCNI_CNI_CODE"], "100");
}

#[test]
fn polled_verbs_do_not_flood_the_journal() {
    assert_eq!(finished("STATUS", Some(50)).level(), Level::DEBUG);
    assert_eq!(finished("CHECK", None).level(), Level::DEBUG);
    assert_eq!(finished("CHECK", Some(5)).level(), Level::ERROR);
    assert_eq!(finished("DEL", None).level(), Level::INFO);
}

#[test]
fn a_filter_that_does_not_parse_counts_as_info() {
    assert_eq!(filter_of(Some("debug"), "warn").to_string(), "debug");
    assert_eq!(filter_of(Some(""), "warn").to_string(), "warn");
    assert_eq!(filter_of(Some("a=b=c"), "warn").to_string(), "warn");
    assert_eq!(filter_of(None, "a=b=c").to_string(), "info");
}

/// Runs `test` on a thread that sees a journald socket of its own. Needs root, and says so.
fn with_journald(test: impl FnOnce(UnixDatagram) + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("needs root: cannot make a mount namespace");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        std::fs::create_dir_all("/run/systemd/journal").unwrap();
        let socket = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        test(socket);
    };
    std::thread::spawn(run).join().unwrap();
}

/// Reads entries in the native format until one carries a message.
fn read_entry(socket: &UnixDatagram) -> BTreeMap<String, String> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = socket.recv(&mut buffer).unwrap();
        let mut rest = &buffer[..length];
        let mut fields = BTreeMap::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8(rest[..end].to_vec()).unwrap();
            if let Some((name, value)) = line.split_once('=') {
                fields.insert(name.to_owned(), value.to_owned());
                rest = &rest[end + 1..];
                continue;
            }
            let size = u64::from_le_bytes(rest[end + 1..end + 9].try_into().unwrap());
            let value = &rest[end + 9..end + 9 + usize::try_from(size).unwrap()];
            fields.insert(line, String::from_utf8(value.to_vec()).unwrap());
            rest = &rest[end + 10 + value.len()..];
        }
        if fields.contains_key("MESSAGE") {
            return fields;
        }
    }
}

fn check_entry(entry: &BTreeMap<String, String>) {
    assert_eq!(entry["MESSAGE_ID"], finished("ADD", None).message_id());
    assert_eq!(entry["K8S_POD_NAME"], "web-0");
    assert_eq!(entry["PRIORITY"], "6");
    assert_eq!(entry["SYSLOG_IDENTIFIER"], "hostcni");
    assert_eq!(entry["STORY"], "a span's field");
    assert!(entry["MESSAGE"].starts_with("ADD of pod default/web-0"));
}

fn in_a_span() {
    let span = tracing::info_span!("request", story = "a span's field");
    span.in_scope(|| emit(&finished("ADD", None)));
}

#[test]
fn the_server_writes_fields_under_their_names_from_another_thread() {
    with_journald(|socket| {
        let (queue, flusher) = queue::start(IDENTIFIER).unwrap();
        let subscriber = tracing_subscriber::registry().with(Capture(queue));
        tracing::subscriber::with_default(subscriber, in_a_span);
        drop(flusher);
        check_entry(&read_entry(&socket));
    });
}

#[test]
fn the_plugin_writes_the_same_without_a_thread() {
    with_journald(|socket| {
        let subscriber = tracing_subscriber::registry().with(Capture(Direct::new(IDENTIFIER).unwrap()));
        tracing::subscriber::with_default(subscriber, in_a_span);
        check_entry(&read_entry(&socket));
    });
}

#[test]
fn a_journald_that_does_not_read_blocks_nobody() {
    with_journald(|socket| {
        let (queue, flusher) = queue::start(IDENTIFIER).unwrap();
        let direct = Direct::new(IDENTIFIER).unwrap();
        let begin = Instant::now();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Capture(queue)), || {
            (0..20_000).for_each(|_| emit(&finished("DEL", None)));
        });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Capture(direct)), || {
            (0..2_000).for_each(|_| emit(&finished("DEL", None)));
        });
        drop(flusher);
        // A blocked one would stand here for ever; the bound only has to be far from that.
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        drop(socket);
    });
}

#[test]
fn lost_entries_are_counted_and_told_when_the_journal_reads_again() {
    with_journald(|socket| {
        // The thread that writes reports by its own default subscriber, which a test cannot set; what it
        // would report is what the counter holds.
        let (queue, _flusher) = queue::start(IDENTIFIER).unwrap();
        let lost = queue.lost();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Capture(queue)), || {
            (0..10_000).for_each(|_| emit(&finished("DEL", None)));
        });
        let count = lost.load(std::sync::atomic::Ordering::Relaxed);
        assert!(count > 0 && count < 10_000, "{count}");
        assert_eq!(read_entry(&socket)["CNI_COMMAND"], "DEL");
    });
}
