//! One call of one plugin: environment and configuration in, answer out, as libcni does it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::cni::{self, AddResult, CniVersion, Command, ErrorCode};
use crate::datapath::spawn::{self, Output};

use super::failure::{Failure, Why, beginning};

/// `ETXTBSY`: a plugin is being installed, or was written by a process that has just forked.
const TEXT_FILE_BUSY: i32 = 26;
/// How often and after which pause a program that is being written is tried again.
const BUSY: (usize, Duration) = (10, Duration::from_millis(100));

/// A call, ready to be made.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) plugin: &'a str,
    pub(super) directories: &'a [PathBuf],
    pub(super) command: Command,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) config: String,
    pub(super) deadline: Duration,
}

impl Call<'_> {
    /// Makes the call; what the plugin wrote to standard error comes along with either outcome.
    pub(super) fn make(self, version: CniVersion) -> (Result<String, Failure>, String) {
        let fail = |why| Failure { plugin: self.plugin.to_owned(), command: self.command, why };
        let Some(program) = find(self.plugin, self.directories) else {
            return (Err(fail(Why::Missing(joined(self.directories, ", ")))), String::new());
        };
        match self.run(&program) {
            Ok(output) => {
                let answer = answer(self.command, version, &output).map_err(fail);
                (answer, output.stderr)
            }
            Err(why) => (Err(fail(why)), String::new()),
        }
    }

    fn run(&self, program: &Path) -> Result<Output, Why> {
        let mut variables = self.variables.clone();
        variables.push(("CNI_COMMAND", self.command.to_string()));
        variables.push(("CNI_PATH", joined(self.directories, ":")));
        let mut tries = BUSY.0;
        loop {
            let error = match spawn::run_foreign(program, &variables, &self.config, self.deadline) {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            if error.errno == nix::errno::Errno::ETIMEDOUT as i32 {
                return Err(Why::Hung(self.deadline));
            }
            if error.errno != TEXT_FILE_BUSY || tries == 0 {
                return Err(Why::NotStarted(error));
            }
            tries -= 1;
            std::thread::sleep(BUSY.1);
        }
    }
}

/// The plugin's program.
pub(super) fn find(plugin: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(plugin)).find(|path| path.is_file())
}

pub(super) fn joined(directories: &[PathBuf], by: &str) -> String {
    directories.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(by)
}

/// What the plugin's end and words mean: the result's text for ADD, whatever it said for the others.
fn answer(command: Command, version: CniVersion, output: &Output) -> Result<String, Why> {
    let Some(code) = output.code else {
        return Err(Why::Signal { signal: output.signal.unwrap_or_default(), stderr: output.stderr.clone() });
    };
    let text = output.stdout.trim();
    let garbage = |reason: String| Why::Garbage { code, reason, text: beginning(text) };
    if text.is_empty() && (code != 0 || matches!(command, Command::Add | Command::Version)) {
        return Err(Why::Silent { code, stderr: output.stderr.clone() });
    }
    if text.is_empty() {
        return Ok(String::new());
    }
    let value = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        // What a successful DEL prints interests nobody.
        Err(_) if code == 0 && !matches!(command, Command::Add | Command::Version) => {
            return Ok(String::new());
        }
        Err(error) => return Err(garbage(error.to_string())),
    };
    // Some report an error and exit with 0 all the same.
    if let Some(error) = reported(&value) {
        return Err(Why::Reported(error));
    }
    if code != 0 {
        return Err(garbage("no error object".to_owned()));
    }
    if command == Command::Add { result(version, &value, text).map_err(garbage) } else { Ok(text.to_owned()) }
}

/// The error object of the specification.
fn reported(value: &Value) -> Option<cni::Error> {
    #[derive(Deserialize)]
    struct Object {
        code: u32,
        #[serde(default)]
        msg: String,
        #[serde(default)]
        details: Value,
    }
    let object = Object::deserialize(value).ok().filter(|object| object.code != 0)?;
    let details = match object.details {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    Some(cni::Error { code: ErrorCode::from(object.code), msg: object.msg, details })
}

/// The result as the next plugin is to get it: unchanged when it is of the version asked for, else converted.
fn result(version: CniVersion, value: &Value, text: &str) -> Result<String, String> {
    let said = match value.get("cniVersion") {
        None => version,
        Some(said) => {
            serde_json::from_value(said.clone()).map_err(|_| format!("its cniVersion is {said}"))?
        }
    };
    if !value.is_object() {
        return Err("not an object".to_owned());
    }
    let result = AddResult::from_version(said, value).map_err(|error| error.msg)?;
    if said == version {
        return Ok(text.to_owned());
    }
    result.to_version(version).map(|value| value.to_string()).map_err(|error| error.msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: CniVersion = CniVersion::V1_0_0;

    fn output(code: Option<i32>, stdout: &str) -> Output {
        let signal = if code.is_none() { Some(9) } else { None };
        Output { code, signal, stdout: stdout.to_owned(), stderr: "panic: at the end\n".to_owned() }
    }

    fn why(command: Command, code: Option<i32>, stdout: &str) -> String {
        answer(command, V, &output(code, stdout)).unwrap_err().to_string()
    }

    #[test]
    fn a_result_passes_unchanged_with_what_nobody_here_knows() {
        let text = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}],"new":{"b":1,"a":1.50}}"#;
        assert_eq!(answer(Command::Add, V, &output(Some(0), text)).unwrap(), text);
        let old = r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}"#;
        let new = answer(Command::Add, V, &output(Some(0), old)).unwrap();
        assert!(new.contains(r#""cniVersion":"1.0.0""#) && new.contains("10.0.0.2/24"), "{new}");
    }

    #[test]
    fn each_way_to_fail_is_told_apart() {
        let add = |code, stdout| why(Command::Add, code, stdout);
        assert!(add(None, "").contains("ended by signal 9; its last words: \"panic: at the end\""));
        assert!(add(Some(0), " \n").contains("exit code 0 and no output"));
        assert!(add(Some(1), "").contains("exit code 1 and no output"));
        assert!(add(Some(0), "hello").contains("no answer"));
        assert!(add(Some(1), "{}").contains("no error object"));
        assert!(add(Some(0), "[]").contains("not an object"));
        assert!(add(Some(0), r#"{"ips":[{"address":"nowhere"}]}"#).contains("no answer"));
        assert!(add(Some(0), r#"{"cniVersion":"7.0.0"}"#).contains("its cniVersion is"));
        let error = r#"{"cniVersion":"1.0.0","code":11,"msg":"busy","details":"wait"}"#;
        assert_eq!(add(Some(1), error), "busy (its code 11); wait");
        assert_eq!(
            add(Some(0), error),
            "busy (its code 11); wait",
            "an error is one, whatever the exit code"
        );
    }

    #[test]
    fn a_del_may_say_what_it_likes_unless_it_fails() {
        for said in ["", "deleted", "{}"] {
            assert!(answer(Command::Del, V, &output(Some(0), said)).is_ok(), "{said}");
        }
        assert!(why(Command::Del, Some(3), "oops").contains("exit code 3"));
        assert!(why(Command::Del, Some(0), r#"{"code":7,"msg":"no"}"#).contains("its code 7"));
    }
}
