//! In the simple case a lock is passed on by a few commands, otherwise by the whole queue. Both must
//! leave the same keys. A user who may not call HMGET gets the second way, so the two are compared side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockBackend as _, OwnerId, RedisStore};
use lock_store::{Attempt, Claim, Freed, Release, Ticket};
use lock_testing::{RedisServer, Reply, Report, Reports, limit};

use crate::redis_store::{claim, request};
use crate::support::listening;

const CLOCK: &str = "distributed-lock:clock";

/// Much shorter than what was there before, and longer than any stall.
const GRANT_TTL: Duration = Duration::from_secs(120);

/// One entry of a queue.
#[derive(Clone, Copy)]
struct Waiter {
    /// That of the claim that ends, whose answers were lost.
    own: bool,
    known: bool,
    listens: bool,
    stale: bool,
    reach: u8,
    mode: &'static str,
    /// In ms of server time.
    floor_ahead: i64,
}

const WAITS: Waiter =
    Waiter { own: false, known: true, listens: true, stale: false, reach: 0, mode: "", floor_ahead: -1000 };
const AWAY: Waiter = Waiter { listens: false, ..WAITS };
const GONE: Waiter = Waiter { stale: true, ..WAITS };
const READS: Waiter = Waiter { mode: "s1/2147483648|", ..WAITS };

/// The keys on the server when a claim ends.
#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    queue: &'static [Waiter],
    /// The end of the lock's value.
    name: &'static str,
    /// For how many ms the lock has passed on.
    passes_on_for: Option<i64>,
    /// Until when the lock is left free, and until when another client is expected, in ms from now; 0 for neither.
    others: Option<[i64; 2]>,
    /// The owner of the lock's value.
    holder: Holder,
    clock_ahead: bool,
    tells: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Holder {
    Mine,
    Foreign,
    Nobody,
}

const PLAIN: Case = Case {
    what: "one waits",
    queue: &[WAITS],
    name: "lock:<id>",
    passes_on_for: None,
    others: None,
    holder: Holder::Mine,
    clock_ahead: false,
    tells: true,
};

const CASES: [Case; 25] = [
    PLAIN,
    Case { what: "two wait", queue: &[WAITS, WAITS], ..PLAIN },
    Case { what: "nobody waits", queue: &[], ..PLAIN },
    Case { what: "it passes on", passes_on_for: Some(300), ..PLAIN },
    Case { what: "it has passed on for long", passes_on_for: Some(3000), ..PLAIN },
    Case { what: "it passes on, and the time stepped back", passes_on_for: Some(-60_000), ..PLAIN },
    Case { what: "a name like a time", name: "1790000000000000", ..PLAIN },
    Case { what: "a name like a time to come", name: "9990000000000000", ..PLAIN },
    Case { what: "another client is expected", others: Some([0, 20_000]), ..PLAIN },
    Case { what: "it does not wait yet", others: Some([0, 20_000]), passes_on_for: Some(-60_000), ..PLAIN },
    Case { what: "another client has waited", others: Some([0, 20_000]), passes_on_for: Some(300), ..PLAIN },
    Case { what: "a window was open", others: Some([-5, 0]), passes_on_for: Some(300), ..PLAIN },
    Case { what: "the first is gone", queue: &[GONE, WAITS], ..PLAIN },
    Case { what: "the first is away", queue: &[AWAY, WAITS], ..PLAIN },
    Case { what: "it asked again", queue: &[Waiter { reach: 2, ..AWAY }, WAITS], ..PLAIN },
    Case { what: "nothing is known of the first", queue: &[Waiter { known: false, ..WAITS }, WAITS], ..PLAIN },
    Case { what: "the first reads", queue: &[READS, WAITS], ..PLAIN },
    Case { what: "it stands in its own queue", queue: &[Waiter { own: true, ..WAITS }, WAITS], ..PLAIN },
    Case { what: "so it does, further back", queue: &[WAITS, Waiter { own: true, ..WAITS }], ..PLAIN },
    Case { what: "a token ahead of the time", queue: &[Waiter { floor_ahead: 60_000, ..WAITS }], ..PLAIN },
    Case { what: "a token of nonsense", queue: &[Waiter { floor_ahead: 9_000_000, ..WAITS }, WAITS], ..PLAIN },
    Case { what: "the clock is ahead, and used up", clock_ahead: true, ..PLAIN },
    Case { what: "somebody else's", holder: Holder::Foreign, ..PLAIN },
    Case { what: "nobody's", holder: Holder::Nobody, ..PLAIN },
    Case { what: "PUBLISH is refused", tells: false, ..PLAIN },
];

/// One server, and how it is reached: by who may do all, and by who may not call HMGET.
struct Bench {
    server: RedisServer,
    inbox: Arc<str>,
    stores: [[RedisStore; 2]; 2],
}

impl Bench {
    /// Starts a server, and listens for what waiters are told.
    async fn start() -> (Self, Reports) {
        let server = RedisServer::start();
        let (inbox, reports) = listening(&Arc::new(RedisStore::new(&server.url()).unwrap())).await;
        let store = |name: &str, without: &[&str]| {
            let rules = ["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"];
            let words: Vec<&str> = rules.into_iter().chain(without.iter().copied()).collect();
            assert_eq!(server.command(&words).text(), "OK");
            RedisStore::new(&format!("redis://{name}:secret@127.0.0.1:{}", server.port())).unwrap()
        };
        let stores = [
            [store("mute", &["-publish"]), store("mute-slow", &["-publish", "-hmget"])],
            [store("free", &[]), store("slow", &["-hmget"])],
        ];
        (Self { inbox: Arc::clone(inbox.id()), stores, server }, reports)
    }

    /// Server time in µs.
    fn now(&self) -> i64 {
        let Reply::List(time) = self.server.command(&["TIME"]) else { panic!("no time") };
        time[0].text().parse::<i64>().unwrap() * 1_000_000 + time[1].text().parse::<i64>().unwrap()
    }

    fn prepare(&self, case: &Case, key: &str, run: &Run) {
        let Run { owners, prepared: now } = *run;
        let (queue, waiters) = (format!("{{{key}}}@queue"), format!("{{{key}}}@waiters"));
        let own = owners[0].to_hex();
        let head = match case.holder {
            Holder::Mine => own.clone(),
            _ => "0123456789abcdef".repeat(2),
        };
        let passing = case.passes_on_for.map_or(String::new(), |ms| format!("|{}", now - ms * 1000));
        let value = format!("{head}|{}|60000|host|7|site|{}{passing}", now / 1000 - 500, case.name);
        if case.holder != Holder::Nobody {
            self.server.command(&["SET", key, &value, "PX", "600000"]);
        }
        for (place, waiter) in case.queue.iter().enumerate() {
            let owner = if waiter.own { own.clone() } else { owners[1 + place].to_hex() };
            self.server.command(&["ZADD", &queue, &(now + place as i64).to_string(), &owner]);
            let inbox = if waiter.listens { &*self.inbox } else { "nobody" };
            let Waiter { stale, reach, mode, floor_ahead, .. } = *waiter;
            let confirmed = if stale { now - 600_000_000 } else { now };
            let (ttl, floor) = (GRANT_TTL.as_millis(), now / 1000 + floor_ahead);
            let entry = format!(
                "distributed-lock:inbox:{inbox}|{place}|{confirmed}|{reach}|{ttl}|{mode}{floor}-3|60000|host|{place}|site|x"
            );
            if waiter.known {
                self.server.command(&["HSET", &waiters, &owner, &entry]);
            }
        }
        if let Some(times) = case.others {
            let [window, foreign] = times.map(|ms| if ms == 0 { 0 } else { now + ms * 1000 });
            self.server.command(&["HSET", &waiters, "others", &format!("{window}|{foreign}")]);
        }
        // As after every entry; else an open window would be all that they live for.
        self.server.command(&["PEXPIRE", &waiters, "600000"]);
        if case.clock_ahead {
            self.server.command(&["DEL", CLOCK]);
            self.server.command(&["XADD", CLOCK, &format!("{}-8191", now / 1000 + 60_000), "k", "v"]);
        }
    }

    /// Describes what lies on the server.
    fn left(&self, key: &str, run: &Run) -> String {
        let lasts = match self.server.command(&["PTTL", key]).int() {
            none @ ..0 => none.to_string(),
            ..=120_000 => "as granted".to_owned(),
            _ => "as before".to_owned(),
        };
        let lock = match self.server.command(&["GET", key]) {
            Reply::Text(value) => run.plain(&value),
            other => format!("{other:?}"),
        };
        let lines = |words: &[&str]| {
            let Reply::List(lines) = self.server.command(words) else { panic!("{words:?}") };
            lines.iter().map(|line| run.plain(line.text())).collect::<Vec<_>>()
        };
        let queue = lines(&["ZRANGE", &format!("{{{key}}}@queue"), "0", "-1"]);
        let waiters = lines(&["HGETALL", &format!("{{{key}}}@waiters")]);
        let mut waiters: Vec<_> = waiters.chunks(2).map(|pair| pair.join(" ")).collect();
        waiters.sort();
        format!("{lock}, {lasts}\nqueue {queue:#?}\nwaiters {waiters:#?}")
    }

    /// Waits for what was sent so far, and describes it.
    async fn told(&self, reports: &mut Reports, run: &Run) -> Vec<String> {
        let (last, mut told) = (OwnerId::random(), Vec::new());
        let channel = format!("distributed-lock:inbox:{}", self.inbox);
        self.server.command(&["PUBLISH", &channel, &format!("{}|again", last.to_hex())]);
        loop {
            match reports.next().await.unwrap() {
                Report::AskAgain(owner) if owner == last => return told,
                Report::AskAgain(owner) => told.push(run.plain(&format!("{}|again", owner.to_hex()))),
                Report::Granted(grant) => {
                    let (owner, ttl, stamp) = (grant.claim.owner.to_hex(), grant.claim.ttl, grant.stamp);
                    let ahead = grant.token.get() >> 20 > (run.prepared / 1000).unsigned_abs() + 30_000;
                    told.push(run.plain(&format!("{owner}|granted for {ttl:?}, asked at {stamp}, ahead: {ahead}")));
                }
                _ => {}
            }
        }
    }
}

/// The owners of one run, and when it began, in µs of server time.
struct Run {
    owners: [OwnerId; 4],
    prepared: i64,
}

impl Run {
    /// Replaces what differs from run to run.
    fn plain(&self, text: &str) -> String {
        let word = |part: &str| {
            let owner = self.owners.iter().position(|owner| owner.to_hex() == part);
            let after = |unit: i64| {
                let time = part.parse::<i64>().map(|time| (time - self.prepared / unit) * unit);
                time.map(|time| time.div_euclid(1_000_000))
            };
            // Each store has its own, from what it was granted before.
            if part
                .split_once('-')
                .is_some_and(|(ms, _)| ms.parse::<i64>().is_ok_and(|ms| ms < self.prepared / 1000 + 10_000))
            {
                return "a token".to_owned();
            }
            match (owner, after(1), after(1000)) {
                (Some(number), ..) => format!("owner {number}"),
                (_, Ok(0..10), _) | (_, _, Ok(0..10)) => "now".to_owned(),
                (_, Ok(25..45), _) => "in half a minute".to_owned(),
                _ => part.to_owned(),
            }
        };
        text.split('|').map(word).collect::<Vec<_>>().join("|")
    }
}

fn of(owner: OwnerId, key: &str) -> Claim {
    let mut claim = claim(key);
    claim.owner = owner;
    claim
}

/// Ends a claim, and queues anew with another if there is one. Returns what was answered.
async fn end(store: &RedisStore, ended: &Claim, next: Option<&Claim>, inbox: &Arc<str>) -> String {
    let release = Release::new(ended.clone());
    let Some(next) = next else { return format!("{:?}", store.release(&release).await) };
    let mut asked = request(next);
    asked.ticket = Some(Ticket::new(Arc::clone(inbox), 9, GRANT_TTL));
    match store.requeue(&release, &asked).await {
        Ok(Attempt::Granted { .. }) => "granted".to_owned(),
        Ok(Attempt::Queued { holder }) => {
            format!("queued behind|{}", holder.owner.map_or_else(String::new, OwnerId::to_hex))
        }
        other => format!("{other:?}"),
    }
}

#[tokio::test]
#[limit]
async fn few_commands_pass_a_lock_on_as_the_whole_queue_does() {
    let (bench, mut reports) = Bench::start().await;
    for (case, requeues) in CASES.iter().flat_map(|case| [(case, false), (case, true)]) {
        let what = format!("{}, {}", case.what, if requeues { "queues anew" } else { "released" });
        // A result does not count if its instants are too far apart.
        for attempt in 1.. {
            assert!(attempt < 50, "{what}: always interrupted");
            bench.server.command(&["FLUSHALL"]);
            let run = Run { owners: std::array::from_fn(|_| OwnerId::random()), prepared: bench.now() };
            let mut outcomes = Vec::new();
            for (store, key) in bench.stores[usize::from(case.tells)].iter().zip(["lock:one", "lock:two"]) {
                bench.prepare(case, key, &run);
                let [ended, next] = [run.owners[0], run.owners[3]].map(|owner| of(owner, key));
                let answer = end(store, &ended, requeues.then_some(&next), &bench.inbox).await;
                let told = bench.told(&mut reports, &run).await;
                outcomes.push(format!("{}\ntold {told:#?}\n{}", run.plain(&answer), bench.left(key, &run)));
            }
            if bench.now() - run.prepared <= 500_000 {
                assert!(outcomes[0] == outcomes[1], "{what}: {}\nbut should be: {}", outcomes[0], outcomes[1]);
                break;
            }
        }
    }
}

#[tokio::test]
#[limit]
async fn a_plain_hand_off_reads_nothing_twice_since_redis_7() {
    let (bench, mut reports) = Bench::start().await;
    let run = Run { owners: std::array::from_fn(|_| OwnerId::random()), prepared: bench.now() };
    bench.prepare(&PLAIN, "lock:one", &run);
    let store = &bench.stores[1][0];
    // The script is known from now on.
    store.release(&Release::new(claim("lock:other"))).await.unwrap();
    bench.server.command(&["CONFIG", "RESETSTAT"]);
    let ended = of(run.owners[0], "lock:one");
    assert_eq!(store.release(&Release::new(ended)).await.unwrap(), Freed::Released);
    let counted = bench.server.command(&["INFO", "commandstats"]);
    let calls: BTreeMap<&str, &str> = counted
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split(',').next()?.split_once(":calls="))
        .filter(|(name, _)| *name != "config|resetstat")
        .collect();
    // As many as it takes: each costs the server as much as everything else that the script does with its answer.
    let words = "evalsha exists getrange zrange hmget time pubsub|numsub xadd set publish zrem hdel";
    assert_eq!(calls, words.split(' ').map(|name| (name, "1")).collect());
    assert_eq!(bench.told(&mut reports, &run).await.len(), 1);
}
