//! The lifecycle of `docs/lifecycle.dot` as a state machine: node × socket × server × conf, one attachment
//! and its DEL. What each action does is what the units in `systemd/`, `cli::conf`, `server::guard` and
//! `plugin::deliver` do; a [`Guard`] is a piece of that which can be left out, to see it missed.

use super::checker::Step;
use super::state::{Del, FIRST, Guard, Job, Power, Runtime, Server, Socket, Spooled, State, promise};

/// A model without one of its guards, or with all of them.
pub struct Lifecycle {
    pub without: Option<Guard>,
}

impl Lifecycle {
    fn has(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// All that can happen in a state.
    pub fn steps(&self, state: &State) -> Vec<Step<State>> {
        let mut steps = Steps { from: *state, steps: Vec::new() };
        self.power(&mut steps);
        if matches!(state.power, Power::Up | Power::GoingDown) {
            self.people(&mut steps);
            self.socket(&mut steps);
            self.start(&mut steps);
            self.end(&mut steps);
            self.requests(&mut steps);
        }
        steps.steps
    }

    fn power(&self, steps: &mut Steps) {
        let at = steps.from;
        match at.power {
            Power::Off => steps.add("power on", |next| next.power = Power::Early),
            Power::Early => {
                let conf = at.conf && !self.has(Guard::BootRemoval);
                if !at.cleaned {
                    steps.add("hostcni-boot.service", |next| (next.cleaned, next.conf) = (true, conf));
                }
                if at.cleaned || !self.has(Guard::BootOrder) {
                    steps.add("sysinit.target", |next| next.power = Power::Up);
                }
                steps.add("cut power", |next| self.off(next));
            }
            Power::Up => {
                steps.add("cut power", |next| self.off(next));
                steps.add("go down", |next| {
                    (next.power, next.wanted) = (Power::GoingDown, false);
                    stop_job(next, Job::Stop);
                });
                let tried = at.conf || matches!(at.server, Server::AutoRestart) || !at.wanted;
                if at.runtime == Runtime::NotYet && (tried || !self.has(Guard::StartOrder)) {
                    let broken = (!tried).then_some(promise::BEFORE_RUNTIME);
                    steps.add_or(broken, "the runtime starts", |next| next.runtime = Runtime::Running);
                }
            }
            Power::GoingDown => {
                steps.add("cut power", |next| self.off(next));
                if at.runtime != Runtime::Stopped && at.del == Del::None {
                    steps.add("the runtime stops", |next| next.runtime = Runtime::Stopped);
                }
                let closed = matches!(at.socket, Socket::NotYet | Socket::Closed { .. });
                if at.runtime == Runtime::Stopped && at.server == Server::Dead && closed {
                    steps.add("power off", |next| self.off(next));
                }
            }
        }
    }

    /// What the power's end leaves: the disk. The kernel's objects and every process go.
    fn off(&self, next: &mut State) {
        let spooled = match next.spooled {
            _ if next.power != Power::GoingDown && !self.has(Guard::SpoolSynced) => Spooled::None,
            Spooled::Since => Spooled::Before,
            kept => kept,
        };
        *next = State { conf: next.conf, spooled, owed: next.owed, ..FIRST };
    }

    fn people(&self, steps: &mut Steps) {
        let at = steps.from;
        if at.power == Power::Up {
            let settled = at.job == Job::None && at.socket == Socket::Listening;
            let between = at.server == Server::Dead && at.planned && self.has(Guard::WholeRestart);
            if matches!(at.server, Server::Dead | Server::Failed)
                && (at.server == Server::Failed || !at.wanted)
            {
                steps.add("systemctl start hostcni.service", |next| {
                    (next.wanted, next.socket, next.server) = (true, Socket::Listening, Server::Dead);
                });
            }
            if settled && at.server != Server::Dead {
                steps.add("systemctl restart hostcni.service", |next| {
                    next.planned = true;
                    stop_job(next, Job::Restart);
                });
            }
            if settled && !between {
                steps.add("systemctl stop hostcni.service", |next| {
                    next.wanted = false;
                    stop_job(next, Job::Stop);
                });
                steps.add("systemctl stop hostcni.socket", |next| {
                    (next.wanted, next.socket) = (false, Socket::Closing { again: false });
                    stop_job(next, Job::Stop);
                });
                steps.add("systemctl restart hostcni.socket", |next| {
                    next.socket = Socket::Closing { again: true };
                    next.planned = next.server != Server::Dead;
                    stop_job(next, Job::Restart);
                });
            }
            if at.socket == (Socket::Closed { again: false }) {
                steps.add("systemctl start hostcni.socket", |next| next.socket = Socket::Listening);
            }
        }
        if at.conf {
            steps.add("rm CONF", |next| next.conf = false);
        }
        if matches!(at.server, Server::Starting { .. } | Server::Ready { .. } | Server::Stopping) {
            steps.add("kill -9", gone);
        }
    }

    fn socket(&self, steps: &mut Steps) {
        let at = steps.from;
        match at.socket {
            Socket::NotYet if at.power == Power::Up => {
                steps.add("sockets.target", |next| next.socket = Socket::Listening);
            }
            Socket::Closing { again } if at.server == Server::Dead => {
                let conf = at.conf && !self.has(Guard::SocketRemoval);
                self.close(steps, Socket::Closed { again }, conf);
            }
            Socket::Listening if at.power == Power::GoingDown && at.server == Server::Dead => {
                self.close(
                    steps,
                    Socket::Closed { again: false },
                    at.conf && !self.has(Guard::SocketRemoval),
                );
            }
            Socket::Closed { again: true } if at.power == Power::Up => {
                steps.add("the socket opens", |next| next.socket = Socket::Listening);
                // The service's start job fails with it: nobody but an administrator starts it again.
                steps.add("the socket cannot open", |next| {
                    (next.wanted, next.planned) = (false, false);
                    next.socket = Socket::Closed { again: false };
                });
            }
            _ => {}
        }
    }

    fn close(&self, steps: &mut Steps, socket: Socket, conf: bool) {
        let at = steps.from;
        let early = at.power == Power::GoingDown && at.runtime == Runtime::Running;
        if early && self.has(Guard::StopOrder) {
            return;
        }
        steps.add_or(early.then_some(promise::AFTER_RUNTIME), "the socket closes", |next| {
            (next.socket, next.conf) = (socket, conf);
            next.planned &= conf;
        });
    }

    fn start(&self, steps: &mut Steps) {
        let at = steps.from;
        let listening = at.socket == Socket::Listening && at.power == Power::Up;
        match at.server {
            Server::Dead if listening && at.wanted => {
                steps.add("ExecStart", |next| next.server = Server::Starting { replayed: false });
            }
            Server::Dead | Server::Failed if listening && at.del == Del::Waiting => {
                steps.add("socket activation", |next| (next.wanted, next.server) = (true, Server::Dead));
            }
            Server::AutoRestart if listening => {
                steps.add("auto-restart", |next| next.server = Server::Starting { replayed: false });
            }
            Server::Starting { replayed } if at.job == Job::None => {
                if !replayed {
                    steps.add("start.spool", |next| {
                        self.carry_out(next);
                        next.server = Server::Starting { replayed: true };
                    });
                }
                if replayed || !self.has(Guard::ReplayBeforeReady) {
                    let broken = (at.spooled == Spooled::Before).then_some(promise::SPOOLED_FIRST);
                    steps.add_or(broken, "READY=1", |next| {
                        next.server = Server::Ready { posted: false, stopped: false };
                    });
                }
                steps.add("bad configuration", gone);
                if at.planned {
                    let conf = at.conf && !self.has(Guard::Grace);
                    steps.add("grace over", |next| (next.planned, next.conf) = (false, conf));
                }
            }
            Server::Ready { posted: false, stopped } => {
                steps.add("ExecStartPost", |next| {
                    (next.conf, next.planned) = (true, next.job == Job::Restart);
                    next.server = Server::Ready { posted: true, stopped };
                });
            }
            Server::Ready { posted: true, stopped } => {
                let listed = !stopped || at.job == Job::Restart;
                if !at.conf && (listed || !self.has(Guard::Ledger)) {
                    steps.add("guard.restore", |next| next.conf = true);
                }
            }
            _ => {}
        }
    }

    fn end(&self, steps: &mut Steps) {
        let at = steps.from;
        if at.power == Power::GoingDown && at.runtime == Runtime::Running && self.has(Guard::StopOrder) {
            // The stop job waits for the runtime's; only what dies by itself goes on below.
            if !matches!(at.server, Server::Gone { .. }) {
                return;
            }
        }
        let early = at.power == Power::GoingDown && at.runtime == Runtime::Running;
        let kept = at.job == Job::Restart || !self.has(Guard::KeepsOnlyInRestart);
        match at.server {
            Server::Ready { posted: true, stopped: false } if at.job != Job::None => {
                let conf = at.conf && (kept || !self.has(Guard::StopRemoval));
                steps.add("ExecStop", |next| {
                    next.conf = conf;
                    next.server = Server::Ready { posted: true, stopped: true };
                });
            }
            // A server that is not up yet is told to end at once.
            Server::Ready { posted, stopped } if at.job != Job::None && stopped == posted => {
                // Kept in a restart that a shutdown has made a stop: ExecStopPost takes it.
                let first = at.job == Job::Stop && posted && at.conf && !at.planned;
                let broken =
                    if early { Some(promise::AFTER_RUNTIME) } else { first.then_some(promise::CONF_FIRST) };
                steps.add_or(broken, "SIGTERM", |next| next.server = Server::Stopping);
            }
            Server::Starting { .. } if at.job != Job::None => {
                steps.add("SIGTERM", |next| next.server = Server::Stopping);
            }
            Server::Stopping => steps.add("exit", gone),
            Server::Gone { unposted } => {
                if unposted {
                    // systemd runs it when a server has said READY=1 and died at once.
                    let conf = at.conf || !self.has(Guard::PlaceAsks);
                    let broken = (conf && !at.conf).then_some(promise::PLACED);
                    steps.add_or(broken, "ExecStartPost", |next| {
                        (next.conf, next.server) = (conf, Server::Gone { unposted: false });
                    });
                }
                let conf = at.conf && (kept || !self.has(Guard::StopPostRemoval));
                steps.add("ExecStopPost", |next| {
                    next.conf = conf;
                    self.after_the_end(next);
                });
            }
            _ => {}
        }
    }

    fn after_the_end(&self, next: &mut State) {
        let job = std::mem::replace(&mut next.job, Job::None);
        next.planned &= job == Job::Restart;
        next.server = match job {
            Job::None if next.wanted && !self.has(Guard::NoStartLimit) => {
                // Too often: the service fails, and the socket with it as soon as somebody connects.
                next.socket = Socket::Closed { again: false };
                Server::Failed
            }
            Job::None if next.wanted && !self.has(Guard::AutoRestart) => Server::Failed,
            Job::None if next.wanted => Server::AutoRestart,
            _ => Server::Dead,
        };
    }

    fn requests(&self, steps: &mut Steps) {
        let at = steps.from;
        let answers = matches!(at.server, Server::Ready { .. });
        let listens = matches!(at.socket, Socket::Listening | Socket::Closing { .. });
        let refused = !listens || at.power == Power::GoingDown && at.server == Server::Dead;
        if at.runtime == Runtime::Running && at.del == Del::None {
            if at.attached && refused {
                self.write_down(steps, "DEL", Guard::Spool);
            } else if at.attached {
                steps.add("DEL", |next| next.del = Del::Waiting);
            }
            if answers && !at.attached && at.power == Power::Up {
                steps.add("ADD", |next| {
                    (next.attached, next.owed) = (true, false);
                    if next.spooled != Spooled::None {
                        next.spooled = Spooled::Superseded;
                    }
                });
            }
        }
        if at.del == Del::Waiting {
            if answers || at.server == Server::Stopping {
                steps.add("answer", |next| (next.attached, next.del) = (false, Del::None));
            }
            self.write_down(steps, "no answer within the bound", Guard::SpoolAtBound);
        }
        let ours = matches!(at.server, Server::Ready { .. }) && at.spooled != Spooled::None;
        if ours {
            let broken = (at.spooled == Spooled::Superseded && !self.has(Guard::ReplayLooksAtTimes))
                .then_some(promise::ADD_WINS);
            steps.add_or(broken, "spool.replay", |next| self.carry_out(next));
        }
    }

    /// The plugin tells success, because the DEL is on the disk.
    fn write_down(&self, steps: &mut Steps, action: &'static str, guard: Guard) {
        let written = self.has(guard);
        steps.add_or((!written).then_some(promise::NO_DEL_LOST), action, |next| {
            next.del = Del::None;
            if written {
                let alive =
                    matches!(next.server, Server::Starting { .. } | Server::Ready { .. } | Server::Stopping);
                next.spooled = if alive { Spooled::Since } else { Spooled::Before };
                next.owed = true;
            }
        });
    }

    fn carry_out(&self, next: &mut State) {
        let older = next.spooled != Spooled::Superseded || !self.has(Guard::ReplayLooksAtTimes);
        if next.spooled != Spooled::None && older {
            next.attached = false;
        }
        (next.spooled, next.owed) = (Spooled::None, false);
    }
}

/// A stop or restart job for the service; nothing is to be done for one that is down.
fn stop_job(next: &mut State, job: Job) {
    match next.server {
        Server::Dead => {}
        Server::Failed | Server::AutoRestart => next.server = Server::Dead,
        _ => next.job = job,
    }
}

/// The process is gone. What it wrote down or was told of is older than the next one.
fn gone(next: &mut State) {
    next.server = Server::Gone { unposted: matches!(next.server, Server::Ready { posted: false, .. }) };
    if next.spooled == Spooled::Since {
        next.spooled = Spooled::Before;
    }
}

struct Steps {
    from: State,
    steps: Vec<Step<State>>,
}

impl Steps {
    fn add(&mut self, action: &'static str, change: impl FnOnce(&mut State)) {
        self.add_or(None, action, change);
    }

    fn add_or(
        &mut self,
        broken: Option<&'static str>,
        action: &'static str,
        change: impl FnOnce(&mut State),
    ) {
        let mut next = self.from;
        change(&mut next);
        self.steps.push(Step { action, next, broken });
    }
}
