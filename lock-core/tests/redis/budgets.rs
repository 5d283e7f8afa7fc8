//! Every wait covers all that happens inside it, also while the server stands still; and no setting of a time makes
//! anything panic or spin.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use lock_core::{
    AnyBackend, LockError, LockErrorKind, LockManager, LockManagerBuilder, MAX_TTL, Quorum, RedisStore, Renew,
};
use lock_testing::{RedisServer, Stopwatch, limit};

use crate::support::{MS, SECOND, exists, locks, take, warm};

/// The wait of what follows. Without a bound of its own, each would take the 5 s of a command.
const WAIT: Duration = Duration::from_millis(300);

/// Runs something whose wait is [`WAIT`].
async fn in_time<T>(what: &str, act: impl Future<Output = T>) -> T {
    let watch = Stopwatch::start();
    let outcome = act.await;
    watch.assert_within(WAIT * 3, what);
    outcome
}

/// Checks the error of a store that did not answer: it must not name a holder. A caller may have waited behind another caller of
/// this process whose request is being undone. It learns that a holder was not seen.
#[track_caller]
fn assert_is_away<T>(what: &str, outcome: Result<T, LockError>) {
    let Err(error) = outcome else { panic!("{what}: it was granted") };
    let text = error.to_string();
    let is_behind = error.kind() == LockErrorKind::Timeout && text.contains("no holder is known");
    assert!(error.kind() == LockErrorKind::Unavailable || is_behind, "{what}: {error}");
    assert!(!text.contains("a holder"), "{what}: {error}");
}

#[tokio::test]
#[limit]
async fn every_wait_ends_in_time_on_a_server_that_stands_still_and_says_so() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let members = [(); 3].map(|()| RedisServer::start());
    let stores = members.each_ref().map(|member| AnyBackend::new(RedisStore::new(&member.url()).unwrap()));
    let quorum = Quorum::of(stores).unwrap();
    quorum.init().await.unwrap();
    let quorum = LockManager::builder(quorum).build().unwrap();
    take(&quorum, "before").await.release().await.unwrap();
    let stock = locks.striped("stock", 4);
    stock.any().await.unwrap().release().await.unwrap();
    let guard = take(&locks, "held").await;
    for stalled in members.iter().chain([&server]) {
        stalled.pause();
    }

    assert_is_away("one key", in_time("one key", locks.lock("k").with_wait(WAIT).acquire()).await);
    let all = locks.lock_all(["a", "b", "c"]).with_wait(WAIT);
    assert_is_away("several keys", in_time("several keys", all.acquire()).await);
    let all = locks.lock_all(["a", "b", "c"]).with_wait(WAIT);
    assert_is_away("the same keys again", in_time("the same keys again", all.acquire()).await);
    assert_is_away("a reader", in_time("a reader", locks.read("r").with_wait(WAIT).acquire()).await);
    let any = stock.any().with_wait(WAIT);
    assert_is_away("any stripe", in_time("any stripe", any.acquire()).await);
    let any = stock.any().with_wait(WAIT);
    let blocking = tokio::task::spawn_blocking(|| any.acquire_blocking());
    assert_is_away("a thread", in_time("any stripe, on a thread", blocking).await.unwrap());
    assert_is_away("all stripes", in_time("all stripes", stock.all().with_wait(WAIT).acquire()).await);
    let error = in_time("a quorum", quorum.lock("k").with_wait(WAIT).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let report = in_time("a drain", locks.drain(WAIT)).await;
    assert!(!report.is_clean(), "{report:?}");
    let report = in_time("a shutdown", quorum.shutdown(WAIT)).await;
    assert!(report.unreleased.is_empty(), "{report:?}");
    for stalled in members.iter().chain([&server]) {
        stalled.resume();
    }
    drop(guard);
}

#[tokio::test]
#[limit]
async fn any_of_many_stripes_that_are_all_held_ends_with_its_wait() {
    let server = RedisServer::start();
    let held = "for i = 0, 4095 do redis.call('SET', 'stock#' .. i, 'somebody', 'PX', 600000) end";
    server.command(&["EVAL", held, "0"]);
    let locks = warm(&server.url()).await;
    let stock = locks.striped("stock", 4096);
    let error = in_time("4,096 held stripes", stock.any().with_wait(WAIT).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    // A waiter has at least half of its wait for the stripe that it chose, so it gets the released lock.
    let waiting = tokio::spawn(stock.any().with_wait(30 * SECOND).into_future());
    server.command(&["FLUSHALL"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// The settings that take any time, and the outcome if a setting is refused.
type Setting = (&'static str, fn(&str, Duration) -> Result<LockManager, LockError>);

fn built(url: &str, set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder) -> Result<LockManager, LockError> {
    set(LockManager::builder(RedisStore::new(url)?)).build()
}

const SETTINGS: [Setting; 9] = [
    ("ttl", |url, time| built(url, |locks| locks.with_ttl(time))),
    ("wait", |url, time| built(url, |locks| locks.with_wait(time))),
    ("renew", |url, time| built(url, |locks| locks.with_renew(Renew::Every(time)))),
    ("max_hold", |url, time| built(url, |locks| locks.with_max_hold(time))),
    ("min_hold", |url, time| built(url, |locks| locks.with_min_hold(time))),
    ("stuck_after", |url, time| built(url, |locks| locks.with_stuck_after(time))),
    ("handoff_slice", |url, time| built(url, |locks| locks.handoff_slice(time))),
    ("connect_timeout", |url, time| {
        LockManager::builder(RedisStore::builder(url).connect_timeout(time).build()?).build()
    }),
    ("max_ttl", |url, time| {
        let members = (1..=3).map(|db| RedisStore::new(&format!("{url}/{db}")).map(AnyBackend::new));
        let quorum = Quorum::of(members.collect::<Result<Vec<_>, _>>()?)?.with_max_ttl(time)?;
        LockManager::builder(quorum).with_ttl(SECOND).build()
    }),
];

#[tokio::test]
#[limit]
async fn no_time_that_is_set_makes_anything_panic_or_spin() {
    let server = RedisServer::start();
    let commands = || {
        let stats = server.command(&["INFO", "stats"]).text().to_owned();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let times =
        [Duration::ZERO, Duration::from_nanos(1), MS, 50 * MS, SECOND, MAX_TTL, MAX_TTL + SECOND, Duration::MAX];
    for (name, set) in SETTINGS {
        for time in times {
            let locks = match set(&server.url(), time) {
                Ok(locks) => locks,
                Err(error) => {
                    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{name} {time:?}: {error}");
                    assert!(error.to_string().contains(name) || name == "renew", "{name} {time:?}: {error}");
                    continue;
                }
            };
            let wrong = |error: &LockError| error.to_string().contains("keeper");
            let one = locks.lock("k").without_waiting().await;
            assert!(!one.as_ref().is_err_and(wrong), "{name} {time:?}: {one:?}");
            let (before, since) = (commands(), tokio::time::Instant::now());
            tokio::time::sleep(300 * MS).await;
            // As many as the shortest interval of renewals, and what fresh connections ask: a loop sends 2,500 a second.
            let most = 200 + u64::try_from(since.elapsed().as_millis()).unwrap() / 4;
            let sent = commands() - before;
            assert!(sent <= most, "{name} {time:?}: {sent} commands in {:?}", since.elapsed());
            drop(one);
            // The keeper is alive.
            let two = locks.lock(format!("{name} {time:?}")).without_waiting().await;
            assert!(!two.as_ref().is_err_and(wrong), "{name} {time:?}: {two:?}");
            drop(two);
            locks.shutdown(SECOND).await;
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
#[limit]
async fn times_of_requests_have_limits_that_their_errors_say() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let guard = take(&locks, "k").await;
    for time in [Duration::ZERO, Duration::from_nanos(1), 34 * 24 * 3600 * SECOND, Duration::MAX] {
        let refused = [
            guard.extend(time).await,
            locks.elect("e").with_ttl(time).campaign().await.map(drop),
            locks.lock("j").at_most_every(time).run(async |_| Ok(())).await.map(drop),
        ];
        for outcome in refused {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{time:?}: {error}");
            assert!(error.to_string().contains("use "), "{time:?}: {error}");
        }
    }
    guard.release().await.unwrap();
    assert!(!exists(&server, "k"));
    // The longest there is: it ends when all is done.
    assert!(locks.drain(Duration::MAX).await.is_clean());
}
