//! Locks are taken in a slot that is being moved. At any stage of the move, neither master gets a key that
//! would block the move of the slot.

use lock_core::{FencingToken, LockErrorKind, LockGuard};
use lock_testing::{RedisCluster, RedisServer, Reply, limit};

use super::batches::{names, release_all};
use crate::support::{MS, eventually, locked_keys, locks_at, take};

/// Where a key of the slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// At the master that gives the slot away.
    Source,
    /// At the master that takes it over.
    Target,
}

const PLACES: [Place; 3] = [Place::Nowhere, Place::Source, Place::Target];

/// A slot of its own for each combination.
struct Slot {
    tag: String,
    /// A lock of this slot, which somebody else has if it is there.
    lock: String,
    places: [Place; 2],
    /// The greatest token of its clock.
    token: Option<FencingToken>,
}

impl Slot {
    /// Lists its keys at a master.
    fn keys(&self, master: &RedisServer) -> Vec<String> {
        let slot = master.command(&["CLUSTER", "KEYSLOT", &self.tag]).int().to_string();
        let Reply::List(keys) = master.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else {
            panic!("the keys of a slot are a list")
        };
        let mut keys: Vec<String> = keys.iter().map(|key| key.text().to_owned()).collect();
        keys.sort_unstable();
        keys
    }
}

#[tokio::test]
#[limit]
async fn a_take_makes_nothing_in_an_open_slot_wherever_its_lock_and_its_clock_are() {
    let cluster = RedisCluster::start(2);
    let (locks, [source, target]) = (locks_at(&cluster.url()), [0, 1].map(|at| &cluster.masters()[at]));
    let mut slots = Vec::new();
    for places in PLACES.into_iter().flat_map(|lock| PLACES.map(|clock| [lock, clock])) {
        let tag = cluster.key_on(0, &format!("t{}:", slots.len()));
        let mut slot = Slot { lock: format!("{{{tag}}}:lock"), tag, places, token: None };
        let [lock, clock] = places;
        if clock != Place::Nowhere {
            let guard = take(&locks, &format!("{{{}}}:another", slot.tag)).await;
            slot.token = Some(guard.token());
            guard.release().await.unwrap();
        }
        if lock != Place::Nowhere {
            source.command(&["SET", &slot.lock, "somebody else", "PX", "600000"]);
        }
        let keys = slot.keys(source);
        assert_eq!(keys.len(), places.iter().filter(|place| **place != Place::Nowhere).count(), "{keys:?}");
        cluster.open_slot(&slot.tag, 0, 1);
        for key in &keys {
            let place = if *key == slot.lock { lock } else { clock };
            if place == Place::Target {
                cluster.move_keys(&[key], 0, 1);
            }
        }
        slots.push(slot);
    }
    let there = || slots.iter().map(|slot| [source, target].map(|master| slot.keys(master))).collect::<Vec<_>>();
    let before = there();

    // With others of the same master, so that they leave together.
    let mut taking = tokio::task::JoinSet::new();
    for (at, name) in names(&cluster, 0, 11).into_iter().chain(slots.iter().map(|slot| slot.lock.clone())).enumerate() {
        let locks = locks.clone();
        taking.spawn(async move { (at, locks.lock(name).with_wait(300 * MS).await) });
    }
    let mut guards = Vec::new();
    for (at, taken) in taking.join_all().await {
        match taken {
            Ok(guard) => guards.push(guard),
            Err(error) => {
                assert!(at >= 11, "{error}");
                assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
            }
        }
    }
    assert_eq!(guards.len(), 11, "{:?}", guards.iter().map(LockGuard::key).collect::<Vec<_>>());
    assert_eq!(there(), before);
    release_all(guards).await;

    for slot in &slots {
        // Fails if a key of the same name is at the other side.
        cluster.drain_slot(&slot.tag, 0, 1);
        cluster.close_slot(&slot.tag, 0, 1);
        target.command(&["DEL", &slot.lock]);
        let guard = take(&locks, &slot.lock).await;
        assert!(Some(guard.token()) > slot.token, "{:?}", slot.places);
        guard.release().await.unwrap();
    }
    for master in cluster.masters() {
        eventually("all is free", || locked_keys(master).is_empty()).await;
    }
}
