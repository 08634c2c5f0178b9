//! The command line: arguments, tables, exit codes. One file per verb.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod attachments;
mod client;
mod conf;
mod config;
mod doctor;
mod explain;
mod import;
mod log_level;
mod monitor;
mod serve;
mod status;
mod table;
mod wait_ready;

/// A node's pod network as a systemd service.
#[derive(Debug, Parser)]
#[command(name = "hostcni", version, about, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "With CNI_COMMAND in the environment hostcni is the CNI plugin: see hostcni-cni(7).")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server (ExecStart= of hostcni.service)
    Serve(serve::Arguments),
    /// Show readiness, conf, socket, subnets and counts
    Status(status::Arguments),
    /// List the attachments: pod, container, interface, addresses
    Attachments(attachments::Arguments),
    /// Follow what happens, one line each
    Monitor(monitor::Arguments),
    /// Wait until the server is ready
    WaitReady(wait_ready::Arguments),
    /// Place, remove or show the CNI network configuration file
    Conf(conf::Args),
    /// Look for what keeps pods from their network, and say what to do
    Doctor(doctor::Arguments),
    /// Tell all that the node knows of a pod, also of one that is gone
    Explain(explain::Arguments),
    /// Look for the addresses that host-local or openshift-sdn keeps, and take over from them
    Import(import::Arguments),
    /// Show or change what the running server logs
    LogLevel(log_level::Arguments),
    /// Check or show hostcni's own configuration
    #[command(subcommand)]
    Config(config::Verb),
}

/// Where the server is asked.
#[derive(Debug, Clone, Args)]
pub struct Socket {
    /// The server's socket
    #[arg(long, value_name = "PATH", default_value = "/run/hostcni/cni.sock")]
    pub socket: PathBuf,
}

/// Exit statuses, as hostcni(8) lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, or ready.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Errors were found (`hostcni doctor`).
    Errors = 2,
    /// The server is not ready.
    NotReady = 3,
    /// Refused: nothing was done.
    Refused = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The command line as clap knows it, for manual pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Parses the arguments and runs the verb; an error is printed one cause a line.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Serve(arguments) => Ok(serve::run(&arguments)),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Attachments(arguments) => attachments::run(&arguments),
        Verb::Monitor(arguments) => monitor::run(&arguments),
        Verb::WaitReady(arguments) => wait_ready::run(&arguments),
        Verb::Conf(arguments) => return conf::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Import(arguments) => import::run(&arguments),
        Verb::LogLevel(arguments) => log_level::run(&arguments),
        Verb::Config(verb) => config::run(&verb),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            for (depth, cause) in error.chain().enumerate() {
                eprintln!("{}{cause}", if depth == 0 { "hostcni: " } else { "  " });
            }
            Exit::Failed.into()
        }
    }
}
