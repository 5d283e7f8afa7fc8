//! A bad input is refused alone: its neighbours in the same batch, queue or inbox go on, whatever is batched there.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{FencingToken, LockBackend, LockKey, LockManager, Mode, RedisStore};
use lock_store::{Attempt, BlockedNotes, Claim, DoneMarks, JobRecords, JobVersion, Release, SharedClaims, Ticket};
use lock_testing::{EventLog, RedisCluster, RedisServer, Reply, limit};

use crate::redis_store::{TTL, request};
use crate::support::{SECOND, eventually, figure, listening, renewals, watched};

/// A call that is made about many locks at once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Take,
    TakeAll,
    Share,
    Queue,
    /// Confirms a place in the queue, as a claim does that sleeps: one script for all that ask together.
    Sleep,
    Renew,
    RenewShared,
    Release,
    ReleaseShared,
    KeepFor,
    Withdraw,
    Downgrade,
    Holder,
    Holders,
    Blocked,
    LastRun,
    Done,
    MarkDone,
}

const OPS: [Op; 18] = [
    Op::Take,
    Op::TakeAll,
    Op::Share,
    Op::Queue,
    Op::Sleep,
    Op::Renew,
    Op::RenewShared,
    Op::Release,
    Op::ReleaseShared,
    Op::KeepFor,
    Op::Withdraw,
    Op::Downgrade,
    Op::Holder,
    Op::Holders,
    Op::Blocked,
    Op::LastRun,
    Op::Done,
    Op::MarkDone,
];

impl Op {
    fn mode(self) -> Mode {
        if matches!(self, Self::Share | Self::RenewShared | Self::ReleaseShared) { Mode::READ } else { Mode::Exclusive }
    }

    /// Whether the locks are taken before.
    fn is_of_holder(self) -> bool {
        !matches!(self, Self::Take | Self::TakeAll | Self::Share)
    }

    /// Asks, and returns the answer in a word.
    async fn ask(self, store: &RedisStore, claim: &Claim) -> String {
        let (key, version) = (&claim.key, JobVersion::new("v").unwrap());
        let word = |answer: String| answer.chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        let mut asks = request(claim);
        let mut release = Release::new(claim.clone());
        match self {
            Self::Take | Self::Share => word(match store.try_acquire(&asks).await {
                Ok(Attempt::Shared { .. }) => "Shared".to_owned(),
                answer => answer.map_or_else(|_| "Err".to_owned(), |answer| format!("{answer:?}")),
            }),
            Self::TakeAll => {
                store.try_acquire_all(&[asks]).await.map_or("Err".to_owned(), |all| word(format!("{all:?}")))
            }
            Self::Queue | Self::Sleep => {
                asks = request(&Claim::new(key.clone(), TTL));
                let mut ticket = Ticket::new("nobody".into(), 1, 3 * SECOND);
                ticket.sleep = (self == Self::Sleep).then_some(10 * SECOND);
                (asks.asleep, asks.ticket) = (self == Self::Sleep, Some(ticket));
                store.try_acquire(&asks).await.map_or("Err".to_owned(), |attempt| word(format!("{attempt:?}")))
            }
            Self::Renew | Self::RenewShared => unreachable!("one call renews all"),
            Self::Release | Self::ReleaseShared | Self::KeepFor => {
                release.keep_for = if self == Self::KeepFor { 5 * SECOND } else { Duration::ZERO };
                store.release(&release).await.map_or("Err".to_owned(), |freed| word(format!("{freed:?}")))
            }
            Self::Withdraw => store.withdraw(claim).await.map_or("Err".to_owned(), |freed| word(format!("{freed:?}"))),
            Self::Downgrade => {
                let token = FencingToken::new(1);
                store
                    .downgrade(&claim.clone().with_mode(Mode::READ), token)
                    .await
                    .map_or("Err".to_owned(), |done| word(format!("{done:?}")))
            }
            Self::Holder => store.holder(key).await.map_or("Err".to_owned(), |holder| holder.is_some().to_string()),
            Self::Holders => store.holders(key).await.map_or("Err".to_owned(), |all| all.len().to_string()),
            Self::Blocked => store.blocked(key).await.map_or("Err".to_owned(), |known| known.is_some().to_string()),
            Self::LastRun => store.last_run(key).await.map_or("Err".to_owned(), |run| run.is_some().to_string()),
            Self::Done => store.done(key, &version).await.map_or("Err".to_owned(), |mark| mark.is_some().to_string()),
            Self::MarkDone => {
                store.mark_done(claim, &version, None).await.map_or("Err".to_owned(), |_| "Marked".to_owned())
            }
        }
    }
}

/// Spoils a lock of this name at a server.
fn spoil(server: &RedisServer, key: &str, how: usize) {
    let beside = |what: &str| if key.contains('{') { format!("{key}:@{what}") } else { format!("{{{key}}}@{what}") };
    match how {
        0 => {
            server.command(&["DEL", key]);
            server.command(&["SADD", key, "x"]);
        }
        1 => drop(server.command(&["SET", key, "theirs", "PX", "60000"])),
        2 => drop(server.command(&["SET", key, "\u{0}|\u{1}|||", "PX", "60000"])),
        3 => drop(server.command(&["SET", &beside("queue"), "x"])),
        4 => drop(server.command(&["SET", &beside("waiters"), "x"])),
        5 => drop(server.command(&["SADD", &beside("done:v"), "x"])),
        6 => drop(server.command(&["SET", &beside("job"), "x"])),
        // This one the user may not touch. A cluster repeats that for seconds, because another master may permit it.
        _ => {}
    }
}

const WAYS: usize = 8;

/// Asks for sound and spoiled locks at once. Returns the answers about the sound ones, and about the others.
async fn answers(
    store: &Arc<RedisStore>,
    server: &RedisServer,
    op: Op,
    spoiled: bool,
    tag: impl Fn(usize) -> String,
) -> (Vec<String>, Vec<String>) {
    let claims: Vec<(bool, Claim)> = (0..3 * WAYS)
        .map(|n| {
            let bad = spoiled && n % 3 == 1;
            let prefix = if bad && n / 3 == WAYS - 1 && !tag(n).starts_with('{') { "denied:" } else { "lock:" };
            let key = LockKey::new(format!("{prefix}{}{op:?}{spoiled}{n}", tag(n))).unwrap();
            (bad, Claim::new(key, TTL).with_mode(op.mode()))
        })
        .collect();
    for (bad, claim) in &claims {
        if op.is_of_holder() {
            let taken = store.try_acquire(&request(claim)).await;
            assert!(*bad || taken.is_ok(), "{op:?}: {taken:?}");
        }
    }
    for (n, (_, claim)) in claims.iter().enumerate().filter(|(_, (bad, _))| *bad) {
        spoil(server, claim.key.as_str(), n / 3);
    }
    let told = if matches!(op, Op::Renew | Op::RenewShared) {
        let all: Vec<Claim> = claims.iter().map(|(_, claim)| claim.clone()).collect();
        let renewed = store.renew(&all).await;
        renewed.into_iter().map(|answer| answer.map_or("Err".to_owned(), |done| format!("{done:?}"))).collect()
    } else {
        let ask = |(_, claim): &(bool, Claim)| {
            let (store, claim) = (Arc::clone(store), claim.clone());
            tokio::spawn(async move { op.ask(&store, &claim).await })
        };
        let tasks: Vec<_> = claims.iter().map(ask).collect();
        let mut told = Vec::new();
        for task in tasks {
            told.push(task.await.unwrap());
        }
        told
    };
    let (bad, good): (Vec<_>, Vec<_>) = claims.iter().zip(told).partition(|((bad, _), _)| *bad);
    let words = |answers: Vec<(&(bool, Claim), String)>| answers.into_iter().map(|(_, word)| word).collect();
    (words(good), words(bad))
}

async fn each_is_refused_alone(store: Arc<RedisStore>, server: &RedisServer, tag: impl Fn(usize) -> String) {
    for listens in [false, true] {
        if listens {
            listening(&store).await;
        }
        for op in OPS {
            let (alone, _) = answers(&store, server, op, false, |n| format!("{}{listens}", tag(n))).await;
            let (beside, bad) = answers(&store, server, op, true, |n| format!("{}{listens}", tag(n))).await;
            assert!(beside.iter().all(|answer| *answer == alone[0] && answer != "Err"), "{op:?}: {alone:?} {beside:?}");
            figure(&format!("{op:?}, {}, beside", alone[0]), bad);
        }
    }
}

const RULES: [&str; 10] =
    ["ACL", "SETUSER", "app", "on", ">pw", "~lock:*", "~{lock:*", "~distributed-lock:*", "&*", "+@all"];

#[tokio::test]
#[limit]
async fn a_bad_input_is_refused_alone_in_each_kind_of_batch() {
    let server = RedisServer::start();
    server.command(&RULES);
    let store = RedisStore::new(&server.url().replace("//", "//app:pw@")).unwrap();
    each_is_refused_alone(Arc::new(store), &server, |_| String::new()).await;
}

#[tokio::test]
#[limit]
async fn a_bad_input_is_refused_alone_in_each_kind_of_batch_of_a_cluster() {
    let cluster = RedisCluster::start(3);
    cluster.masters().iter().for_each(|master| drop(master.command(&RULES)));
    let store = RedisStore::new(&cluster.url().replace("//", "//app:pw@")).unwrap();
    let keys: Vec<String> = (0..3 * WAYS).map(|n| cluster.key_on(0, &format!("t{n}-"))).collect();
    each_is_refused_alone(Arc::new(store), &cluster.masters()[0], |n| format!("{{{}}}", keys[n])).await;
}

/// Grants and losses are heard after any garbage that somebody publishes, over the same connection.
#[tokio::test]
#[limit]
async fn garbage_in_a_channel_stops_no_message_since_redis_7() {
    let server = RedisServer::start();
    let cluster = RedisCluster::start(1);
    for (url, server) in [(server.url(), &server), (cluster.url(), &cluster.masters()[0])] {
        let locks = LockManager::connect(&url).await.unwrap();
        let events = EventLog::default();
        locks.observe(events.clone());
        let other = LockManager::connect(&url).await.unwrap();
        let held = watched(&locks, "held").await.unwrap();
        let key = "lock:k";
        let before = other.lock(key).with_ttl(TTL).await.unwrap();
        let waiting = tokio::spawn(locks.lock(key).with_ttl(TTL).with_wait(TTL).acquire());
        let waits = || server.command(&["ZCARD", "{lock:k}@queue"]).int() == 1;
        eventually("it waits", waits).await;
        let value = server.command(&["GET", "held"]);
        let owner = value.text().split('|').next().unwrap();
        let list = || {
            let list = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let mut ids: Vec<String> =
                list.text().lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
            ids.sort();
            ids
        };
        if url.starts_with("redis+cluster") {
            let channels = || server.command(&["PUBSUB", "SHARDCHANNELS"]);
            eventually("the slot is heard", || channels() != Reply::List(Vec::new())).await;
        }
        let connections = list();
        let garbage = [
            String::new(),
            "|".to_owned(),
            "|".repeat(100_000),
            "w|".to_owned(),
            "|again".to_owned(),
            "\u{0}\u{7f}\r\n\r\n".to_owned(),
            "x".repeat(4 << 20),
            format!("{}|again", "0".repeat(32)),
            format!("w|{}|k", "f".repeat(32)),
            format!("{}|1-1|{}|{}|{}", "a".repeat(32), u64::MAX, u64::MAX, "k"),
            format!("{}|1-1|3000|1|{}", "a".repeat(32), "k".repeat(512)),
            format!("{}|1-1|3000|1|\u{0}", "a".repeat(32)),
            format!("{owner}|99999999999999999999-1|3000|1|held"),
            format!("{}||", "b".repeat(32)),
            format!("v9|{owner}|{{\"a\":[]}}"),
        ];
        for (list, publish) in [("CHANNELS", "PUBLISH"), ("SHARDCHANNELS", "SPUBLISH")] {
            let channels = server.command(&["PUBSUB", list]);
            let Reply::List(channels) = channels else { panic!("{channels:?}") };
            for channel in channels.iter().map(Reply::text) {
                // There, what names an owner takes a lock away.
                let revokes = |text: &str| channel.ends_with("revoked") && text.contains(owner);
                for text in garbage.iter().filter(|text| !revokes(text)) {
                    server.command(&[publish, channel, text]);
                }
            }
        }
        renewals(&events, 3).await;
        before.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        held.ensure_held().unwrap();
        let after = list();
        assert!(connections.iter().all(|id| after.contains(id)), "none was replaced: {connections:?}, {after:?}");
    }
}
