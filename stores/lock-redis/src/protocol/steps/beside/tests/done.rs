use std::time::Duration;

use redis::Value;

use super::{read_done, read_mark, remove_done};
use crate::protocol::steps::step::Unread;
use lock_store::contract::backend::JobVersion;
use lock_store::types::key::LockKey;

#[test]
fn a_mark_is_read() {
    let version = JobVersion::new("v42").unwrap();
    let mark = read_mark(b"5000|4000|30000|web-1|7|app::migrate|migrate:orders", &version, 9_000).unwrap();
    assert_eq!((mark.ago, mark.version.as_str()), (Duration::from_secs(4), "v42"));
    assert_eq!(mark.by.to_string(), "app::migrate (pid 7 on web-1)");
    for bad in ["", "5", "5|4", "5|4|3", "x|4|3|h|1|s", "5|x|3|h|1|s", "5|4|x|h|1|s", "5|4|3|h|x|s", "5|4|3|h|1"] {
        assert_eq!(read_mark(bad.as_bytes(), &version, 1), None, "{bad}");
    }
}

#[test]
fn what_is_no_mark_is_neither_done_nor_not_done() {
    let (key, version) = (LockKey::new("k").unwrap(), JobVersion::new("v").unwrap());
    let read = |answer: Value| (read_done(&key, &version).read)(&answer);
    assert!(matches!(read(Value::Array(Vec::new())), Ok(None)));
    let text = || Value::BulkString(b"1|2|nonsense".to_vec());
    for foreign in [text(), Value::Array(vec![text(), Value::Int(9)])] {
        let Err(Unread::Refused(error)) = read(foreign) else { panic!("it is refused") };
        assert!(error.to_string().contains("\"{k}@done:v\" holds a string"), "{error}");
    }
    for nonsense in [Value::Nil, Value::Int(1), Value::Array(vec![text()])] {
        assert!(matches!(read(nonsense), Err(Unread::Nonsense)));
    }
    let removed = |answer: Value| (remove_done(&key, &version).read)(&answer);
    assert!(matches!((removed(Value::Int(1)), removed(Value::Int(0))), (Ok(true), Ok(false))));
    assert!(matches!(removed(text()), Err(Unread::Refused(_))));
    assert!(matches!(removed(Value::Nil), Err(Unread::Nonsense)));
}
