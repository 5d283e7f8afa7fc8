use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use super::{Tail, Whole, head, holder, waiter, write_number};
use lock_store::types::key::LockLabel;
use lock_store::types::owner::{HolderInfo, OwnerId};

const LEFT: Option<Duration> = Some(Duration::from_secs(3));

fn tail(ttl: Duration, info: &HolderInfo) -> String {
    let tail = Tail { ttl, info };
    let text = tail.text();
    assert!(text.len() <= tail.length());
    // The remembered value is the one that would be written.
    assert_eq!((tail.text(), tail.write()), (Rc::clone(&text), Rc::clone(&text)));
    String::from_utf8(text.to_vec()).unwrap()
}

fn value(owner: &str, info: &HolderInfo) -> String {
    format!("{owner}|42|{}", tail(Duration::from_secs(10), info))
}

#[test]
fn round_trip() {
    let info = HolderInfo::new("web-1", 7, "app::charge").with_lock(LockLabel::from_static("lock:user:<id>"));
    let owner = OwnerId::random();
    let text = value(&owner.to_hex(), &info);
    assert_eq!(text, format!("{}|42|10000|web-1|7|app::charge|lock:user:<id>", owner.to_hex()));
    let read = holder(text.as_bytes(), LEFT);
    let mut written = Vec::new();
    Whole { owner, since: 42, tail: Tail { ttl: Duration::from_secs(10), info: &info } }.write(&mut written).unwrap();
    assert_eq!(written, text.as_bytes());
    assert_eq!((read.info, read.owner, read.token), (Some(info), Some(owner), None));
    assert_eq!(read.since, Some(UNIX_EPOCH + Duration::from_millis(42)));
    assert_eq!(read.ttl_left, LEFT);
    assert!(text.as_bytes().starts_with(&head(owner)));
}

#[test]
fn numbers_are_written_as_usual() {
    for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
        let mut written = Vec::new();
        write_number(&mut written, number).unwrap();
        assert_eq!(written, number.to_string().as_bytes());
    }
}

#[test]
fn a_token_in_the_place_of_the_instant_is_read() {
    let text = format!("{}|1763000000000000|10000|web-1|7|app::charge", OwnerId::random().to_hex());
    let since = UNIX_EPOCH + Duration::from_secs(1_763_000_000);
    assert_eq!(holder(text.as_bytes(), None).since, Some(since));
}

#[test]
fn a_value_without_the_name_of_its_lock_is_read() {
    let owner = OwnerId::random().to_hex();
    for text in [format!("{owner}|42|10000|web-1|7|app::charge"), format!("{owner}|42|10000|web-1|7|app::charge|")] {
        let read = holder(text.as_bytes(), LEFT);
        assert_eq!((read.site(), read.lock()), ("app::charge", None), "{text}");
    }
}

#[test]
fn the_longest_value_is_read_whole() {
    let long = "é".repeat(300);
    let info = HolderInfo::new(&*long, u32::MAX, &*long).with_lock(LockLabel::new(long.clone()));
    let tail = tail(Duration::from_millis(u64::MAX), &info);
    let text = format!("{}|{}|{tail}", OwnerId::random().to_hex(), i64::MAX);
    assert!(text.len() <= 512, "{}", text.len());
    assert_eq!(holder(text.as_bytes(), None).lock(), Some(&*"é".repeat(100)));
}

#[test]
fn separators_and_control_characters_are_taken_out() {
    let info = HolderInfo::new("a|b", 7, format!("x\n\u{1b}[2J{}", "é".repeat(300)));
    let read = holder(value(&OwnerId::random().to_hex(), &info).as_bytes(), None);
    let read = read.info.unwrap();
    assert_eq!((&*read.host, read.pid), ("a_b", 7));
    assert!(read.site.starts_with("x__[2Jé") && read.site.len() <= 160, "{}", read.site);
}

#[test]
fn a_waiter_tells_who_it_is() {
    let info = HolderInfo::new("web-1", 7, "app::charge");
    let entry = format!("inbox:1|5|1700|0|3000|9-1|{}", tail(Duration::from_secs(10), &info));
    assert_eq!(waiter(entry.as_bytes()), Some((info.clone(), 1700)));
    let named = info.clone().with_lock(LockLabel::from_static("job"));
    let entry = format!("inbox:1|5|1700|0|3000|9-1|{}", tail(Duration::from_secs(10), &named));
    assert_eq!(waiter(entry.as_bytes()), Some((named, 1700)));
    for bad in ["", "a|b|c", "i|5|x|0|1|1|1|h|7|s", "i|5|1|0|1|1|1|h|x|s", "i|5|1|0|1|1|1|h|7"] {
        assert_eq!(waiter(bad.as_bytes()), None, "{bad}");
    }
}

#[cfg(feature = "inspect")]
#[test]
fn a_claim_tells_how_it_shares_and_a_phase_how_much_is_taken() {
    use lock_store::types::mode::Mode;
    let entry = |floor: &str| format!("inbox:1|5|1700|0|3000|{floor}|10000|web-1|7|app::charge|job");
    for (text, mode) in [("9-1", Some(Mode::Exclusive)), ("s3/16|9-1", Mode::permits(3, 16).ok()), ("sx|9", None)] {
        assert_eq!(super::mode(entry(text).as_bytes()), mode, "{text}");
    }
    assert_eq!(super::mode(b""), None);
    let phase = |units: &str| format!("shared{units}|1700-0-0|10000|h|1|s|");
    assert_eq!(super::units(phase(&format!("{:026}", 7)).as_bytes()), Some(7));
    for other in [phase("7"), format!("{:032}|1|10000|h|1|s|", 0), "shared".to_owned()] {
        assert_eq!(super::units(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_kept_key_has_no_owner() {
    let read = holder(value(&"0".repeat(32), &HolderInfo::new("h", 1, "s")).as_bytes(), LEFT);
    assert_eq!((read.owner, read.site()), (None, "s"));
}

#[test]
fn everything_else_is_foreign() {
    let owner = OwnerId::random().to_hex();
    for text in [
        "".to_owned(),
        "1".to_owned(),
        owner.clone(),
        format!("{owner}|"),
        format!("{owner}|x|10000|h|1|s"),
        format!("{owner}|1|10000|h|x|s"),
        format!("{owner}|1|10000|h|1"),
        format!("{}|1|10000|h|1|s", &owner[1..]),
    ] {
        let read = holder(text.as_bytes(), LEFT);
        assert!(read.info.is_none() && read.owner.is_none() && read.token.is_none(), "{text}");
        assert_eq!((read.site(), read.ttl_left), ("foreign", LEFT));
    }
    assert!(holder(&[0xff, 0xfe], None).info.is_none());
}
