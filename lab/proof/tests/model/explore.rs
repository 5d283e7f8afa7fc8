//! Looks at every state, nearest first.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::scenario::{Scenario, Wrong};
use crate::state::State;
use crate::steps::Step;

/// What was found.
pub(crate) struct Found {
    /// The nearest thing that went wrong.
    pub(crate) wrong: Option<Wrong>,
    pub(crate) states: usize,
    /// The shortest way there.
    pub(crate) trace: Vec<String>,
    /// The same: each step, and what it led to.
    pub(crate) way: Vec<(Step, State)>,
}

pub(crate) fn explore(scenario: &Scenario) -> Found {
    let start = State::start(scenario);
    // How each state was reached: from which, and by which of its steps.
    let mut ways = vec![(0_usize, 0_usize)];
    let mut seen = HashSet::from([digest(&start)]);
    let mut queue = VecDeque::from([(0, start)]);
    while let Some((number, state)) = queue.pop_front() {
        if number % scenario.followed == 0 && !state.completes(scenario) {
            return found(scenario, Some(Wrong::Starvation), &ways, number);
        }
        for (index, step) in state.steps(scenario).into_iter().enumerate() {
            let next = state.after(scenario, step);
            if !seen.insert(digest(&next)) {
                continue;
            }
            ways.push((number, index));
            if next.wrong.is_some() {
                return found(scenario, next.wrong, &ways, ways.len() - 1);
            }
            queue.push_back((ways.len() - 1, next));
        }
        if ways.len() >= scenario.states {
            break;
        }
    }
    found(scenario, None, &ways, 0)
}

fn found(scenario: &Scenario, wrong: Option<Wrong>, ways: &[(usize, usize)], mut last: usize) -> Found {
    let mut path = Vec::new();
    while last != 0 {
        path.push(ways[last].1);
        last = ways[last].0;
    }
    let (mut state, mut trace, mut way) = (State::start(scenario), Vec::new(), Vec::new());
    for index in path.into_iter().rev() {
        let step = state.steps(scenario)[index];
        state = state.after(scenario, step);
        trace.push(format!("{step:?} at {}: {:?}", state.now, state.store));
        way.push((step, state.clone()));
    }
    Found { wrong, states: ways.len(), trace, way }
}

pub(crate) fn digest(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
