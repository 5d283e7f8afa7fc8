//! The spans and events that `tracing` gets for acquires and holds.

use std::time::Duration;

use lock_core::{LockErrorKind, LockManager, MemoryStore};
use lock_testing::limit;
use tracing::Level;

use crate::collector::Collector;

const SECOND: Duration = Duration::from_secs(1);

fn manager() -> LockManager {
    LockManager::builder(MemoryStore::new()).drive_on_current_runtime().build().unwrap()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn an_acquire_and_a_hold_are_spans_of_their_caller() {
    let (collector, _guard) = Collector::install(Level::DEBUG);
    let locks = manager();
    let request = tracing::info_span!(target: "app", "request").entered();
    let guard = locks.lock("lock:user:7").with_label("lock:user:<id>").with_site("shop::charge").await.unwrap();
    drop(request);

    let acquire = collector.spans("lock_acquire").remove(0);
    assert!(acquire.closed && acquire.inside == ["request"], "{acquire:?}");
    let token = guard.token().to_string();
    for (field, value) in [
        ("lock", "lock:user:<id>"),
        ("key", "lock:user:7"),
        ("site", "shop::charge"),
        ("outcome", "acquired"),
        ("path", "uncontended"),
        ("waited_seconds", "0.0"),
        ("token", &token),
        ("store", "memory"),
        ("otel.status_code", ""),
    ] {
        assert_eq!(acquire.fields.get(field), value, "{field}");
    }
    tokio::time::sleep(3 * SECOND).await;
    let hold = collector.spans("lock_hold").remove(0);
    assert!(!hold.closed && hold.inside == ["request"], "{hold:?}");
    assert_eq!((hold.fields.get("key"), hold.fields.get("token")), ("lock:user:7", token.as_str()));
    let owner = hold.fields.get("owner");
    let is_short = owner.len() == 4 && owner.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(is_short, "{owner} is the beginning of the identity, as in lockctl, and proves nothing");
    assert_eq!(hold.fields.get("store"), "memory");

    guard.release().await.unwrap();
    let hold = collector.spans("lock_hold").remove(0);
    assert!(hold.closed, "{hold:?}");
    assert_eq!((hold.fields.get("outcome"), hold.fields.get("held_seconds")), ("released", "3.0"));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_body_runs_inside_its_hold() {
    let (collector, _guard) = Collector::install(Level::DEBUG);
    let locks = manager();
    let nested: Result<(), lock_core::LockError> = locks
        .lock("outer")
        .run(async |_| {
            tokio::time::sleep(SECOND).await;
            tracing::info!(name: "work", target: "app", "working");
            locks.lock("inner").await?.release().await?;
            Ok(())
        })
        .await;
    nested.unwrap();
    assert_eq!(collector.spans("work")[0].inside, ["lock_hold"]);
    let keys: Vec<_> = collector.spans("lock_acquire").iter().map(|span| span.fields.get("key").to_owned()).collect();
    assert_eq!(keys, ["outer", "inner"]);
    assert_eq!(collector.spans("lock_acquire")[1].inside, ["lock_hold"]);
    assert!(collector.spans("lock_hold").iter().all(|hold| hold.closed));
    assert!(collector.is_outside());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_wait_in_vain_names_the_holder() {
    let (collector, _guard) = Collector::install(Level::DEBUG);
    let locks = manager();
    let guard = locks.lock("k").with_site("shop::report").await.unwrap();
    let error = locks.lock("k").with_wait(2 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(tokio::time::timeout(SECOND, locks.lock("k").acquire()).await.is_err());
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    let spans = collector.spans("lock_acquire");
    let outcomes: Vec<_> = spans.iter().map(|span| span.fields.get("outcome")).collect();
    assert_eq!(outcomes, ["acquired", "timeout", "cancelled", "busy"]);
    let statuses: Vec<_> = spans.iter().map(|span| span.fields.get("otel.status_code")).collect();
    assert_eq!(statuses, ["", "ERROR", "", ""], "only a wait in vain is an error");
    assert_eq!(spans[1].fields.get("error.type"), "timeout");
    assert!(spans.iter().all(|span| span.closed), "{spans:?}");
    assert_eq!(spans[1].fields.get("waited_seconds"), "2.0");
    for span in &spans[1..] {
        assert!(span.fields.get("holder").contains("shop::report"), "{span:?}");
        // A search for this key and owner finds the span of the hold, and so the trace of the holder.
        let hold = collector.spans("lock_hold").remove(0);
        assert_eq!((span.fields.get("key"), span.fields.get("holder_owner")), ("k", hold.fields.get("owner")));
        assert_ne!(hold.fields.get("owner"), "");
    }
    assert_eq!(spans[0].fields.get("holder_owner"), "", "this one did not wait");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_loss_is_a_warning_inside_the_hold() {
    let (collector, _guard) = Collector::install(Level::DEBUG);
    let locks = manager();
    let guard = locks.lock("k").with_site("shop::charge").with_max_hold(5 * SECOND).await.unwrap();
    guard.lost().await;
    let hold = collector.spans("lock_hold").remove(0);
    assert_eq!((hold.fields.get("outcome"), hold.fields.get("held_seconds")), ("max_hold", "5.0"));
    assert_eq!((hold.fields.get("otel.status_code"), hold.fields.get("error.type")), ("ERROR", "max_hold"));
    let told = collector.told();
    let warning = told.values().find(|told| told.fields.get("message").contains("lost while it was held")).unwrap();
    assert_eq!(warning.inside, ["lock_hold"]);
    for (field, value) in [("key", "k"), ("site", "shop::charge"), ("reason", "max_hold"), ("held_seconds", "5.0")] {
        assert_eq!(warning.fields.get(field), value, "{field}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn who_does_not_ask_for_them_gets_none() {
    let (collector, _guard) = Collector::install(Level::INFO);
    let locks = manager();
    locks.lock("k").await.unwrap().release().await.unwrap();
    assert!(collector.told().is_empty(), "{:?}", collector.told());
    let guard = locks.lock("k").with_max_hold(SECOND).await.unwrap();
    guard.lost().await;
    assert_eq!(collector.told().len(), 1, "a loss is told all the same: {:?}", collector.told());
}
