//! From a request to its answer: which step is tried first, and what follows.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::coalesce::{Coalescer, Flush};
use crate::batch::exchange::{Answer, Call};
use crate::calls::durability::confirm;
use crate::calls::release::{End, free, may_grant, settle};
use crate::calls::run::{Operation, ask, clock_for};
use crate::error;
use crate::protocol::keys::hash_slot::slot_of;
use crate::protocol::steps::{self, Acquire, AcquireAll, Acquired, AcquiredAll, NodeTake, Taken};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{AcquireRequest, Attempt, AttemptAll, BoxFuture, Release};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Durability;
use lock_store::types::system::clock::{Clock, Timestamp};

/// How many locks one script takes: while it runs, the server serves nobody else.
const MOST: usize = 50;

/// Sends a claim, after the end of another if there is one.
pub(crate) struct TryAcquire<'a, 'r>(pub(crate) &'a AcquireRequest, pub(crate) Option<&'r Release>);

impl Operation for TryAcquire<'_, '_> {
    type Answer = Attempt;

    fn lock(&self) -> &LockKey {
        &self.0.claim.key
    }

    fn within(&self) -> Duration {
        self.0.execute_within
    }

    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<Attempt>> + Send {
        acquire(node, self.0, self.1, way)
    }

    fn at_master<'a>(&'a self, node: &'a Node, way: Way) -> BoxFuture<'a, Result<Attempt>> {
        let Self(request, before) = *self;
        match before {
            Some(release) if way.alone => Box::pin(async move {
                free(node, End::Release, release, way).await?;
                acquire_heard(node, request, None, Way { alone: false, ..way }).await
            }),
            _ => Box::pin(acquire_heard(node, request, before, way)),
        }
    }
}

/// Sends claims of several locks, which are at one server, or in one slot.
pub(crate) struct TryAcquireAll<'a>(pub(crate) &'a AcquireRequest, pub(crate) &'a [AcquireRequest]);

impl Operation for TryAcquireAll<'_> {
    type Answer = AttemptAll;

    fn lock(&self) -> &LockKey {
        &self.0.claim.key
    }

    fn within(&self) -> Duration {
        self.0.execute_within
    }

    async fn at(&self, node: &Node, way: Way) -> Result<AttemptAll> {
        // While a slot is being moved, each lock is followed by itself.
        if way == Way::default() { acquire_all(node, self.1).await } else { Ok(AttemptAll::Apart) }
    }
}

/// Sends a claim, together with the release of another if there is one.
///
/// Rarely needed state is on the heap, because this future is made for every lock.
pub(crate) async fn acquire(
    server: &Node,
    request: &AcquireRequest,
    before: Option<&Release>,
    way: Way,
) -> Result<Attempt> {
    let key = &request.claim.key;
    server.check(key)?;
    let begun = Clock::system().now();
    if let Some(before) = before {
        Box::pin(settle(server, before.claim.owner)).await?;
    }
    let (connection, begun_to_send) = match server.pool.open_connection(begun) {
        Some(connection) => (connection, begun),
        None => (Box::pin(server.pool.connection()).await?, Clock::system().now()),
    };
    if connection.link.refuses_release() {
        Box::pin(may_grant(server, &connection.link)).await?;
    }
    let in_cluster = connection.link.is_cluster();
    if before.is_none()
        && !request.claim.mode.is_shared()
        && !request.repeated
        && (in_cluster && way == Way::default() || connection.link.takes_natively())
        // A tentative caller has looked already.
        && (request.tentative || !server.collisions.is_contended(key))
    {
        if begun_to_send >= begun.after(request.execute_within) {
            return Err(too_late(server, request.execute_within));
        }
        let server_time = connection.link.time.estimate(begun_to_send);
        let call = if in_cluster {
            let left = begun.after(request.execute_within).since(begun_to_send);
            let deadline = connection.link.time.deadline(begun_to_send, left);
            Call::Attempt(NodeTake::new(request, server_time / 1000, deadline))
        } else {
            Call::Take(request.claim.owner, steps::take(request, server_time / 1000))
        };
        // Read before sending, because one draw may serve several locks.
        let known = server.floor_of(key).at_least(request.floor, server_time);
        let taken = match connection.call(call, Flush::Now).await {
            Answer::Taken(Taken::With(draw)) => match draw.token().filter(|token| *token > known) {
                Some(token) => {
                    server.floor_of(key).raise(token);
                    let attempt = Attempt::Granted { token, lease: None };
                    if request.claim.durability == Durability::Master {
                        return Ok(attempt);
                    }
                    return Box::pin(once_confirmed(server, attempt, &connection, request, begun)).await;
                }
                None => Taken::With(draw),
            },
            Answer::Taken(taken) => taken,
            Answer::Failed(why) => Taken::Refused(why),
            Answer::Value(_) => return Err(server.unreadable("acquire")),
        };
        return Box::pin(acquire_after(server, taken, &connection, request, begun, way)).await;
    }
    Box::pin(acquire_by_script(server, &connection, request, before, begun, way)).await
}

/// Acquires at a master of a cluster, without a place in the queue if what this master says would not be heard: then the caller polls, and
/// lets nobody in beside it.
pub(crate) async fn acquire_heard(
    server: &Node,
    request: &AcquireRequest,
    before: Option<&Release>,
    way: Way,
) -> Result<Attempt> {
    if server.is_heard(request) {
        let attempt = acquire(server, request, before, way).await?;
        if let (Attempt::Queued { .. } | Attempt::Asleep { .. }, Some(ticket), false) =
            (&attempt, &request.ticket, way.asking)
        {
            server.slot_inboxes.open(&ticket.inbox, slot_of(&request.claim.key));
        }
        return Ok(attempt);
    }
    let mut unheard = request.clone();
    unheard.ticket = None;
    match acquire(server, &unheard, before, way).await? {
        Attempt::Shared { token, .. } => Ok(Attempt::Shared { token, wanted: true }),
        attempt => Ok(attempt),
    }
}

/// Continues after a native attempt that did not grant the lock.
async fn acquire_after(
    server: &Node,
    taken: Taken,
    connection: &Arc<Coalescer>,
    request: &AcquireRequest,
    begun: Timestamp,
    way: Way,
) -> Result<Attempt> {
    let mut give_back = false;
    match taken {
        // The lock is taken. The script repeats the claim and corrects the clock.
        Taken::With(_) => give_back = true,
        Taken::Occupied => {
            server.collisions.note(&request.claim.key, Clock::system().now());
            if request.tentative {
                return Ok(Attempt::Contended);
            }
        }
        Taken::NoClock(why) => {
            free_taken(server, connection, request).await;
            return Err(error::no_clock(server.name(), &why));
        }
        Taken::Refused(why) if !connection.link.crosses(&why) => return Err(server.failed("acquire", &why)),
        // A proxy may hide that the servers behind it are a cluster. The script takes the clock of the slot.
        Taken::Refused(_) | Taken::Doubtful | Taken::NotExecuted => {}
    }
    let repeated = acquire_by_script(server, connection, request, None, begun, way).await;
    if give_back && repeated.is_err() {
        free_taken(server, connection, request).await;
    }
    repeated
}

async fn acquire_by_script(
    server: &Node,
    connection: &Arc<Coalescer>,
    request: &AcquireRequest,
    before: Option<&Release>,
    begun: Timestamp,
    way: Way,
) -> Result<Attempt> {
    let (link, keys) = (&connection.link, &server.keys_of(&request.claim.key)?);
    let ended = before.map(|before| before.claim.owner);
    while in_time(begun, request.execute_within) {
        let now = Clock::system().now();
        let left = begun.after(request.execute_within).since(now);
        let shares = request.claim.mode.is_shared() || before.is_some_and(|before| before.claim.mode.is_shared());
        let call = |clock: &str| {
            let call = Acquire {
                keys,
                clock,
                request,
                ended,
                deadline: link.time.deadline(now, left),
                floor: server.floor_of(&request.claim.key).at_least(request.floor, link.time.estimate(now)),
                history: link.history().map(|history| &**history),
            };
            if shares { steps::share::acquire(&call) } else { call.call() }
        };
        let has_time = request.asleep && before.is_none() && !shares && way == Way::default();
        let flush = if has_time { Flush::Soon } else { Flush::Now };
        let answer = ask(server, "acquire", connection, &request.claim.key, (way, flush), call).await?;
        if let Some(before) = before {
            server.repeats.note(before);
        }
        let received = Clock::system().now();
        let (server_time, answer) = Acquired::read(&answer).ok_or_else(|| server.unreadable("acquire"))?;
        link.time.observe(server_time, received);
        if let Acquired::Held(holder) | Acquired::Queued(holder) | Acquired::Asleep(holder, _) = &answer {
            server.collisions.note_holder(&request.claim.key, holder, received);
        }
        return match answer {
            Acquired::Granted(token) => {
                server.floor_of(&request.claim.key).raise(token);
                once_confirmed(server, Attempt::Granted { token, lease: None }, connection, request, begun).await
            }
            Acquired::Held(holder) => {
                if request.tentative {
                    server.collisions.note(&request.claim.key, received);
                }
                Ok(Attempt::Held { holder })
            }
            Acquired::Queued(holder) => Ok(Attempt::Queued { holder }),
            Acquired::Asleep(holder, pause) => {
                server.sleepers.note(received, pause);
                Ok(Attempt::Asleep { holder, pause })
            }
            Acquired::Shared { token, wanted } => {
                once_confirmed(server, Attempt::Shared { token, wanted }, connection, request, begun).await
            }
            // The answer also brought the server's time.
            Acquired::Stale => continue,
            refused => Err(refusal_of(server, request, refused)),
        };
    }
    Err(too_late(server, request.execute_within))
}

/// Answers a grant once it has arrived wherever the request wants it.
async fn once_confirmed(
    server: &Node,
    attempt: Attempt,
    connection: &Arc<Coalescer>,
    request: &AcquireRequest,
    begun: Timestamp,
) -> Result<Attempt> {
    all_confirmed(server, connection, std::slice::from_ref(request), begun).await.map(|()| attempt)
}

/// Waits until grants have arrived wherever the first of their requests wants it. If that can never be, frees their locks.
async fn all_confirmed(
    server: &Node,
    connection: &Arc<Coalescer>,
    requests: &[AcquireRequest],
    begun: Timestamp,
) -> Result<()> {
    let left = begun.after(requests[0].execute_within).since(Clock::system().now());
    let confirmed = confirm(server, &connection.link, &requests[0].claim, left).await;
    if confirmed.as_ref().is_err_and(|error| error.kind() == LockErrorKind::Misconfigured) {
        for request in requests {
            free_taken(server, connection, request).await;
        }
    }
    confirmed
}

/// Frees the lock of a claim that took it but could not be granted. Otherwise the lock would
/// stay taken for the ttl.
async fn free_taken(server: &Node, connection: &Arc<Coalescer>, request: &AcquireRequest) {
    let answer = connection.call(Call::Release(request.claim.clone()), Flush::Now).await;
    if let Answer::Failed(error) = answer {
        tracing::debug!(node = server.name(), %error, "a lock that was taken without a token stays for its ttl");
    }
}

/// Takes all locks in one script. A single server does this for any keys. A node of a cluster
/// does it only for keys of one slot, and refuses others before it does anything.
pub(crate) async fn acquire_all(server: &Node, requests: &[AcquireRequest]) -> Result<AttemptAll> {
    let Some(first) = requests.first().filter(|_| requests.len() <= MOST) else { return Ok(AttemptAll::Apart) };
    let of = |request: &AcquireRequest| {
        server.keys_of(&request.claim.key).map_err(|error| error.with_key(&request.claim.key))
    };
    let keys = requests.iter().map(of).collect::<Result<Vec<_>>>()?;
    let callers_floor = requests.iter().map(|request| request.floor).max().unwrap_or_default();
    let begun = Clock::system().now();
    while in_time(begun, first.execute_within) {
        let connection = server.pool.connection().await?;
        let link = &connection.link;
        may_grant(server, link).await?;
        let now = Clock::system().now();
        let call = AcquireAll {
            keys: &keys,
            clock: &clock_for(&connection, &first.claim.key),
            requests,
            deadline: link.time.deadline(now, begun.after(first.execute_within).since(now)),
            floor: server.floor_of(&first.claim.key).at_least(callers_floor, link.time.estimate(now)),
        };
        let answer = match link.eval(&call.call()).await {
            Err(error) if link.crosses(&error) => continue,
            Err(error) if error.code() == Some("CROSSSLOT") => return Ok(AttemptAll::Apart),
            answer => answer.map_err(|error| server.failed("acquire", &error))?,
        };
        let received = Clock::system().now();
        let (server_time, answer) = AcquiredAll::read(&answer).ok_or_else(|| server.unreadable("acquire"))?;
        link.time.observe(server_time, received);
        let (index, why) = match answer {
            AcquiredAll::Granted(token) => {
                server.floor_of(&first.claim.key).raise(token);
                all_confirmed(server, &connection, requests, begun).await?;
                return Ok(AttemptAll::Granted { tokens: vec![token; requests.len()] });
            }
            AcquiredAll::Refused(index, why) => (index.min(requests.len() - 1), why),
        };
        return match why {
            Acquired::Stale => continue,
            Acquired::Held(holder) => {
                server.collisions.note_holder(&requests[index].claim.key, &holder, received);
                Ok(AttemptAll::Held { index, holder })
            }
            refused => Err(refusal_of(server, &requests[index], refused).with_key(&requests[index].claim.key)),
        };
    }
    Err(too_late(server, first.execute_within))
}

/// Describes an answer that took no lock.
pub(crate) fn refusal_of(server: &Node, request: &AcquireRequest, answer: Acquired) -> LockError {
    match answer {
        Acquired::Mistyped(name) => error::mistyped(&name),
        Acquired::Failed(text) => server.script_failed("acquire", &text),
        Acquired::FloorAhead => LockError::misconfigured(format!(
            "the newest token known, {}, lies more than an hour ahead of the time of {}, so no token can exceed it; \
             find out which resource stored it, and check the server's clock",
            request.floor,
            server.name(),
        )),
        _ => server.unreadable("acquire"),
    }
}

pub(crate) fn too_late(server: &Node, execute_within: Duration) -> LockError {
    LockError::not_executed(format!(
        "{} was reached only after the acquire's deadline of {execute_within:?}; it is stalled, or the ttl is too short \
         for this network",
        server.name(),
    ))
}

fn in_time(begun: Timestamp, execute_within: Duration) -> bool {
    Clock::system().now() < begun.after(execute_within)
}
