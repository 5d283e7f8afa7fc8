//! Processes, their claims, and what they may believe.

mod commands;
mod rare;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{LockBackend, LockKey, Mode};
use lock_store::{Claim, Inbox};
use lock_testing::{EventLog, Report, Reports, inbox};
use tokio::task::AbortHandle;

use crate::checker::judge::Eyes;
use crate::support::{MS, SECOND};

/// Short, so that leases end, and long enough for a busy machine to do something under one.
const TTL: Duration = Duration::from_millis(150);
/// The lease of a grant through the queue, and how often a waiter confirms its place.
pub(super) const GRANT: Duration = Duration::from_millis(120);
const BACKSTOP: Duration = Duration::from_millis(40);
/// How much earlier than the server's a lease ends here.
const MARGIN: Duration = Duration::from_millis(5);

struct Process<B> {
    number: usize,
    store: Arc<B>,
    inbox: Inbox,
    reports: Reports,
    driver: AbortHandle,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    /// Its answer was lost.
    Unknown,
    Held,
    /// Over, and not released.
    Ended,
}

/// A claim, and what its process knows of it.
#[derive(Clone, Debug)]
struct Wish {
    process: usize,
    claim: Claim,
    waits: bool,
    state: State,
    sent: Instant,
    /// The stamp of the last request that was answered.
    confirmed: u64,
    deadline: Instant,
    token: u64,
}

/// The facts about a claim that the judge needs.
pub(super) struct Seen {
    /// Whether a living process waits for it.
    pub(super) waits_alive: bool,
    /// Units and limit, if it shares.
    pub(super) terms: Option<(u32, u32)>,
}

pub(super) type Known = HashMap<String, Seen>;

/// A command about one claim.
#[derive(Clone, Debug)]
enum Command {
    /// After the end of another.
    Send(Option<Claim>),
    Free,
    Renew,
    Downgrade,
}

pub(super) struct World<F, B> {
    random: fastrand::Rng,
    store: F,
    eyes: Option<Eyes>,
    processes: Vec<Process<B>>,
    started: usize,
    wishes: Vec<Wish>,
    keys: [LockKey; 3],
    /// The newest token of each key, and whether it is a phase's.
    newest: HashMap<LockKey, (u64, bool)>,
    began: Instant,
    grants: usize,
    faults: bool,
    trace: Vec<String>,
}

impl<F: Fn() -> Arc<B>, B: LockBackend> World<F, B> {
    pub(super) async fn start(seed: u64, store: F, eyes: Option<Eyes>) -> Self {
        let keys = ["rw", "sem", "mix"].map(|name| LockKey::new(format!("{name}-{seed:x}")).unwrap());
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            store,
            eyes,
            processes: Vec::new(),
            started: 0,
            wishes: Vec::new(),
            keys,
            newest: HashMap::new(),
            began: Instant::now(),
            grants: 0,
            faults: true,
            trace: vec![format!("seed {seed}")],
        };
        for _ in 0..4 {
            world.start_process().await;
        }
        world
    }

    async fn start_process(&mut self) {
        let (store, (inbox, reports)) = ((self.store)(), inbox(EventLog::default()));
        let driver = tokio::spawn({
            let (store, inbox) = (Arc::clone(&store), inbox.clone());
            async move { store.drive(inbox).await }
        });
        while !inbox.is_open() {
            tokio::time::sleep(MS).await;
        }
        self.started += 1;
        let (number, driver) = (self.started, driver.abort_handle());
        self.processes.push(Process { number, store, inbox, reports, driver });
    }

    /// Ends all processes. Returns the eyes.
    pub(super) fn end(mut self) -> Option<Eyes> {
        self.processes.iter().for_each(|process| process.driver.abort());
        self.eyes.take()
    }

    /// Does something at random.
    pub(super) async fn step(&mut self) -> Result<(), String> {
        self.hear()?;
        let due = self.due();
        if let Some(at) = due.filter(|_| self.random.bool()) {
            return self.execute(at, Command::Send(None)).await;
        }
        let of = |state: State| -> Vec<usize> {
            (0..self.wishes.len()).filter(|at| self.wishes[*at].state == state).collect()
        };
        let (held, waiting, ended) = (of(State::Held), of(State::Waiting), of(State::Ended));
        let alone = |at: &usize| self.wishes[*at].claim.mode == Mode::Exclusive;
        let alone: Vec<usize> = held.iter().copied().filter(alone).collect();
        let what = self.random.u32(0..1000);
        let one = |random: &mut fastrand::Rng, of: &[usize]| (!of.is_empty()).then(|| of[random.usize(0..of.len())]);
        match what {
            0..150 if !ended.is_empty() => {
                let at = one(&mut self.random, &ended).unwrap_or_default();
                self.execute(at, Command::Free).await
            }
            0..400 if self.wishes.len() < 16 => {
                let process = self.random.usize(0..self.processes.len());
                let key = self.keys[self.random.usize(0..3)].clone();
                let at = self.wish(self.processes[process].number, key);
                self.execute(at, Command::Send(None)).await
            }
            400..980 => {
                let (of, command) = match what {
                    400..680 => (&held, Command::Free),
                    680..760 => (&held, Command::Renew),
                    760..810 => (&waiting, Command::Free),
                    810..890 => (&held, Command::Send(None)),
                    890..930 => (&alone, Command::Downgrade),
                    _ => {
                        let pause = [1, 4, 12, 40][self.random.usize(0..4)];
                        tokio::time::sleep(pause * MS).await;
                        return Ok(());
                    }
                };
                let Some(at) = one(&mut self.random, of) else { return Ok(()) };
                if !matches!(command, Command::Send(_)) {
                    return self.execute(at, command).await;
                }
                let before = self.wishes.swap_remove(at);
                let next = self.wish(before.process, before.claim.key.clone());
                self.wishes[next].waits = true;
                self.execute(next, Command::Send(Some(before.claim))).await
            }
            980..992 => {
                let killed = self.processes.swap_remove(self.random.usize(0..self.processes.len()));
                killed.driver.abort();
                self.wishes.retain(|wish| wish.process != killed.number);
                self.trace.push(format!("{:?} process {} is killed", self.began.elapsed(), killed.number));
                drop(killed);
                self.start_process().await;
                Ok(())
            }
            _ => {
                // Every lease ends.
                if self.random.u8(0..4) == 0 {
                    tokio::time::sleep(TTL + 10 * MS).await;
                }
                Ok(())
            }
        }
    }

    /// Lets nobody new come: everybody alive is served, and nothing is left.
    pub(super) async fn serve_all(&mut self) -> Result<usize, String> {
        let began = Instant::now();
        self.faults = false;
        while !self.wishes.is_empty() {
            self.hear()?;
            if began.elapsed() > 10 * SECOND {
                return Err(self.told("starved"));
            }
            let over = self.wishes.iter().position(|wish| matches!(wish.state, State::Held | State::Ended));
            match (over, self.due()) {
                (Some(at), _) => self.execute(at, Command::Free).await?,
                (None, Some(at)) => self.execute(at, Command::Send(None)).await?,
                (None, None) => tokio::time::sleep(MS).await,
            }
        }
        for key in self.keys.clone() {
            // The next claim that takes the lock removes the entries of dead claims.
            while let Some(eyes) = &mut self.eyes
                && !eyes.sees_nothing(key.as_str()).await
            {
                if began.elapsed() > 15 * SECOND {
                    return Err(self.told("something is left"));
                }
                tokio::time::sleep(20 * MS).await;
                let at = self.wish(self.processes[0].number, key.clone());
                self.wishes[at].claim.mode = Mode::Exclusive;
                self.wishes[at].waits = false;
                self.execute(at, Command::Send(None)).await?;
                if !self.wishes.is_empty() {
                    self.execute(0, Command::Free).await?;
                }
            }
        }
        Ok(self.grants)
    }

    /// Draws a claim that was not sent yet.
    fn wish(&mut self, process: usize, key: LockKey) -> usize {
        let random = &mut self.random;
        let kind = random.u8(0..100);
        let permits = |units, limit| Mode::permits(units, limit).unwrap();
        let mode = match key.as_str().split('-').next() {
            Some("rw") if kind < 35 => Mode::Exclusive,
            Some("rw") => Mode::READ,
            Some("sem") if kind < 85 => permits(if random.u8(0..4) == 0 { 2 } else { 1 }, 3),
            Some("sem") if kind < 93 => permits(1, 2),
            Some("mix") if (30..60).contains(&kind) => Mode::READ,
            Some("mix") if kind >= 60 => permits(random.u32(1..=2), random.u32(2..=4)),
            _ => Mode::Exclusive,
        };
        let (claim, now) = (Claim::new(key, TTL).with_mode(mode), Instant::now());
        let waits = random.u8(0..5) > 0;
        let (state, sent) = (State::Unknown, now);
        self.wishes.push(Wish { process, claim, waits, state, sent, confirmed: 0, deadline: now, token: 0 });
        self.wishes.len() - 1
    }

    /// Returns a claim that must confirm its place.
    fn due(&self) -> Option<usize> {
        let asks = |at: &usize| {
            let wish = &self.wishes[*at];
            matches!(wish.state, State::Waiting | State::Unknown) && wish.sent.elapsed() > BACKSTOP
        };
        (0..self.wishes.len()).filter(asks).min_by_key(|at| self.wishes[*at].sent)
    }

    fn known(&self) -> Known {
        let seen = |wish: &Wish| {
            let terms = if let Mode::Shared { units, limit } = wish.claim.mode { Some((units, limit)) } else { None };
            let waits_alive = wish.waits && matches!(wish.state, State::Waiting | State::Unknown);
            (wish.claim.owner.to_hex(), Seen { waits_alive, terms })
        };
        self.wishes.iter().map(seen).collect()
    }

    /// Executes a command, and looks at the keys before and after it.
    async fn execute(&mut self, at: usize, command: Command) -> Result<(), String> {
        let (key, known) = (self.wishes[at].claim.key.clone(), self.known());
        let before = if let Some(eyes) = &mut self.eyes { Some(eyes.look(key.as_str()).await) } else { None };
        let moves = matches!(command, Command::Send(_) | Command::Free | Command::Downgrade);
        let wish = &self.wishes[at];
        self.trace.push(format!("{:?} {command:?} of {wish:?}", self.began.elapsed()));
        let outcome = self.send(at, command).await;
        self.trace.push(format!("{:?} {outcome:?}", self.began.elapsed()));
        outcome.map_err(|why| self.told(&why))?;
        if let (Some(eyes), Some(before)) = (&mut self.eyes, before) {
            let after = eyes.look(key.as_str()).await;
            let mut found = after.is_sound().and_then(|()| after.follows(&before, &known));
            if moves {
                found = found.and_then(|()| after.moved_on(&before, &known));
            }
            found.map_err(|why| self.told(&why))?;
        }
        Ok(())
    }

    fn told(&self, why: &str) -> String {
        let from = self.trace.len().saturating_sub(60);
        format!("{why}\n{}\n{}", self.trace[0], self.trace[from..].join("\n"))
    }

    /// Takes note of what the store has sent. Messages come late, or not at all.
    fn hear(&mut self) -> Result<(), String> {
        let now = Instant::now();
        for wish in self.wishes.iter_mut().filter(|wish| wish.state == State::Held && wish.deadline <= now) {
            wish.state = State::Ended;
        }
        let mut heard = Vec::new();
        for process in &mut self.processes {
            if self.faults && self.random.u8(0..10) == 0 {
                continue;
            }
            while let Some(report) = process.reports.try_next() {
                heard.push(report);
            }
        }
        for report in heard {
            if self.faults && self.random.u8(0..30) == 0 {
                continue;
            }
            let find = |owner| self.wishes.iter().position(|wish| wish.claim.owner == owner);
            match report {
                Report::Granted(grant) => {
                    let Some(at) = find(grant.claim.owner) else { continue };
                    let wish = &mut self.wishes[at];
                    if !matches!(wish.state, State::Waiting | State::Unknown) || grant.stamp < wish.confirmed {
                        continue;
                    }
                    let deadline = self.began + Duration::from_micros(grant.stamp) + GRANT - MARGIN;
                    if deadline < now + GRANT / 3 {
                        // Too little is left to rely on: it asks again.
                        wish.sent = self.began;
                    } else {
                        self.trace.push(format!("{:?} heard {grant:?}", self.began.elapsed()));
                        self.granted(at, grant.token.get(), deadline).map_err(|why| self.told(&why))?;
                    }
                }
                Report::AskAgain(owner) => {
                    if let Some(at) = find(owner) {
                        self.wishes[at].sent = self.began;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
