//! Every verb in every version of the specification.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::cni::{Answer, Call};
use crate::support::namespace::Namespace;
use crate::support::observe::{Here, Place};
use crate::support::server::{HOSTCNI, Server};

#[test]
fn results_and_errors_come_in_the_version_asked_for() {
    let server = Server::new();
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = Namespace::new();
        let mut config = server.config.clone();
        config["cniVersion"] = json!(version);
        let call = |command: &str, netns: &str| {
            Call::new(command, &format!("v{version}"), &config.to_string())
                .through(HOSTCNI)
                .with("CNI_NETNS", netns)
        };
        let result = call("ADD", &pod.path().display().to_string()).send(&Here).result();
        assert_eq!(result["cniVersion"], version);
        if version < "0.3.0" {
            assert!(result["ip4"]["ip"].is_string() && result["ip6"]["ip"].is_string(), "{result}");
        } else {
            assert_eq!(result["ips"].as_array().map(Vec::len), Some(2), "{result}");
            assert_eq!(result["ips"][0]["version"].is_string(), version < "1.0.0", "{result}");
        }
        let refused = call("ADD", "/etc/hostname").with("CNI_CONTAINERID", "other").send(&Here);
        assert_eq!(refused.code(), 8);
        assert!(refused.text().contains(&format!("\"{version}\"")), "{}", refused.text());
        call("DEL", "").send(&Here).result();
    }
    server.holds_nothing();
}

#[test]
fn an_absent_version_is_the_first_one() {
    let server = Server::new();
    let pod = Namespace::new();
    let mut config = server.config.clone();
    config.as_object_mut().unwrap().remove("cniVersion");
    let call = |command: &str| {
        Call::new(command, "old", &config.to_string())
            .through(HOSTCNI)
            .with("CNI_NETNS", &pod.path().display().to_string())
            .send(&Here)
    };
    assert_eq!(call("ADD").result()["cniVersion"], "0.1.0");
    call("DEL").result();
    server.holds_nothing();
}

/// What differs from run to run, as a word.
fn settled(text: &str, pod: &Namespace, server: &Server) -> Value {
    let text = text
        .replace(&pod.path().display().to_string(), "NETNS")
        .replace(&server.directory.path().display().to_string(), "DIRECTORY");
    if text.trim().is_empty() {
        return Value::Null;
    }
    let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for interface in value.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        // The kernel makes up the host end's.
        if interface["name"].as_str().is_some_and(|name| name.starts_with("hc") && name != "hostcni0") {
            interface["mac"] = json!("HOST MAC");
        }
    }
    value
}

/// Compares with `tests/golden/<version>/<name>.json`; `UPDATE_GOLDEN=1` writes it.
#[track_caller]
fn golden(version: &str, name: &str, value: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version)
        .join(format!("{name}.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{value:#}\n")).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let wanted: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(*value, wanted, "{}: {value:#}", path.display());
}

#[test]
fn every_verb_in_every_version_answers_as_the_golden_files_say() {
    let server = Server::with(
        "subnets = [\"10.128.0.0/23\", \"fd01::/64\"]\nmtu = 1400\n[network.dns]\nnameservers = [\"10.0.0.53\"]\n\
         search = [\"example.org\"]\n[[network.route]]\ndst = \"192.0.2.0/24\"\ngateway = \"10.128.0.1\"\npriority = 50\n",
    );
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = Namespace::new();
        let send = |command: &str, netns: &str, changes: &[(&str, Value)]| {
            let mut config = server.config.clone();
            config["cniVersion"] = json!(version);
            config["runtimeConfig"] = json!({"ips": ["10.128.1.1", "fd01::1:1"]});
            for (key, value) in changes {
                config[*key] = value.clone();
            }
            Call::new(command, "golden", &config.to_string())
                .through(HOSTCNI)
                .with("CNI_NETNS", netns)
                .send(&Here)
        };
        let netns = pod.path().display().to_string();
        let say =
            |name: &str, answer: &Answer| golden(version, name, &settled(&answer.text(), &pod, &server));
        let added = send("ADD", &netns, &[]);
        say("add", &added);
        let previous = added.result();
        say("check", &send("CHECK", &netns, &[("prevResult", previous.clone())]));
        pod.ok("ip route del default");
        say("check-route-gone", &send("CHECK", &netns, &[("prevResult", previous)]));
        say("add-no-netns", &send("ADD", "/etc/hostname", &[]));
        say("add-address-outside", &send("ADD", &netns, &[("runtimeConfig", json!({"ips": ["192.0.2.9"]}))]));
        say("status", &send("STATUS", "", &[]));
        say("gc-without-list", &send("GC", "", &[]));
        say("gc", &send("GC", "", &[("cni.dev/valid-attachments", json!([]))]));
        say("del", &send("DEL", &netns, &[]));
        say("version", &send("VERSION", "", &[]));
    }
    server.holds_nothing();
}
