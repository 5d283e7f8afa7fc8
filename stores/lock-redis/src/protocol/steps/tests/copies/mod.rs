//! Every fast path beside the transition that it is a copy of: each step, in each state of a lock, with its fast paths and
//! without them. Both must answer the same, leave the same, and tell the same.
//!
//! Two differences are none: how long the queue and the waiters last beyond the lock, and where exactly in the queue a place is,
//! as long as the order is the same.

use std::collections::BTreeMap;

use crate::protocol::keys::Keys;
use crate::protocol::steps::confirm;
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::tests::refusals::{STATES, calls, script_of, states};
use lock_store::types::key::LockKey;
use lock_testing::RedisServer;

/// Where a fast path is entered, and how it is left out.
const WITHOUT: [(&str, &str); 8] = [
    // join.lua, of `acquire` of phase/steps.lua.
    ("ARGV[1] == 'take' and join() or library()", "library()"),
    // pass.lua, of `free` of free.lua, where a lock is requeued, released, and released in a cluster.
    ("ticket ~= '' and pass_on(", "nil and pass_on("),
    ("passed, value = pass_on(lock, queue, KEYS", "passed, value = nil, nil and pass_on(lock, queue, KEYS"),
    ("passed, value = pass_on(lock, queue, clock", "passed, value = nil, nil and pass_on(lock, queue, clock"),
    // The same, of `free` of phase/steps.lua.
    ("answers[i] = value and leave_phase(", "answers[i] = nil and leave_phase("),
    ("or value and leave_phase(", "or nil and leave_phase("),
    // release.lua, of `free` of free.lua.
    ("if keep == 0 and pcall('EXISTS'", "if nil and pcall('EXISTS'"),
    // batch.lua, of the same.
    ("  if waiting == 0 then\n", "  if nil then\n"),
];

/// The faults that a fast path may have.
const WRONG: [(&str, &str); 25] = [
    ("  if now - first[2] >= 3000000 then", "  if nil then"),
    ("first[2] - 0 >= 0 and watchers_to_wake", "watchers_to_wake"),
    (" or now - behind[2] < 3000000", ""),
    (" or enters and last < 2 * 2 - 1", ""),
    ("    awake = awake or confirmed - now <= 0", "    awake = confirmed - now <= 0"),
    ("    awake = awake or confirmed - now <= 0", ""),
    ("for at = last, 1, -2 do", "for at = 1, last, 2 do"),
    ("not entry or #entry > 2048 or name == owner", "not entry or name == owner"),
    (" or name == owner", ""),
    ("|%d+|(%d+)|[02-9]|", "|%d+|(%d+)|%d|"),
    (" or listening[4] == 0", ""),
    ("      break\n", ""),
    (" or string.find(heir, '%X')", ""),
    ("' .. tail .. passing", "' .. tail"),
    ("pcall('ZREM', queue, owner, heir)\n", "pcall('ZREM', queue, owner)\n"),
    ("if table.concat(values) == heads", "if heads"),
    // join.lua.
    ("if -last[2] <= now_ms or not is_owner", "if not is_owner"),
    (" or pcall('ZSCORE', QUEUE, owner) then", " then"),
    ("math.max(ends, -(first[2] or 0))", "ends"),
    ("string.format('shared%026d', used + units)", "string.format('shared%026d', used)"),
    (" or used + units > tonumber(limit)", ""),
    ("pack_entry(ticket, text(now), '0', mode .. '|' .. floor", "pack_entry(ticket, text(now), '0', floor"),
    // `leave_phase` of pass.lua.
    (" or -(last[2] or 0) <= now or", " or"),
    ("format('shared%026d', used - units)", "format('shared%026d', used)"),
    ("first[first[1] == owner and 4 or 2]", "first[2]"),
];

/// The faults that the script for confirmations may have.
const WRONG_PLACES: [(&str, &str); 6] = [
    (" or is_of(value, owner)", ""),
    (" or phase_of(value)", ""),
    (" or string.byte(value, 33) ~= 124", ""),
    ("failed(value) or not value or", "failed(value) or"),
    (", 30000, value)\n  if refused", ", 30000)\n  if refused"),
    ("'z' .. sleep .. '|' or 'q'", "'q'"),
];

/// Calls the script that confirms places as if it were `acquire.lua`, and that one where it says so.
const AS_ACQUIRE: [&str; 4] = [
    "local function confirm_place()\nlocal KEYS, ARGV = { KEYS[1], KEYS[2], KEYS[3] }, { ARGV[3], ARGV[1], ARGV[4], ARGV[5], ARGV[6] }\n",
    "\nend\nlocal function acquire_by_itself()\n",
    "\nend\nlocal confirmed = confirm_place()\n",
    "if confirmed[2] == 'a' then return acquire_by_itself() end\nreturn confirmed\n",
];

/// A place that is confirmed together with others, and by itself.
fn place() -> Pair {
    let keys = Keys::of_taken(&LockKey::new("k").unwrap());
    let call = calls::place("k", &keys, calls::DEADLINE);
    let (together, alone) = (script_of(&confirm(&[&call])), script_of(&call));
    let [begins, then, ask, ends] = AS_ACQUIRE;
    let fast = [begins, &together, then, &alone, ask, ends].concat();
    Pair { name: "confirm a place", call, scripts: [fast, alone] }
}

/// One step with and without its fast paths.
struct Pair {
    name: &'static str,
    call: Eval,
    /// Both, the first as it is.
    scripts: [String; 2],
}

/// Lists the steps that have fast paths.
fn pairs() -> Vec<Pair> {
    let pair = |(name, _, call): (_, _, Eval)| {
        let fast = script_of(&call);
        let slow = WITHOUT.iter().fold(fast.clone(), |text, (from, to)| text.replace(from, to));
        (slow != fast).then_some(Pair { name, call, scripts: [fast, slow] })
    };
    calls::steps().into_iter().filter_map(pair).collect()
}

/// Compares each pair in each state. Returns how many there were, and what differs, or the first that does.
fn compare(pairs: &[Pair], only_first: bool) -> (usize, BTreeMap<String, [Vec<String>; 2]>) {
    let server = RedisServer::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let (mut count, mut different) = (0, BTreeMap::new());
    for Pair { name, call, scripts: [fast, slow] } in pairs {
        let both = [STATES, fast, "\nend\nlocal function whole()\n", slow, include_str!("compare.lua")].concat();
        let both = redis::Script::new(&both);
        for state in states() {
            let mut invocation = both.prepare_invoke();
            let mut words = call.by_hash().args_iter().skip(2).filter_map(|word| match word {
                redis::Arg::Simple(word) => Some(word),
                _ => None,
            });
            let keys: usize = std::str::from_utf8(words.next().unwrap()).unwrap().parse().unwrap();
            for key in words.by_ref().take(keys) {
                invocation.key(key);
            }
            for word in words {
                invocation.arg(word);
            }
            for word in [state, "none", "", ""] {
                invocation.arg(word);
            }
            let outcomes: [Vec<String>; 2] = invocation.invoke(&mut connection).unwrap();
            count += 1;
            if outcomes[0] != outcomes[1] {
                different.insert(format!("{name}: {state}"), outcomes);
                if only_first {
                    return (count, different);
                }
            }
        }
    }
    (count, different)
}

#[test]
fn a_fast_path_does_what_the_transition_does_that_it_is_a_copy_of() {
    let pairs = pairs();
    for (from, _) in WITHOUT {
        assert!(pairs.iter().any(|pair| pair.scripts[0].contains(from)), "no script has {from}");
    }
    let (count, different) = compare(&pairs, false);
    assert!(count > 300 && different.is_empty(), "of {count}: {different:#?}");
}

#[test]
fn a_place_that_is_confirmed_with_others_is_what_it_would_be_by_itself() {
    let (count, different) = compare(&[place()], false);
    assert!(count > 40 && different.is_empty(), "of {count}: {different:#?}");
}

#[test]
fn a_place_that_is_confirmed_wrongly_is_noticed() {
    for (from, to) in WRONG_PLACES {
        let mut pair = place();
        assert!(pair.scripts[0].contains(from), "the script has no {from}");
        // Not in the part that acquires.
        pair.scripts[0] = pair.scripts[0].replacen(from, to, 1);
        assert_eq!(compare(&[pair], true).1.len(), 1, "{from}");
    }
}

#[test]
fn a_fast_path_that_does_something_else_is_noticed() {
    for (from, to) in WRONG {
        let mut pairs = pairs();
        pairs.retain_mut(|Pair { scripts: [fast, _], .. }| {
            let has = fast.contains(from);
            *fast = fast.replace(from, to);
            has
        });
        assert!(!pairs.is_empty(), "no script has {from}");
        assert_eq!(compare(&pairs, true).1.len(), 1, "{from}");
    }
}
