use std::collections::HashMap;

use proptest::prelude::{Strategy, any, prop, proptest};

use super::{KeyBuilder, LockKey};
use crate::types::error::LockErrorKind;
use crate::types::key::LockLabel;

/// Renders values between texts. `texts` has one entry more than `values`.
fn render(texts: &[&str], values: &[&str]) -> Result<String, LockErrorKind> {
    let mut builder = KeyBuilder::new("k").text(texts[0]);
    for (value, text) in values.iter().zip(&texts[1..]) {
        builder = builder.segment("value", value).text(text);
    }
    builder.finish().map(|key| key.as_str().to_owned()).map_err(|error| error.kind())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    // Makes characters likely that join words or look like a part of an encoding.
    prop::collection::vec("[a-cA-C:%23_.·{}\\-]{0,3}", 2..5)
}

fn values() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-cA-C:%237BDx_.·{}\\-\\x00é]{1,5}", 4)
}

proptest! {
    #[test]
    fn different_values_of_a_template_give_different_keys(texts in texts(), a in values(), b in values()) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let count = texts.len() - 1;
        let values = |values: &[String]| render(&texts, &values.iter().map(String::as_str).collect::<Vec<_>>());
        let (a, b) = (&a[..count], &b[..count]);
        if let (Ok(one), Ok(two)) = (values(a), values(b)) {
            assert_eq!(a == b, one == two, "{texts:?} {a:?} {b:?}");
        }
    }

    #[test]
    fn one_value_never_looks_like_two(prefix in "[a-z]{1,4}", delimiter in "[!-$&-/:-@\\[-`|~ ·–]", a in ".{1,8}", b in ".{1,8}") {
        let (start, joined) = (format!("{prefix}{delimiter}"), format!("{a}{delimiter}{b}"));
        let one = render(&[&start, ""], &[&joined]).unwrap();
        assert_ne!(one, render(&[&start, &delimiter, ""], &[&a, &b]).unwrap());
    }

    #[test]
    fn values_never_move_the_slot(value in any::<String>()) {
        if !value.is_empty() {
            let Ok(key) = render(&["{", "}:x:", ""], &[&value, &value]) else { return Ok(()) };
            assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key:?}");
        }
    }

    #[test]
    fn what_changes_no_meaning_stays(value in "[a-zA-Z0-9 /@+=!?*~,;'\"()é_.\\-]{1,20}") {
        assert_eq!(render(&["user:", ""], &[&value]).unwrap(), format!("user:{value}"));
    }
}

/// Tries all pairs of short values. The alphabet has the characters that could collide.
#[test]
fn no_two_short_values_collide() {
    const ALPHABET: [char; 5] = ['a', '2', '5', '%', ':'];
    let mut values: Vec<String> = vec![String::new()];
    for length in 1..=3 {
        let longer: Vec<String> = values.iter().filter(|value| value.len() == length - 1).cloned().collect();
        values.extend(longer.iter().flat_map(|value| ALPHABET.map(|c| format!("{value}{c}"))));
    }
    values.remove(0);
    for between in [":", "x", "a", "%:", "2x", "::", "25a"] {
        let mut seen = HashMap::new();
        for left in &values {
            for right in &values {
                let key = render(&["k", between, ""], &[left, right]).unwrap();
                if let Some(other) = seen.insert(key.clone(), (left, right)) {
                    panic!("{between:?}: {other:?} and {:?} are both {key:?}", (left, right));
                }
            }
        }
    }
}

#[test]
fn values_that_nothing_separates_are_refused() {
    for between in ["", "%", "25", "A", "%41"] {
        assert_eq!(render(&["k", between, ""], &["1", "2"]), Err(LockErrorKind::InvalidKey), "{between}");
    }
    let raw = KeyBuilder::new("k").segment("a", 1).raw("b", 2).finish().unwrap();
    assert_eq!(raw.as_str(), "12");
}

#[test]
fn only_what_could_change_the_meaning_is_encoded() {
    for (texts, values, key) in [
        (&["cart:", ""][..], &["ann@example.org"][..], "cart:ann@example.org"),
        (&["cart:", ""], &["a b"], "cart:a b"),
        (&["cart:", ""], &["a/b"], "cart:a/b"),
        (&["cart:", ""], &["ünï"], "cart:ünï"),
        (&["cart:", ""], &["x:y"], "cart:x%3Ay"),
        (&["cart/", ""], &["x:y"], "cart/x:y"),
        (&["cart:", ""], &["100%"], "cart:100%25"),
        (&["cart:", ""], &["a\n\u{85}"], "cart:a%0A%C2%85"),
        (&["{", "}:x"], &["a{b}"], "{a%7Bb%7D}:x"),
        (&["nightly-report:v1.2:", ""], &["2026-11-22.a_b"], "nightly-report:v1.2:2026-11-22.a_b"),
        (&["order-", ""], &["7-b_c"], "order-7%2Db_c"),
        (&["thumb:", "x", ""], &["800", "600"], "thumb:800x600"),
        (&["thumb:", "x", ""], &["8x", "6"], "thumb:8%78x6"),
        (&["a·", ""], &["b·c"], "a·b%C2%B7c"),
        (&["", ""], &["a:b/c-d"], "a:b/c-d"),
    ] {
        assert_eq!(render(texts, values).unwrap(), key);
    }
    let raw = KeyBuilder::new("cart:<v:raw>").text("cart:").raw("v", "x:{y}%\n").finish().unwrap();
    assert_eq!(raw.as_str(), "cart:x:{y}%\n");
}

#[test]
fn an_empty_value_is_refused_by_name() {
    let template = || KeyBuilder::new("lock:<user_id>").text("lock:");
    for error in [template().segment("user_id", "").finish(), template().raw("user_id", "").finish()] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey);
        assert!(error.to_string().contains("<user_id>"), "{error}");
    }
}

#[test]
fn length_is_bounded() {
    assert!(LockKey::new("x".repeat(512)).is_ok());
    let error = LockKey::new("x".repeat(513)).unwrap_err();
    assert!(error.to_string().contains("513 bytes"), "{error}");
    assert_eq!(LockKey::new("").unwrap_err().kind(), LockErrorKind::InvalidKey);
    // The length of the rendered key counts.
    assert_eq!(render(&["k:", ""], &[&":".repeat(170)]).unwrap().len(), 512);
    assert_eq!(render(&["k:", ""], &[&":".repeat(171)]), Err(LockErrorKind::InvalidKey));
}

#[test]
fn equality_ignores_the_label() {
    let plain = LockKey::new("a").unwrap();
    assert_eq!(plain, plain.clone().with_label(LockLabel::from("<x>")));
}
