//! Takes a lock, or a place in its queue.
//!
//! A claim makes a node with a sequence and then lists its directory, both in one session and so in this order. The first node of a
//! lock has it. If it is not the first, it stays as a place in the queue, or goes again.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{AcquireRequest, Attempt, Claim, Holder, LockError, Result, Ticket, Timestamp};
use zookeeper_client::{CreateMode, Error};

use crate::calls::token::token;
use crate::calls::wait::tend;
use crate::data::ClaimData;
use crate::error::of_request;
use crate::names::{KeyHash, Line};
use crate::places::{Known, Place};
use crate::session::{Session, acls, make, sleep};
use crate::shared::{Numbers, Shared};

/// How long a place is kept for a claim that is not told of its turn. It asks again at once, with a ticket, or may not have one.
const UNTOLD: Duration = Duration::from_secs(3);

/// One attempt of a claim.
struct Attempting<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session>,
    request: &'a AcquireRequest,
    hash: KeyHash,
    /// When it began here.
    began: Timestamp,
}

/// Takes the lock or a place in its queue before `until`.
pub(crate) async fn acquire(shared: Arc<Shared>, request: AcquireRequest, until: Timestamp) -> Result<Attempt> {
    let (shared, request, claim) = (&shared, &request, &request.claim);
    let session = &shared.session(until).await?;
    let attempting = Attempting { shared, session, request, hash: KeyHash::of(&claim.key), began: shared.now() };
    let attempt = attempting.run().await;
    if shared.now() <= until {
        return attempt;
    }
    // Its caller counts it as not executed from now on.
    undo(shared, session, claim).await;
    Err(LockError::unavailable(format!(
        "ZooKeeper answered only after {:?}, and the claim was undone",
        request.execute_within
    )))
}

/// Removes whatever an attempt has left.
pub(crate) async fn undo(shared: &Shared, session: &Session, claim: &Claim) {
    if let Some(place) = shared.places.end(claim.owner) {
        shared.remove(session, &place.path).await;
        shared.places.remove(claim.owner);
    }
}

impl Attempting<'_> {
    async fn run(&self) -> Result<Attempt> {
        let owner = self.request.claim.owner;
        if let Some(place) = self.shared.places.get(owner).filter(|place| place.session == self.session.id) {
            if let Some(attempt) = self.again(place).await? {
                return Ok(attempt);
            }
            // Its node is gone: it was taken away, or came too late.
            self.shared.places.remove(owner);
        }
        // A node whose removal was not answered must not stay beside the new one.
        undo(self.shared, self.session, &self.request.claim).await;
        self.enter().await
    }

    /// Makes the node of a claim that has none.
    async fn enter(&self) -> Result<Attempt> {
        let (Self { shared, session, request, hash, .. }, claim) = (self, &self.request.claim);
        if request.ticket.is_none() && !request.tentative {
            // A claim that does not wait writes nothing if the lock is taken.
            let mut line = shared.line(session, *hash).await?;
            if !line.claims.is_empty() {
                // The server may not know of an answered release yet. Behind a sync it does.
                let synced = session.client.sync(&shared.paths.locks);
                (_, line) = tokio::try_join!(async { synced.await.map_err(of_request) }, shared.line(session, *hash))?;
            }
            if !line.claims.is_empty() {
                return Ok(Attempt::Held { holder: shared.in_the_way(session, &claim.key, &line).await? });
            }
        }
        let (key, ttl, info) = (claim.key.clone(), claim.ttl, request.info.clone());
        let data = ClaimData { key, ttl, session: session.lasts, info };
        let (start, text) = (shared.paths.claim(*hash, claim.owner), data.write());
        let folder = shared.paths.shard(hash.shard());
        let options = CreateMode::EphemeralSequential.with_acls(acls(&shared.settings));
        let mut has_folder = false;
        let (created, standing) = loop {
            let sent = shared.now();
            // Sent in this order before the first answer, and executed in this order.
            let create = session.client.create(&start, &text, &options);
            let (created, standing) = tokio::join!(create, shared.standing(session, *hash));
            if let Ok((stat, _)) = &created {
                shared.note_written(session, sent, stat.ctime);
            }
            if matches!(created, Err(Error::NoNode)) && !std::mem::replace(&mut has_folder, true) {
                make(&session.client, &shared.settings, &folder).await.map_err(of_request)?;
                continue;
            }
            break (created, standing);
        };
        let path = created.as_ref().map_or_else(|_| start.clone(), |(_, sequence)| format!("{start}{sequence}"));
        let own = standing.as_ref().ok().and_then(|(line, _)| line.position(&path));
        let (stat, (line, numbers), at) = match (created, standing, own) {
            (Ok((stat, _)), Ok(standing), Some(at)) => (stat, standing, at),
            (created, standing, _) => {
                // Whether there is a node is found out before this claim is worked on again.
                self.settle().await;
                let error = created.err().or(standing.err());
                let removed = "the node of this claim was removed at once; an operator or another program did so";
                return Err(error.map_or_else(|| LockError::not_executed(removed), of_request));
            }
        };
        let waits = request.ticket.as_ref().map_or(claim.ttl, |ticket| ticket.grant_ttl);
        // A tentative claim has no holder to wait for, and its place counts from this answer, as in `waits`.
        let expires =
            if request.tentative { shared.now().after(UNTOLD.min(claim.ttl)) } else { self.began.after(waits) };
        // From now on, a release finds it, and it ends by itself.
        let (ticket, asked, floor) = (request.ticket.clone(), self.began, request.floor);
        let known = Known { path, session: session.id, data, granted: None, ticket, asked, floor, expires };
        shared.places.insert(claim.owner, Place::new(known));
        tend(shared, session, claim.owner, false);
        let is_kept = if at == 0 { self.is_kept(&line, stat.ctime).await } else { Ok(true) };
        if is_kept.as_ref().is_err_and(|error| !error.is_ambiguous()) {
            undo(shared, session, claim).await;
        }
        if !is_kept? {
            // Since this node was made, another may have come and gone that was granted the lock under a greater token than its number.
            let at = if numbers.0 == stat.czxid { stat.ctime } else { shared.server_now() };
            return self.granted(numbers, at).await;
        }
        if request.tentative {
            shared.note_contended(&claim.key);
            return Ok(Attempt::Contended);
        }
        if let Some(ticket) = request.ticket.as_ref().filter(|_| shared.inbox().is_some()) {
            return self.queued(&line, ticket).await;
        }
        undo(shared, session, claim).await;
        Ok(Attempt::Held { holder: shared.in_the_way(session, &claim.key, &line).await? })
    }

    /// Asks again for a claim that has a node. `None` if the node is gone.
    async fn again(&self, place: Known) -> Result<Option<Attempt>> {
        let (shared, session, claim) = (self.shared, self.session, &self.request.claim);
        let line = shared.line(session, self.hash).await?;
        let Some(at) = line.position(&place.path) else { return Ok(None) };
        // A server that is behind may still show the holder before.
        let is_first = place.granted.is_some() || (at == 0 && !self.is_kept(&line, shared.server_now()).await?);
        if !is_first {
            let Some(ticket) = self.request.ticket.as_ref().filter(|_| shared.inbox().is_some()) else {
                // It keeps its place for a while, although it cannot be told.
                return Ok(Some(Attempt::Held { holder: self.waits(&line, UNTOLD.min(claim.ttl)).await? }));
            };
            return self.queued(&line, ticket).await.map(Some);
        }
        match shared.rewrite(session, &place).await {
            Ok(stat) => self.granted((stat.mzxid, session.known_base()), stat.mtime).await.map(Some),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(of_request(error)),
        }
    }

    async fn is_kept(&self, line: &Line, now: i64) -> Result<bool> {
        Ok(line.kept && self.shared.kept(self.session, &self.request.claim.key, now).await?.is_some())
    }

    /// Notes the place in the queue, and has the claim told of its turn.
    async fn queued(&self, line: &Line, ticket: &Ticket) -> Result<Attempt> {
        self.shared.places.wait(self.request.claim.owner, ticket.clone(), self.began);
        tend(self.shared, self.session, self.request.claim.owner, true);
        Ok(Attempt::Queued { holder: self.waits(line, ticket.grant_ttl).await? })
    }

    /// Finds who is in the way, and keeps the place from that answer on. If its time counted from the request, it could end behind a
    /// slow server before the claim asks again, and the claim would begin anew at the end of the queue.
    async fn waits(&self, line: &Line, lasts: Duration) -> Result<Holder> {
        let (shared, claim) = (self.shared, &self.request.claim);
        let holder = shared.in_the_way(self.session, &claim.key, line).await;
        shared.places.keep(claim.owner, shared.now().after(lasts));
        holder
    }

    /// Notes a grant by a write of this attempt, and tells how long it is promised.
    async fn granted(&self, numbers: Numbers, at: i64) -> Result<Attempt> {
        let (shared, claim) = (self.shared, &self.request.claim);
        let ended = || LockError::not_executed("the claim has ended while it was granted");
        let place = Known { floor: self.request.floor, ..shared.places.get(claim.owner).ok_or_else(ended)? };
        let token = token(shared, self.session, &place, numbers).await;
        if token.as_ref().is_err_and(|error| !error.is_ambiguous()) {
            // Its caller counts a refusal, for example by a quota, as not executed.
            undo(shared, self.session, claim).await;
        }
        let token = token?;
        // If the session has ended meanwhile, its claims were lost, and this one came too late to be among them.
        if self.session.has_ended() || !shared.places.grant(claim.owner, token, at, self.began.after(claim.ttl)) {
            return Err(ended());
        }
        Ok(Attempt::Granted { token, lease: self.session.promised(claim.ttl) })
    }

    /// Finds out whether an unanswered request has made a node, and removes it. A later request of the session is executed after it,
    /// also over another connection: the servers refuse what is left of the old one.
    async fn settle(&self) {
        let (shared, session, owner) = (self.shared, self.session, self.request.claim.owner);
        while !session.has_ended() {
            // A read may be answered by a server that is behind. Behind a write of the same session it is not.
            let write = shared.write(session);
            let read = shared.line(session, self.hash);
            let (written, line) = tokio::join!(write, read);
            let written = written.map_err(of_request);
            match (written, line) {
                (Err(error), _) | (_, Err(error)) if error.is_transient() => sleep(Duration::from_millis(50)).await,
                // The servers agree on a refusal as on a write.
                (_, Ok(line)) => {
                    for name in line.names_of(owner) {
                        shared.remove(session, &shared.paths.beside(self.hash, name)).await;
                    }
                    return;
                }
                (_, Err(_)) => return,
            }
        }
    }
}
