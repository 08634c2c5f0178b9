//! From the merged input to the settings of a chain of other plugins.

use super::files;
use super::fragment::{Driver, NetworkInput};
use super::input::{Entry, Section};
use super::model::{DelegateSettings, ReadySettings};
use super::problem::Problem;
use crate::cni::{Bounds, ConfList};

/// The settings; none when there is no list that could be used.
pub(super) fn settings(
    input: &NetworkInput,
    bounds: Bounds,
    problems: &mut Vec<Problem>,
) -> Option<DelegateSettings> {
    not_the_bridges(input, problems);
    let delegate = &input.delegate;
    if delegate.plugin_dirs.get().is_empty() {
        let message = "an empty list: name the directories that hold the plugins";
        problems.push(delegate.plugin_dirs.problem("network.delegate.plugin_dirs", message));
    }
    let ready = &delegate.ready;
    Some(DelegateSettings {
        list: list(input, problems)?,
        plugin_dirs: delegate.plugin_dirs.get().iter().map(|path| path.get_ref().0.clone()).collect(),
        timeout: delegate.timeout.get().0,
        bounds,
        ready: ReadySettings {
            files: ready.files.get().iter().map(|path| path.get_ref().0.clone()).collect(),
            sockets: ready.sockets.get().iter().map(|path| path.get_ref().0.clone()).collect(),
            status: *ready.status.get(),
            wait: ready.wait.get().0,
            grace: ready.grace.get().0,
        },
    })
}

fn list(input: &NetworkInput, problems: &mut Vec<Problem>) -> Option<ConfList> {
    const KEY: &str = "network.delegate.conflist";
    let source = &input.delegate.conflist;
    let mut wrong = |message: String| problems.push(source.problem(KEY, message));
    let Some(conflist) = source.get() else {
        // Nobody set it: the line to look at is the one that asks for this driver.
        let message = "not set: the driver delegate needs a network configuration list, its path or its text";
        problems.push(Problem { key: KEY.into(), ..Problem::at(input.driver.origin(), message) });
        return None;
    };
    let text = match conflist.path().map(files::text) {
        None => conflist.0.clone(),
        Some(Ok(text)) => text,
        Some(Err(why)) => {
            wrong(why);
            return None;
        }
    };
    ConfList::parse(&text, input.name.get()).map_err(wrong).ok()
}

/// Options of the bridge that would be without effect: whoever set them believes that they have one.
fn not_the_bridges(input: &NetworkInput, problems: &mut Vec<Problem>) {
    let section = Section::of_network(input.name.get().as_str());
    let mut entries: Vec<Entry> = Vec::new();
    input.entries(&section, &mut entries);
    let set = |entry: &&Entry| {
        entry.driver() == Some(Driver::Bridge) && entry.origin != super::problem::Origin::Default
    };
    for entry in entries.iter().filter(set) {
        let message = "of the driver bridge: the plugins of the list have their own configuration";
        problems.push(Problem { key: entry.key(), ..Problem::at(entry.origin.clone(), message) });
    }
}
