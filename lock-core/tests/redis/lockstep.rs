//! The same random commands to the scripts of Redis and to the memory store: every answer and every grant
//! must be the same.
//!
//! Tokens are compared by their order. Leases and places in the queue last either for the whole run, or so
//! short that the command is followed by a pause that outlasts them; so no answer depends on the moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{FencingToken, HolderInfo, LockBackend, LockError, LockKey, MemoryStore, Mode, OwnerId, RedisStore};
use lock_store::{AcquireRequest, Attempt, AttemptAll, Claim, Inbox, Release, SharedClaims, Ticket};
use lock_testing::{RedisServer, Reports, limit};
use tokio::task::JoinSet;

use crate::support::{listening, seed};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(600);

const ROUNDS: u64 = 8;
const COMMANDS: usize = 200;

/// A round that takes longer was held up by the machine: a queue that nobody confirms disappears after
/// 30 s.
const ROUND: Duration = Duration::from_secs(25);

/// After that long a stranger deletes every lock: a lock that passes from claim to claim for a second would be
/// left free for a moment, by the one store that has clients of other libraries.
const PASSING: Duration = Duration::from_millis(500);

/// One command, sent to both stores.
#[derive(Debug)]
enum Command {
    Acquire(AcquireRequest),
    All(Vec<AcquireRequest>),
    Requeue(Release, AcquireRequest),
    Renew(Vec<Claim>),
    Release(Release),
    Withdraw(Claim),
    Holder(LockKey),
    Holders(LockKey),
    /// A claim becomes one of another mode, this many numbers above its token.
    Downgrade(Claim, u64),
    /// A stranger deletes the key.
    Delete(LockKey),
    /// A pause in which everything short runs out.
    Pass,
}

/// An answer without the parts that differ between stores. A token is named by its place in the order of
/// its key.
type Answer = String;

/// One of the two stores, and what it has said.
struct Side<B> {
    store: Arc<B>,
    inbox: Inbox,
    reports: Reports,
    tokens: HashMap<LockKey, Vec<FencingToken>>,
    /// The newest token of each claim.
    newest: HashMap<OwnerId, FencingToken>,
}

impl<B: LockBackend> Side<B> {
    async fn start(store: Arc<B>) -> Self {
        let (inbox, reports) = listening(&store).await;
        Self { store, inbox, reports, tokens: HashMap::new(), newest: HashMap::new() }
    }

    /// Names a token by its place in the order of its key, in which it must come.
    fn place(&mut self, key: &LockKey, token: FencingToken) -> usize {
        let known = self.tokens.entry(key.clone()).or_default();
        known.iter().position(|other| *other == token).unwrap_or_else(|| {
            assert!(known.last() < Some(&token), "{}: {token} of {key} after {known:?}", self.store.kind());
            known.push(token);
            known.len() - 1
        })
    }

    fn attempt(&mut self, claim: &Claim, attempt: Attempt) -> Answer {
        let key = &claim.key;
        match attempt {
            Attempt::Granted { token, .. } => {
                self.newest.insert(claim.owner, token);
                format!("granted {}", self.place(key, token))
            }
            Attempt::Shared { token, wanted } => format!("shared {}, wanted: {wanted}", self.place(key, token)),
            Attempt::Held { holder } => format!("held by {:?}", holder.owner),
            Attempt::Queued { holder } => format!("queued behind {:?}", holder.owner),
            other => format!("{other:?}"),
        }
    }

    /// Addresses a request to this side's inbox.
    fn addressed(&self, request: &AcquireRequest) -> AcquireRequest {
        let mut request = request.clone();
        if let Some(ticket) = request.ticket.as_mut().filter(|ticket| &*ticket.inbox == "ours") {
            ticket.inbox = Arc::clone(self.inbox.id());
        }
        request
    }

    async fn execute(&mut self, command: &Command) -> Result<Answer, LockError> {
        let store = Arc::clone(&self.store);
        Ok(match command {
            Command::Acquire(request) => {
                let attempt = store.try_acquire(&self.addressed(request)).await?;
                self.attempt(&request.claim, attempt)
            }
            Command::All(requests) => match store.try_acquire_all(requests).await? {
                AttemptAll::Granted { tokens } => {
                    let mut places = Vec::new();
                    for (one, token) in requests.iter().zip(tokens) {
                        self.newest.insert(one.claim.owner, token);
                        places.push(self.place(&one.claim.key, token));
                    }
                    format!("granted {places:?}")
                }
                AttemptAll::Held { index, holder } => format!("{index} held by {:?}", holder.owner),
                other => format!("{other:?}"),
            },
            Command::Requeue(release, request) => {
                let attempt = store.requeue(release, &self.addressed(request)).await?;
                self.attempt(&request.claim, attempt)
            }
            Command::Renew(claims) => {
                // On a runtime without a keeper: that is by the script. Beside a keeper it is native, and a
                // claim that lost its lock may lengthen the next lease once.
                let claims = claims.clone();
                let renewing = tokio::task::spawn_blocking(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(async { store.renew(&claims).await })
                });
                let answers: Result<Vec<_>, _> = renewing.await.unwrap().into_iter().collect();
                format!("{:?}", answers?)
            }
            Command::Release(release) => format!("{:?}", store.release(release).await?),
            Command::Withdraw(claim) => format!("{:?}", store.withdraw(claim).await?),
            Command::Holder(key) => format!("{:?}", store.holder(key).await?.map(|holder| holder.owner)),
            Command::Holders(key) => {
                let holders = store.shared().unwrap().holders(key).await?;
                let mut owners: Vec<_> = holders.iter().map(|holder| holder.owner.map(OwnerId::to_hex)).collect();
                owners.sort();
                format!("{owners:?}")
            }
            Command::Downgrade(claim, by) => {
                let token = self.newest.get(&claim.owner).map_or(0, |token| token.get());
                format!("{:?}", store.shared().unwrap().downgrade(claim, FencingToken::new(token + by)).await?)
            }
            Command::Delete(_) | Command::Pass => String::new(),
        })
    }
}

/// Draws the commands of one round.
struct Script {
    random: fastrand::Rng,
    keys: Vec<LockKey>,
    claims: Vec<Claim>,
    /// Whether claims may share a lock.
    modes: bool,
}

impl Script {
    fn key(&mut self) -> LockKey {
        self.keys[self.random.usize(0..self.keys.len())].clone()
    }

    fn new_claim(&mut self, key: LockKey, ttl: Duration) -> Claim {
        let claim = Claim::new(key, ttl).with_mode(self.mode());
        self.claims.push(claim.clone());
        claim
    }

    fn mode(&mut self) -> Mode {
        match self.random.u8(0..if self.modes { 10 } else { 4 }) {
            0..4 => Mode::Exclusive,
            4..7 => Mode::READ,
            _ => {
                let limit = self.random.u32(2..=4);
                Mode::permits(self.random.u32(1..=2), limit).unwrap()
            }
        }
    }

    /// Draws a claim that has been used, most likely not long ago.
    fn old_claim(&mut self) -> Claim {
        let back = self.random.usize(0..self.claims.len().min(12));
        self.claims[self.claims.len() - 1 - back].clone()
    }

    fn request(&mut self, claim: Claim, grant_ttl: Duration) -> AcquireRequest {
        let mut request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "lockstep"));
        // Sent by the script, because a first attempt may pass a queue whose lock ended without a
        // release.
        request.repeated = true;
        let inbox = match self.random.u8(0..6) {
            0 | 1 => return request,
            2 => "nobody listens",
            _ => "ours",
        };
        request.ticket = Some(Ticket::new(inbox.into(), self.random.u64(1..1_000), grant_ttl));
        request
    }

    fn release(&mut self) -> Release {
        Release::new(self.old_claim())
    }

    /// Draws the next commands; anything short is followed by a pause.
    fn next(&mut self) -> Vec<Command> {
        let key = self.key();
        if self.modes && !self.claims.is_empty() {
            match self.random.u8(0..20) {
                0 => return vec![Command::Holders(key)],
                1 => {
                    let claim = self.old_claim().with_mode(Mode::READ);
                    return vec![Command::Downgrade(claim, self.random.u64(0..3))];
                }
                _ => {}
            }
        }
        match self.random.u8(0..if self.claims.is_empty() { 10 } else { 100 }) {
            0..30 => {
                let claim = self.new_claim(key, LONG);
                vec![Command::Acquire(self.request(claim, LONG))]
            }
            30..42 => {
                let claim = self.old_claim();
                vec![Command::Acquire(self.request(claim, LONG))]
            }
            42..48 => {
                let mut keys = self.keys.clone();
                self.random.shuffle(&mut keys);
                keys.truncate(self.random.usize(2..=3));
                let info = HolderInfo::new("here", 1, "lockstep");
                let ask = |key| {
                    let claim = Claim::new(key, LONG);
                    self.claims.push(claim.clone());
                    AcquireRequest::new(claim, info.clone())
                };
                vec![Command::All(keys.into_iter().map(ask).collect())]
            }
            48..56 => {
                let release = self.release();
                let claim = self.new_claim(release.claim.key.clone(), LONG);
                vec![Command::Requeue(release, self.request(claim, LONG))]
            }
            56..62 => vec![Command::Renew((0..3).map(|_| self.old_claim()).collect())],
            62..80 => vec![Command::Release(self.release())],
            80..87 => vec![Command::Withdraw(self.old_claim())],
            87..90 => vec![Command::Holder(key)],
            90..93 => vec![Command::Delete(key)],
            93 => {
                let claim = self.new_claim(key, SHORT);
                let mut request = self.request(claim, LONG);
                request.ticket = None;
                vec![Command::Acquire(request), Command::Pass]
            }
            94 => {
                let mut release = self.release();
                release.keep_for = SHORT;
                vec![Command::Release(release), Command::Pass]
            }
            _ => {
                let claim = self.new_claim(key, LONG);
                vec![Command::Acquire(self.request(claim, SHORT)), Command::Pass]
            }
        }
    }
}

/// Compares the stores through one random history. Returns false if the machine was too slow for it.
async fn round(server: Arc<RedisServer>, number: u64, seed: u64, modes: bool) -> bool {
    let started = Instant::now();
    let mut memory = Side::start(Arc::new(MemoryStore::new())).await;
    let mut redis = Side::start(Arc::new(RedisStore::new(&server.url()).unwrap())).await;
    let keys = (0..3).map(|key| LockKey::new(format!("{{{number}}}:{key}")).unwrap()).collect();
    let mut script = Script { random: fastrand::Rng::with_seed(seed ^ number), keys, claims: Vec::new(), modes };
    let mut history: Vec<String> = Vec::new();
    let mut deleted = Instant::now();
    while history.len() < COMMANDS {
        for command in script.next() {
            if deleted.elapsed() > PASSING {
                for key in &script.keys {
                    memory.store.steal(key);
                    server.command(&["DEL", key.as_str()]);
                }
                deleted = Instant::now();
                history.push("a stranger deletes every lock".to_owned());
            }
            if let Command::Delete(key) = &command {
                memory.store.steal(key);
                server.command(&["DEL", key.as_str()]);
            }
            if let Command::Pass = &command {
                tokio::time::sleep(SHORT + Duration::from_millis(50)).await;
            }
            let expected = memory.execute(&command).await.unwrap();
            let answer = redis.execute(&command).await;
            // A script that came too late must not be executed, and one round cannot tell when it came.
            if started.elapsed() > ROUND || answer.as_ref().is_err_and(|error| error.to_string().contains("deadline")) {
                println!("round {number} was stopped by the machine: {answer:?}");
                return false;
            }
            history.push(format!("{command:?}\n    {expected}"));
            let told = || format!("LOCK_TEST_SEED={seed}, round {number}:\n{}", history.join("\n"));
            let answer = answer.unwrap_or_else(|error| panic!("redis: {error}\n{}", told()));
            assert_eq!(answer, expected, "redis and memory, {}", told());
            while let Some(expected) = granted(&mut memory, Duration::ZERO).await {
                let grant = granted(&mut redis, Duration::from_secs(10)).await;
                assert_eq!(grant, Some(expected), "grants of redis and memory, {}", told());
            }
        }
    }
    assert_eq!(granted(&mut redis, Duration::from_millis(100)).await, None, "redis grants more, seed {seed}");
    true
}

/// Waits for the next grant through the queue, and names its token by its place.
async fn granted<B: LockBackend>(side: &mut Side<B>, within: Duration) -> Option<(LockKey, OwnerId, usize)> {
    let grant = tokio::time::timeout(within, side.reports.next_grant()).await.ok().flatten()?;
    let place = side.place(&grant.claim.key, grant.token);
    side.newest.insert(grant.claim.owner, grant.token);
    Some((grant.claim.key, grant.claim.owner, place))
}

#[tokio::test]
#[limit(120)]
async fn the_scripts_answer_as_the_memory_store_does() {
    let (server, seed) = (Arc::new(RedisServer::start()), seed());
    let mut rounds = JoinSet::new();
    for number in 0..ROUNDS {
        rounds.spawn(round(Arc::clone(&server), number, seed, number % 2 == 1));
    }
    let compared = rounds.join_all().await.into_iter().filter(|compared| *compared).count();
    assert!(compared > 0, "the machine was too slow for every round");
}
