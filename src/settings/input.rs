//! The second stage: the fragments of all files merged key by key over the defaults, each value with its origin.

use super::files::Source;
use super::fragment::{
    BoundsInput, Driver, Fragment, LimitsInput, LogInput, NetworkFragment, NetworkInput, PathsInput,
    ServerInput, Table,
};
use super::problem::{Origin, Problem, shortened};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;

/// A value and where it comes from.
#[derive(Debug)]
pub(super) struct Located<T> {
    value: Spanned<T>,
    source: Option<Arc<Source>>,
}

impl<T> Located<T> {
    pub(super) fn default_of(value: T) -> Self {
        Self { value: Spanned::new(0..0, value), source: None }
    }

    pub(super) fn from_file(value: Spanned<T>, source: &Arc<Source>) -> Self {
        Self { value, source: Some(Arc::clone(source)) }
    }

    pub(super) fn get(&self) -> &T {
        self.value.get_ref()
    }

    pub(super) fn is_default(&self) -> bool {
        self.source.is_none()
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin_of(self.value.span())
    }

    fn origin_of(&self, span: Range<usize>) -> Origin {
        self.source.as_ref().map_or(Origin::Default, |source| source.origin(span.start))
    }

    /// What is wrong with this value.
    pub(super) fn problem(&self, key: &str, message: impl Into<String>) -> Problem
    where
        T: Serialize,
    {
        self.problem_in(&self.value, key, message)
    }

    /// What is wrong with a part of this value: an element of a list.
    pub(super) fn problem_in<U: Serialize>(
        &self,
        part: &Spanned<U>,
        key: &str,
        message: impl Into<String>,
    ) -> Problem {
        let value = match &self.source {
            Some(source) => source.text.get(part.span()).map(shortened),
            None => toml::Value::try_from(part.get_ref()).ok().map(|value| value.to_string()),
        };
        Problem { key: key.to_owned(), value, ..Problem::at(self.origin_of(part.span()), message) }
    }

    /// The origin of a part of this value.
    pub(super) fn origin_in<U>(&self, part: &Spanned<U>) -> Origin {
        self.origin_of(part.span())
    }
}

/// All files merged over the defaults.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) paths: PathsInput,
    pub(super) log: LogInput,
    pub(super) limits: LimitsInput,
    pub(super) server: ServerInput,
    pub(super) bounds: BoundsInput,
    /// In the order in which they are first named; never empty once merged.
    pub(super) networks: Vec<NetworkInput>,
}

impl Input {
    /// Merges the fragments, the least important first.
    pub(super) fn merge(fragments: Vec<(Fragment, Arc<Source>)>, problems: &mut Vec<Problem>) -> Self {
        let mut input = Self::default();
        for (fragment, source) in fragments {
            input.absorb(fragment, &source, problems);
        }
        if input.networks.is_empty() {
            input.networks.push(NetworkInput::default());
        }
        for network in &mut input.networks {
            // The long form takes the place of the simple form's default.
            if network.subnets.is_default() && !network.range.get().is_empty() {
                network.subnets = Located::default_of(Vec::new());
            }
        }
        input
    }

    fn absorb(&mut self, fragment: Fragment, source: &Arc<Source>, problems: &mut Vec<Problem>) {
        macro_rules! absorb {
            ($($section:ident)+) => {$(
                if let Some(Table(inner)) = fragment.$section {
                    self.$section.absorb(inner, source);
                }
            )+};
        }
        absorb!(paths log limits server bounds);
        let mut seen: Vec<(String, usize)> = Vec::new();
        for entry in fragment.network {
            let line = source.line(entry.span().start);
            let origin = source.origin(entry.span().start);
            let Table(network) = entry.into_inner();
            let Some(name) = network.name.as_ref().map(|name| name.get_ref().as_str().to_owned()) else {
                let missing = "not set: say which network this is, such as name = \"openshift-sdn\"";
                let problem = Problem { key: "network.name".into(), ..Problem::at(origin, missing) };
                // A name that is no name has been told of already.
                if !problems.iter().any(|other| other.key == problem.key) {
                    problems.push(problem);
                }
                continue;
            };
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == name) {
                let twice = format!("a second entry for this network in one file (the first: line {first})");
                let value = Some(format!("\"{name}\""));
                problems.push(Problem { key: "network.name".into(), value, ..Problem::at(origin, twice) });
                continue;
            }
            self.absorb_network(&name, network, source);
            seen.push((name, line));
        }
    }

    fn absorb_network(&mut self, name: &str, fragment: NetworkFragment, source: &Arc<Source>) {
        let known = self.networks.iter_mut().find(|network| network.name.get().as_str() == name);
        if let Some(network) = known {
            network.absorb(fragment, source);
        } else {
            let mut network = NetworkInput::default();
            network.absorb(fragment, source);
            self.networks.push(network);
        }
    }

    /// Whether nobody set the option and nobody need know it: it belongs to a driver that its network has not.
    fn is_of_another_driver(&self, entry: &Entry) -> bool {
        let of = |network: &&NetworkInput| Some(network.name.get().as_str()) == entry.network.as_deref();
        let Some(network) = self.networks.iter().find(of) else { return false };
        entry.origin == Origin::Default
            && entry.driver().is_some_and(|driver| driver != *network.driver.get())
    }

    /// Every option with its value and origin, in the order in which `config show` prints them.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut list = Vec::new();
        self.paths.entries(&Section::named("paths"), &mut list);
        self.log.entries(&Section::named("log"), &mut list);
        self.limits.entries(&Section::named("limits"), &mut list);
        self.server.entries(&Section::named("server"), &mut list);
        self.bounds.entries(&Section::named("bounds"), &mut list);
        for network in &self.networks {
            let section = Section::of_network(network.name.get().as_str());
            network.entries(&section, &mut list);
        }
        list.retain(|entry| !self.is_of_another_driver(entry));
        list
    }
}

/// The table that an option stands in.
pub(super) struct Section {
    name: String,
    network: Option<String>,
}

impl Section {
    fn named(name: &str) -> Self {
        Self { name: name.into(), network: None }
    }

    pub(super) fn of_network(network: &str) -> Self {
        Self { name: "network".into(), network: Some(network.to_owned()) }
    }

    pub(super) fn table(&self, name: &str) -> Self {
        Self { name: format!("{}.{name}", self.name), network: self.network.clone() }
    }

    pub(super) fn entry<T: Serialize>(&self, option: &str, value: &Located<T>) -> Entry {
        Entry {
            section: self.name.clone(),
            network: self.network.clone(),
            option: option.to_owned(),
            // An option that is not set has no TOML value; nothing else fails to become one.
            value: toml::Value::try_from(value.get()).ok(),
            origin: value.origin(),
        }
    }
}

/// One option as merged.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The table it stands in, `network.conf`.
    pub section: String,
    /// The network it belongs to, if it does to one.
    pub network: Option<String>,
    /// Its name in that table, `path`.
    pub option: String,
    /// Its value; `None` when nobody set it and it has no fixed default.
    pub value: Option<toml::Value>,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Entry {
    /// The driver that knows the option; every one does when there is none.
    pub(super) fn driver(&self) -> Option<Driver> {
        match (self.section.as_str(), self.option.as_str()) {
            ("network", "name" | "driver") | ("network.conf", _) => None,
            ("network" | "network.dns", _) => Some(Driver::Bridge),
            (section, _) if section.starts_with("network.delegate") => Some(Driver::Delegate),
            _ => None,
        }
    }

    /// The key as it is written in a file: `network.conf.path`.
    pub fn key(&self) -> String {
        format!("{}.{}", self.section, self.option)
    }

    /// The key with the network's name in it: `network.openshift-sdn.conf.path`.
    pub fn full_key(&self) -> String {
        match (&self.network, self.section.split_once('.')) {
            (None, _) => self.key(),
            (Some(network), None) => format!("{}.{network}.{}", self.section, self.option),
            (Some(network), Some((head, rest))) => format!("{head}.{network}.{rest}.{}", self.option),
        }
    }
}
