//! The figures as tables, and the budgets with what was found.

use std::fmt::{self, Write};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::contender::{ALONE, CHAIN, DELEGATE, OWN, SILENT};
use crate::measure::{Samples, Series, What};

/// Between these lines of the document everything is written by the benchmark.
const MARKS: [&str; 2] = ["<!-- written by make bench: begin -->", "<!-- written by make bench: end -->"];

/// One budget of the design: what it is about, what is allowed, what was found.
struct Budget {
    text: String,
    most: f64,
    found: f64,
    unit: &'static str,
}

/// All that is told.
pub struct Report {
    table: String,
    budgets: Vec<Budget>,
}

impl Report {
    /// Of the samples, the restarts, and the attachments with the server's memory in KiB.
    pub fn new(samples: &Samples, ready: &[f64], (attachments, kib): (usize, u64)) -> Self {
        let p50 = |contender, verb, level| seconds(samples.one(contender, verb, level, 1).percentile(50));
        let whole = |contender, verb| seconds(samples.one(contender, verb, 1, 32).burst());
        let ratio = |text: &str, most, found| Budget { text: text.to_owned(), most, found, unit: "×" };
        let masquerade = "bridge, masquerade";
        let portmap = "bridge, masquerade, portmap";
        let mut ready = ready.to_vec();
        ready.sort_unstable_by(f64::total_cmp);
        let budgets = vec![
            ratio("ADD p50 against bridge", 0.25, p50(OWN, "ADD", 1) / p50("bridge", "ADD", 1)),
            ratio(
                "ADD p50 against bridge with masquerade",
                1.0 / 15.0,
                p50(OWN, "ADD", 1) / p50(masquerade, "ADD", 1),
            ),
            ratio(
                "ADD p50 with a host port against bridge with masquerade and portmap",
                1.0 / 15.0,
                p50("hostcni, a host port", "ADD", 1) / p50(portmap, "ADD", 1),
            ),
            ratio(
                "DEL p50 against the kernel's deletion alone",
                1.2,
                p50(OWN, "DEL", 1) / p50("kernel alone", "DEL", 1),
            ),
            ratio(
                "100 ADDs, 32 at once, against bridge with masquerade",
                0.1,
                whole(OWN, "ADD") / whole(masquerade, "ADD"),
            ),
            ratio(
                "100 DELs, 32 at once, against bridge with masquerade",
                0.04,
                whole(OWN, "DEL") / whole(masquerade, "DEL"),
            ),
            ratio("ADD p50 with 900 pods against none", 1.3, p50(OWN, "ADD", 900) / p50(ALONE, "ADD", 900)),
            ratio(
                "ADD p50 with the journal against one without",
                1.03,
                p50(ALONE, "ADD", 1) / p50(SILENT, "ADD", 1),
            ),
            ratio("DEL p50 with 900 pods against none", 1.3, p50(OWN, "DEL", 900) / p50(ALONE, "DEL", 900)),
            Budget {
                text: "added by the delegate driver to an ADD's p50".to_owned(),
                most: 2.0,
                found: (p50(DELEGATE, "ADD", 1) - p50(CHAIN, "ADD", 1)) * 1000.0,
                unit: " ms",
            },
            Budget {
                text: "added by the delegate driver to a DEL's p50".to_owned(),
                most: 2.0,
                found: (p50(DELEGATE, "DEL", 1) - p50(CHAIN, "DEL", 1)) * 1000.0,
                unit: " ms",
            },
            Budget {
                text: "the same of each of 100 ADDs, 32 at once".to_owned(),
                most: 2.0,
                found: (whole(DELEGATE, "ADD") - whole(CHAIN, "ADD")) * 1000.0 / 100.0,
                unit: " ms",
            },
            Budget {
                text: format!("server's resident memory with {attachments} attachments"),
                most: 12.0,
                found: f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0,
                unit: " MiB",
            },
            Budget {
                text: "start of the process to READY with 500 attachments".to_owned(),
                most: 100.0,
                found: ready.get(ready.len() / 2).copied().unwrap_or(f64::NAN),
                unit: " ms",
            },
        ];
        Self { table: table(samples), budgets }
    }

    /// Puts it between the marks of the document.
    pub fn write(&self, path: &Path) {
        let text = fs::read_to_string(path).expect("the document is there");
        let [before, after] = MARKS.map(|mark| text.find(mark).expect("the document has the marks"));
        let text = format!("{}{}\n\n{self}\n{}", &text[..before], MARKS[0], &text[after..]);
        fs::write(path, text).expect("the document can be written");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| budget | at most | found | |\n| --- | ---: | ---: | --- |")?;
        for Budget { text, most, found, unit } in &self.budgets {
            let verdict = if found <= most { "met" } else { "NOT MET" };
            writeln!(f, "| {text} | {most:.3}{unit} | {found:.3}{unit} | {verdict} |")?;
        }
        write!(f, "\n{}", self.table)
    }
}

impl Samples {
    /// The series of one kind of call.
    pub fn one(&self, contender: &'static str, verb: &'static str, level: usize, width: usize) -> &Series {
        self.0.get(&What { level, width, verb, contender }).expect("it was measured")
    }
}

/// Every series, one line each.
pub fn table(samples: &Samples) -> String {
    let mut table =
        "| pods | at once | verb | by | calls | failed | p50 ms | p90 ms | p99 ms | 100 in all, ms |\n\
                     | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for (What { level, width, verb, contender }, series) in &samples.0 {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| seconds(series.percentile(percent)) * 1000.0);
        let whole = if series.bursts.is_empty() {
            String::new()
        } else {
            format!("{:.0}", seconds(series.burst()) * 1000.0)
        };
        let calls = series.calls.len();
        let failures = series.failures;
        let _ = writeln!(
            table,
            "| {level} | {width} | {verb} | {contender} | {calls} | {failures} | {p50:.2} | {p90:.2} | {p99:.2} | {whole} |"
        );
    }
    table
}

/// As a number to divide by.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
