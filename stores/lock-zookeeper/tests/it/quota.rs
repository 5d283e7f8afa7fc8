//! A quota of the nodes that is used up: claims are refused by its name, and what is held stays.

use lock_core::{FencingToken, HolderInfo, LockBackend as _, LockErrorKind, LockKey, LockManager};
use lock_store::{
    AcquireRequest, Attempt, Claim, Freed, Inspector as _, Release, Renewal, Result, Revocation, RevokeFrom,
};
use lock_testing::limit;
use lock_zookeeper::ZooKeeper;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{More, Servers};
use crate::support::{LONG, SECOND, locks};

const NODE: &str = "/zookeeper/quota/full";

/// A server that enforces a quota of the nodes at `/full`.
struct Quota {
    servers: Servers,
    operator: Client,
}

impl Quota {
    /// Starts it with one node at `/full`, and all that one lock needs.
    async fn start() -> Option<(Self, ZooKeeper)> {
        let more = More { java: &["-Dzookeeper.enforceQuota=true"], ..More::default() };
        let servers = Servers::one_with(&more)?;
        let store = ZooKeeper::new(&servers.url("/full?session=60s")).unwrap();
        for key in ["held", "other"] {
            assert_eq!(free(&store, &request(key)).await, Ok(Freed::Released), "its directory is there from now on");
        }
        let operator = Client::connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (path, data) in
            [("", ""), ("/zookeeper_limits", "count=-1,bytes=-1"), ("/zookeeper_stats", "count=0,bytes=0")]
        {
            operator.create(&format!("{NODE}{path}"), data.as_bytes(), &options).await.unwrap();
        }
        Some((Self { servers, operator }, store))
    }

    /// Allows so many nodes more than there are.
    async fn has_room_for(&self, nodes: i64) {
        let (stats, _) = self.operator.get_data(&format!("{NODE}/zookeeper_stats")).await.unwrap();
        let stats = String::from_utf8(stats).unwrap();
        let count = stats.split([',', ';']).find_map(|field| field.strip_prefix("count=")?.parse::<i64>().ok());
        let most = count.unwrap_or_else(|| panic!("{stats}")) + nodes;
        let limits = format!("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit={most}");
        self.operator.set_data(&format!("{NODE}/zookeeper_limits"), limits.as_bytes(), None).await.unwrap();
    }
}

fn request(key: &str) -> AcquireRequest {
    let claim = Claim::new(LockKey::new(key).unwrap(), LONG);
    let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    request
}

async fn take(store: &ZooKeeper, request: &AcquireRequest) {
    let attempt = store.try_acquire(request).await;
    assert!(matches!(attempt, Ok(Attempt::Granted { .. })), "{attempt:?}");
}

/// Takes a lock, and releases it.
async fn free(store: &ZooKeeper, request: &AcquireRequest) -> Result<Freed> {
    take(store, request).await;
    store.release(&Release::new(request.claim.clone())).await
}

async fn is_refused(store: &ZooKeeper, request: &AcquireRequest) {
    let error = store.try_acquire(request).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("quota") && error.to_string().contains("raise"), "{error}");
    let holder = store.holder(&request.claim.key).await;
    assert!(matches!(holder, Ok(None)), "what is refused holds nothing: {holder:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_full_quota_refuses_claims_by_its_name_until_there_is_room_and_what_is_held_stays() {
    let Some((quota, store)) = Quota::start().await else { return };
    let held = request("held");
    take(&store, &held).await;
    quota.has_room_for(0).await;
    is_refused(&store, &request("other")).await;
    // The same for a process that has no session yet.
    let url = quota.servers.url("/full?session=60s");
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("quota"), "{error}");
    let waiting = tokio::spawn(async move { locks(&url).lock("other").await.map(drop) });
    let renewed = store.renew(std::slice::from_ref(&held.claim)).await;
    assert_eq!(renewed, [Ok(Renewal::RenewedFor(LONG / 2))]);
    sleep(SECOND).await;
    assert!(!waiting.is_finished(), "a caller that waits is not given up");
    // Its session needs one node, and its claim another.
    quota.has_room_for(2).await;
    timeout(LONG, waiting).await.expect("there is room").unwrap().unwrap();
    quota.has_room_for(0).await;
    assert_eq!(store.release(&Release::new(held.claim)).await, Ok(Freed::Released));
    assert_eq!(free(&store, &request("other")).await, Ok(Freed::Released), "a lock that is free makes room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_claim_whose_token_has_no_room_holds_nothing() {
    let Some((quota, store)) = Quota::start().await else { return };
    let mut moved = request("other");
    // A lock that moved here has a greater token, so the base needs a node.
    moved.floor = FencingToken::new(FencingToken::PLAIN.get() / 4 * 5);
    quota.has_room_for(1).await;
    is_refused(&store, &moved).await;
    quota.has_room_for(2).await;
    assert_eq!(free(&store, &moved).await, Ok(Freed::Released));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn an_operator_takes_a_lock_away_although_a_quota_has_no_room_for_the_note() {
    let Some((quota, store)) = Quota::start().await else { return };
    let held = request("held");
    take(&store, &held).await;
    assert!(store.scan("", 100, None).await.is_ok(), "the session of the operator is open");
    quota.has_room_for(0).await;
    let revocation = Revocation::new(RevokeFrom::Owner(held.claim.owner), "ana", "stuck");
    assert_eq!(store.revoke(&held.claim.key, &revocation).await, Ok(Freed::Released));
    assert_eq!(store.renew(std::slice::from_ref(&held.claim)).await, [Ok(Renewal::Lost)]);
}
