//! The scripts of an older version beside today's code, at the same locks: each reads what the other writes.
//!
//! `tests/fixtures/0.1/reader` has the scripts of commit 8aad024, which a process of that time still runs. The functions here
//! read their answers as that process does.

use lock_core::{FencingToken, LockManager, OwnerId};
use lock_testing::{RedisServer, Reply, limit};

use super::server_ms;
use crate::support::{LONG, SECOND, eventually, locks};

macro_rules! part {
    ($name:literal) => {
        include_str!(concat!("../../fixtures/0.1/reader/", $name, ".lua"))
    };
}

const LIBRARY: &str = "local function library()\n";

/// A process of the older version.
struct Older<'a> {
    server: &'a RedisServer,
    owner: String,
    /// How it shares a lock: `s units/limit`.
    mode: &'static str,
}

const READ: &str = "s1/2147483648";
const TAIL: &str = "30000|older|4711|shop::old|lock:<name>";

impl<'a> Older<'a> {
    fn new(server: &'a RedisServer, mode: &'static str) -> Self {
        Self { server, owner: OwnerId::random().to_hex(), mode }
    }

    fn call(&self, script: &[&str], keys: &[&str], words: &[&str]) -> Reply {
        let (script, count) = (script.concat(), keys.len().to_string());
        let call = [&["EVAL", &*script, &*count], keys, words].concat();
        let answer = self.server.command(&call);
        assert!(!matches!(answer, Reply::Error(_)), "{words:?}: {answer:?}");
        answer
    }

    fn share(&self, key: &str, words: &[&str]) -> Reply {
        let script = [part!("clock"), LIBRARY, part!("queue"), part!("phase"), part!("share"), "end\n", part!("join")];
        let keys = [key, &format!("{{{key}}}@queue"), &format!("{{{key}}}@waiters"), "distributed-lock:clock"];
        self.call(&script, &keys, words)
    }

    fn deadline(&self) -> String {
        ((server_ms(self.server) + 60_000) * 1000).to_string()
    }

    /// Takes the lock, shared with others. Returns the token that it read.
    fn take(&self, key: &str) -> FencingToken {
        let answer = self.share(key, &["take", &self.owner, "30000", &self.deadline(), TAIL, "", "0-0", self.mode]);
        let Reply::List(parts) = &answer else { panic!("{answer:?}") };
        let token = parts[1].text().strip_prefix(['j', 'w']).and_then(token_of);
        token.unwrap_or_else(|| panic!("the older version cannot read this: {answer:?}"))
    }

    fn renew(&self, key: &str) -> i64 {
        self.share(key, &["renew", &self.owner, "30000"]).int()
    }

    /// Returns who shares the lock: each name of a call site, and for how long in ms.
    fn list(&self, key: &str) -> Vec<(String, i64)> {
        let answer = self.share(key, &["list"]);
        let Reply::List(parts) = &answer else { panic!("{answer:?}") };
        let now = parts[0].int() / 1000;
        let read = |holder: &[Reply]| {
            let score: f64 = holder[1].text().parse().unwrap();
            let entry: Vec<&str> = holder[2].text().split('|').collect();
            let _confirmed: u64 = entry[2].parse().unwrap();
            assert!(entry[5].starts_with('s') && holder[0].text().len() == 32, "{answer:?}");
            let _pid: u32 = entry[9].parse().unwrap();
            #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
            (entry[10].to_owned(), -score as i64 - now)
        };
        parts[1..].chunks(3).map(read).collect()
    }

    /// Gives the lock back. `units` is how much of it this process has: 0 for all of it.
    fn release(&self, key: &str, units: u32) {
        let library = [LIBRARY, part!("clock"), part!("queue"), part!("phase"), part!("free"), "end\n"].concat();
        let script = ["local guarded = pcall\n", &library, part!("pass"), part!("release")];
        let keys = [key, &format!("{{{key}}}@queue"), "distributed-lock:clock"];
        let head = format!("{}|", self.owner);
        let answer = self.call(&script, &keys, &["0", &head, &units.to_string()]);
        assert!(answer == Reply::Int(1) || answer == Reply::List(vec![Reply::Int(1)]), "{answer:?}");
    }

    /// Asks for the lock alone, without a place in its queue. Returns the token, or whose site holds it.
    fn acquire(&self, key: &str) -> Result<FencingToken, String> {
        let script = [part!("clock"), part!("queue"), part!("phase"), part!("pass"), part!("acquire")];
        let keys = [key, &format!("{{{key}}}@queue"), &format!("{{{key}}}@waiters"), "distributed-lock:clock"];
        let answer = self.call(&script, &keys, &[&self.owner, "30000", &self.deadline(), TAIL, "", "0-0"]);
        let Reply::List(parts) = &answer else { panic!("{answer:?}") };
        let text = parts[1].text();
        if let Some(id) = text.strip_prefix('g') {
            return Ok(token_of(&format!("{id}-0")).unwrap());
        }
        let held = text.strip_prefix('h').and_then(|rest| rest.split_once('|'));
        let (left, value) = held.unwrap_or_else(|| panic!("neither granted nor held: {answer:?}"));
        assert!((-1..=60_000).contains(&left.parse::<i64>().unwrap()), "{answer:?}");
        Err(site_of(value).unwrap_or_else(|| panic!("a foreign lock to the older version: {answer:?}")))
    }

    /// Asks who holds the lock.
    fn holder(&self, key: &str) -> String {
        let answer = self.call(&[part!("holder")], &[key], &[]);
        let Reply::List(parts) = &answer else { panic!("{answer:?}") };
        site_of(parts[0].text()).unwrap_or_else(|| panic!("a foreign lock to the older version: {answer:?}"))
    }
}

/// Reads the token of a phase, `ms-seq-number`.
fn token_of(text: &str) -> Option<FencingToken> {
    let (draw, number) = text.rsplit_once('-')?;
    let number: u64 = number.parse().ok().filter(|number| *number < 128)?;
    let (ms, seq) = draw.split_once('-')?;
    let (ms, seq): (u64, u64) = (ms.parse().ok()?, seq.parse().ok()?);
    (ms < 1 << 43 && seq < 1 << 13).then(|| FencingToken::new(((ms << 13) + seq) * 128 + number))
}

/// Reads the call site of who holds a lock, from its value. `None` for a client of another library.
fn site_of(value: &str) -> Option<String> {
    let mut parts = value.split('|');
    let owner = parts.next()?;
    let shared = owner.len() == 32 && owner.starts_with("shared");
    if !shared && (owner.len() != 32 || !owner.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        return None;
    }
    let since = parts.next()?;
    let _since: u64 = since.split_once('-').filter(|_| shared).map_or(since, |(ms, _)| ms).parse().ok()?;
    let _ttl: u64 = parts.next()?.parse().ok()?;
    let _host = parts.next()?;
    let _pid: u32 = parts.next()?.parse().ok()?;
    parts.next().map(str::to_owned)
}

fn free(server: &RedisServer, key: &str) -> bool {
    let keys = [key.to_owned(), format!("{{{key}}}@queue"), format!("{{{key}}}@waiters")];
    keys.iter().all(|key| server.command(&["EXISTS", key]) == Reply::Int(0))
}

/// As a failover does: the phase was drawn in another history than that of this server.
fn of_another_history(server: &RedisServer, key: &str) {
    let value = server.command(&["GET", key]).text().to_owned();
    let (begins, history) = value.rsplit_once('|').unwrap();
    assert!(history.parse::<u32>().is_ok(), "today's code tells the history at the end: {value}");
    let other = u32::from(history == "7") + 7;
    server.command(&["SET", key, &format!("{begins}|{other}"), "KEEPTTL"]);
}

fn semaphore(locks: &LockManager, key: &str) -> lock_core::LockRequest {
    locks.semaphore(key, 16).with_ttl(30 * SECOND).with_wait(LONG).with_site("shop::today")
}

#[tokio::test]
#[limit]
async fn permits_of_today_are_shared_with_an_older_version() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let (older, next) = (Older::new(&server, "s1/16"), Older::new(&server, "s1/16"));
    let guard = semaphore(&one, "k").await.unwrap();
    assert_eq!(older.take("k"), guard.token(), "all who share a lock have one token");
    assert_eq!(older.holder("k"), "shop::today");
    let mut sites: Vec<String> = older.list("k").into_iter().map(|(site, _)| site).collect();
    sites.sort();
    assert_eq!(sites, ["shop::old", "shop::today"]);
    assert_eq!(older.renew("k"), 1);
    // The phase outlives a failover: who comes next draws a new token, and all read it.
    of_another_history(&server, "k");
    let second = semaphore(&two, "k").await.unwrap();
    assert!(second.token() > guard.token());
    assert_eq!(next.take("k"), second.token());
    assert_eq!((older.renew("k"), next.renew("k")), (1, 1));
    guard.ensure_held().unwrap();
    older.release("k", 1);
    guard.release().await.unwrap();
    second.release().await.unwrap();
    next.release("k", 1);
    assert!(free(&server, "k"));
}

#[tokio::test]
#[limit]
async fn permits_of_an_older_version_are_shared_with_today() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let older = Older::new(&server, "s1/16");
    let token = older.take("k");
    let guard = semaphore(&locks, "k").await.unwrap();
    assert_eq!(guard.token(), token);
    assert_eq!(older.renew("k"), 1);
    older.release("k", 1);
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    assert!(free(&server, "k"));
}

#[tokio::test]
#[limit]
async fn readers_of_an_older_version_join_what_today_has_downgraded() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let (older, writes) = (Older::new(&server, READ), Older::new(&server, "x"));
    let writer = locks.write("k").with_ttl(30 * SECOND).with_site("shop::today").await.unwrap();
    assert_eq!(writes.acquire("k"), Err("shop::today".to_owned()));
    writer.downgrade().await.unwrap();
    assert_eq!(older.take("k"), writer.token());
    assert_eq!(writes.acquire("k"), Err("shop::today".to_owned()));
    // A writer of today waits for both of them, and is granted by the older version.
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.write("k").with_wait(LONG).await.unwrap() }
    });
    let waits = || server.command(&["ZCOUNT", "{k}@queue", "(0", "+inf"]) == Reply::Int(1);
    eventually("a writer waits", waits).await;
    assert_eq!(older.renew("k"), 2, "somebody waits");
    writer.release().await.unwrap();
    older.release("k", 1);
    let writer = waiting.await.unwrap();
    assert!(writes.acquire("k").is_err());
    writer.release().await.unwrap();
    assert!(writes.acquire("k").is_ok());
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    writes.release("k", 0);
    assert!(free(&server, "k"));
}

#[tokio::test]
#[limit]
async fn locks_that_pass_on_or_are_kept_are_read_by_an_older_version() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let older = Older::new(&server, "x");
    let lock = |locks: &LockManager| locks.lock("k").with_ttl(30 * SECOND).with_wait(LONG).with_site("shop::today");
    let guard = lock(&one).await.unwrap();
    let waiting = tokio::spawn(lock(&two).acquire());
    let waits = || server.command(&["ZCARD", "{k}@queue"]) == Reply::Int(1);
    eventually("another waits", waits).await;
    guard.release().await.unwrap();
    let passed_on = waiting.await.unwrap().unwrap();
    assert_eq!((older.holder("k"), older.acquire("k")), ("shop::today".to_owned(), Err("shop::today".to_owned())));
    passed_on.release().await.unwrap();
    lock(&one).with_min_hold(20 * SECOND).await.unwrap().release().await.unwrap();
    assert_eq!((older.holder("k"), older.acquire("k")), ("shop::today".to_owned(), Err("shop::today".to_owned())));
}
