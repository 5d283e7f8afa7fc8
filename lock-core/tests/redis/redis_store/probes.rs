//! A probe holds nothing that applications share: its commands are bounded and block nobody, it writes nothing, and its sessions end.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use lock_core::inspect::{FleetReader, ScanOptions, Topology};
use lock_core::{LockKey, LockManager, Mode, RedisStore};
use lock_store::{Claim, Ticket};
use lock_testing::{RedisSentinels, RedisServer, limit};

use crate::redis_store::{TTL, granted, request};
use crate::support::{SECOND, eventually, figure};

/// How many keys, waiters or holders one command may touch at most.
const MOST: i64 = 1024;

/// How many waiters and holders of one lock there are: more than one command may touch.
const CROWD: usize = 1500;

/// Every command that a server executes, as it says itself. The commands of scripts are among them.
struct Monitor(Arc<Mutex<Vec<String>>>);

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("+OK"));
        let seen = Self(Arc::default());
        let hears = Arc::clone(&seen.0);
        std::thread::spawn(move || lines.for_each(|line| hears.lock().unwrap().push(line)));
        seen
    }

    /// Returns what was executed so far, and who asked. A command of this test is the last of it.
    async fn take(&self, server: &RedisServer) -> Vec<(String, Vec<String>)> {
        server.command(&["ECHO", "the end of a probe"]);
        eventually("the monitor has heard everything", || {
            self.0.lock().unwrap().iter().any(|line| line.contains("the end of a probe"))
        })
        .await;
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        let read = |line: &String| {
            let (_, rest) = line.split_once('[')?;
            let (who, words) = rest.split_once("] ")?;
            let words = words.trim_matches('"').split("\" \"").map(str::to_lowercase).collect();
            Some((who.rsplit(' ').next()?.to_owned(), words))
        };
        lines.iter().filter_map(read).filter(|(_, words): &(_, Vec<String>)| words[0] != "echo").collect()
    }
}

/// Says what is wrong with a command of a probe.
fn fault(words: &[String]) -> Option<&'static str> {
    let number = |word: Option<&String>| word.and_then(|word| word.parse::<i64>().ok());
    let after = |name: &str, step: usize| {
        words.iter().position(|word| word == name).map(|at| number(words.get(at + step)).unwrap_or(i64::MAX))
    };
    match &*words[0] {
        "keys" | "smembers" | "hgetall" | "hkeys" | "hvals" | "sort" | "sinter" | "sunion" | "hrandfield" => {
            Some("has no bound")
        }
        // For no replica it waits for nothing.
        "wait" if words[1] == "0" => None,
        "wait" | "waitaof" | "blpop" | "brpop" | "blmove" | "blmpop" | "bzpopmin" | "bzpopmax" | "bzmpop" | "watch"
        | "monitor" => Some("holds up its session"),
        // No session has this number.
        "client" if words[1] == "kill" && words.last() == Some(&i64::MAX.to_string()) => None,
        "client" if matches!(&*words[1], "pause" | "kill" | "reply" | "no-evict") => {
            Some("is about the sessions of others")
        }
        "debug" | "flushall" | "flushdb" | "save" | "shutdown" | "failover" => Some("is about the whole server"),
        "config" if words[1] != "get" => Some("is about the whole server"),
        "xread" | "xreadgroup" if words.iter().any(|word| word == "block") => Some("holds up its session"),
        "scan" | "hscan" | "sscan" | "zscan" if after("count", 1).unwrap_or(10) > MOST => Some("is of too many"),
        "zrange" | "zrangebyscore" | "zrevrangebyscore" => match after("limit", 2) {
            Some(limit) => (!(0..=MOST).contains(&limit)).then_some("is of too many"),
            None => {
                let (first, last) = (number(words.get(2))?, number(words.get(3))?);
                let is_open = (first < 0) != (last < 0) || last - first >= MOST;
                is_open.then_some("has no bound")
            }
        },
        "lrange" | "zrevrange" => {
            let (first, last) = (number(words.get(2))?, number(words.get(3))?);
            ((first < 0) != (last < 0) || last - first >= MOST).then_some("has no bound")
        }
        "mget" | "hmget" | "exists" | "del" if words.len() > usize::try_from(2 * MOST).unwrap() => {
            Some("is of too many")
        }
        // Its own lock, which a manager tries when it connects, and the clock of tokens.
        _ if words.get(1).is_some_and(|key| key.contains("distributed-lock:")) => None,
        "set" | "zadd" | "hset" | "xadd" | "sadd" | "expire" | "persist" | "rename" => Some("writes"),
        _ => None,
    }
}

/// A server with many keys, and with locks that many wait for and that many share.
async fn crowded() -> RedisServer {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    server.command(&["EVAL", "for i = 1, 20000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    granted(&store, &Claim::new(LockKey::new("waited for").unwrap(), TTL)).await;
    let ask = |n: usize| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut waits = request(&Claim::new(LockKey::new("waited for").unwrap(), TTL));
            waits.ticket = Some(Ticket::new("nobody".into(), n as u64, 60 * SECOND));
            lock_core::LockBackend::try_acquire(&*store, &waits).await.unwrap();
            let shares = Claim::new(LockKey::new("shared").unwrap(), TTL).with_mode(Mode::READ);
            lock_core::LockBackend::try_acquire(&*store, &request(&shares)).await.unwrap();
        })
    };
    for one in (0..CROWD).map(ask).collect::<Vec<_>>() {
        one.await.unwrap();
    }
    server
}

async fn walk(fleet: &FleetReader) {
    let mut scan = fleet.scan(ScanOptions::new());
    while scan.next().await.unwrap().is_some() {}
}

#[tokio::test]
#[limit(180)]
async fn a_probe_asks_little_at_a_time_writes_nothing_and_leaves_no_session() {
    let server = crowded().await;
    let monitor = Monitor::start(&server);
    let sessions = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    let [waited, shared] = ["waited for", "shared"].map(|key| LockKey::new(key).unwrap());
    // The sessions of the store that has made the crowd are gone.
    eventually("nobody else is connected", || sessions() <= 2).await;
    let before = server.command(&["DBSIZE"]).int();
    for probe in ["connect", "ping", "examine", "list", "show", "waiters", "holders", "jobs", "blocked", "topology"] {
        monitor.take(&server).await;
        let url = server.url();
        let fleet = FleetReader::new(&url).unwrap();
        match probe {
            "connect" => {
                LockManager::connect(&url).await.unwrap().shutdown(10 * SECOND).await;
            }
            "ping" => fleet.ping().await.unwrap(),
            "examine" => drop(fleet.examine().await),
            "list" => walk(&fleet).await,
            "show" => assert!(fleet.entry(&waited).await.unwrap().is_some()),
            "waiters" => assert!(fleet.waiters(&waited).await.unwrap().len() >= 1000),
            "holders" => assert!(fleet.holders(&shared).await.unwrap().len() >= 1000),
            "jobs" => assert!(fleet.job(&waited).await.unwrap().is_none()),
            "blocked" => assert!(fleet.blocked(&waited).await.unwrap().is_none()),
            _ => drop(Topology::read(&url).await.unwrap()),
        }
        drop(fleet);
        let asked = monitor.take(&server).await;
        let wrong: Vec<_> = asked.iter().filter_map(|(_, words)| fault(words).map(|fault| (fault, words))).collect();
        assert!(wrong.is_empty(), "{probe}: {wrong:#?}");
        let who: BTreeSet<&String> = asked.iter().map(|(who, _)| who).filter(|who| *who != "lua").collect();
        figure(&format!("{probe}: commands, sessions"), (asked.len(), who.len()));
        // A manager has a session that listens beside the one that asks.
        assert!(who.len() <= if probe == "connect" { 3 } else { 1 }, "{probe}: {who:?}");
        eventually("its sessions have ended", || sessions() <= 2).await;
        assert_eq!(server.command(&["DBSIZE"]).int(), before, "{probe} leaves no key behind");
    }
}

/// The question for the master is asked over a session of its own, which ends. One session to each sentinel may stay, to hear of failovers.
#[tokio::test]
#[limit]
async fn questions_to_sentinels_leave_no_sessions() {
    let sentinels = RedisSentinels::start();
    let sessions = || -> Vec<usize> {
        let at = |one: &RedisServer| {
            let list = one.command(&["CLIENT", "LIST"]);
            // Sentinels talk to each other by names that begin so.
            list.text().lines().filter(|line| !line.contains("name=sentinel-")).count()
        };
        sentinels.sentinels().iter().map(at).collect()
    };
    let before = sessions();
    let fleet = FleetReader::new(&sentinels.url()).unwrap();
    for _ in 0..10 {
        let locks = LockManager::connect(&sentinels.url()).await.unwrap();
        locks.lock("k").with_ttl(TTL).await.unwrap().release().await.unwrap();
        walk(&fleet).await;
        // The manager and the reader each have one that listens and one that asks. Sessions of the manager before may end later.
        let few = || sessions().iter().zip(&before).all(|(now, before)| now.saturating_sub(*before) <= 4);
        eventually("few sessions are open", few).await;
        locks.shutdown(10 * SECOND).await;
    }
    drop(fleet);
    eventually("its sessions have ended", || sessions().iter().zip(&before).all(|(now, before)| now <= before)).await;
}
