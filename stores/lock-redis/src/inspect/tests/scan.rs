use redis::Value;

use super::{Names, literal, read};

fn text(text: &[u8]) -> Value {
    Value::BulkString(text.to_vec())
}

#[test]
fn patterns_are_taken_literally() {
    assert_eq!(literal("a*b[c]?\\é"), "a\\*b\\[c\\]\\?\\\\é");
}

#[test]
fn only_names_of_locks_are_taken() {
    let long = "x".repeat(600);
    let names = [&b"a"[..], b"{a}@queue", b"x:@queue", b"{b}@job", b"\xff\xfe", long.as_bytes(), b"{c}@done:v}@job"];
    let names = names.map(text).to_vec();
    let Names { next, locks, jobs, marks } = read(Value::Array(vec![text(b"17"), Value::Array(names)])).unwrap();
    assert_eq!((next, locks.len(), locks[0].as_str()), (17, 1, "a"));
    assert_eq!((jobs.len(), jobs[0].as_str()), (1, "b"));
    assert_eq!((marks.len(), marks[0].0.as_str(), marks[0].1.as_str()), (1, "c", "v}@job"));
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    for bad in [Value::Nil, Value::Array(vec![text(b"1")]), Value::Array(vec![text(b"x"), Value::Array(vec![])])] {
        assert!(read(bad.clone()).is_none(), "{bad:?}");
    }
}
