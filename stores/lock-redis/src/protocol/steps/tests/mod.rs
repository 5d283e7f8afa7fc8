mod copies;
mod places;
mod refusals;

use std::time::Duration;

use redis::Value;

use super::{Acquired, AcquiredAll, Taken, freed, granted, read_holder, read_taken, revocation, revoking, unrenewed};
use crate::protocol::clock::Draw;
use crate::protocol::steps::lib::{CLOCK, ENTRY, FREE, MEMBER, PASS, QUEUE};
use crate::protocol::steps::script::Script;
use crate::protocol::steps::step::Unread;
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn array(parts: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(parts.into_iter().collect())
}

fn error(text: &str) -> Value {
    let parser = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
    parser.unwrap()
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    let words = ["", "g", "g1.8e+15", "g1", "g1-8192", "h1", "hx|value", "q|value", "s1", "c1", "won"].map(text);
    for bad in words {
        assert!(Acquired::read(&array([Value::Int(1), bad.clone()])).is_none(), "{bad:?}");
        assert!(AcquiredAll::read(&array([Value::Int(1), Value::Int(1), bad.clone()])).is_none(), "{bad:?}");
    }
    for bad in [Value::Nil, Value::Int(-1), array([]), array([Value::Int(-1), text("s")]), array([text("s")])] {
        assert!(Acquired::read(&bad).is_none() && AcquiredAll::read(&bad).is_none(), "{bad:?}");
    }
    for bad in [Value::Nil, Value::Int(2), text("1"), text("")] {
        assert!(freed(&bad).is_none(), "{bad:?}");
    }
    let key = LockKey::new("k").unwrap();
    assert!(matches!((read_holder(&key).read)(&array([text("value")])), Err(Unread::Nonsense)));
    assert!(matches!((read_holder(&key).read)(&array([])), Ok(None)));
    for bad in
        [Value::Nil, array([Value::Int(1)]), array([Value::Int(0), Value::Int(0)]), array([text("1"), text("x")])]
    {
        assert!(unrenewed(&bad).is_none(), "{bad:?}");
    }
}

#[test]
fn all_are_granted_or_one_is_named() {
    let granted = AcquiredAll::read(&array([Value::Int(9), Value::Int(0), text("7-1")]));
    let Some((9, AcquiredAll::Granted(token))) = granted else { panic!("not granted") };
    assert_eq!(Draw::of(token), Draw { ms: 7, seq: 1 });
    let held = AcquiredAll::read(&array([Value::Int(9), Value::Int(2), text("h5|value")]));
    assert!(matches!(held, Some((9, AcquiredAll::Refused(1, Acquired::Held(_))))));
}

#[test]
fn grants_are_read_and_nonsense_is_not() {
    let owner = OwnerId::random();
    let read = granted(format!("{}|7-3|1500|99|a|b:c", owner.to_hex()).as_bytes()).unwrap();
    assert_eq!((read.claim.owner, Draw::of(read.token), read.stamp), (owner, Draw { ms: 7, seq: 3 }, 99));
    assert_eq!((read.claim.key.as_str(), read.claim.ttl), ("a|b:c", Duration::from_millis(1500)));
    for bad in ["", "x|7-3|1500|99|k", &format!("{}|7|1500|99|k", owner.to_hex()), &owner.to_hex()] {
        assert!(granted(bad.as_bytes()).is_none(), "{bad}");
    }
    assert!(granted(&[0xff]).is_none());
}

#[test]
fn a_key_without_an_expiry_has_no_time_left() {
    let answer = array([Value::Int(1), text("h-1|x")]);
    let Some((1, Acquired::Held(holder))) = Acquired::read(&answer) else { panic!("not held") };
    assert_eq!(holder.ttl_left, None);
}

#[test]
fn a_transaction_was_not_executed_only_if_it_says_so() {
    let queued = || Value::SimpleString("QUEUED".to_owned());
    let outcome = |multi: Value, first: Value, exec: Value| read_taken(&[multi, first, queued(), queued(), exec], 2);
    let taken = outcome(Value::Okay, queued(), array([Value::Okay, Value::Nil, text("7-3")]));
    assert!(matches!(taken[..], [Taken::With(Draw { ms: 7, seq: 3 }), Taken::Occupied]), "{taken:?}");
    let aborted = || error("EXECABORT Transaction discarded because of previous errors.");
    let taken = outcome(Value::Okay, error("NOPERM no"), aborted());
    assert!(matches!(taken[..], [Taken::Refused(_), Taken::NotExecuted]), "{taken:?}");
    for doubtful in [
        outcome(error("NOPERM no"), Value::Okay, error("ERR EXEC without MULTI")),
        outcome(Value::Okay, queued(), error("ERR something else")),
        outcome(Value::Okay, queued(), Value::Nil),
        outcome(error("NOPERM no"), Value::Okay, aborted()),
        read_taken(&[], 2),
    ] {
        assert!(matches!(doubtful[..], [Taken::Doubtful, Taken::Doubtful]), "{doubtful:?}");
    }
    let taken = outcome(Value::Okay, queued(), array([Value::Okay, Value::Nil, error("OOM full")]));
    assert!(matches!(taken[..], [Taken::NoClock(_), Taken::Occupied]), "{taken:?}");
}

#[test]
fn revocations_are_read_as_written() {
    let owner = OwnerId::random();
    let message = revoking(owner, "ana|@web", "stuck | since noon");
    assert_eq!(revocation(message.as_bytes()), Some((owner, "ana_@web", "stuck | since noon")));
    for bad in [&b""[..], b"x|a|b", b"\xff|a|b", &owner.digits()] {
        assert!(revocation(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn a_constant_stands_for_what_is_written_behind_its_name() {
    let text = |text: &'static str| Script::new(&[&[text]]).text;
    assert_eq!(text("local a = HOUR -- now\n  -- HOUR\nreturn a"), "local a = 3600000 -- now\nreturn a\n");
    assert_eq!(text("HOURS, AN_HOUR, OTHERS"), "HOURS, AN_HOUR, 'others'\n");
    // Not within a text, where it would be something else.
    let names =
        include_str!("../lib/layout.lua").lines().filter_map(|line| line.strip_prefix("local ")?.split_once(' '));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert!(names.len() > 25 && names.contains(&"QUEUE_KEPT"), "{names:?}");
    for part in QUEUE.into_iter().chain([CLOCK, ENTRY, FREE, PASS, MEMBER]) {
        let lines = part.lines().filter(|line| !line.trim_start().starts_with("--"));
        for quoted in lines.flat_map(|line| line.split('\'').skip(1).step_by(2)) {
            let mut words = quoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            assert!(!words.any(|word| names.contains(&word)), "{quoted}");
        }
    }
}

#[test]
fn no_script_is_refused_for_want_of_memory() {
    // If the script had a shebang, the server would refuse all of it when memory is full.
    let first =
        [include_str!("../lib/layout.lua"), include_str!("../lock/renew.lua"), include_str!("../lock/holder.lua")];
    assert!(first.iter().all(|text| !text.starts_with("#!")));
}
