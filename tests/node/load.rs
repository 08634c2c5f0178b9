//! Work without pause while the service is restarted, killed and reloaded, and its socket replaced.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::product::*;
use crate::support::cni::{Answer, Call};
use crate::support::cri::Cri;
use crate::support::node::Node;
use crate::support::observe::Place;
use crate::support::wait::until;

/// Runtimes that call at the same time.
pub(super) const CLIENTS: usize = 8;

/// How much is done: less in every run of the tests, all of it in `make soak`.
struct Scale {
    standing: usize,
    /// Restarts, and as many kills and reloads.
    rounds: usize,
    sockets: usize,
}

impl Scale {
    fn wanted() -> Self {
        if std::env::var_os("HOSTCNI_SOAK").is_some() {
            Self { standing: 300, rounds: 20, sockets: 3 }
        } else {
            Self { standing: 60, rounds: 5, sockets: 2 }
        }
    }
}

pub fn restarts_kills_reloads_and_a_new_socket_under_load_lose_nothing(node: &mut Node) {
    let scale = Scale::wanted();
    drop_in(node, "pause", "RestartSec=200ms");
    boot(node);
    let node = &*node;
    let mut cri = runtime(node);
    until("NetworkReady", || cri.network_ready().unwrap().0);
    let config = conf(node);
    let standing = stand(node, &config, scale.standing);
    let pinging: Vec<_> =
        [0, scale.standing / 2, scale.standing - 1].map(|pod| Pinging::from(node, &name(pod))).into();

    let load = Load::new(node, &config);
    load.during(|| disturb(node, &mut cri, &load, &scale));
    until_active(node);
    let report = load.report();
    println!("{} pods stood; {report}", scale.standing);

    until("the spool to be carried out", || spooled(node).is_empty());
    assert!(node.has(CONF), "active, and no conf");
    assert_eq!(host_links(node).len(), scale.standing);
    assert_eq!(records(node).len(), scale.standing);
    assert_eq!(leased(node), 2 * scale.standing as u64);
    for ping in pinging {
        ping.lost_none();
    }
    leave(node, &config, &standing);
}

/// The pods that stood are as they were, and go.
pub(super) fn leave(node: &Node, config: &str, standing: &[Value]) {
    each(standing, |pod, result| {
        let mut config: Value = serde_json::from_str(config).expect("the conf is JSON");
        config["prevResult"] = result.clone();
        Call::new("CHECK", &name(pod), &config.to_string()).send(node).result();
        Call::new("DEL", &name(pod), &config.to_string()).send(node).result();
    });
    nothing_left(node);
}

/// Restarts, kills and reloads in turn, then new sockets. The runtime stays ready in what is planned.
fn disturb(node: &Node, cri: &mut Cri, load: &Load, scale: &Scale) {
    for round in 0..scale.rounds {
        let mut restart = node.start("systemctl restart hostcni.service");
        while restart.runs() {
            let (ready, why) = cri.network_ready().unwrap();
            assert!(ready, "restart {round}: {why}");
        }
        restart.wait_ok();
        load.goes_on();
        node.ok("systemctl reload hostcni.service");
        load.goes_on();
        node.ok("systemctl kill -s KILL --kill-who=main hostcni.service");
        until_active(node);
        until("the runtime to be ready again", || cri.network_ready().unwrap().0);
        load.goes_on();
    }
    for _ in 0..scale.sockets {
        let began = Instant::now();
        node.ok("systemctl restart hostcni.socket");
        until_active(node);
        load.windows.lock().unwrap().push((began, Instant::now()));
        load.goes_on();
    }
}

/// Attaches so many pods that stay; their results.
pub(super) fn stand(node: &Node, config: &str, count: usize) -> Vec<Value> {
    let pods: Vec<usize> = (0..count).collect();
    let results = Mutex::new(vec![Value::Null; count]);
    each(&pods, |pod, _| {
        node.ok(&format!("ip netns add {}", name(pod)));
        let result = Call::new("ADD", &name(pod), config).send(node).result();
        results.lock().unwrap()[pod] = result;
    });
    results.into_inner().unwrap()
}

pub(super) fn name(pod: usize) -> String {
    format!("standing-{pod}")
}

/// Some at a time.
pub(super) fn each<T: Sync>(list: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let Some((index, item)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| Some((index, list.get(index)?)))
                {
                    work(index, item);
                }
            });
        }
    });
}

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A call that failed, and when it was under way.
struct Failure {
    verb: &'static str,
    began: Instant,
    ended: Instant,
    said: String,
}

pub(super) struct Load<'a> {
    node: &'a Node,
    config: &'a str,
    end: AtomicBool,
    calls: [AtomicUsize; 3],
    /// When the socket was being replaced.
    windows: Mutex<Vec<(Instant, Instant)>>,
    failures: Mutex<Vec<Failure>>,
}

const VERBS: [&str; 3] = ["ADD", "CHECK", "DEL"];

impl<'a> Load<'a> {
    pub(super) fn new(node: &'a Node, config: &'a str) -> Self {
        Self {
            node,
            config,
            end: AtomicBool::new(false),
            calls: Default::default(),
            windows: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Does something while the clients work; they end also when it panics, or they would be waited for without end.
    pub(super) fn during(&self, work: impl FnOnce()) {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || self.run(client))).collect();
            let ending = Ending(&self.end);
            work();
            drop(ending);
            for client in clients {
                if let Err(panic) = client.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }

    /// One runtime: its pod comes, is looked at and goes, over and over.
    fn run(&self, client: usize) {
        let pod = format!("client-{client}");
        self.node.ok(&format!("ip netns add {pod}"));
        while !self.end.load(Ordering::Relaxed) {
            let mut config: Value = serde_json::from_str(self.config).expect("the conf is JSON");
            let added = self.call(0, &pod, &config);
            if added.succeeded() {
                config["prevResult"] = added.result();
                self.call(1, &pod, &config);
            }
            self.call(2, &pod, &config);
        }
    }

    fn call(&self, verb: usize, pod: &str, config: &Value) -> Answer {
        let began = Instant::now();
        let answer = Call::new(VERBS[verb], pod, &config.to_string()).send(self.node);
        self.calls[verb].fetch_add(1, Ordering::Relaxed);
        if !answer.succeeded() {
            let failure = Failure { verb: VERBS[verb], began, ended: Instant::now(), said: answer.text() };
            self.failures.lock().unwrap().push(failure);
        }
        answer
    }

    /// Waits until the clients have got further: every disturbance meets work.
    pub(super) fn goes_on(&self) {
        let done = || self.calls.iter().map(|calls| calls.load(Ordering::Relaxed)).sum::<usize>();
        let before = done();
        until("the clients' next calls", || done() >= before + 3 * CLIENTS);
        thread::sleep(Duration::from_millis(20));
    }

    /// How much was done. Only while the socket was replaced may a call have failed, and no DEL.
    #[track_caller]
    pub(super) fn report(&self) -> String {
        let windows = self.windows.lock().unwrap();
        let failures = self.failures.lock().unwrap();
        for Failure { verb, began, ended, said } in failures.iter() {
            let excused = windows.iter().any(|(from, to)| began < to && ended > from);
            assert!(excused && *verb != "DEL", "{verb} failed: {said}");
        }
        let [adds, checks, dels] = self.calls.each_ref().map(|calls| calls.load(Ordering::Relaxed));
        format!(
            "{adds} ADD, {checks} CHECK, {dels} DEL; {} failed while the socket was replaced",
            failures.len()
        )
    }
}
