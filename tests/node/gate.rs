//! The gate: the conf is there only while the server can answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, property};
use crate::support::wait::{LONG, until, within};

pub fn at_boot_the_conf_is_absent_until_the_server_is_ready(node: &mut Node) {
    node.write(CONFIG, &dual_stack(""));
    failpoints(node, &format!("{BEFORE_READY}=sleep(1500)"));
    node.power_on();
    let began = Instant::now();
    let mut starting = 0;
    loop {
        let present = node.has(CONF);
        let state = property(node, "hostcni.service", "SubState");
        match state.as_str() {
            "running" => break,
            // The helper that places it runs after READY=1 and before systemd says active.
            "start-post" => {}
            _ => {
                assert!(!present, "a conf while the service is in {state}");
                starting += 1;
            }
        }
        assert!(began.elapsed() < LONG, "hostcni does not start");
    }
    assert!(node.has(CONF), "active, and no conf");
    assert!(starting > 3, "the start was slow enough to be watched");
    node.settle();
    let log = node.read("/var/log/runtime-like").unwrap_or_default();
    assert!(
        log.contains("start conf=/etc/cni/net.d/80-openshift-network.conf"),
        "a runtime saw at its start: {log}"
    );
}

pub fn a_stop_takes_the_conf_before_the_server_and_pods_keep_their_network(node: &mut Node) {
    failpoints(node, "stop.drain=sleep(1500)");
    boot(node);
    let addresses = add(node, "web").addresses();
    let ping = Pinging::from(node, "web");
    let process = node.live(&format!("/proc/{}", server(node)));

    let stop = node.start("systemctl stop hostcni.service");
    until("the conf to go", || !node.has(CONF));
    assert!(process.exists(), "the server went first");
    stop.wait_ok();
    assert!(!node.has(CONF));
    assert_eq!(property(node, "hostcni.socket", "ActiveState"), "active");

    node.ok("systemctl start hostcni.service");
    assert!(node.has(CONF), "started, and no conf");
    ping.lost_none();
    assert_eq!(leased(node), addresses.len() as u64);
    assert_eq!(attachments(node)[0]["addresses"].as_array().map(Vec::len), Some(2));
    let other = add(node, "other").addresses();
    assert!(other.iter().all(|address| !addresses.contains(address)), "{other:?} was {addresses:?}'s");
}

pub fn a_killed_server_loses_the_conf_and_comes_back_with_it(node: &mut Node) {
    drop_in(node, "pause", "RestartSec=2s");
    boot(node);
    add(node, "web").result();
    let ping = Pinging::from(node, "web");
    let killed = server(node);

    node.ok(&format!("kill -9 {killed}"));
    until("the service in auto-restart", || property(node, "hostcni.service", "SubState") == "auto-restart");
    assert!(!node.has(CONF), "a conf with nobody behind it");
    until("the conf to come back", || node.has(CONF));
    until_active(node);
    assert_ne!(server(node), killed);
    assert_eq!(leased(node), 2);
    ping.lost_none();
}

pub fn a_planned_restart_keeps_the_conf_and_answers_what_was_asked_meanwhile(node: &mut Node) {
    boot(node);
    add(node, "web").result();
    let ping = Pinging::from(node, "web");
    let config = conf(node);
    for round in 0..3 {
        let pod = format!("pod-{round}");
        node.ok(&format!("ip netns add {pod}"));
        let mut restart = node.start("systemctl restart hostcni.service");
        let add = Call::new("ADD", &pod, &config).start(node);
        while restart.runs() {
            assert!(node.has(CONF), "a planned restart took the conf");
            sleep(Duration::from_millis(1));
        }
        restart.wait_ok();
        assert_eq!(add.answer().addresses().len(), 2);
        let del = Call::new("DEL", &pod, &config).send(node);
        del.result();
    }
    ping.lost_none();
    assert_eq!(leased(node), 2);
}

pub fn a_restart_that_takes_longer_than_the_grace_gives_the_conf_up(node: &mut Node) {
    boot(node);
    failpoints(node, &format!("{BEFORE_READY}=sleep(9000)"));
    let began = Instant::now();
    let restart = node.start("systemctl restart hostcni.service");
    until("the conf to go", || !node.has(CONF));
    assert!(began.elapsed() + Duration::from_millis(500) >= GRACE, "gone after {:?}", began.elapsed());
    assert_ne!(active(node), "active", "it went while the server was starting");
    restart.wait_ok();
    assert!(node.has(CONF), "ready at last, and no conf");
}

pub fn a_restart_into_a_bad_configuration_gives_the_conf_up(node: &mut Node) {
    boot(node);
    node.write(CONFIG, "[[network]]\nname = \"openshift-sdn\"\nsubnets = \"everything\"\n");
    node.run("systemctl restart hostcni.service");
    until("the conf to go", || !node.has(CONF));
    sleep(Duration::from_millis(500));
    assert!(!node.has(CONF));
    node.write(CONFIG, &dual_stack(""));
    until("the conf to come back", || node.has(CONF));
    until_active(node);
}

pub fn a_socket_that_goes_takes_the_conf_with_it_also_when_it_cannot_come_back(node: &mut Node) {
    boot(node);
    let drop_in = "/etc/systemd/system/hostcni.socket.d/slow.conf";
    node.write(drop_in, "[Socket]\nExecStartPre=/bin/sleep 1\n");
    node.ok("systemctl daemon-reload");
    let restart = node.start("systemctl restart hostcni.socket");
    until("the conf to go", || !node.has(CONF));
    assert_ne!(property(node, "hostcni.socket", "SubState"), "listening");
    restart.wait_ok();
    until_active(node);
    until("the conf to come back", || node.has(CONF));

    // systemd starts no service whose socket fails, so nobody but the socket's own end can have seen to it.
    node.write(drop_in, "[Socket]\nExecStartPre=/bin/false\n");
    node.ok("systemctl daemon-reload");
    assert!(!node.succeeds("systemctl restart hostcni.socket"));
    until("the service's end", || active(node) == "inactive" && !node.has("/run/hostcni/cni.sock"));
    assert!(!node.has(CONF), "a conf with nobody behind it, and nobody to come");

    node.ok(&format!(
        "rm {drop_in}; systemctl daemon-reload; systemctl start hostcni.socket hostcni.service"
    ));
    assert!(node.has(CONF));
    node.ok("systemctl stop hostcni.socket");
    assert!(!node.has(CONF));
    node.ok("systemctl start hostcni.socket");
    assert_eq!(active(node), "inactive", "a stopped socket takes the service along");
}

pub fn with_the_strict_policy_a_restart_takes_the_conf_and_brings_it(node: &mut Node) {
    node.write(CONFIG, &dual_stack("restart = \"remove\""));
    node.boot();
    assert!(node.has(CONF));
    failpoints(node, &format!("{BEFORE_READY}=sleep(1500)"));
    let restart = node.start("systemctl restart hostcni.service");
    within(Duration::from_secs(1), "the conf to go", || !node.has(CONF));
    restart.wait_ok();
    assert!(node.has(CONF), "restarted, and no conf");
}

pub fn a_bad_configuration_fails_with_its_reason_and_places_nothing(node: &mut Node) {
    node.write(CONFIG, "[[network]]\nname = \"openshift-sdn\"\nsubnets = [\"10.128.0.0/99\"]\n");
    node.boot();
    let said = || {
        let status = node.run("systemctl status --no-pager --full hostcni.service");
        String::from_utf8_lossy(&status.stdout).into_owned()
    };
    until("the reason in systemctl status", || said().contains("config.toml"));
    let said = said();
    assert!(said.contains("subnets") && said.contains("10.128.0.0/99"), "{said}");
    assert_ne!(active(node), "active");
    assert!(!node.has(CONF), "a conf with nobody behind it");
    assert_eq!(property(node, "hostcni.socket", "ActiveState"), "active");

    // The socket takes a DEL all the same: it waits there, without the service spinning over it.
    let config = r#"{"cniVersion":"1.0.0","name":"openshift-sdn","type":"hostcni"}"#;
    let mut del = Call::new("DEL", "gone", config).start(node);
    let starts = || property(node, "hostcni.service", "NRestarts").parse::<u32>().unwrap();
    let before = starts();
    sleep(Duration::from_secs(3));
    assert!(del.waits(), "a DEL was not kept waiting: {}", del.answer().text());
    assert!(starts() - before <= 35, "{} starts in three seconds", starts() - before);
    assert_eq!(property(node, "hostcni.socket", "ActiveState"), "active", "the socket ended over it");

    node.write(CONFIG, &dual_stack(""));
    del.answer().result();
    until_active(node);
    assert!(node.has(CONF));
}

pub fn a_foreign_file_at_the_confs_path_is_never_touched(node: &mut Node) {
    let foreign = r#"{"cniVersion":"1.0.0","name":"mine","type":"loopback"}"#;
    node.write(CONF, foreign);
    node.write(CONFIG, &dual_stack("foreign = \"fail\""));
    node.boot();
    until("the service to say whose path it is", || {
        String::from_utf8_lossy(&node.run("systemctl status --no-pager --full hostcni.service").stdout)
            .contains(CONF)
    });
    assert_eq!(node.read(CONF).as_deref(), Some(foreign));
    node.ok("systemctl stop hostcni.service");
    assert_eq!(node.read(CONF).as_deref(), Some(foreign), "a stop touched it");

    // A reboot and a power cut are no reasons either.
    node.reboot();
    assert_eq!(node.read(CONF).as_deref(), Some(foreign), "a reboot touched it");
    node.cut_power();
    node.boot();
    assert_eq!(node.read(CONF).as_deref(), Some(foreign), "the boot after a power cut touched it");

    node.ok(&format!("rm {CONF}"));
    until("the conf in its place", || node.has(CONF));
    until_active(node);
    assert_ne!(node.read(CONF).as_deref(), Some(foreign));
}

pub fn told_to_wait_hostcni_places_its_conf_once_the_foreign_file_is_gone(node: &mut Node) {
    let foreign = r#"{"cniVersion":"1.0.0","name":"mine","type":"loopback"}"#;
    node.write(CONF, foreign);
    node.write(CONFIG, &dual_stack("foreign = \"wait\""));
    node.power_on();
    until("the service to say what it waits for", || {
        property(node, "hostcni.service", "StatusText").contains(CONF)
    });
    let waiting = server(node);
    assert_eq!(node.read(CONF).as_deref(), Some(foreign));
    node.ok(&format!("rm {CONF}"));
    until("the conf in its place", || node.has(CONF));
    until_active(node);
    assert_eq!(server(node), waiting, "it did not have to start again for that");
}
