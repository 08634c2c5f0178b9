//! A package's life on a node.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::build::packages;
use crate::product::*;
use crate::support::cni::Call;
use crate::support::node::Node;
use crate::support::observe::{Place, links, property};
use crate::support::wait::until;

/// Debian's packages are not rpm's: nothing else is asked of its own ones.
const RPM: &str = "rpm --nodeps";

pub fn whole_life(node: &mut Node) {
    let [first, second] = packages();
    for (name, package) in [("1", first), ("2", second)] {
        fs::copy(package, node.path(&format!("/srv/{name}.rpm"))).unwrap();
    }
    node.boot();
    let node = &*node;
    assert!(!node.has("/usr/bin/hostcni"), "a node without hostcni");

    node.ok(&format!("{RPM} -i /srv/1.rpm"));
    until_active(node);
    for unit in ["hostcni.socket", "hostcni.service", "hostcni-boot.service"] {
        assert_eq!(node.ok(&format!("systemctl is-enabled {unit}")), "enabled", "{unit}");
    }
    until("the conf", || node.has(CONF));
    let kept = add(node, "kept");
    kept.result();
    node.ok("systemd-analyze verify --man=no hostcni.service hostcni.socket hostcni-boot.service");
    node.ok("systemctl preset-all && systemctl daemon-reload");
    node.ok("echo '# mine' >> /etc/hostcni/config.toml");

    // The upgrade, and the way back, while pods come and go.
    let socket = || property(node, "hostcni.socket", "ActiveEnterTimestampMonotonic");
    let listening = socket();
    under_load(node, || {
        for (package, options) in [("2", "-U"), ("1", "-U --oldpackage")] {
            let before = server(node);
            node.ok(&format!("{RPM} {options} /srv/{package}.rpm"));
            until("another server", || server(node) != before && active(node) == "active");
            let restarts = node
                .ok("journalctl --sync; journalctl -q -b -u hostcni.service -o cat | grep -c '^ready after'");
            assert_eq!(restarts, if package == "2" { "2" } else { "3" }, "one restart for each package");
            assert_eq!(node.ok("rpm -q hostcni --qf '%{release}'"), package);
            assert!(node.has(CONF));
        }
    });
    assert_eq!(socket(), listening, "the socket listened throughout");
    assert!(node.read("/etc/hostcni/config.toml").unwrap().contains("# mine"), "the admin's changes stay");
    assert_eq!(leased(node), 1);

    node.ok(&format!("{RPM} -e hostcni"));
    assert!(!node.has(CONF) && !node.has("/usr/bin/hostcni") && !node.has("/usr/libexec/cni/hostcni"));
    for unit in ["hostcni.socket", "hostcni.service"] {
        assert_ne!(property(node, unit, "ActiveState"), "active", "{unit}");
    }
    assert!(node.read("/etc/hostcni/config.toml.rpmsave").unwrap().contains("# mine"));
    let left = links(node).into_iter().filter(|name| name.starts_with("hc") && name != "hostcni0").count();
    assert_eq!(left, 1, "a pod that runs keeps its link");
    node.ok("ip netns exec kept ping -q -c1 -W5 10.128.0.1");

    node.ok(&format!("{RPM} -i /srv/1.rpm"));
    until_active(node);
    assert_eq!(leased(node), 1, "it is known again");
    Call::new("DEL", "kept", &conf(node)).send(node).result();
    nothing_left(node);
}

/// ADDs and DELs without pause meanwhile; not one may fail.
fn under_load(node: &Node, work: impl FnOnce()) {
    let config = conf(node);
    let (end, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (config, end, done) = (&config, &end, &done);
                scope.spawn(move || {
                    let pod = format!("client-{client}");
                    node.ok(&format!("ip netns add {pod}"));
                    while !end.load(Ordering::Relaxed) {
                        Call::new("ADD", &pod, config).send(node).result();
                        Call::new("DEL", &pod, config).send(node).result();
                        done.fetch_add(2, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        end.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!("{} ADDs and DELs under an upgrade and a downgrade, none failed", done.into_inner());
}
