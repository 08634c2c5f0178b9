//! `systemctl reload hostcni`: takes over what can change while pods run, and says what cannot.

use std::path::Path;
use std::rc::Rc;

use crate::netconf;
use crate::settings::{self, Settings};
use crate::systemd::journal::{self, Event};
use crate::systemd::notify;

use super::node::Node;

/// Reads the configuration again. A wrong one changes nothing: the server goes on with the old one.
pub fn run(node: &Rc<Node>, root: &Path) {
    notify::reloading();
    crate::step!("reload.read");
    match settings::load(root) {
        Err(error) => {
            let text = error.to_string();
            journal::emit(&Event::ReloadFailed { error: &text });
            node.failed(&format!("reload: {text}"));
        }
        Ok(loaded) => take_over(node, loaded.settings),
    }
    notify::ready(&node.status_line());
}

fn take_over(node: &Rc<Node>, new: Settings) {
    let old = node.settings();
    let restart = needs_restart(&old, &new);
    if let Some(why) = restart {
        // A mixture of old and new is worse than either.
        let text =
            format!("reload: {why} changes only with `systemctl restart hostcni`; nothing was changed");
        journal::emit(&Event::ReloadFailed { error: &text });
        node.failed(&text);
        return;
    }
    journal::set_filter(&new.log.filter);
    let new = Rc::new(new);
    *node.settings.borrow_mut() = Rc::clone(&new);
    for network in &new.networks {
        let content = netconf::render(network, &new);
        if let Err(error) = netconf::restore(&network.conf.path, &content, &node.ledger) {
            node.failed(&error.to_string());
        }
    }
    node.last_error.borrow_mut().clear();
    journal::emit(&Event::Reloaded);
}

/// What differs and is bound to the start.
fn needs_restart(old: &Settings, new: &Settings) -> Option<String> {
    if old.paths != new.paths {
        return Some("[paths]".to_owned());
    }
    let names = |settings: &Settings| settings.networks.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    if names(old) != names(new) {
        return Some("the list of networks".to_owned());
    }
    old.networks
        .iter()
        .zip(&new.networks)
        .find(|(old, new)| old.driver != new.driver || old.conf.path != new.conf.path)
        .map(|(old, _)| format!("network {}", old.name))
}
