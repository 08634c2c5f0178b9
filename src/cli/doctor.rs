//! `hostcni doctor`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::{Exit, Socket, client};
use crate::doctor::{self, Finding, Scene, Verdict};
use crate::settings;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show also what is fine
    #[arg(short, long)]
    all: bool,
    /// Read the configuration below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    socket: Socket,
}

/// Exits with 1 for warnings, with 2 for errors.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let found = doctor::examine(&scene(arguments));
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{}", render(&found, arguments.all));
    }
    Ok(match found.iter().map(|finding| finding.verdict).max() {
        None | Some(Verdict::Fine) => Exit::Done,
        Some(Verdict::Warning) => Exit::Failed,
        Some(Verdict::Error) => Exit::Errors,
    })
}

fn scene(arguments: &Arguments) -> Scene {
    let asked = client::connect(&arguments.socket).and_then(|(mut client, deadline)| {
        let status = client.status(deadline)?;
        Ok((status, client.list_attachments(deadline)?))
    });
    let (status, attachments) = match asked {
        Ok((status, attachments)) => (Ok(status), attachments),
        Err(error) => (Err(format!("{error:#}")), Vec::new()),
    };
    let settings = settings::load(&arguments.root).map(|loaded| loaded.settings);
    Scene { settings, status, attachments }
}

fn render(found: &[Finding], all: bool) -> String {
    let mut text = String::new();
    for finding in found.iter().filter(|finding| all || finding.verdict != Verdict::Fine) {
        let word = match finding.verdict {
            Verdict::Fine => "fine",
            Verdict::Warning => "warning",
            Verdict::Error => "ERROR",
        };
        let _ = writeln!(text, "{word:<8}{}: {}", finding.check, finding.reason);
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "{:8}{}", "", finding.remedy);
        }
    }
    let count = |verdict| found.iter().filter(|finding| finding.verdict == verdict).count();
    let (errors, warnings) = (count(Verdict::Error), count(Verdict::Warning));
    text + &format!("{errors} errors, {warnings} warnings, {} checks fine\n", count(Verdict::Fine))
}
