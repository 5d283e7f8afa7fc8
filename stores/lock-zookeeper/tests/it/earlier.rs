//! A node that an earlier session of a claim has left: it blocks the lock until it ends, and is never taken for the claim's own.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{HolderInfo, LockBackend as _, LockKey};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, OwnerId, Release, Ticket};
use lock_testing::{Direction, EventLog, FaultProxy, inbox, limit};
use lock_zookeeper::ZooKeeper;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{NEWEST, Servers, is_installed};
use crate::support::{LONG, MS, locks};

/// Two stores, and a client that leaves a node as an earlier session would.
struct Left {
    store: ZooKeeper,
    url: String,
    earlier: Client,
    request: AcquireRequest,
    /// The folder of the lock, and the names of nodes of the claim without their numbers.
    folder: String,
    prefix: String,
    data: Vec<u8>,
}

impl Left {
    async fn new(root: &str) -> Self {
        let servers = Servers::shared(NEWEST, 1);
        let url = servers.url(&format!("{root}?session=60s"));
        let store = ZooKeeper::new(&url).unwrap();
        let connector = Client::connector().with_session_timeout(LONG);
        let earlier = connector.connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
        let claim = Claim::new(LockKey::new("k").unwrap(), LONG);
        let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
        request.execute_within = LONG;
        assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Granted { .. })));
        let folder = format!("{root}/l/{}", earlier.list_children(&format!("{root}/l")).await.unwrap()[0]);
        let name = earlier.list_children(&folder).await.unwrap().remove(0);
        let (data, _) = earlier.get_data(&format!("{folder}/{name}")).await.unwrap();
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let left = Self { store, url, earlier, request, folder, prefix, data };
        left.released().await;
        left
    }

    async fn released(&self) {
        assert_eq!(self.store.release(&Release::new(self.request.claim.clone())).await, Ok(Freed::Released));
    }

    /// Makes a node of the claim. Returns its path.
    async fn leave(&self) -> String {
        let (start, options) =
            (format!("{}/{}", self.folder, self.prefix), CreateMode::EphemeralSequential.with_acls(Acls::anyone_all()));
        let (_, sequence) = self.earlier.create(&start, &self.data, &options).await.unwrap();
        format!("{start}{sequence}")
    }

    async fn nothing_is_left(&self) {
        assert_eq!(self.earlier.list_children(&self.folder).await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_claim_is_not_granted_the_lock_by_a_node_of_an_earlier_session() {
    if !is_installed(NEWEST) {
        return;
    }
    let mut left = Left::new("/earlier").await;
    let node = left.leave().await;
    left.request.tentative = true;
    let asked = left.store.try_acquire(&left.request).await;
    assert!(matches!(asked, Ok(Attempt::Contended)), "{asked:?}");
    let again = left.store.try_acquire(&left.request).await;
    // On a machine that stood still, its place has ended meanwhile, and it has entered again.
    assert!(matches!(again, Ok(Attempt::Held { .. } | Attempt::Contended)), "{again:?}");
    left.earlier.delete(&node, None).await.unwrap();
    let granted = left.store.try_acquire(&left.request).await;
    assert!(matches!(granted, Ok(Attempt::Granted { .. })), "{granted:?}");
    left.released().await;
    left.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_waiter_is_not_granted_its_turn_by_a_node_of_an_earlier_session() {
    if !is_installed(NEWEST) {
        return;
    }
    let mut left = Left::new("/earlier-turn").await;
    let guard = locks(&left.url).lock("k").await.unwrap();
    let node = left.leave().await;
    let (inbox, mut reports) = inbox(EventLog::default());
    left.request.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, LONG / 3));
    let waits = async {
        while !inbox.is_open() {
            sleep(5 * MS).await;
        }
        let queued = left.store.try_acquire(&left.request).await;
        assert!(matches!(queued, Ok(Attempt::Queued { .. })), "{queued:?}");
        guard.release().await.unwrap();
        let early = timeout(300 * MS, reports.next_grant()).await;
        assert!(early.is_err(), "it was granted its turn while an older node lay before its own: {early:?}");
        left.earlier.delete(&node, None).await.unwrap();
        timeout(LONG, reports.next_grant()).await.expect("it is granted its turn then").unwrap();
        left.released().await;
        left.nothing_is_left().await;
    };
    tokio::select! {
        () = waits => {}
        error = left.store.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
    }
}

/// If a thousand claims ask at once, a slow server answers each of them late. No claim may lose its place for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn the_place_of_a_claim_is_kept_behind_a_server_that_answers_late() {
    if !is_installed(NEWEST) {
        return;
    }
    let left = Left::new("/late").await;
    let guard = locks(&left.url).lock("k").await.unwrap();
    let proxy = FaultProxy::start(Servers::shared(NEWEST, 1).port(0));
    let slow = ZooKeeper::new(&format!("zookeeper://127.0.0.1:{}/late?session=60s", proxy.port())).unwrap();
    let (inbox, _reports) = inbox(EventLog::default());
    let (mut untold, mut told) = (left.request.clone(), left.request.clone());
    told.claim.owner = OwnerId::random();
    untold.tentative = true;
    told.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, 3000 * MS));
    let waits = async {
        while !inbox.is_open() {
            sleep(5 * MS).await;
        }
        for request in [untold, told] {
            let mut nodes = Vec::new();
            for delay in [2500 * MS, Duration::ZERO, 2500 * MS, Duration::ZERO] {
                proxy.delay(Direction::ToClient, delay);
                let asked = slow.try_acquire(&request).await;
                assert!(!matches!(asked, Err(_) | Ok(Attempt::Granted { .. })), "{asked:?}");
                let mut now = left.earlier.list_children(&left.folder).await.unwrap();
                now.sort();
                assert!(
                    nodes.is_empty() || nodes == now,
                    "its place ended before it could ask again: {nodes:?}, {now:?}"
                );
                nodes = now;
                sleep(1500 * MS).await;
            }
            assert_eq!(slow.release(&Release::new(request.claim)).await, Ok(Freed::NotHeld));
        }
        guard.release().await.unwrap();
        left.nothing_is_left().await;
    };
    tokio::select! {
        () = waits => {}
        error = slow.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
    }
}
