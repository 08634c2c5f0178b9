//! The lifecycle, checked exhaustively: every order of crashes, power cuts, reboots, restarts and requests.
//!
//! The model says what units, helpers, server and plugin do (`model/lifecycle.rs`); that it says so truly is for
//! `tests/node` to show, whose cases use the same words, and for `docs/lifecycle.dot`, which is compared with it.

#[path = "model/checker.rs"]
mod checker;
#[path = "model/drawing.rs"]
mod drawing;
#[path = "model/lifecycle.rs"]
mod lifecycle;
#[path = "model/state.rs"]
mod state;

use std::collections::BTreeSet;

use checker::Explored;
use drawing::Drawing;
use lifecycle::Lifecycle;
use state::{Del, FIRST, GUARDS, Guard, OUTSIDE, Power, Server, Socket, State, holds, place};

fn explore(without: Option<Guard>) -> Explored<State> {
    let model = Lifecycle { without };
    Explored::from(FIRST, |state| model.steps(state), holds)
}

/// Nobody is needed for it.
fn by_itself(action: &str) -> bool {
    !OUTSIDE.contains(&action) && action != "the socket cannot open"
}

fn ready_and_placed(state: &State) -> bool {
    place(state) == "gated"
}

/// Every promise that does not hold, with the shortest way to where it breaks.
fn broken(explored: &Explored<State>) -> Vec<(&'static str, Vec<String>)> {
    let mut broken = explored.broken.clone();
    let mut stuck = |promise, way: Option<Vec<String>>| broken.extend(way.map(|way| (promise, way)));
    stuck("a node can always get ready again", explored.stuck(|_| true, |_| true, ready_and_placed));
    stuck(
        "a node that nobody stopped gets ready without anybody's help",
        explored.stuck(
            |state| state.wanted && matches!(state.power, Power::Early | Power::Up),
            by_itself,
            ready_and_placed,
        ),
    );
    stuck(
        "a DEL that waits is answered, and one that was written down is carried out, without anybody's help",
        explored.stuck(
            |state| {
                let serves = state.wanted || state.del == Del::Waiting && state.socket == Socket::Listening;
                state.power == Power::Up && serves && (state.owed || state.del == Del::Waiting)
            },
            |action| by_itself(action) && action != "no answer within the bound",
            |state| state.del == Del::None && !state.owed,
        ),
    );
    broken
}

#[test]
fn every_promise_holds_in_every_order_of_events() {
    let explored = explore(None);
    println!("{} states, {} steps", explored.len(), explored.edges.len());
    assert!(explored.len() > 500, "the model was explored: {} states", explored.len());
    let broken = broken(&explored);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn without_any_one_guard_a_promise_is_broken() {
    let useless: Vec<_> = GUARDS
        .iter()
        .filter(|guard| {
            let broken = broken(&explore(Some(**guard)));
            for (promise, way) in &broken {
                println!("without {guard:?}: not \"{promise}\": {}", way.join(", "));
            }
            broken.is_empty()
        })
        .collect();
    assert!(useless.is_empty(), "left out without a loss, as far as the model knows: {useless:?}");
}

#[test]
fn the_drawing_shows_what_the_model_does_and_nothing_else() {
    let (explored, drawing) = (explore(None), Drawing::read());
    let mut nodes = BTreeSet::new();
    let mut edges = BTreeSet::new();
    for (from, action, to) in &explored.edges {
        let (from, to) = (place(explored.state(*from)).to_owned(), place(explored.state(*to)).to_owned());
        nodes.extend([from.clone(), to.clone()]);
        // From everywhere, which the drawing says in the node's label.
        if from != to && *action != "cut power" {
            edges.insert((from, (*action).to_owned(), to));
        }
    }
    assert_eq!(nodes, drawing.nodes);
    let missing: Vec<_> = edges.difference(&drawing.edges).collect();
    let invented: Vec<_> = drawing.edges.difference(&edges).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing {missing:#?}, invented {invented:#?}");
}

/// What is done to a node has one name, in the model and in the cases that do it to a real one.
#[test]
fn the_models_actions_are_those_of_the_node_tests() {
    let cases = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node"))
        .expect("tests/node is there")
        .map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("readable"))
        .collect::<String>()
        .replace(['{', '}'], "");
    let explored = explore(None);
    let done: BTreeSet<&str> = explored.edges.iter().map(|(_, action, _)| *action).collect();
    for action in OUTSIDE {
        assert!(done.contains(action), "the model never does `{action}`");
        let as_function = action.replace(' ', "_");
        assert!(cases.contains(action) || cases.contains(&as_function), "no case does `{action}`");
    }
    for step in done.iter().filter(|action| action.contains('.') && !action.contains(' ')) {
        let is_step = hostcni::failpoint::STEPS.iter().any(|(name, _)| name == step);
        let is_unit = [".service", ".target"].iter().any(|suffix| step.ends_with(suffix));
        assert!(is_step || is_unit, "`{step}` is neither a unit nor a step of the code");
    }
}

#[test]
fn a_node_that_is_off_is_where_it_begins() {
    assert_eq!((place(&FIRST), holds(&FIRST), FIRST.server), ("off", None, Server::Dead));
}
