//! `docs/lifecycle.dot`, read as far as it is ours: nodes, and edges with one action to a line.

use std::collections::BTreeSet;

/// Nodes, and edges as (from, action, to). What stands after a colon in a line of a label is commentary.
pub struct Drawing {
    pub nodes: BTreeSet<String>,
    pub edges: BTreeSet<(String, String, String)>,
}

impl Drawing {
    pub fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/lifecycle.dot");
        let text = std::fs::read_to_string(path).expect("docs/lifecycle.dot is there");
        let mut drawing = Self { nodes: BTreeSet::new(), edges: BTreeSet::new() };
        for line in text.lines().map(str::trim) {
            let Some((left, rest)) = line.split_once("[label=\"") else { continue };
            let label = rest.split("\"]").next().unwrap_or_default();
            let Some((from, to)) = left.split_once("->") else {
                drawing.nodes.insert(left.trim().to_owned());
                continue;
            };
            for action in label.split("\\n") {
                let action = action.split(": ").next().unwrap_or_default().trim().to_owned();
                drawing.edges.insert((from.trim().to_owned(), action, to.trim().to_owned()));
            }
        }
        drawing
    }
}
