//! A holder that is cut off together with its master, while another server takes over (scenario 2 of the design).

use std::time::Duration;

use lock_core::{LockGuard, LockManager, LockOptions, LossReason};
use lock_testing::{Direction, FaultProxy, RedisSentinels, RedisServer, Reply, limit};
use tokio::time::Instant;

use crate::support::{SECOND, bounded, eventually, exists, figure, lost, take};

const TTL: Duration = Duration::from_secs(3);

/// A holder on one side of the partition, and who was granted its lock on the other.
struct Partition {
    servers: RedisSentinels,
    /// Between the holder and each sentinel.
    doors: Vec<FaultProxy>,
    holder: LockGuard,
    other: LockGuard,
    /// When the other was granted the lock.
    granted: Instant,
    _locks: [LockManager; 2],
}

impl Partition {
    /// Cuts a holder and its master off, and waits until somebody else has the lock.
    ///
    /// The settings are those of the first master alone: the promoted one has no replica left.
    async fn start(settings: &[&str], durability: &str) -> Self {
        let servers = RedisSentinels::builder().behind_a_proxy().start();
        for setting in settings {
            let (name, value) = setting.split_once(' ').unwrap();
            assert_eq!(servers.servers()[0].command(&["CONFIG", "SET", name, value]), Reply::Text("OK".to_owned()));
        }
        let doors: Vec<_> = servers.sentinels().iter().map(|sentinel| FaultProxy::start(sentinel.port())).collect();
        let hosts: Vec<_> = doors.iter().map(|door| format!("127.0.0.1:{}", door.port())).collect();
        let through = |(sentinel, door): (&RedisServer, &FaultProxy)| {
            format!("127.0.0.1:{}>127.0.0.1:{}", sentinel.port(), door.port())
        };
        let mut nat: Vec<_> = servers.sentinels().iter().zip(&doors).map(through).collect();
        nat.push(format!("127.0.0.1:{}>127.0.0.1:{}", servers.front().port(), servers.servers()[0].port()));
        let options = || LockOptions::default().with_ttl(TTL).with_wait(60 * SECOND);
        let cut_off = format!("redis+sentinel://{}/mymaster?nat={}{durability}", hosts.join(","), nat.join(","));
        let near = LockManager::connect_with(&cut_off, options()).await.unwrap();
        let query = if durability.is_empty() { String::new() } else { format!("?{}", &durability[1..]) };
        let far = LockManager::connect_with(&format!("{}{query}", servers.url()), options()).await.unwrap();
        let holder = take(&near, "k").await;
        eventually("it is replicated", || exists(&servers.servers()[1], "k")).await;
        servers.notice_within(500);
        for door in doors.iter().chain([servers.front()]) {
            door.black_hole(Direction::ToServer);
            door.black_hole(Direction::ToClient);
        }
        let other = far.lock("k").with_durability(lock_core::Durability::Master).await.unwrap();
        Self { servers, doors, holder, other, granted: Instant::now(), _locks: [near, far] }
    }

    fn heal(&self) {
        self.doors.iter().chain([self.servers.front()]).for_each(FaultProxy::resume);
    }

    /// How long both believed to hold the lock, once the holder knows better.
    async fn overlap(&self) -> (Duration, LossReason) {
        let reason = lost(&self.holder).await;
        (self.granted.elapsed(), reason)
    }
}

#[tokio::test]
#[limit]
async fn without_more_both_hold_the_lock_until_the_partition_ends() {
    let partition = Partition::start(&[], "").await;
    // Renewed by its master, which knows of nobody else.
    tokio::time::sleep(TTL + SECOND).await;
    partition.holder.ensure_held().unwrap();
    partition.other.ensure_held().unwrap();
    assert!(partition.other.token() > partition.holder.token(), "a fence tells them apart");
    partition.heal();
    let (overlap, reason) = partition.overlap().await;
    figure("overlap of a plain set, partition healed after 4 s", overlap);
    assert_eq!(reason, LossReason::Failover);
    assert!(overlap > TTL, "{overlap:?}");
    partition.other.ensure_held().unwrap();
}

#[tokio::test]
#[limit]
async fn with_min_replicas_the_holder_ends_by_itself_since_redis_7() {
    let partition = Partition::start(&["min-replicas-max-lag 1", "min-replicas-to-write 1"], "").await;
    let (overlap, reason) = partition.overlap().await;
    // max-lag + 1 s + ttl, less the time to the promotion.
    bounded("overlap with min-replicas-to-write 1, max-lag 1", overlap, 2 * SECOND + TTL);
    assert_eq!(reason, LossReason::Unreachable);
    assert!(overlap < 2 * SECOND + TTL + 2 * SECOND, "{overlap:?}");
    partition.other.ensure_held().unwrap();
}

#[tokio::test]
#[limit]
async fn with_acks_nobody_else_holds_it_before_the_holder_has_ended() {
    let partition = Partition::start(&[], "&acks=1").await;
    assert!(partition.holder.ensure_held().is_err(), "two hold the lock");
    assert_eq!(lost(&partition.holder).await, LossReason::Unreachable);
    bounded("time left to the holder when the other was granted, acks=1", partition.holder.remaining(), Duration::ZERO);
    partition.other.ensure_held().unwrap();
}
