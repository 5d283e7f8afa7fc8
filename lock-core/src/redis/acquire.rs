//! From a request to its answer: which step is tried first, and what follows.

use crate::backend::{AcquireRequest, Attempt, AttemptAll, Release};
use crate::clock::{Clock, Timestamp};
use crate::error::{LockError, LockErrorKind, Result};
use crate::redis::coalesce::{Coalescer, Flush};
use crate::redis::error;
use crate::redis::exchange::{Answer, Call};
use crate::redis::keys::{CLOCK, Keys};
use crate::redis::node::{Node, Way};
use crate::redis::steps::{self, Acquire, AcquireAll, Acquired, AcquiredAll, Taken};

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// How many locks one script takes: while it runs, the server serves nobody else.
const MOST: usize = 50;

impl Node {
    /// Sends a claim, together with the release of another if there is one.
    pub(super) async fn acquire(
        &self,
        request: &AcquireRequest,
        before: Option<&Release>,
        way: Way,
    ) -> Result<Attempt> {
        let keys = self.keys_of(&request.claim.key)?;
        let clock = Clock::system();
        let begun = clock.now();
        if let Some(before) = before {
            self.settle(before.claim.owner).await?;
        }
        let connection = self.pool.connection().await?;
        let attempt = self.acquire_over(&connection, &keys, request, before, begun, way).await?;
        if let Attempt::Granted { .. } = attempt {
            let left = begun.after(request.execute_within).since(clock.now());
            if let Err(error) = self.confirm(&connection.link, request.claim.durability, left).await {
                if error.kind() == LockErrorKind::Misconfigured {
                    self.give_back(&connection, keys, request).await;
                }
                return Err(error);
            }
        }
        Ok(attempt)
    }

    async fn acquire_over(
        &self,
        connection: &Arc<Coalescer>,
        keys: &Keys,
        request: &AcquireRequest,
        before: Option<&Release>,
        begun: Timestamp,
        way: Way,
    ) -> Result<Attempt> {
        let clock = Clock::system();
        let key = &request.claim.key;
        if before.is_none()
            && !request.repeated
            && connection.link.takes_natively()
            && !self.collisions.is_contended(key, begun)
        {
            let server_time = connection.link.time.estimate(clock.now());
            let call = Call::Take(request.claim.owner, steps::take(keys, request, server_time / 1000));
            // Read before sending, because one draw may serve several locks.
            let known = self.floor_of(keys).at_least(request.floor, server_time);
            if !in_time(begun, request.execute_within) {
                return Err(self.too_late(request.execute_within));
            }
            match connection.call(call, Flush::Now).await {
                Answer::Taken(Taken::With(draw)) => {
                    if let Some(token) = draw.token().filter(|token| *token > known) {
                        self.floor_of(keys).raise(token);
                        return Ok(Attempt::Granted { token });
                    }
                    // The lock is taken. The script repeats the claim and corrects the clock.
                    let repeated = self.acquire_by_script(connection, keys, request, None, begun, way).await;
                    if repeated.is_err() {
                        self.give_back(connection, keys.clone(), request).await;
                    }
                    return repeated;
                }
                Answer::Taken(Taken::Occupied) => self.collisions.note(key, clock.now()),
                Answer::Taken(Taken::Doubtful | Taken::NotExecuted) => {}
                Answer::Taken(Taken::NoClock(why)) => {
                    self.give_back(connection, keys.clone(), request).await;
                    return Err(error::no_clock(self.pool.node(), &why));
                }
                Answer::Taken(Taken::Refused(why)) | Answer::Failed(why) => return Err(self.failed("acquire", &why)),
                Answer::Value(_) => return Err(self.unreadable("acquire")),
            }
        }
        self.acquire_by_script(connection, keys, request, before, begun, way).await
    }

    async fn acquire_by_script(
        &self,
        connection: &Arc<Coalescer>,
        keys: &Keys,
        request: &AcquireRequest,
        before: Option<&Release>,
        begun: Timestamp,
        way: Way,
    ) -> Result<Attempt> {
        let link = &connection.link;
        let ended = before.map(|before| before.claim.owner);
        while in_time(begun, request.execute_within) {
            let now = Clock::system().now();
            let left = begun.after(request.execute_within).since(now);
            let call = Acquire {
                keys,
                clock: &clock_of(connection, keys),
                request,
                ended,
                deadline: link.time.deadline(now, left),
                floor: self.floor_of(keys).at_least(request.floor, link.time.estimate(now)),
            };
            let answer = match way.run(connection, call.call(), Flush::Now).await {
                Answer::Failed(error) if link.crosses(&error) => continue,
                Answer::Failed(error) => return Err(self.failed("acquire", &error)),
                Answer::Value(answer) => answer,
                Answer::Taken(_) => return Err(self.unreadable("acquire")),
            };
            if let Some(before) = before {
                self.freed(before);
            }
            let received = Clock::system().now();
            let (server_time, answer) = Acquired::read(&answer).ok_or_else(|| self.unreadable("acquire"))?;
            link.time.observe(server_time, received);
            return match answer {
                Acquired::Granted(token) => {
                    self.floor_of(keys).raise(token);
                    Ok(Attempt::Granted { token })
                }
                Acquired::Held(holder) => Ok(Attempt::Held { holder }),
                Acquired::Queued(holder) => Ok(Attempt::Queued { holder }),
                // The answer also brought the server's time.
                Acquired::Stale => continue,
                refused => Err(self.refused(request, refused)),
            };
        }
        Err(self.too_late(request.execute_within))
    }

    /// Frees the lock of a claim that took it but could not be granted. Otherwise the lock would
    /// stay taken for the ttl.
    async fn give_back(&self, connection: &Arc<Coalescer>, keys: Keys, request: &AcquireRequest) {
        let answer = connection.call(Call::Release(keys, request.claim.owner), Flush::Now).await;
        if let Answer::Failed(error) = answer {
            tracing::debug!(node = self.pool.node(), %error, "a lock that was taken without a token stays for its ttl");
        }
    }

    /// Takes all locks in one script. A single server does this for any keys. A node of a cluster
    /// does it only for keys of one slot, and refuses others before it does anything.
    pub(super) async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        let Some(first) = requests.first().filter(|_| requests.len() <= MOST) else { return Ok(AttemptAll::Apart) };
        let of = |request: &AcquireRequest| {
            self.keys_of(&request.claim.key).map_err(|error| error.with_key(&request.claim.key))
        };
        let keys = requests.iter().map(of).collect::<Result<Vec<_>>>()?;
        let callers_floor = requests.iter().map(|request| request.floor).max().unwrap_or_default();
        let begun = Clock::system().now();
        while in_time(begun, first.execute_within) {
            let connection = self.pool.connection().await?;
            let link = &connection.link;
            let now = Clock::system().now();
            let call = AcquireAll {
                keys: &keys,
                clock: &clock_of(&connection, &keys[0]),
                requests,
                deadline: link.time.deadline(now, begun.after(first.execute_within).since(now)),
                floor: self.floor_of(&keys[0]).at_least(callers_floor, link.time.estimate(now)),
            };
            let answer = match link.eval(&call.call()).await {
                Err(error) if link.crosses(&error) => continue,
                Err(error) if error.code() == Some("CROSSSLOT") => return Ok(AttemptAll::Apart),
                answer => answer.map_err(|error| self.failed("acquire", &error))?,
            };
            let received = Clock::system().now();
            let (server_time, answer) = AcquiredAll::read(&answer).ok_or_else(|| self.unreadable("acquire"))?;
            link.time.observe(server_time, received);
            let (index, why) = match answer {
                AcquiredAll::Granted(token) => {
                    self.floor_of(&keys[0]).raise(token);
                    let left = begun.after(first.execute_within).since(received);
                    if let Err(error) = self.confirm(link, first.claim.durability, left).await {
                        if error.kind() == LockErrorKind::Misconfigured {
                            for (keys, request) in keys.into_iter().zip(requests) {
                                self.give_back(&connection, keys, request).await;
                            }
                        }
                        return Err(error);
                    }
                    return Ok(AttemptAll::Granted { tokens: vec![token; requests.len()] });
                }
                AcquiredAll::Refused(index, why) => (index.min(requests.len() - 1), why),
            };
            return match why {
                Acquired::Stale => continue,
                Acquired::Held(holder) => Ok(AttemptAll::Held { index, holder }),
                refused => Err(self.refused(&requests[index], refused).with_key(&requests[index].claim.key)),
            };
        }
        Err(self.too_late(first.execute_within))
    }

    /// Describes an answer that took no lock.
    fn refused(&self, request: &AcquireRequest, answer: Acquired) -> LockError {
        match answer {
            Acquired::Mistyped(name) => error::mistyped(&name),
            Acquired::Failed(text) => self.script_failed("acquire", &text),
            Acquired::FloorAhead => LockError::misconfigured(format!(
                "the newest token known, {}, lies more than an hour ahead of the time of {}, so no token can exceed it; \
                 find out which resource stored it, and check the server's clock",
                request.floor,
                self.pool.node(),
            )),
            _ => self.unreadable("acquire"),
        }
    }

    fn too_late(&self, execute_within: Duration) -> LockError {
        LockError::not_executed(format!(
            "{} was reached only after the acquire's deadline of {execute_within:?}; it is stalled, or the ttl is too short \
             for this network",
            self.pool.node(),
        ))
    }
}

fn in_time(begun: Timestamp, execute_within: Duration) -> bool {
    Clock::system().now() < begun.after(execute_within)
}

/// Returns the key of the server's clock, or in a cluster, of the slot's clock.
fn clock_of(connection: &Coalescer, keys: &Keys) -> Cow<'static, str> {
    if connection.link.is_cluster() { keys.clock_of_slot() } else { CLOCK.into() }
}
