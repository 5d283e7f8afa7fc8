//! `places.lua`: confirms the places of several claims that sleep.

use std::sync::LazyLock;

use redis::Value;

use crate::protocol::steps::lib::{CLOCK, ENTRY, PLACES};
use crate::protocol::steps::script::{Eval, Script};

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[&[CLOCK, ENTRY], &PLACES, &[include_str!("places.lua")]]));

/// Names the place of the locks of these calls. In a cluster, calls of one slot have the same name, and calls of other slots have another.
pub(crate) fn whereabouts(acquire: &Eval) -> Option<&[u8]> {
    acquire.words().nth(3)
}

/// Confirms by one call what these calls of `acquire.lua` would each by itself. All are of one server, or of one slot.
pub(crate) fn confirm(acquires: &[&Eval]) -> Eval {
    let calls: Vec<Vec<&[u8]>> = acquires.iter().map(|acquire| acquire.words().collect()).collect();
    // The earliest deadline applies to all. A call with more time learns that it was not executed, and asks again.
    let deadline = calls.iter().filter_map(|words| std::str::from_utf8(words.get(6)?).ok()?.parse().ok()).min();
    Eval::of(&SCRIPT, 3 * calls.len()).with(|words| {
        for keys in calls.iter().flat_map(|call| &call[..3]) {
            words.arg(keys);
        }
        words.arg(deadline.unwrap_or(0_u64));
        for call in &calls {
            let [_, _, _, _, owner, _, _, tail, ticket, floor, ..] = call.as_slice() else {
                unreachable!("acquire.lua has so many words")
            };
            words.arg(owner).arg(tail).arg(ticket).arg(floor);
        }
    })
}

/// Reads the answers to so many calls, each as acquire.lua would give it, or `None` if acquire.lua must be asked. Returns `None` if
/// the reply cannot be read.
pub(crate) fn read_confirmed(answer: Value, count: usize) -> Option<Vec<Option<Value>>> {
    let Value::Array(answers) = answer else { return None };
    let mut answers = answers.into_iter();
    let (Some(now @ Value::Int(_)), true) = (answers.next(), answers.len() == count) else { return None };
    let is_apart = |answer: &Value| matches!(answer, Value::BulkString(text) if text == b"a");
    Some(answers.map(|answer| (!is_apart(&answer)).then(|| Value::Array(vec![now.clone(), answer]))).collect())
}
