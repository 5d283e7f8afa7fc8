//! The reports of a process about the members of its quorum.

use std::sync::{Arc, Mutex};

use lock_core::{LockErrorKind, LockEvent, LockObserver, MemberState, Notice, QuorumHealth};
use lock_store::{MemberList, QuorumMember};
use lock_testing::limit;

use crate::quorum::network::{Network, process, process_with, stores};
use crate::quorum::{SECOND, take};

/// The reports so far.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<QuorumHealth>>>);

impl LockObserver for Reports {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Quorum { node, health } = notice {
            assert_eq!(*node, "a,b,c");
            self.0.lock().unwrap().push(QuorumHealth::clone(health));
        }
    }
}

impl Reports {
    /// Returns the last one.
    fn last(&self) -> QuorumHealth {
        self.0.lock().unwrap().last().expect("a report after two seconds").clone()
    }

    fn states(&self) -> Vec<MemberState> {
        self.last().members.iter().map(|member| member.state).collect()
    }

    fn total(&self, of: impl Fn(&QuorumHealth) -> u64) -> u64 {
        self.0.lock().unwrap().iter().map(of).sum()
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_does_not_answer_is_away_and_the_holds_without_it_are_degraded() {
    use MemberState::{Away, Counted};
    for network in [Network::Refuses, Network::Swallows, Network::Mutes] {
        let stores = stores(3);
        let (process, reports) = (process(&stores), Reports::default());
        process.locks.observe(reports.clone());
        let guard = take(&process.locks).await.unwrap();
        tokio::time::sleep(6 * SECOND).await;
        assert_eq!((reports.states(), reports.last().degraded_holds), (vec![Counted; 3], 0), "{network:?}");
        assert_eq!(reports.last().majority, 2);
        process.set([1], network);
        // It is asked for its list of members every twenty seconds, and has five to answer.
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(reports.states(), [Counted, Away, Counted], "{network:?}");
        assert_eq!(reports.last().degraded_holds, 1, "{network:?}");
        process.set([1], Network::Up);
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!((reports.states(), reports.last().degraded_holds), (vec![Counted; 3], 0), "{network:?}");
        process.set([1], network);
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(reports.last().degraded_holds, 1, "{network:?}");
        guard.release().await.unwrap();
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!(reports.last().degraded_holds, 0, "{network:?}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_member_that_lost_its_data_is_excluded_for_the_longest_ttl_and_told_of_what_it_held() {
    use MemberState::{Counted, Excluded};
    let stores = stores(3);
    let process = process_with(&stores, |quorum| quorum.with_max_ttl(12 * SECOND).unwrap());
    let reports = Reports::default();
    process.locks.observe(reports.clone());
    let guard = take(&process.locks).await.unwrap();
    stores[2].lose_data();
    tokio::time::sleep(3 * SECOND).await;
    process.locks.lock("other").with_ttl(6 * SECOND).await.unwrap().release().await.unwrap();
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(reports.states(), [Counted, Counted, Excluded]);
    let repairs = |member: usize| reports.total(|health| health.members[member].repairs);
    assert_eq!([repairs(0), repairs(1), repairs(2)], [0, 0, 1]);
    assert!(reports.total(|health| health.rounds) >= 2);
    assert!(reports.total(|health| health.second_rounds) <= reports.total(|health| health.rounds));
    tokio::time::sleep(12 * SECOND).await;
    assert_eq!(reports.states(), [Counted; 3]);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_list_that_does_not_fit_is_told_and_no_failure_of_members() {
    let stores = stores(3);
    let process = process(&stores);
    let reports = Reports::default();
    process.locks.observe(reports.clone());
    // Another process named other members.
    let other = MemberList::new(["a", "x", "y"].map(String::from).into(), 2, 60 * SECOND);
    stores[0].remember(Some(&other), 180 * SECOND).await.unwrap();
    let error = process.locks.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(reports.states()[0], MemberState::Disagrees, "{:?}", reports.states());
    // It is forgotten once nobody uses it.
    tokio::time::sleep(300 * SECOND).await;
    process.locks.lock("k").await.unwrap().release().await.unwrap();
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(reports.states()[0], MemberState::Counted, "{:?}", reports.states());
}
