//! Garbage at every key of a lock, then everything that callers do with it: nothing hangs, nobody holds beside somebody
//! else, every error is typed and says what to do, and nothing stays for ever.
//!
//! `LOCK_STATE_SECONDS` says for how long, `LOCK_TEST_SEED` where it begins. A program that overwrites or removes the data of the present
//! holders takes the lock away from them, as a DEL does: they do not count any more.

mod garbage;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lock_core::inspect::{FleetReader, ScanOptions};
use lock_core::{LockError, LockErrorKind, LockGuard, LockKey, LockManager, LockRequest, Mode};
use lock_store::Freed;
use lock_testing::{RedisServer, Reply, limit};
use tokio::task::JoinHandle;

use crate::support::{LONG, MS, SECOND, figure, locks, seed};
use crate::wrong_state::garbage::Garbage;

/// The longest time of a call, for any content of the keys.
const PATIENCE: Duration = Duration::from_secs(20);

fn duration() -> Duration {
    let seconds = std::env::var("LOCK_STATE_SECONDS").ok();
    SECOND * seconds.map_or(5, |text| text.parse().unwrap_or_else(|error| panic!("LOCK_STATE_SECONDS: {error}")))
}

/// A claim that was granted the lock.
struct Held {
    guard: LockGuard,
    /// Whether what it had was overwritten since.
    robbed: bool,
}

impl Held {
    fn counts(&self) -> bool {
        !self.robbed && self.guard.ensure_held().is_ok()
    }
}

/// A claim that waits for it, and may have been granted it already.
struct Waiting {
    guard: JoinHandle<Result<LockGuard, LockError>>,
    robbed: bool,
}

/// One server, three processes, and the events of this round, for the reader of a failure.
struct World {
    server: RedisServer,
    fleet: FleetReader,
    managers: Vec<LockManager>,
    random: fastrand::Rng,
    held: Vec<Held>,
    waiting: Vec<Waiting>,
    /// The grants that were overwritten in this round. A process may pass one on, or share it, before it knows.
    lost: HashSet<u64>,
    told: Vec<String>,
    refused: usize,
    granted: usize,
}

const KEY: &str = "k";

/// Each grant has so many tokens, one for each holder in its process.
fn grant_of(guard: &LockGuard) -> u64 {
    guard.token().get() / 128
}

impl World {
    fn new(seed: u64) -> Self {
        let server = RedisServer::start();
        let managers = (0..3).map(|_| locks(&server)).collect();
        let fleet = FleetReader::new(&server.url()).unwrap();
        let (held, waiting, told) = (Vec::new(), Vec::new(), Vec::new());
        let random = fastrand::Rng::with_seed(seed);
        let lost = HashSet::new();
        Self { server, fleet, managers, random, held, waiting, lost, told, refused: 0, granted: 0 }
    }

    /// Does not wait longer than anything may take.
    async fn patiently<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        self.told.push(what.to_owned());
        let done = tokio::time::timeout(PATIENCE, work).await;
        done.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}\n{}", self.story()))
    }

    fn story(&self) -> String {
        self.told.join("\n")
    }

    /// Takes note of an error, which must say something.
    fn check(&mut self, error: &LockError) {
        self.refused += 1;
        let text = error.to_string();
        self.told.push(format!("  {:?}: {text}", error.kind()));
        let speaks_of_us = ["user_script", "script:", "attempt to", "nothing definite", "cannot be read", "WRONGTYPE"];
        let raw = speaks_of_us.iter().find(|word| text.contains(**word));
        assert!(raw.is_none(), "{text}\n{}", self.story());
        // The machine may stand still for longer than somebody waits.
        let is_late = ["did not answer within", "was reached only after"].iter().any(|word| text.contains(word));
        assert!(is_late || error.kind() != LockErrorKind::Unavailable, "{text}\n{}", self.story());
    }

    fn note<T>(&mut self, answer: Result<T, LockError>) -> Option<T> {
        answer.inspect_err(|error| self.check(error)).ok()
    }

    /// Takes note of a grant, which must fit to all others.
    fn grant(&mut self, guard: LockGuard, robbed: bool) {
        let robbed = robbed || self.lost.contains(&grant_of(&guard));
        if robbed {
            self.lost.insert(grant_of(&guard));
        }
        self.told.push(format!("  granted as {:?}", guard.mode()));
        self.granted += 1;
        self.held.push(Held { guard, robbed });
        let live: Vec<Mode> = self.held.iter().filter(|held| held.counts()).map(|held| held.guard.mode()).collect();
        let alone = live.iter().any(|mode| !mode.is_shared());
        let terms = live.iter().filter_map(|mode| match mode {
            Mode::Shared { units, limit } => Some((u64::from(*units), u64::from(*limit))),
            _ => None,
        });
        let (units, limit) = terms.fold((0, 0), |(units, limit), (more, other)| (units + more, limit.max(other)));
        assert!(!(alone && live.len() > 1) && units <= limit, "{live:?} at once\n{}", self.story());
    }

    fn request(&mut self) -> (LockRequest, String) {
        let (process, weight) = (self.random.usize(0..self.managers.len()), self.random.u32(1..3));
        let locks = &self.managers[process];
        let (request, what) = match self.random.u8(0..6) {
            0..2 => (locks.read(KEY), "read"),
            2 => (locks.semaphore(KEY, 3).with_weight(weight), "some of three permits"),
            3..5 => (locks.semaphore(KEY, 3), "one of three permits"),
            _ => (locks.write(KEY), "write"),
        };
        (request.with_ttl(LONG), format!("{process} wants to have {what}"))
    }

    async fn try_one(&mut self) {
        let (request, what) = self.request();
        let tried = self.patiently(&what, request.try_acquire()).await;
        if let Some(Some(guard)) = self.note(tried) {
            self.grant(guard, false);
        }
    }

    async fn lock_all(&mut self) {
        let locks = self.managers[self.random.usize(0..self.managers.len())].clone();
        let request = locks.lock_all([KEY, "other"]).with_ttl(LONG);
        let tried = self.patiently("try both", request.try_acquire()).await;
        if let Some(Some(guard)) = self.note(tried) {
            self.grant(guard, false);
        }
    }

    fn wait(&mut self) {
        let (request, what) = self.request();
        let request = request.with_wait(self.random.u32(1..200) * MS);
        self.told.push(format!("{what}, and waits"));
        self.waiting.push(Waiting { guard: tokio::spawn(request.acquire()), robbed: false });
    }

    /// Takes note of who has been granted it meanwhile, or of all who wait.
    async fn collect(&mut self, all: bool) {
        let (ended, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|one| all || one.guard.is_finished());
        self.waiting = waiting;
        let ended: Vec<Waiting> = ended;
        for one in ended {
            let acquired = self.patiently("who waited", one.guard).await.unwrap();
            if let Some(guard) = self.note(acquired) {
                self.grant(guard, one.robbed);
            }
        }
    }

    async fn leave(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let Held { guard, .. } = self.held.swap_remove(self.random.usize(0..self.held.len()));
        let what = format!("release {:?}", guard.mode());
        let released = self.patiently(&what, guard.release()).await;
        if let Err(error) = released
            && error.kind() != LockErrorKind::Lost
        {
            self.check(&error);
        }
    }

    /// Lengthens or softens what somebody has.
    async fn change(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.usize(0..self.held.len());
        let Held { guard, robbed } = self.held.swap_remove(at);
        let (mode, downgrades) = (guard.mode(), self.random.bool() && !guard.mode().is_shared());
        let changed = if downgrades {
            self.patiently("downgrade", guard.downgrade()).await.map(drop)
        } else {
            self.patiently(&format!("extend {mode:?}"), guard.extend(2 * LONG)).await.map(drop)
        };
        if let Err(error) = changed {
            // A robbed holder must learn of its loss.
            if error.kind() == LockErrorKind::Lost {
                assert!(robbed, "{error}\n{}", self.story());
            } else {
                self.check(&error);
            }
        }
        self.held.push(Held { guard, robbed });
    }

    async fn run_a_job(&mut self) {
        let locks = self.managers[0].clone();
        let job = locks.lock(KEY).with_ttl(LONG).at_most_every(SECOND);
        let robbed = std::mem::take(&mut self.held);
        let beside = robbed.iter().any(Held::counts);
        let ran = self.patiently("a job", job.run(async |_| Ok::<_, LockError>(()))).await;
        self.held = robbed;
        if let Some(ran) = self.note(ran) {
            assert!(ran.is_none() || !beside, "a job ran beside a holder\n{}", self.story());
        }
    }

    async fn look(&mut self) {
        let (key, locks) = (LockKey::new(KEY).unwrap(), self.managers[1].clone());
        let fleet = FleetReader::new(&self.server.url()).unwrap();
        let looked = async {
            let mut scan = fleet.scan(ScanOptions::new().with_prefix("k").with_foreign_prefix("k"));
            let all = [
                locks.holder(KEY).await.err(),
                locks.holders(KEY).await.err(),
                locks.elect(KEY).leader().await.err(),
                fleet.entry(&key).await.err(),
                fleet.waiters(&key).await.err(),
                fleet.holders(&key).await.err(),
                fleet.job(&key).await.err(),
                scan.next().await.err(),
            ];
            all.into_iter().flatten().collect::<Vec<LockError>>()
        };
        for error in self.patiently("look", looked).await {
            self.check(&error);
        }
    }

    /// An operator takes it away from its holder.
    async fn take_away(&mut self) {
        let key = LockKey::new(KEY).unwrap();
        let work = async {
            let fleet = FleetReader::new(&self.server.url()).unwrap();
            let Ok(Some(entry)) = fleet.entry(&key).await else { return None };
            let holders = fleet.holders(&key).await.unwrap_or_default();
            let owner = holders.iter().find_map(|holder| holder.owner).or(entry.holder.owner);
            Some(match (owner, &entry.foreign_value) {
                (Some(owner), _) => fleet.release(&key, owner, "test", "test").await,
                (None, Some(value)) => fleet.release_foreign(&key, value, "test", "test").await,
                (None, None) => Ok(Freed::NotHeld),
            })
        };
        let released = tokio::time::timeout(PATIENCE, work).await.expect("an operator waits for nothing");
        self.told.push("an operator takes it away".to_owned());
        self.rob();
        if let Some(released) = released {
            self.note(released);
        }
    }

    async fn campaign(&mut self) {
        let election = self.managers[2].elect(KEY).with_ttl(LONG);
        let won = self.patiently("campaign", tokio::time::timeout(20 * MS, election.campaign())).await;
        let Ok(won) = won else { return };
        if let Some(leadership) = self.note(won) {
            assert!(!self.held.iter().any(Held::counts), "a leader beside a holder\n{}", self.story());
            self.patiently("resign", leadership.resign()).await.ok();
        }
    }

    fn rob(&mut self) {
        self.held.iter_mut().for_each(|held| held.robbed = true);
        self.lost.extend(self.held.iter().map(|held| grant_of(&held.guard)));
        self.waiting.iter_mut().for_each(|one| one.robbed = true);
    }

    /// Writes nonsense, always with an expiry. A key without an expiry afterwards has therefore lost it by this library.
    fn spoil(&mut self) {
        let garbage =
            Garbage::draw(&mut self.random, &self.server, KEY, !self.held.is_empty() || !self.waiting.is_empty());
        self.told.push(format!("{garbage:?}"));
        if garbage.robs {
            self.rob();
        }
        for command in &garbage.commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.server.command(&words);
        }
        for name in self.keys() {
            if self.server.command(&["PTTL", &name]) == Reply::Int(-1) {
                self.server.command(&["PEXPIRE", &name, "60000"]);
            }
        }
    }

    /// Every key but the clocks, which never end.
    fn keys(&self) -> Vec<String> {
        let Reply::List(keys) = self.server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
        let names = keys.iter().map(|key| key.text().to_owned());
        names.filter(|name| !name.starts_with("distributed-lock:clock")).collect()
    }

    async fn round(&mut self) {
        self.told.clear();
        self.lost.clear();
        for _ in 0..self.random.usize(4..16) {
            match self.random.u8(0..16) {
                0..4 => self.spoil(),
                4..7 => self.try_one().await,
                7..9 => self.wait(),
                9 => self.lock_all().await,
                10..12 => self.leave().await,
                12 => self.change().await,
                13 => self.look().await,
                14 => self.run_a_job().await,
                _ if self.random.bool() => self.take_away().await,
                _ => self.campaign().await,
            }
            self.collect(false).await;
            for name in self.keys() {
                let left = self.server.command(&["PTTL", &name]).int();
                assert!(left != -1, "{name} stays for ever\n{}", self.story());
            }
        }
        self.collect(true).await;
        while !self.held.is_empty() {
            self.leave().await;
        }
        // The entries that this library may not remove are gone, and so is a holder that never existed.
        let kinds = [("{k}@queue", "zset"), ("{k}@waiters", "hash"), ("distributed-lock:clock", "stream")];
        for (name, kind) in kinds {
            if self.server.command(&["TYPE", name]).text() != kind {
                self.server.command(&["DEL", name]);
            }
        }
        self.server.command(&["DEL", KEY]);
        for request in [self.managers[0].write(KEY), self.managers[1].read(KEY), self.managers[2].write(KEY)] {
            let guard = self.patiently("everything is well again", request.with_wait(PATIENCE / 2).acquire()).await;
            let guard = guard.unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
            guard.release().await.unwrap();
        }
        self.server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(3600)]
async fn garbage_at_the_keys_of_a_lock_makes_no_second_holder_and_stops_nobody() {
    let (seed, began, mut rounds) = (seed(), Instant::now(), 0);
    let mut world = World::new(seed);
    world.fleet.ping().await.unwrap();
    while began.elapsed() < duration() {
        world.round().await;
        rounds += 1;
    }
    figure("rounds, grants, refusals", (rounds, world.granted, world.refused));
    assert!(rounds > 0 && world.granted > 0, "it met hardly anything");
}
