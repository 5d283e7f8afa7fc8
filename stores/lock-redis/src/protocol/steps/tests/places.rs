//! Places that several claims confirm by one call: deadlines, and each claim's own answer.

use redis::{Connection, Value};

use crate::protocol::keys::Keys;
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::tests::refusals::{calls, script_of};
use crate::protocol::steps::{Acquired, confirm, read_confirmed};
use lock_store::types::key::LockKey;
use lock_testing::RedisServer;

const KEYS: [&str; 2] = ["first", "second"];

/// A server on which each of the two locks has a holder of its own.
fn held() -> (RedisServer, Connection) {
    let server = RedisServer::start();
    for key in KEYS {
        let value = format!("{}|1700000000000|30000|host|7|site::{key}|", "e".repeat(32));
        server.command(&["SET", key, &value, "PX", "60000"]);
    }
    let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    (server, connection)
}

/// The confirmations of one claim at each lock, each until its deadline.
fn places(deadlines: [u64; 2]) -> [Eval; 2] {
    std::array::from_fn(|at| {
        let keys = Keys::of_taken(&LockKey::new(KEYS[at]).unwrap());
        calls::place(KEYS[at], &keys, deadlines[at])
    })
}

/// The answer to each claim: whose lock it waits for, or that nothing was done.
fn told(answer: Value) -> Vec<String> {
    let answers =
        read_confirmed(answer, 2).unwrap().into_iter().map(|answer| Acquired::read(&answer.unwrap()).unwrap().1);
    let tell = |answer| match answer {
        Acquired::Queued(holder) | Acquired::Asleep(holder, _) => holder.site().to_owned(),
        Acquired::Stale => "nothing was done".to_owned(),
        other => format!("{other:?}"),
    };
    answers.map(tell).collect()
}

/// Confirms both places with this change of the script.
fn confirmed(deadlines: [u64; 2], (from, to): (&str, &str)) -> (Vec<String>, [i64; 2]) {
    let (server, mut connection) = held();
    let [one, two] = places(deadlines);
    let call = confirm(&[&one, &two]);
    let script = script_of(&call);
    assert!(script.contains(from), "the script has no {from}");
    let mut eval = redis::cmd("EVAL");
    eval.arg(script.replace(from, to)).arg(6);
    for word in call.words() {
        eval.arg(word);
    }
    let told = told(eval.query(&mut connection).unwrap());
    (told, KEYS.map(|key| server.command(&["ZCARD", &format!("{{{key}}}@queue")]).int()))
}

const AS_IT_IS: (&str, &str) = ("return answers", "return answers");
const NOTHING: &str = "nothing was done";

#[test]
fn a_confirmation_behind_its_deadline_puts_no_claim_back_that_was_withdrawn() {
    // Neither claim is in its queue: both were withdrawn, and the message of before arrives late.
    let late = [1, 1];
    assert_eq!(confirmed(late, AS_IT_IS), (vec![NOTHING.to_owned(); 2], [0, 0]));
    for wrong in [("now <= tonumber(ARGV[1])", "true"), ("in_time and confirm(", "confirm(")] {
        assert_ne!(confirmed(late, wrong).1, [0, 0], "{wrong:?}");
    }
}

#[test]
fn of_two_claims_the_one_with_the_earlier_deadline_is_not_confirmed_late() {
    for deadlines in [[1, calls::DEADLINE], [calls::DEADLINE, 1]] {
        assert_eq!(confirmed(deadlines, AS_IT_IS), (vec![NOTHING.to_owned(); 2], [0, 0]), "{deadlines:?}");
    }
}

#[test]
fn two_claims_behind_two_holders_are_each_told_of_their_own() {
    let in_time = [calls::DEADLINE; 2];
    let own = vec!["site::first".to_owned(), "site::second".to_owned()];
    assert_eq!(confirmed(in_time, AS_IT_IS), (own.clone(), [1, 1]));
    for wrong in [("KEYS[3 * at - 2]", "KEYS[1]"), ("answers[at + 1] =", "answers[#KEYS / 3 + 2 - at] =")] {
        assert_ne!(confirmed(in_time, wrong).0, own, "{wrong:?}");
    }
}
