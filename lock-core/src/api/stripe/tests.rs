use super::{MAX_NAMES, Stripings, key_of, stripe_of};
use lock_store::types::error::LockErrorKind;
use lock_store::types::key::{LockKey, LockLabel};

#[test]
fn the_hash_is_that_of_the_specification() {
    // From the test vectors of the IETF draft "The FNV Non-Cryptographic Hash Algorithm".
    for (text, hash) in
        [("", 0xcbf2_9ce4_8422_2325_u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
    {
        for count in [1, 2, 16, 4095, 4096] {
            assert_eq!(u64::from(stripe_of(text, count)), hash % u64::from(count), "{text:?} of {count}");
        }
    }
    // The result does not depend on the pieces in which the text comes.
    assert_eq!(stripe_of(format_args!("{}{}", "foo", "bar"), 4096), stripe_of("foobar", 4096));
}

#[test]
fn ids_spread_evenly() {
    let mut counts = [0_u32; 16];
    for id in 0..16_000 {
        counts[stripe_of(id, 16) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
}

#[test]
fn a_stripe_keeps_the_label_of_its_name() {
    let name = LockKey::new("stock:42").unwrap().with_label(LockLabel::from_static("stock:<id>"));
    let key = key_of(&name, 7).unwrap();
    assert_eq!((key.as_str(), key.stripe(), key.label()), ("stock:42#7", Some(7), name.label()));
    assert_eq!(name.stripe(), None);
}

#[test]
fn what_is_remembered_has_a_bound() {
    let known = Stripings::default();
    let name = |number: usize| LockKey::new(format!("name:{number}")).unwrap();
    for number in 0..=MAX_NAMES {
        known.register(&name(number), 2).unwrap();
    }
    assert!(known.0.lock().len() <= MAX_NAMES);
    let error = known.register(&name(MAX_NAMES), 3).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("formerly(2)"), "{error}");
}
