//! A connection that is cut, and an answer that is lost, through the proxy that stands between.

use lock_core::{LockManager, ReleaseOutcome};
use lock_postgres as _;
use lock_testing::{Direction, EventLog, FaultProxy, PostgresServer, limit};

use crate::support::{LONG, on_runtime, session};

/// One in so many bytes is where it is cut. They have no divisor in common with the lengths of words and numbers.
const STEP: usize = 17;

/// A server, what is between it and the calls of a manager, and the events of that.
struct Way {
    server: PostgresServer,
    proxy: FaultProxy,
    locks: LockManager,
    events: EventLog,
}

impl Way {
    async fn start() -> Self {
        let server = PostgresServer::start();
        let proxy = FaultProxy::start(server.port());
        // Messages have a way of their own, so that what is cut is always a call.
        let url = format!("postgres://test@127.0.0.1:{}/postgres?listen=127.0.0.1:{}", proxy.port(), server.port());
        let locks = LockManager::connect(&url).await.unwrap();
        let events = EventLog::default();
        locks.observe(events.clone());
        Self { server, proxy, locks, events }
    }

    /// How many bytes a call sends, and how many it is answered.
    async fn lengths(&self) -> [(Direction, usize); 2] {
        let passed = || [Direction::ToServer, Direction::ToClient].map(|direction| self.proxy.bytes(direction));
        let before = passed();
        let guard = self.locks.lock("length").with_ttl(LONG).await.unwrap();
        let after = passed();
        guard.release().await.unwrap();
        let length = |place: usize| usize::try_from(after[place] - before[place]).unwrap();
        [(Direction::ToServer, length(0)), (Direction::ToClient, length(1))]
    }

    /// No lock is held or waited for, and none was ever blocked.
    fn nothing_is_left(&self) {
        let left = "SELECT (SELECT count(*) FROM lock_core.lock WHERE owner IS NOT NULL) + (SELECT count(*) FROM lock_core.waiter)";
        assert_eq!(self.server.run(left), "0");
        assert!(!self.events.names().contains(&"Contended"), "whoever met somebody met itself");
    }
}

#[test]
#[limit(300)]
fn a_cut_inside_of_an_acquire_or_its_answer_leaves_one_holder_and_no_orphan() {
    on_runtime(async {
        let way = Way::start().await;
        let client = session(&way.server).await;
        let (mut cuts, mut last) = (0, None);
        for (direction, length) in way.lengths().await {
            for bytes in (0..length).step_by(STEP) {
                way.proxy.cut_after(direction, bytes);
                let guard = way.locks.lock("cut").with_ttl(LONG).await.unwrap();
                way.proxy.resume();
                assert!(last.is_none_or(|last| last < guard.token()), "{direction:?} after {bytes}");
                last = Some(guard.token());
                let holder = "SELECT token / 128 FROM lock_core.lock WHERE owner IS NOT NULL";
                let number: i64 = client.query_one(holder, &[]).await.unwrap().get(0);
                assert_eq!(number.cast_unsigned(), guard.token().get() / 128, "{direction:?} after {bytes}");
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "{direction:?} after {bytes}");
                cuts += 1;
            }
        }
        println!("figure: cuts inside of an acquire and its answer: {cuts}");
        // 578 bytes at least: the session may have prepared the statement before.
        assert!(cuts > 30, "{cuts}");
        way.nothing_is_left();
    });
}

#[test]
#[limit(300)]
fn a_cut_inside_of_a_release_or_its_answer_frees_the_lock() {
    on_runtime(async {
        let way = Way::start().await;
        for (direction, length) in [(Direction::ToServer, 240), (Direction::ToClient, 60)] {
            for bytes in (0..length).step_by(STEP) {
                let guard = way.locks.lock("cut").with_ttl(LONG).await.unwrap();
                way.proxy.cut_after(direction, bytes);
                let released = guard.release().await;
                way.proxy.resume();
                assert_eq!(released, Ok(ReleaseOutcome::Released), "{direction:?} after {bytes}");
            }
        }
        way.nothing_is_left();
    });
}

#[test]
#[limit]
fn an_answer_that_is_lost_makes_no_phantom_holder() {
    on_runtime(async {
        let way = Way::start().await;
        for round in 0..10 {
            way.proxy.drop_replies(1);
            let guard = way.locks.lock("lost").with_ttl(LONG).await.unwrap();
            way.proxy.drop_replies(1);
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "{round}");
        }
        way.nothing_is_left();
    });
}
