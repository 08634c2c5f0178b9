//! hostcni: picks the personality and hands over.

use std::process::ExitCode;

/// A runtime that starts us as its CNI plugin says so in the environment; everyone else means the tools.
fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    if std::env::var_os("CNI_COMMAND").is_some() { hostcni::plugin::main() } else { hostcni::cli::main() }
}
