//! Rules for work that is done once for a version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::conformance::contract::{ask_at, granted};
use crate::conformance::tools::{MS, PATIENCE, SECOND, key, now, pause, soon};
use lock_core::LockManager;
use lock_store::contract::backend::{
    Claim, DoneMark, DoneMarks, Inspector, JobVersion, LockBackend, MAX_VERSION_BYTES, Release,
};
use lock_store::types::error::{LockError, LockErrorKind};
use lock_store::types::key::LockKey;

/// Longer than any stall of the machine.
const LONG: Duration = Duration::from_secs(60);

/// A store that keeps marks writes a mark only for the holder, keeps versions apart, and forgets a mark when it is told to.
pub async fn marks(store: impl LockBackend) {
    let Some(marks) = store.marks() else { return };
    let (key, other) = (key("marks"), key("marks"));
    let [first, second] = ["v1", "v2"].map(version);
    assert_eq!(done(marks, &key, &first).await, None, "nothing is done");
    let stranger = Claim::new(key.clone(), LONG);
    assert_eq!(marks.mark_done(&stranger, &first, None).await, Ok(false), "it never had the lock");
    let holder = taken(&store, &key, "marks::first").await;
    assert_eq!(marks.mark_done(&stranger, &first, None).await, Ok(false), "the lock is another one's");
    assert_eq!(done(marks, &key, &first).await, None, "only the holder has done it");

    let began = now();
    assert_eq!(marks.mark_done(&holder, &first, None).await, Ok(true));
    assert_eq!(marks.mark_done(&holder, &first, None).await, Ok(true), "it may be repeated");
    let Some(mark) = done(marks, &key, &first).await else { panic!("what was marked is done") };
    assert_eq!((&mark.version, &*mark.by.site), (&first, "marks::first"), "{mark:?}");
    assert!(mark.ago <= now().since(began) + SECOND, "{mark:?}");
    assert_eq!(done(marks, &key, &second).await, None, "another version is not done");
    assert_eq!(done(marks, &other, &first).await, None, "nor is it under another lock");
    freed(&store, &holder).await;
    assert!(done(marks, &key, &first).await.is_some(), "it outlives its lock");

    assert_eq!(marks.mark_done(&holder, &second, None).await, Ok(false), "it has the lock no more");
    let next = taken(&store, &key, "marks::next").await;
    assert_eq!(marks.mark_done(&holder, &second, None).await, Ok(false), "another one has the lock");
    assert_eq!(done(marks, &key, &second).await, None, "a stale owner cannot mark");

    assert_eq!(marks.forget_done(&key, &second).await, Ok(false), "there is none");
    assert_eq!(marks.forget_done(&key, &first).await, Ok(true));
    assert_eq!(done(marks, &key, &first).await, None, "it is forgotten");

    let [long, odd] = ["x".repeat(MAX_VERSION_BYTES), "é|:}@queue{a}*?[\\]%\n'\" ".to_owned()].map(version);
    for version in [&long, &odd] {
        assert_eq!(marks.mark_done(&next, version, Some(LONG)).await, Ok(true), "{version}");
        assert_eq!(done(marks, &key, version).await.map(|mark| mark.version).as_ref(), Some(version));
    }
    if let Some(inspector) = store.inspector() {
        let mut listed = listed(inspector, &key).await;
        listed.sort_unstable();
        let mut all = vec![long, odd];
        all.sort_unstable();
        assert_eq!(listed, all, "a walk finds what is done");
    }
    assert_eq!(marks.mark_done(&next, &second, Some(100 * MS)).await, Ok(true));
    let ends = async {
        while done(marks, &key, &second).await.is_some() {
            pause(20 * MS).await;
        }
    };
    soon("a mark ends when its time is over", ends).await;
    freed(&store, &next).await;
}

/// Work that is done once for a version runs until it succeeds, in one place, while all other callers wait for it.
pub async fn once_for(managers: [LockManager; 3]) {
    let [one, two, _] = &managers;
    if !keeps_marks(one).await {
        return;
    }
    let key = key("once");
    let asked = |locks: &LockManager| locks.lock(&key).with_wait(PATIENCE).once_for("v1");
    let failed = asked(one).run(async |_| Err::<(), _>(LockError::misconfigured("as expected in this test"))).await;
    assert_eq!(failed.map_err(|error| error.kind()), Err(LockErrorKind::Misconfigured));
    assert_eq!(one.done(&key, "v1").await, Ok(None), "what failed is not done");

    let ran = Arc::new(AtomicU32::new(0));
    let starts = managers.iter().cycle().take(9).map(|locks| {
        let (start, ran) = (asked(locks), Arc::clone(&ran));
        #[expect(clippy::disallowed_methods, reason = "the callers of a test are tasks")]
        tokio::spawn(start.run(async move |_| {
            ran.fetch_add(1, Ordering::Relaxed);
            pause(20 * MS).await;
            Ok::<_, LockError>("done")
        }))
    });
    let mut outcomes = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        outcomes.push(start.await.unwrap_or_else(|error| panic!("{error}")));
    }
    let did: Vec<_> = outcomes.iter().filter(|outcome| **outcome == Ok(Some("done"))).collect();
    let waited = outcomes.iter().filter(|outcome| **outcome == Ok(None)).count();
    assert_eq!(
        (did.len(), waited, ran.load(Ordering::Relaxed)),
        (1, 8, 1),
        "one does it, the others wait: {outcomes:?}"
    );
    let mark = two.done(&key, "v1").await;
    assert!(matches!(&mark, Ok(Some(mark)) if mark.version.as_str() == "v1"), "{mark:?}");
    assert!(matches!(two.holder(&key).await, Ok(None)), "nobody keeps the lock");

    let again = |version: &'static str| {
        let start = two.lock(&key).with_wait(PATIENCE).once_for(version);
        async move { start.run(async |_| Ok::<_, LockError>(version)).await }
    };
    assert_eq!(again("v1").await, Ok(None), "it is done");
    assert_eq!(again("v2").await, Ok(Some("v2")), "another version is not");
    assert_eq!(one.forget_done(&key, "v1").await, Ok(true));
    assert_eq!(again("v1").await, Ok(Some("v1")), "it was forgotten");
}

/// Work whose lock was lost is not done, and the next caller does it.
pub async fn once_for_after_a_loss([one, two, _]: [LockManager; 3]) {
    if !keeps_marks(&one).await {
        return;
    }
    let key = key("once-lost");
    let lost = one.lock(&key).with_max_hold(300 * MS).once_for("v1");
    let lost = lost.run(async |_| std::future::pending::<Result<(), LockError>>().await).await;
    assert_eq!(lost.map_err(|error| error.kind()), Err(LockErrorKind::Lost));
    assert_eq!(two.done(&key, "v1").await, Ok(None), "what was lost is not done");
    let next = two.lock(&key).with_wait(PATIENCE).once_for("v1").run(async |_| Ok::<_, LockError>(())).await;
    assert_eq!(next, Ok(Some(())));
}

/// Returns whether the store has this part.
async fn keeps_marks(locks: &LockManager) -> bool {
    let absent = |error: &LockError| error.to_string().contains("does not keep marks");
    !locks.parts().backend.done(key("absent"), version("v")).await.is_err_and(|error| absent(&error))
}

fn version(text: impl AsRef<str>) -> JobVersion {
    JobVersion::new(text).unwrap_or_else(|error| panic!("{error}"))
}

async fn done(marks: &impl DoneMarks, key: &LockKey, version: &JobVersion) -> Option<DoneMark> {
    marks.done(key, version).await.unwrap_or_else(|error| panic!("done: {error}"))
}

async fn taken(store: &impl LockBackend, key: &LockKey, site: &str) -> Claim {
    let claim = Claim::new(key.clone(), LONG);
    granted(store, &ask_at(site, &claim)).await;
    claim
}

async fn freed(store: &impl LockBackend, claim: &Claim) {
    let freed = store.release(&Release::new(claim.clone())).await;
    assert!(freed.is_ok(), "{freed:?}");
    // A member of a quorum may hear of it only after the answer.
    store.settled().await;
}

/// Walks through all marks of a lock.
async fn listed(inspector: &impl Inspector, key: &LockKey) -> Vec<JobVersion> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = inspector.scan(key.as_str(), 100, after.as_ref()).await;
        let page = page.unwrap_or_else(|error| panic!("scan: {error}"));
        found.extend(page.done.into_iter().filter(|(of, _)| of == key).map(|(_, mark)| mark.version));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}
