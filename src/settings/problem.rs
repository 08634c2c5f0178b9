//! What is wrong with a configuration, told so that a person can put it right.
//!
//! Owns the wording: one line for each problem, with file, line, key and value first and what to do last, because
//! it is read in `systemctl status` and in the journal. Text from the files is escaped here, in one place, so that
//! no file can play tricks on a terminal.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it: hostcni's own default.
    Default,
    /// A file and the line (from 1) of the value in it.
    File {
        /// The file as it was opened, with the root it was looked for under.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where; `None` when it concerns no line (a file that cannot be read names itself in `message`).
    pub origin: Option<Origin>,
    /// The option as it is written in a file, `network.conf.path`; empty when there is none.
    pub key: String,
    /// The network concerned, where that is known.
    pub network: Option<String>,
    /// The value as it stands in the file, shortened.
    pub value: Option<String>,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl Problem {
    /// A problem that has no line and no key.
    pub(super) fn general(message: impl Into<String>) -> Self {
        Self { origin: None, key: String::new(), network: None, value: None, message: message.into() }
    }

    /// A problem at a line, not (yet) tied to a key.
    pub(super) fn at(origin: Origin, message: impl Into<String>) -> Self {
        Self { origin: Some(origin), ..Self::general(message) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let mut text = String::new();
        if let Some(origin) = &self.origin {
            write!(text, "{origin}: ")?;
        }
        text.push_str(&self.key);
        if let Some(value) = &self.value {
            write!(text, " = {value}")?;
        }
        if let Some(network) = &self.network {
            write!(text, " (network {network})")?;
        }
        if !self.key.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&self.message);
        f.write_str(&printable(&text))
    }
}

/// The configuration cannot be used: every reason, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    problems: Vec<Problem>,
}

impl SettingsError {
    /// An error of these problems; they are put in the order of files and lines, and said once.
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        let mut kept: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !kept.contains(&problem) {
                kept.push(problem);
            }
        }
        // Files stay in the order in which they were read, the least important first.
        let mut files: Vec<PathBuf> = Vec::new();
        let mut place = |problem: &Problem| match &problem.origin {
            Some(Origin::File { path, line }) => {
                let rank = files.iter().position(|known| known == path).unwrap_or_else(|| {
                    files.push(path.clone());
                    files.len() - 1
                });
                (1 + rank, *line)
            }
            Some(Origin::Default) => (usize::MAX, 0),
            None => (0, 0),
        };
        kept.sort_by_cached_key(|problem| place(problem));
        Self { problems: kept }
    }

    /// Every problem found; never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.problems.as_slice() {
            return write!(f, "configuration not usable: {only}");
        }
        write!(f, "configuration not usable, {} problems:", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for SettingsError {}

/// `text` on one line: control characters (a terminal escape in a file, a line break in a value) are written out.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// A value from a file on one line and at most 60 characters.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}

/// The candidate that `word` was most likely meant to be, if one is near enough to be worth saying.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A hint is for slips of the fingers; a longer word costs the table below for nothing.
    if word.chars().count() > 64 {
        return None;
    }
    let near_enough = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase().replace('-', "_"), candidate), candidate))
        .filter(|(distance, _)| *distance <= near_enough)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many single letters must be added, removed, changed or swapped with their neighbour between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for (i, row) in table.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in table[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(table[i - 2][j - 2] + 1);
            }
            table[i][j] = best;
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let keys = ["bridge", "masquerade", "mtu", "mtu_overhead"];
        assert_eq!(nearest("brdge", keys), Some("bridge"));
        assert_eq!(nearest("Bridge", keys), Some("bridge"));
        assert_eq!(nearest("mtu-overhead", keys), Some("mtu_overhead"));
        assert_eq!(nearest("mut", keys), Some("mtu"));
        assert_eq!(nearest("gateway", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"x".repeat(10_000), keys), None);
    }

    #[test]
    fn text_from_a_file_cannot_reach_the_terminal_raw() {
        let problem = Problem { value: Some("\u{1b}[2J\n".into()), key: "k".into(), ..Problem::general("m") };
        assert_eq!(problem.to_string(), "k = \\u{1b}[2J\\n: m");
    }

    #[test]
    fn problems_of_one_file_come_in_the_order_of_its_lines_and_once() {
        let at = |path: &str, line| Problem::at(Origin::File { path: path.into(), line }, "m");
        let default = Problem::at(Origin::Default, "m");
        let all = vec![at("/b", 3), default, at("/a", 1), at("/b", 1), at("/b", 3), Problem::general("g")];
        let expected =
            "configuration not usable, 5 problems:\n  g\n  /b:1: m\n  /b:3: m\n  /a:1: m\n  default: m";
        assert_eq!(SettingsError::new(all).to_string(), expected);
    }

    #[test]
    fn a_long_value_is_shortened_to_one_line() {
        assert_eq!(shortened("[\n  1,\n  2,\n]"), "[ 1, 2, ]");
        assert_eq!(shortened(&"é".repeat(100)).chars().count(), 60);
    }
}
