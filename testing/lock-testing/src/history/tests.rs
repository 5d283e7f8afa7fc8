use super::{History, Record, Violation};
use crate::Recorder;
use lock_store::contract::event::{GrantPath, LockEvent, LockEventKind, LockObserver};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::owner::OwnerId;
use std::time::Duration;

/// Makes a hold of key `k` by process 1, with its end. The attempt has the number of the token.
fn hold(token: u64, from: u64, deadline: u64) -> Vec<Record> {
    vec![
        Record::Start { process: 1, attempt: token, at: from - 1 },
        Record::Grant { process: 1, attempt: token, at: from, key: "k".to_owned(), token, deadline },
        Record::End { process: 1, attempt: token, at: deadline, how: "released".to_owned() },
    ]
}

fn release(token: u64, at: u64) -> Record {
    Record::Release { process: 1, at, key: "k".to_owned(), token }
}

fn check(records: impl IntoIterator<Item = Vec<Record>>) -> Vec<Violation> {
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    let verdict = History::new(records).check();
    assert_eq!(verdict.violations, History::check_text(&text).violations, "text and records agree");
    verdict.violations
}

#[test]
fn what_is_excused_is_counted_and_nothing_else() {
    let overlap = || hold(1, 10, 20).into_iter().chain(hold(2, 15, 30));
    let wrong = |excuse: Record| {
        let verdict = History::new(overlap().chain([excuse]).collect()).check();
        (verdict.violations.len(), verdict.excused)
    };
    assert_eq!(wrong(Record::Excuse { from: 14, until: 15 }), (0, 1));
    assert_eq!(wrong(Record::Excuse { from: 16, until: 20 }), (1, 0), "the second was granted before");
    assert_eq!(wrong(Record::Excuse { from: 9, until: 14 }), (1, 0), "the second was granted afterwards");
    let excuse = vec![Record::Excuse { from: 14, until: 15 }];
    assert_eq!(check([excuse, hold(7, 15, 16), hold(6, 30, 40)]).len(), 1, "tokens rise again after it");
}

#[test]
fn good_histories() {
    assert_eq!(check([]), []);
    assert_eq!(check([hold(1, 10, 20), hold(2, 20, 30)]), [], "touching is not overlapping");
    assert_eq!(check([hold(1, 10, 99), vec![release(1, 15)], hold(2, 16, 30)]), [], "released early");
    let lost = Record::Lost { process: 1, attempt: 1, at: 15 };
    assert_eq!(check([hold(1, 10, 99), vec![lost], hold(2, 16, 30)]), [], "lost early");
    assert_eq!(check([hold(2, 20, 30), hold(1, 10, 20)]), [], "the order of the lines does not matter");
}

#[test]
fn overlaps_are_found() {
    let overlap = |first_token, second_token, by_ns| {
        vec![Violation::Overlap { key: "k".to_owned(), first_token, second_token, by_ns }]
    };
    assert_eq!(check([hold(1, 10, 21), hold(2, 20, 30)]), overlap(1, 2, 1));
    assert_eq!(check([hold(1, 10, 99), vec![release(1, 25)], hold(2, 20, 30)]), overlap(1, 2, 5));
    assert_eq!(check([hold(1, 10, 12), vec![renew(1, 40)], hold(2, 20, 30)]), overlap(1, 2, 20), "renewed");
    let long = check([hold(1, 10, 50), hold(2, 20, 25), hold(3, 30, 35)]);
    assert_eq!(long, [overlap(1, 2, 30), overlap(1, 3, 20)].concat(), "one hold spans two");
    assert_eq!(check([hold(1, 10, 12), vec![release(9, 11)], hold(2, 11, 20)]), overlap(1, 2, 1), "foreign release");
}

fn renew(attempt: u64, deadline: u64) -> Record {
    Record::Renew { process: 1, attempt, deadline }
}

#[test]
fn renewals_never_shorten() {
    assert_eq!(check([hold(1, 10, 50), vec![renew(1, 20)], hold(2, 30, 60)]).len(), 1);
}

#[test]
fn token_regressions_are_found() {
    let order = |earlier, later| vec![Violation::TokenOrder { key: "k".to_owned(), earlier, later }];
    assert_eq!(check([hold(5, 10, 20), hold(4, 30, 40)]), order(5, 4));
    assert_eq!(check([hold(5, 10, 20), hold(4, 30, 40), hold(6, 50, 60)]), order(5, 4));
    let mut again = hold(5, 30, 40);
    for record in &mut again {
        match record {
            Record::Start { attempt, .. } | Record::Grant { attempt, .. } | Record::End { attempt, .. } => *attempt = 7,
            _ => {}
        }
    }
    assert_eq!(check([hold(5, 10, 20), again]), order(5, 5), "a token given twice");
}

#[test]
fn keys_are_separate() {
    let other: Vec<Record> = hold(2, 15, 30)
        .into_iter()
        .map(|record| match record {
            Record::Grant { process, attempt, at, token, deadline, .. } => {
                Record::Grant { process, attempt, at, token, deadline, key: "other key\n".to_owned() }
            }
            record => record,
        })
        .collect();
    let records: Vec<Record> = [hold(3, 10, 20), other].concat();
    let verdict = History::new(records).check();
    assert_eq!((verdict.keys, verdict.grants, verdict.violations), (2, 2, vec![]));
}

#[test]
fn stale_writes_are_found() {
    let write = |at, token, accepted| Record::Write { resource: "row".to_owned(), at, token, accepted };
    assert_eq!(check([vec![write(1, 5, true), write(2, 5, true), write(3, 4, false), write(4, 6, true)]]), []);
    let stale = Violation::StaleWrite { resource: "row".to_owned(), newest: 5, token: 4 };
    assert_eq!(check([vec![write(2, 4, true), write(1, 5, true)]]), [stale]);
}

#[test]
fn every_acquire_ends_once() {
    let start = Record::Start { process: 1, attempt: 8, at: 1 };
    let end = Record::End { process: 1, attempt: 8, at: 2, how: "busy".to_owned() };
    let endings = |count| vec![Violation::Endings { process: 1, attempt: 8, count }];
    assert_eq!(check([vec![start.clone(), end.clone()]]), []);
    assert_eq!(check([vec![start.clone()]]), endings(0));
    assert_eq!(check([vec![start.clone(), end.clone(), end.clone()]]), endings(2));
    let killed = Record::Killed { process: 1, at: 3 };
    assert_eq!(check([vec![start.clone(), killed.clone()]]), []);
    assert_eq!(check([vec![start, end.clone(), end, killed]]), endings(2), "the dead do not end twice");
}

#[test]
fn garbled_lines_are_reported() {
    let (short, odd) = (r#"{"type":"grant","process":1}"#, r#"{"type":"start","process":"x","attempt":1,"at":1}"#);
    for line in [short, odd, "what is this"] {
        let violations = History::check_text(&format!("{line}\n")).violations;
        assert_eq!(violations, [Violation::Unreadable { line: line.to_owned() }]);
    }
}

#[test]
fn a_line_may_be_cut_only_where_its_writer_was_killed() {
    for cut in [r#"{"type":"end","process":27,"attempt":42,"at":3178"#, r#"{"type":"release","process":2"#] {
        let killed = |process| Record::Killed { process, at: 9 };
        let violations = |process| History::check_text(&format!("{cut}\n\n{}\n", killed(process))).violations;
        assert_eq!(violations(27), []);
        assert_eq!(violations(31), [Violation::Unreadable { line: cut.to_owned() }]);
    }
    let whole = |killed| History::check_text(&format!("what is this\n\n{killed}\n")).violations.len();
    assert_eq!(whole(Record::Killed { process: 27, at: 9 }), 1, "this is not a part of a record");
}

#[test]
fn the_recorder_writes_what_the_checker_reads() {
    let path = std::env::temp_dir().join(format!("lock-core-history-{}", std::process::id()));
    let recorder = Recorder::append_to(&path);
    let (label, key) = (LockLabel::from("x"), LockKey::new("a key").unwrap());
    let token = FencingToken::new(7);
    let tell = |kind| recorder.on_event(&LockEvent::new(1, &label, &key, "here", kind));
    tell(LockEventKind::WaitStarted);
    tell(LockEventKind::Acquired {
        waited: Duration::ZERO,
        token,
        owner: OwnerId::random(),
        path: GrantPath::Uncontended,
        lease_left: Duration::from_secs(3),
        waited_for: None,
    });
    recorder.write("row", token, true);
    recorder.release(&key, token);
    tell(LockEventKind::Released { held: Duration::ZERO, dropped: false, confirmed: true });
    let verdict = History::check_file(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((verdict.grants, verdict.keys, verdict.writes), (1, 1, 1));
    assert_eq!(verdict.violations, []);
}
