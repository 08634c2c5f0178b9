//! One function for each kind of text that others write: whatever the bytes are, it returns, and what it understood
//! it understands again from its own writing. Panics are the findings. Each tells whether it understood the bytes, so that
//! a corpus can be seen to be of use.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hostcni::attachment::{
    Attachment, Spool, SpooledDel, Store, host_link_alias, is_short_alias_of, parse_alias,
};
use hostcni::cni::{
    self, AddResult, AttachmentKey, CniVersion, Command, Environment, ErrorCode, Request, version_reply,
};
use hostcni::wire::client::{CallError, Client};
use hostcni::wire::service::{Call, Listener};
use hostcni::wire::{Invoke, InvokeReply};
use hostcni::{netconf, settings as node_settings};
use ipnet::IpNet;

/// More time than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A runtime's call: lines of the environment, an empty line, and standard input.
pub fn plugin(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let (head, config) = text.split_once("\n\n").unwrap_or((&text, ""));
    let get = |name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(str::to_owned)
    };
    let reply: serde_json::Value = json(&version_reply(config));
    assert!(reply["supportedVersions"].as_array().is_some_and(|versions| !versions.is_empty()));
    let request =
        Environment::parse(get).and_then(|environment| Request::from_parts(environment, config.to_owned()));
    match &request {
        Ok(request) => understood(request, config),
        Err(error) => {
            for version in CniVersion::ALL {
                let printed = json(&error.to_json(*version));
                assert_eq!(printed["code"], error.code.as_u32());
                assert!(printed["msg"].as_str().is_some_and(|msg| !msg.is_empty()));
            }
        }
    }
    request.is_ok()
}

fn understood(request: &Request, config: &str) {
    assert_eq!(request.config, config, "the configuration travels unchanged");
    let about_a_container = matches!(request.command, Command::Add | Command::Del | Command::Check);
    assert_eq!(request.key().is_some(), about_a_container);
    let bound = request.conf.host.bounds.for_command(request.command);
    assert!(Instant::now().checked_add(bound).is_some(), "a deadline can be told");
    if let Some(key) = request.key() {
        named(&key, &[]);
    }
    if let Some(result) = &request.conf.prev_result {
        converted(result);
    }
}

/// The alias of a link says whose it is; one that would be too long says at least of which network.
fn named(key: &AttachmentKey, addresses: &[IpNet]) {
    let alias = host_link_alias(key, addresses);
    assert!(alias.len() <= 255, "{alias}");
    match parse_alias(&alias) {
        Some((again, with)) => assert_eq!((&again, &with[..]), (key, addresses), "{alias}"),
        None => assert!(is_short_alias_of(&alias, &key.network), "{alias}"),
    }
}

/// In the newest version a result loses nothing; in an older one it is a fixed point from the first time on.
fn converted(result: &AddResult) {
    for version in CniVersion::ALL {
        let Ok(first) = result.to_version(*version) else { continue };
        let back = AddResult::from_version(*version, &first);
        let back = back.unwrap_or_else(|error| panic!("own writing in {version}: {error:?}: {first}"));
        assert_eq!(back.to_version(*version).ok(), Some(first), "in {version}");
        if *version == CniVersion::CURRENT {
            assert_eq!(&back, result);
        }
    }
}

/// hostcni's configuration: the admin's file, and a drop-in after a line of dashes.
pub fn settings(data: &[u8]) -> bool {
    let place = Place::of("settings");
    let root = &place.0;
    let etc = root.join("etc/hostcni");
    fs::create_dir_all(etc.join("config.d")).expect("below a directory of our own");
    let (file, drop_in) = match data.windows(5).position(|window| window == b"\n---\n") {
        Some(at) => (&data[..at], &data[at + 5..]),
        None => (data, &b""[..]),
    };
    write(&etc.join("config.toml"), file);
    write(&etc.join("config.d/50-more.toml"), drop_in);
    let loaded = match node_settings::load(root) {
        Ok(loaded) => loaded,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    for network in &loaded.settings.networks {
        let conf = netconf::render(network, &loaded.settings);
        let conf = String::from_utf8(conf).expect("the conf is text");
        let conf = json(&conf);
        let plugin = conf.get("plugins").map_or(&conf, |plugins| &plugins[0]);
        assert_eq!(plugin["type"], "hostcni");
        // What hostcni places, its own plugin has to take.
        let mut call = plugin.clone();
        call["name"] = conf["name"].clone();
        call["cniVersion"] = conf["cniVersion"].clone();
        let parsed = cni::PluginConf::parse_for(Command::Del, &call.to_string());
        let parsed = parsed.unwrap_or_else(|error| panic!("{call} is refused: {error:?}"));
        assert_eq!(parsed.name, network.name);
    }
    let shown = loaded.origins.to_toml();
    write(&etc.join("config.d/50-more.toml"), b"");
    write(&etc.join("config.toml"), shown.as_bytes());
    let again = node_settings::load(root);
    let again = again.unwrap_or_else(|error| panic!("its own writing: {error}\n{shown}"));
    assert_eq!(format!("{:?}", again.settings), format!("{:?}", loaded.settings));
    true
}

/// A file that lies where the conf belongs: ours is replaced and removed, everybody else's stays as it is.
pub fn conf(data: &[u8]) -> bool {
    const OURS: &[u8] = br#"{"io.hostcni.managed": "yes", "type": "hostcni"}"#;
    let place = Place::of("conf");
    let ledger = netconf::Ledger::new(&place.0.join("state"));
    let path = place.0.join("net.d/80-net.conf");
    let mut ours = false;
    for recorded in [false, true] {
        fs::create_dir_all(place.0.join("net.d")).expect("below a directory of our own");
        if recorded {
            netconf::place(&path, OURS, &ledger).expect("nothing is in the way");
        }
        write(&path, data);
        let found = netconf::inspect(&path, OURS, &ledger).expect("it can be looked at");
        let foreign = matches!(found, netconf::Ownership::Foreign { .. });
        assert!(!matches!(found, netconf::Ownership::Absent));
        let placed = netconf::place(&path, OURS, &ledger);
        assert_eq!(matches!(placed, Err(netconf::PlaceError::Foreign { .. })), foreign, "{placed:?}");
        let expected = if foreign { data } else { OURS };
        assert_eq!(fs::read(&path).expect("it is there"), expected);
        let removed = netconf::remove(&path, &ledger).expect("it can be removed");
        assert_eq!(matches!(removed, netconf::Removed::Foreign { .. }), foreign, "{removed:?}");
        assert_eq!(path.exists(), foreign);
        assert!(ledger.entries().is_empty());
        let _ = fs::remove_dir_all(place.0.join("net.d"));
        ours |= !foreign;
    }
    ours
}

/// The record of an attachment, under its own name where it has one.
pub fn attachment(data: &[u8]) -> bool {
    // What somebody may have written over the alias of a link of ours.
    if let Some((key, addresses)) = std::str::from_utf8(data).ok().and_then(parse_alias) {
        named(&key, &addresses);
    }
    let place = Place::of("attachment");
    let store = Store::open(&place.0).expect("a directory of our own");
    let record: Option<Attachment> = serde_json::from_slice(data).ok();
    let own = record.as_ref().map(|record| {
        store.put(record).expect("it can be written");
        let mut files = entries(&place.0);
        let file = files.pop().expect("it was written");
        assert!(files.is_empty());
        file
    });
    let file = own.unwrap_or_else(|| place.0.join(format!("{:032x}.json", 7)));
    write(&file, data);
    let loaded = store.load_all().expect("no record stops a start");
    assert_eq!(loaded.attachments.len() + loaded.set_aside.len(), 1, "kept or set aside");
    for (_, why) in &loaded.set_aside {
        assert!(!why.is_empty());
    }
    if let Some(found) = loaded.attachments.first() {
        store.put(found).expect("it can be written");
        let again = store.load_all().expect("no record stops a start");
        assert_eq!(again.attachments, loaded.attachments);
        store.remove(&found.key).expect("it can be removed");
    }
    !loaded.attachments.is_empty()
}

/// An entry of the spool, under its own name where it has one.
pub fn spool(data: &[u8]) -> bool {
    let place = Place::of("spool");
    let spool = Spool::open(&place.0);
    let del: Option<SpooledDel> = serde_json::from_slice(data).ok();
    let own = del.as_ref().map(|del| {
        spool.write(del).expect("it can be written");
        let mut files = entries(&place.0);
        let file = files.pop().expect("it was written");
        assert!(files.is_empty());
        file
    });
    let file = own.unwrap_or_else(|| place.0.join(format!("{:032x}-7.json", 7)));
    write(&file, data);
    let loaded = spool.load_all().expect("no entry stops a start");
    assert_eq!(loaded.dels.len() + loaded.set_aside.len(), 1, "kept or set aside");
    assert_eq!(loaded.dels.first(), del.as_ref(), "a DEL is understood wherever it lies");
    if let Some(del) = loaded.dels.first() {
        assert!(spool.remove(&del.key, del.at));
        assert!(spool.is_empty());
    }
    del.is_some()
}

/// A stream of bytes to the server's half of the wire, and the same to the client's.
pub fn wire(data: &[u8]) -> bool {
    // So much fits into a socket at once, with all the replies, so that one thread is enough.
    if data.len() > 4 << 10 {
        return false;
    }
    let place = Place::of("wire");
    let path = place.0.join("socket");
    let listener = UnixListener::bind(&path).expect("a directory of our own");
    let served = serve(data, &path, &listener);
    let answered = ask(data, &path, &listener);
    served || answered
}

/// Whether there was a call in it.
fn serve(data: &[u8], path: &Path, listener: &UnixListener) -> bool {
    let mut peer = UnixStream::connect(path).expect("it listens");
    peer.write_all(data).expect("it fits into the socket");
    peer.shutdown(std::net::Shutdown::Write).expect("it is connected");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let calls = runtime.block_on(async {
        let socket = OwnedFd::from(listener.try_clone().expect("a descriptor"));
        let mut listener = Listener::from_fd(socket).expect("it listens");
        let mut connection = listener.accept().await.expect("somebody has connected");
        let mut calls = 0;
        while let Ok(call) = connection.receive().await {
            calls += 1;
            let replied = match &call {
                Call::Invoke(invoke, netns) => {
                    assert!(netns.is_none(), "no descriptor was sent");
                    let error = cni::Error::new(ErrorCode::TryAgainLater, "not now");
                    assert_eq!(&again(invoke), &**invoke);
                    connection.reply_invoke(Err(&error)).await
                }
                Call::WaitReady { .. } => connection.reply_wait_ready(false).await,
                Call::ListAttachments => connection.reply_attachments(&[]).await,
                _ => connection.reply_invoke(Ok(&InvokeReply { result: String::new() })).await,
            };
            // As long as the peer takes its answers.
            if replied.is_err() {
                break;
            }
        }
        calls
    });
    peer.set_nonblocking(true).expect("a socket");
    let mut said = Vec::new();
    let _ = peer.read_to_end(&mut said);
    let replies: Vec<&[u8]> = said.split(|byte| *byte == 0).filter(|reply| !reply.is_empty()).collect();
    for reply in &replies {
        assert!(json(std::str::from_utf8(reply).expect("text"))["parameters"].is_object());
    }
    assert!(calls < data.split(|byte| *byte == 0).count(), "no call without its end");
    calls > 0
}

/// The same call after it was written and read.
fn again(invoke: &Invoke) -> Invoke {
    let text = serde_json::to_string(invoke).expect("it can be written");
    serde_json::from_str(&text).expect("and read")
}

/// Whether it was an answer to one of our calls.
fn ask(data: &[u8], path: &Path, listener: &UnixListener) -> bool {
    listener.set_nonblocking(false).expect("a socket");
    let deadline = Instant::now() + LONG;
    let mut answered = false;
    for round in 0..3 {
        let mut client = Client::connect(path, deadline).expect("it listens");
        let (mut server, _) = listener.accept().expect("somebody has connected");
        server.write_all(data).expect("it fits into the socket");
        server.shutdown(std::net::Shutdown::Write).expect("it is connected");
        let error = match round {
            0 => client.invoke(&Invoke::default(), None, deadline).err(),
            1 => client.status(deadline).err(),
            _ => client.list_attachments(deadline).err(),
        };
        assert!(!matches!(error, Some(CallError::Timeout)), "it waits for what will never come");
        answered |= error.is_none();
    }
    answered
}

/// A directory for one run of one target, in memory where there is such a place.
struct Place(PathBuf);

impl Place {
    fn of(target: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("hostcni-fuzz-{}-{target}", std::process::id()));
        fs::create_dir_all(&path).expect("a place for files");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of our own");
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| path.is_file()).collect()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a directory of our own");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
