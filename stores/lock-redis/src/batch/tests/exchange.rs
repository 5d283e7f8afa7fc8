use redis::{ErrorKind, RedisError, Value};

use super::Replies;

#[test]
fn replies_are_read_in_order_and_one_that_is_missing_is_an_error() {
    let mut replies = Replies(Ok((1..=5).map(Value::Int).collect::<Vec<_>>().into_iter()));
    assert_eq!(replies.next(), Ok(Value::Int(1)));
    assert_eq!(replies.read(2, <[Value]>::to_vec), Ok(vec![Value::Int(2), Value::Int(3)]));
    assert_eq!(replies.next(), Ok(Value::Int(4)));
    let missing = replies.read(2, <[Value]>::to_vec).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::UnexpectedReturnType);
    assert!(replies.next().is_err());
}

#[test]
fn the_failure_of_a_connection_is_the_reply_to_each_command() {
    let mut replies = Replies(Err(RedisError::from((ErrorKind::Io, "gone"))));
    for failed in [replies.next().map(drop), replies.read(3, |_| ()), replies.next().map(drop)] {
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    }
}
