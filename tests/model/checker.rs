//! An exhaustive checker for small models: every state that can be reached, and how.
//!
//! Own code and not the `stateright` crate, which brings a web server and some twenty crates more, and has no
//! property of the kind "from here the goal can still be reached", which is what *no deadlock* means.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// A step of a model: the action's name, the state it leads to, and the promise it breaks, if it does.
pub struct Step<S> {
    pub action: &'static str,
    pub next: S,
    pub broken: Option<&'static str>,
}

/// Everything that can be reached from the first states.
pub struct Explored<S> {
    /// Each state with the state and the action it was reached by first, so by a shortest way.
    states: Vec<(S, Option<(usize, &'static str)>)>,
    /// Every step, as numbers of states.
    pub edges: Vec<(usize, &'static str, usize)>,
    /// The first broken promise of each kind, with the shortest way to it.
    pub broken: Vec<(&'static str, Vec<String>)>,
}

impl<S: Clone + Eq + Hash + Debug> Explored<S> {
    /// Breadth first: `steps` lists what can happen in a state, `holds` names the promise that a state breaks.
    pub fn from(
        first: S,
        steps: impl Fn(&S) -> Vec<Step<S>>,
        holds: impl Fn(&S) -> Option<&'static str>,
    ) -> Self {
        let mut explored = Self { states: Vec::new(), edges: Vec::new(), broken: Vec::new() };
        let mut known = HashMap::from([(first.clone(), 0)]);
        explored.states.push((first, None));
        let mut left = VecDeque::from([0]);
        while let Some(at) = left.pop_front() {
            let state = explored.states[at].0.clone();
            if let Some(promise) = holds(&state) {
                explored.note(promise, at, None);
            }
            for Step { action, next, broken } in steps(&state) {
                if let Some(promise) = broken {
                    explored.note(promise, at, Some(action));
                }
                let number = *known.entry(next.clone()).or_insert_with(|| {
                    explored.states.push((next, Some((at, action))));
                    left.push_back(explored.states.len() - 1);
                    explored.states.len() - 1
                });
                explored.edges.push((at, action, number));
            }
        }
        explored
    }

    /// The states, by number.
    pub fn state(&self, number: usize) -> &S {
        &self.states[number].0
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// A way to a state that `asks` for the goal and from which no sequence of the actions that `may` lets
    /// through leads to a state that is the goal.
    pub fn stuck(
        &self,
        asks: impl Fn(&S) -> bool,
        may: impl Fn(&str) -> bool,
        goal: impl Fn(&S) -> bool,
    ) -> Option<Vec<String>> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.len()];
        for (from, action, to) in &self.edges {
            if may(action) {
                before[*to].push(*from);
            }
        }
        let mut reaches: Vec<bool> = self.states.iter().map(|(state, _)| goal(state)).collect();
        let mut left: Vec<usize> = (0..self.len()).filter(|at| reaches[*at]).collect();
        while let Some(at) = left.pop() {
            for from in &before[at] {
                if !std::mem::replace(&mut reaches[*from], true) {
                    left.push(*from);
                }
            }
        }
        (0..self.len()).find(|at| asks(self.state(*at)) && !reaches[*at]).map(|at| self.way(at, None))
    }

    fn note(&mut self, promise: &'static str, at: usize, action: Option<&'static str>) {
        if !self.broken.iter().any(|(known, _)| *known == promise) {
            let way = self.way(at, action);
            self.broken.push((promise, way));
        }
    }

    /// The actions that lead to a state, and the state.
    fn way(&self, mut at: usize, then: Option<&'static str>) -> Vec<String> {
        let mut way = vec![format!("{:?}", self.state(at))];
        way.extend(then.map(str::to_owned));
        let mut actions = Vec::new();
        while let Some((from, action)) = self.states[at].1 {
            actions.push(action.to_owned());
            at = from;
        }
        actions.reverse();
        actions.append(&mut way);
        actions
    }
}
