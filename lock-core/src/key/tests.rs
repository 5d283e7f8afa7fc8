use proptest::prelude::{any, prop, proptest};

use super::{KeyBuilder, LockKey, LockLabel};
use crate::error::LockErrorKind;

fn render(parts: &[String]) -> String {
    let mut builder = KeyBuilder::new("k");
    for part in parts {
        builder = builder.text(":").segment("part", part);
    }
    builder.finish().unwrap().as_str().to_owned()
}

proptest! {
    #[test]
    fn encoding_is_injective(
        a in prop::collection::vec("[ -~é{}:%]{1,8}", 1..4),
        b in prop::collection::vec("[ -~é{}:%]{1,8}", 1..4),
    ) {
        assert_eq!(a == b, render(&a) == render(&b), "{a:?} {b:?}");
    }

    #[test]
    fn values_never_move_the_slot(value in any::<String>()) {
        if !value.is_empty() {
            let key = KeyBuilder::new("{<t>}:x").text("{").segment("t", &value).text("}:x").finish();
            let Ok(key) = key else { return Ok(()) };
            assert_eq!(key.as_str().matches('{').count(), 1);
            assert_eq!(key.as_str().matches('}').count(), 1);
        }
    }
}

#[test]
fn empty_segment_is_refused_by_name() {
    let error = KeyBuilder::new("lock:<user_id>").text("lock:").segment("user_id", "").finish().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(error.to_string().contains("<user_id>"), "{error}");
}

#[test]
fn length_is_bounded() {
    assert!(LockKey::new("x".repeat(512)).is_ok());
    let error = LockKey::new("x".repeat(513)).unwrap_err();
    assert!(error.to_string().contains("513 bytes"), "{error}");
    assert_eq!(LockKey::new("").unwrap_err().kind(), LockErrorKind::InvalidKey);
}

#[test]
fn equality_ignores_the_label() {
    let plain = LockKey::new("a").unwrap();
    assert_eq!(plain, plain.clone().with_label(LockLabel::from("<x>")));
}
