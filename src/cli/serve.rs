//! `hostcni serve`.

use std::path::PathBuf;

use clap::Args;

use super::Exit;
use crate::server::{self, Options};
use crate::systemd::journal;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Make a socket here and listen on it, instead of taking systemd's (for development)
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
    /// Read the configuration below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

pub fn run(arguments: &Arguments) -> Exit {
    let _log = journal::init(journal::Mode::Server { filter: "info".to_owned() });
    let options = Options { listen: arguments.listen.clone(), root: arguments.root.clone() };
    // The error is in the journal and in STATUS= already, with its fields.
    if server::serve(&options).is_ok() { Exit::Done } else { Exit::Failed }
}
