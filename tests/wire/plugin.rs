//! What the plugin reads, prints and holds.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hostcni::cni;
use serde_json::{Value, json};

use crate::peer::{HOSTCNI, Place, Rude, channel, read_call};
use crate::support::cni::Call;
use crate::support::observe::Here;

/// The plugin with nothing on its standard input yet.
fn started(variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(HOSTCNI);
    command.env_clear().envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the plugin's process starts")
}

/// What it printed on standard output, and its exit status.
fn output(child: Child) -> (Value, Option<i32>) {
    let output = child.wait_with_output().expect("its output can be read");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), output.status.code())
}

#[test]
fn a_request_arrives_as_the_runtime_made_it() {
    let place = Place::new();
    let (sender, received) = channel();
    let _server = place.serve(move |call, netns| {
        let id = netns.map(|it| {
            let file = fs::File::from(it.try_clone().expect("a descriptor more"));
            let metadata = file.metadata().expect("it is open");
            (metadata.dev(), metadata.ino())
        });
        sender.send((call.clone(), id)).expect("the test waits");
        Some(Ok("{\"a\": 1.10}".to_owned()))
    });
    let mut config = place.config(20).to_string();
    // What a parser would change: spelling, order, white space, a duplicate.
    config.insert_str(1, " \"z\": 1.10, \"a\": 18446744073709551616,\n\t\"a\": \"\\u00e9\\/\", ");
    let answer = Call::new("ADD", "c1", &config)
        .through(HOSTCNI)
        .with("CNI_NETNS", "/proc/self/ns/net")
        .with("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p")
        .with("CNI_PATH", "/a:/b")
        .with("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .with("TRACESTATE", "congo=t61rcWkgMzE")
        .send(&Here);
    assert_eq!(answer.text(), "{\"a\": 1.10}\n", "the result's text as it came");
    let (call, id) = received();
    assert_eq!(call.config, config);
    assert_eq!(
        (call.command.as_str(), call.container_id.as_str(), call.if_name.as_str()),
        ("ADD", "c1", "eth0")
    );
    assert_eq!((call.args.as_str(), call.path.as_str()), ("IgnoreUnknown=1;K8S_POD_NAME=p", "/a:/b"));
    assert_eq!(call.netns, "/proc/self/ns/net");
    assert_eq!(call.traceparent.as_deref(), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    assert_eq!(call.tracestate.as_deref(), Some("congo=t61rcWkgMzE"));
    assert!(call.timeout.is_some_and(|millis| (10_000..=20_000).contains(&millis)), "{:?}", call.timeout);
    let ours = fs::metadata("/proc/self/ns/net").expect("it exists");
    assert_eq!(id, Some((ours.dev(), ours.ino())));
}

#[test]
fn verbs_without_a_result_print_nothing() {
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok(String::new())));
    let mut config = place.config(10);
    config["prevResult"] = json!({ "cniVersion": "1.1.0" });
    config["cni.dev/valid-attachments"] = json!([]);
    for command in ["DEL", "CHECK", "STATUS", "GC"] {
        let call = Call::new(command, "c1", &config.to_string()).through(HOSTCNI);
        let answer = call.with("CNI_NETNS", "/proc/self/ns/net").send(&Here);
        answer.result();
        assert_eq!(answer.text(), "", "{command}");
    }
}

#[test]
fn a_servers_error_is_printed_in_the_version_asked_for() {
    let place = Place::new();
    let _server = place.serve(|_, _| {
        Some(Err(
            cni::Error::new(cni::ErrorCode::PoolExhausted, "no address is free").with_details("10.0.0.0/30")
        ))
    });
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let mut config = place.config(10);
        config["cniVersion"] = version.into();
        let answer = Call::new("ADD", "c1", &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", "/proc/self/ns/net")
            .send(&Here);
        assert_eq!(answer.code(), 100);
        let error: Value = serde_json::from_str(&answer.text()).expect("JSON and nothing else");
        let expected = json!({
            "cniVersion": version, "code": 100, "msg": "no address is free", "details": "10.0.0.0/30",
        });
        assert_eq!(error, expected);
    }
}

#[test]
fn a_servers_error_for_a_del_is_put_in_words_no_runtime_takes_for_success() {
    let place = Place::new();
    let _server = place.serve(|_, _| {
        Some(Err(cni::Error::new(cni::ErrorCode::KernelRefused, "link hc1 Not Found")
            .with_details("No such file or directory")))
    });
    let answer = place.call("DEL", 10).send(&Here);
    assert_eq!(answer.code(), 103);
    let text = answer.text().to_lowercase();
    assert!(!text.contains("not found") && !text.contains("no such file or directory"), "{text}");
    // An ADD keeps the words it was given.
    assert!(place.call("ADD", 10).send(&Here).text().contains("Not Found"));
}

#[test]
fn version_needs_neither_server_nor_configuration() {
    let versions = json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    for (stdin, version) in [("", "1.1.0"), ("{\"cniVersion\":\"0.4.0\"}", "0.4.0")] {
        let mut child = started(&[("CNI_COMMAND", "VERSION")]);
        child.stdin.take().expect("asked for").write_all(stdin.as_bytes()).expect("it reads");
        let (reply, status) = output(child);
        assert_eq!(
            (reply, status),
            (json!({ "cniVersion": version, "supportedVersions": versions }), Some(0))
        );
    }
}

#[test]
fn an_environment_that_is_wrong_is_code_4_in_the_version_asked_for() {
    let good =
        [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/n")];
    let bad = [
        ("CNI_COMMAND", "FLY", "unknown command"),
        ("CNI_COMMAND", "", "CNI_COMMAND"),
        ("CNI_CONTAINERID", "", "CNI_CONTAINERID"),
        ("CNI_CONTAINERID", "../x", "CNI_CONTAINERID"),
        ("CNI_IFNAME", "sixteen-bytes-xx", "CNI_IFNAME"),
        ("CNI_NETNS", "", "CNI_NETNS"),
        ("CNI_ARGS", "no equals sign", "CNI_ARGS"),
    ];
    for (name, value, word) in bad {
        let mut variables: BTreeMap<&str, &str> = good.into();
        variables.insert(name, value);
        let mut child = started(&variables.into_iter().collect::<Vec<_>>());
        let mut stdin = child.stdin.take().expect("asked for");
        stdin.write_all(b"{\"cniVersion\":\"0.4.0\",\"name\":\"n\"}").expect("it reads");
        drop(stdin);
        let (error, status) = output(child);
        assert_eq!(
            (&error["code"], &error["cniVersion"], status),
            (&json!(4), &json!("0.4.0"), Some(1)),
            "{error}"
        );
        assert!(error["msg"].as_str().is_some_and(|msg| msg.contains(word)), "{error}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_wrong_and_not_missing() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new(HOSTCNI);
    command.env_clear().env("CNI_COMMAND", "ADD").env("CNI_NETNS", "/n").env("CNI_IFNAME", "eth0");
    command.env("CNI_CONTAINERID", std::ffi::OsStr::from_bytes(b"c\xff"));
    let answer = command.stdin(Stdio::null()).output().expect("it runs");
    let error: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(error["code"], 4);
    assert!(!error["msg"].as_str().expect("a message").contains("missing"), "{error}");
}

#[test]
fn a_runtime_that_never_closes_standard_input_is_told_within_the_bound() {
    for (command, longest) in [("STATUS", 10), ("VERSION", 10), ("FLY", 5)] {
        let began = Instant::now();
        let mut child = started(&[("CNI_COMMAND", command)]);
        let mut stdin = child.stdin.take().expect("asked for");
        stdin.write_all(b"{\"cniVersion\":").expect("it reads");
        let (error, status) = output(child);
        assert_eq!(status, Some(1));
        assert_eq!(error["code"], if command == "FLY" { 4 } else { 5 }, "{error}");
        assert!(began.elapsed() < Duration::from_secs(longest), "{command}: {:?}", began.elapsed());
        drop(stdin);
    }
}

#[test]
fn bad_configurations_have_their_codes() {
    let huge = format!("{{\"name\":\"n\",\"x\":\"{}\"}}", "x".repeat(1 << 20));
    let cases: [(&[u8], u64); 7] = [
        (b"", 6),
        (b"{\"cniVersion\":\"1.0.0\",\"na", 6),
        (b"[1]", 6),
        (b"{\"name\":\"\xff\"}", 6),
        (huge.as_bytes(), 6),
        (b"{\"cniVersion\":\"1.0.0\"}", 7),
        (b"{\"cniVersion\":\"7.0.0\",\"name\":\"n\"}", 1),
    ];
    for (config, code) in cases {
        let variables =
            [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/n")];
        let mut child = started(&variables);
        // It may stop reading before the end.
        let _ = child.stdin.take().expect("asked for").write_all(config);
        let (error, status) = output(child);
        let start = String::from_utf8_lossy(&config[..config.len().min(40)]).into_owned();
        assert_eq!((error["code"].as_u64(), status), (Some(code), Some(1)), "{start}: {error}");
    }
}

#[test]
fn what_is_no_network_namespace_is_code_8_for_an_add_and_no_matter_for_a_del() {
    let place = Place::new();
    let (sender, received) = channel();
    let _server = place.serve(move |_, netns| {
        sender.send(netns.is_some()).expect("the test waits");
        Some(Ok(String::new()))
    });
    let fifo = place.spool();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("the directory is the test's own");
    for netns in ["/nowhere", "/proc/self/ns/mnt", "/dev/null", "/", fifo.to_str().expect("ASCII")] {
        let add = place.call("ADD", 10).with("CNI_NETNS", netns).send(&Here);
        assert_eq!(add.code(), 8, "{netns}: {}", add.text());
        assert!(add.text().contains(netns), "{}", add.text());
        place.call("DEL", 10).with("CNI_NETNS", netns).send(&Here).result();
        assert!(!received(), "no descriptor for {netns}");
    }
}

#[test]
fn an_add_whose_result_nobody_reads_has_not_succeeded() {
    let place = Place::new();
    let _server = place.serve(|_, _| Some(Ok("{}".to_owned())));
    let (reading, writing) = std::io::pipe().expect("a pipe");
    drop(reading);
    let mut child = Command::new(HOSTCNI)
        .env_clear()
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0")])
        .env("CNI_NETNS", "/proc/self/ns/net")
        .stdin(Stdio::piped())
        .stdout(writing)
        .spawn()
        .expect("the plugin's process starts");
    let config = place.config(10).to_string();
    child.stdin.take().expect("asked for").write_all(config.as_bytes()).expect("it reads");
    // Not a signal.
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn a_waiting_plugin_has_one_thread_its_socket_and_the_namespace() {
    let place = Place::new();
    let (sender, asked) = channel();
    let _peer = Rude::new(&place.socket(), move |mut stream| {
        read_call(&mut stream);
        sender.send(()).expect("the test waits");
        Some(stream)
    });
    let mut child = started(&[
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/proc/self/ns/net"),
    ]);
    let config = place.config(30).to_string();
    child.stdin.take().expect("asked for").write_all(config.as_bytes()).expect("it reads");
    asked();
    let process = format!("/proc/{}", child.id());
    assert_eq!(fs::read_dir(format!("{process}/task")).expect("it lives").count(), 1);
    // Descriptors may be inherited from whoever started the tests.
    let open = |path: &str| -> Vec<String> {
        let links = fs::read_dir(format!("{path}/fd")).expect("it lives").map_while(Result::ok);
        links.filter_map(|link| Some(fs::read_link(link.path()).ok()?.to_str()?.to_owned())).collect()
    };
    let mut inherited = open("/proc/self");
    // What other tests hold just now.
    inherited.retain(|it| !it.starts_with("net:"));
    let mut own: Vec<String> = open(&process).into_iter().filter(|it| !inherited.contains(it)).collect();
    for name in &mut own {
        name.truncate(name.find(':').unwrap_or(name.len()));
    }
    own.sort();
    // The pipe of standard input, whose other end is closed already, counts.
    assert_eq!(own, ["net", "pipe", "socket"]);
    child.kill().expect("it lives");
    child.wait().expect("it ends");
}

#[cfg(feature = "failpoints")]
#[test]
fn a_panic_is_an_error_object_and_an_ordinary_exit() {
    let place = Place::new();
    let mut child = started(&[
        ("CNI_COMMAND", "DEL"),
        ("CNI_CONTAINERID", "c"),
        ("CNI_IFNAME", "eth0"),
        ("FAILPOINTS", "plugin.deliver=panic(it was not found)"),
    ]);
    let mut config = place.config(10);
    config["cniVersion"] = "0.3.1".into();
    child.stdin.take().expect("asked for").write_all(config.to_string().as_bytes()).expect("it reads");
    let (error, status) = output(child);
    assert_eq!((&error["code"], &error["cniVersion"], status), (&json!(999), &json!("0.3.1"), Some(1)));
    assert!(error["msg"].as_str().is_some_and(|msg| msg.contains("it was missing")), "{error}");
}
