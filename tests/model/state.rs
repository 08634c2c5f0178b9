//! What the model knows of a node, what it can be made to leave out, and what it promises.

/// The power, and how far the boot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Power {
    Off,
    /// Before sysinit.target: no ordinary unit runs yet.
    Early,
    Up,
    /// Everything has a stop job.
    GoingDown,
}

/// The service's process, as systemd sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    Dead,
    /// At its readiness steps; whether the spooled DELs are among those done.
    Starting {
        replayed: bool,
    },
    /// Has said READY=1; whether ExecStartPost= is through, and whether ExecStop= is.
    Ready {
        posted: bool,
        stopped: bool,
    },
    /// Finishing what is in flight.
    Stopping,
    /// Its process is gone and ExecStopPost= has not run yet; whether ExecStartPost= is still to come.
    Gone {
        unposted: bool,
    },
    AutoRestart,
    /// systemd has given up.
    Failed,
}

/// The job that systemd has for the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Job {
    None,
    Restart,
    Stop,
}

/// The socket unit, and who had it closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Socket {
    NotYet,
    Listening,
    /// Has a stop job that waits for the service's; whether it is to be opened again.
    Closing {
        again: bool,
    },
    Closed {
        again: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Runtime {
    NotYet,
    Running,
    Stopped,
}

/// A DEL that its plugin holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Del {
    None,
    /// In the socket's backlog, or with a server that has not answered.
    Waiting,
}

/// A DEL on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spooled {
    None,
    /// Written before this server began.
    Before,
    /// Written since.
    Since,
    /// An ADD for the same attachment came later.
    Superseded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // each is independent of the others
pub struct State {
    pub power: Power,
    /// hostcni-boot.service is through.
    pub cleaned: bool,
    pub socket: Socket,
    pub server: Server,
    pub job: Job,
    /// systemd keeps the service up, or has a start job for it.
    pub wanted: bool,
    pub conf: bool,
    /// A planned restart is under way, and its grace has not passed.
    pub planned: bool,
    pub runtime: Runtime,
    pub attached: bool,
    pub del: Del,
    pub spooled: Spooled,
    /// A DEL was told success and is not carried out.
    pub owed: bool,
}

/// What can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// hostcni-boot.service removes what the last boot left.
    BootRemoval,
    /// It does so before sysinit.target.
    BootOrder,
    /// Before= of service and socket: up before the runtimes.
    StartOrder,
    /// The same line at shutdown: down after them.
    StopOrder,
    /// `conf place` asks the server whether it is ready.
    PlaceAsks,
    /// ExecStop= of the service.
    StopRemoval,
    /// ExecStopPost= of the service.
    StopPostRemoval,
    /// Only a restart job lets the conf stay.
    KeepsOnlyInRestart,
    /// systemd goes from a restart's one half to the other with no stop in between. (It does, unless the start has to
    /// wait for another unit's job. Nothing of hostcni's runs then, so nothing can take the conf away.)
    WholeRestart,
    /// The server takes the conf away when it is not ready within the grace.
    Grace,
    /// ExecStopPre= of the socket.
    SocketRemoval,
    /// The running server puts back only what the ledger says was placed.
    Ledger,
    /// The plugin writes down a DEL that meets no socket.
    Spool,
    /// It does so durably.
    SpoolSynced,
    /// It writes down one that is not answered within its bound, too.
    SpoolAtBound,
    /// Spooled DELs are carried out before READY=1.
    ReplayBeforeReady,
    /// A later ADD wins over a spooled DEL.
    ReplayLooksAtTimes,
    /// Restart=always.
    AutoRestart,
    /// StartLimitIntervalSec=0.
    NoStartLimit,
}

/// Every guard.
pub const GUARDS: &[Guard] = &[
    Guard::BootRemoval,
    Guard::BootOrder,
    Guard::StartOrder,
    Guard::StopOrder,
    Guard::PlaceAsks,
    Guard::StopRemoval,
    Guard::StopPostRemoval,
    Guard::KeepsOnlyInRestart,
    Guard::WholeRestart,
    Guard::Grace,
    Guard::SocketRemoval,
    Guard::Ledger,
    Guard::Spool,
    Guard::SpoolSynced,
    Guard::SpoolAtBound,
    Guard::ReplayBeforeReady,
    Guard::ReplayLooksAtTimes,
    Guard::AutoRestart,
    Guard::NoStartLimit,
];

/// What people and the world do; the cases of `tests/node` are made of these words. Everything else is what
/// the node does by itself.
pub const OUTSIDE: &[&str] = &[
    "power on",
    "cut power",
    "go down",
    "systemctl start hostcni.service",
    "systemctl stop hostcni.service",
    "systemctl restart hostcni.service",
    "systemctl start hostcni.socket",
    "systemctl stop hostcni.socket",
    "systemctl restart hostcni.socket",
    "kill -9",
    "bad configuration",
    "rm CONF",
    "ADD",
    "DEL",
];

/// The promises that a state or a step can break.
pub mod promise {
    pub const GATE: &str = "conf present => ready, stopping, just killed, or restarting within the grace";
    pub const PLACED: &str = "the conf is placed only for a server that is ready";
    pub const CONF_FIRST: &str = "in a stop the conf goes before the server";
    pub const BEFORE_RUNTIME: &str = "a runtime starts with the conf, unless a start has failed";
    pub const AFTER_RUNTIME: &str = "a shutdown takes socket and server after the runtime";
    pub const NO_DEL_LOST: &str = "no DEL lost";
    pub const SPOOLED_FIRST: &str = "a spooled DEL is carried out before READY=1";
    pub const ADD_WINS: &str = "a later ADD wins over a spooled DEL";
}

/// A node that was never switched on.
pub const FIRST: State = State {
    power: Power::Off,
    cleaned: false,
    socket: Socket::NotYet,
    server: Server::Dead,
    job: Job::None,
    wanted: true,
    conf: false,
    planned: false,
    runtime: Runtime::NotYet,
    attached: false,
    del: Del::None,
    spooled: Spooled::None,
    owed: false,
};

/// The promise that the state breaks.
pub fn holds(state: &State) -> Option<&'static str> {
    // Nothing but early units can look before sysinit.target, and nobody on a node that is off.
    let seen = state.conf && matches!(state.power, Power::Up | Power::GoingDown);
    let justified = matches!(state.server, Server::Ready { .. } | Server::Stopping | Server::Gone { .. })
        || state.planned;
    if seen && !justified {
        return Some(promise::GATE);
    }
    if state.owed && state.spooled == Spooled::None {
        return Some(promise::NO_DEL_LOST);
    }
    None
}

/// The node of the drawing that a state belongs to.
pub fn place(state: &State) -> &'static str {
    match (state.power, state.server) {
        (Power::Off, _) => "off",
        (Power::Early, _) => "boot",
        (_, Server::Ready { .. }) if state.conf => "gated",
        (_, Server::Ready { .. }) => "ready",
        (_, Server::Stopping | Server::Gone { .. } | Server::Dead | Server::Starting { .. })
            if state.planned && state.conf =>
        {
            "restarting"
        }
        (_, Server::Starting { .. }) => "starting",
        (_, Server::Stopping) => "stopping",
        (_, Server::Gone { .. }) => "gone",
        (_, Server::Dead | Server::AutoRestart | Server::Failed) => match state.socket {
            Socket::Listening | Socket::Closing { .. } => "listening",
            Socket::NotYet | Socket::Closed { .. } => "down",
        },
    }
}
