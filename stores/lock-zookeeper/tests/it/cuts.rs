//! A connection that is cut at every byte of an acquire, of a release, and of their answers.

use lock_core::{LockBackend as _, LockManager, ReleaseOutcome};
use lock_testing::{Direction, EventLog, FaultProxy, Stopwatch, limit};
use lock_zookeeper::ZooKeeper;

use crate::servers::{Pace, Servers};
use crate::support::{Scratch, eventually};

/// The only key, so its directory is there from the beginning.
const KEY: &str = "cut";

/// A server, what is between it and the calls of a manager, and the events of that manager.
struct Way {
    servers: Servers,
    proxy: FaultProxy,
    locks: LockManager,
    events: EventLog,
    scratch: Scratch,
    /// How many nodes there are while no lock is held.
    nodes: u64,
}

impl Way {
    async fn start() -> Option<Self> {
        let servers = Servers::one(Pace::PATIENT)?;
        let (proxy, scratch, events) = (FaultProxy::start(servers.port(0)), Scratch::new(), EventLog::default());
        let locks = scratch.locks(&format!("zookeeper://127.0.0.1:{}/cuts?session=20s", proxy.port()));
        locks.observe(events.clone());
        let guard = locks.lock(KEY).await.unwrap();
        scratch.recorder().release(guard.key(), guard.token());
        guard.release().await.unwrap();
        let nodes = servers.nodes();
        Some(Self { servers, proxy, locks, events, scratch, nodes })
    }

    fn passed(&self) -> [usize; 2] {
        [Direction::ToServer, Direction::ToClient].map(|way| usize::try_from(self.proxy.bytes(way)).unwrap())
    }

    /// How many bytes an acquire and a release send, and how many they are answered.
    async fn lengths(&self) -> [[usize; 2]; 2] {
        let before = self.passed();
        let guard = self.locks.lock(KEY).await.unwrap();
        let between = self.passed();
        self.scratch.recorder().release(guard.key(), guard.token());
        guard.release().await.unwrap();
        let after = self.passed();
        let lengths = |from: [usize; 2], to: [usize; 2]| [to[0] - from[0], to[1] - from[1]];
        [lengths(before, between), lengths(between, after)]
    }

    /// A node whose creation was not answered is removed too.
    async fn nothing_is_left(&self) {
        eventually("all nodes of locks are gone", || self.servers.nodes() <= self.nodes).await;
        assert!(!self.events.names().contains(&"Contended"), "whoever met somebody met itself");
        assert_eq!((self.events.count("Lost"), self.events.count("Failed")), (0, 0));
        eventually("every acquire ends", || self.events.open() == 0).await;
        self.events.assert_complete();
        self.scratch.verdict();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(600)]
async fn a_cut_at_every_byte_of_an_acquire_or_its_answer_leaves_one_holder_and_no_orphan() {
    let Some(way) = Way::start().await else { return };
    let direct = ZooKeeper::new(&way.servers.url("/cuts?session=2s")).unwrap();
    let [acquire, _] = way.lengths().await;
    let (mut cuts, mut last, watch) = (0, None, Stopwatch::start());
    for (direction, length) in [Direction::ToServer, Direction::ToClient].into_iter().zip(acquire) {
        for bytes in 0..length {
            way.proxy.cut_after(direction, bytes);
            let guard = way.locks.lock(KEY).await.unwrap();
            way.proxy.resume();
            assert!(last.is_none_or(|last| last < guard.token()), "{direction:?} after {bytes}");
            last = Some(guard.token());
            let holder = direct.holder(guard.key()).await.unwrap().unwrap();
            assert!(holder.token.is_none_or(|token| token == guard.token()), "{direction:?} after {bytes}: {holder:?}");
            way.scratch.recorder().release(guard.key(), guard.token());
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "{direction:?} after {bytes}");
            cuts += 1;
        }
    }
    println!("figure: cuts at every byte of an acquire and its answer: {cuts} in {:?}", watch.elapsed());
    assert!(cuts > 100, "{cuts}");
    drop(direct);
    way.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(600)]
async fn a_cut_at_every_byte_of_a_release_or_its_answer_frees_the_lock() {
    let Some(way) = Way::start().await else { return };
    let [_, release] = way.lengths().await;
    let (mut cuts, watch) = (0, Stopwatch::start());
    for (direction, length) in [Direction::ToServer, Direction::ToClient].into_iter().zip(release) {
        for bytes in 0..length {
            let guard = way.locks.lock(KEY).await.unwrap();
            way.scratch.recorder().release(guard.key(), guard.token());
            way.proxy.cut_after(direction, bytes);
            let released = guard.release().await;
            way.proxy.resume();
            assert_eq!(released, Ok(ReleaseOutcome::Released), "{direction:?} after {bytes}");
            cuts += 1;
        }
    }
    println!("figure: cuts at every byte of a release and its answer: {cuts} in {:?}", watch.elapsed());
    assert!(cuts > 50, "{cuts}");
    way.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn an_answer_that_is_lost_makes_no_phantom_holder() {
    let Some(way) = Way::start().await else { return };
    for round in 0..10 {
        way.proxy.drop_replies(1);
        let guard = way.locks.lock(KEY).await.unwrap();
        way.scratch.recorder().release(guard.key(), guard.token());
        way.proxy.drop_replies(1);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "{round}");
    }
    way.proxy.resume();
    way.nothing_is_left().await;
}
