//! Takes a lock: creates its Lease, or updates the Lease that was read.
//!
//! A claim becomes a holder in no other way. An update is refused by the `resourceVersion` in it if anybody has written since, so what this process
//! believes of a Lease may be old, and costs a request at most.

use std::sync::Arc;

use lock_store::thread::LAST;
use lock_store::{AcquireRequest, Attempt, Claim, LockError, LockErrorKind, Release, Result, Timestamp};

use crate::calls::change::{TRIES, never_quiet};
use crate::calls::release::release;
use crate::calls::wait::withdraw;
use crate::known::{Seen, Standing};
use crate::names::lease_of;
use crate::record::Record;
use crate::shared::{Shared, check_key};

/// One attempt of a claim.
struct Attempting<'a> {
    shared: &'a Arc<Shared>,
    request: &'a AcquireRequest,
    name: String,
    until: Timestamp,
}

/// Takes the lock before `until`, or says what is in the way.
pub(crate) async fn acquire(shared: Arc<Shared>, request: AcquireRequest, until: Timestamp) -> Result<Attempt> {
    let (shared, request, claim) = (&shared, &request, &request.claim);
    let attempting = Attempting { shared, request, name: lease_of(&claim.key), until };
    let attempt = attempting.run().await;
    let is_granted = matches!(attempt, Ok(Attempt::Granted { .. }));
    if !matches!(attempt, Ok(Attempt::Queued { .. })) {
        let was_announced = shared.waiters.leave(&attempting.name, claim.owner) == Some(true);
        // The write of a grant has removed the announcement.
        if was_announced && !is_granted {
            shared.runtime.spawn(withdraw(Arc::clone(shared), claim.key.clone(), claim.owner));
        }
    }
    if shared.now() <= until || !is_granted {
        return attempt;
    }
    // Its caller counts it as not executed from now on.
    undo(shared, claim).await;
    Err(LockError::unavailable(format!(
        "the API server answered only after {:?}, and the claim was undone",
        request.execute_within
    )))
}

/// Gives back what an attempt has taken, as far as a few seconds allow. The rest ends by itself.
pub(crate) async fn undo(shared: &Arc<Shared>, claim: &Claim) {
    let until = shared.now().after(claim.ttl.min(LAST));
    if let Err(error) = release(shared, &Release::new(claim.clone()), until).await {
        tracing::debug!(%error, "a lock that nobody wants any more ends after its ttl");
    }
}

impl Attempting<'_> {
    async fn run(&self) -> Result<Attempt> {
        let (shared, claim) = (self.shared, &self.request.claim);
        let connection = shared.api.connection(self.until).await?;
        shared.api.check_version(&connection)?;
        let is_settled = shared.claims.unsettled(claim.owner).is_none();
        if self.may_wait() {
            // Before the Lease is looked at, so that no release goes unheard.
            shared.waiters.enter(&self.name, claim.owner, &self.request.info, (shared.server_now(), shared.now()));
        }
        let mut seen = shared.known.get(&self.name).filter(|_| is_settled);
        if seen.is_none() && is_settled && !self.request.repeated {
            // Most likely there is none, and then one request is enough.
            match self.write(None).await {
                Ok(Some(attempt)) => return Ok(attempt),
                // A user who may not create a Lease may still use one that an operator has made.
                Err(error) if error.kind() == LockErrorKind::Misconfigured => {
                    let found = shared.read(&self.name, self.until).await?;
                    if found.record.is_none() {
                        return Err(error);
                    }
                    seen = Some(found);
                }
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..TRIES {
            let (now, is_known) = (shared.now(), seen.is_some());
            let found = match seen.take() {
                Some(known) => known,
                None => shared.read(&self.name, self.until).await?,
            };
            if let Some(record) = &found.record {
                check_key(record, &claim.key)?;
            }
            match found.standing(Some(claim.owner), now, shared.time()) {
                Standing::Taken(_) if is_known && !self.may_rely_on(&found, now) => {}
                Standing::Taken(_) => return Ok(self.taken(&found)),
                // Other processes go first, because this one has just had the lock.
                Standing::Free if self.may_wait() && shared.waiters.yields(&self.name, now) => {
                    return Ok(self.queued(&found));
                }
                Standing::Free | Standing::Own => {
                    if let Some(attempt) = self.write(found.record.as_deref()).await? {
                        return Ok(attempt);
                    }
                }
            }
        }
        Err(never_quiet())
    }

    /// Returns whether what is known says enough without a request. A claim that does not wait wants to know for certain.
    fn may_rely_on(&self, found: &Seen, now: Timestamp) -> bool {
        (self.request.ticket.is_some() || self.request.tentative) && self.shared.tells() && found.is_fresh(now)
    }

    /// Returns whether the claim may wait, and is told of changes.
    fn may_wait(&self) -> bool {
        self.request.ticket.is_some() && self.shared.tells()
    }

    fn taken(&self, found: &Seen) -> Attempt {
        self.shared.waiters.saw_another(&self.name, self.shared.now());
        if self.request.tentative {
            Attempt::Contended
        } else if self.may_wait() {
            self.queued(found)
        } else {
            Attempt::Held { holder: self.shared.in_the_way(found) }
        }
    }

    /// Says that the claim is among the waiters, in no order.
    fn queued(&self, found: &Seen) -> Attempt {
        self.shared.plan(&self.name);
        Attempt::Queued { holder: self.shared.in_the_way(found) }
    }

    /// Writes the claim into a new Lease, or into the one that was found. `None` if another client was first.
    async fn write(&self, found: Option<&Record>) -> Result<Option<Attempt>> {
        let (shared, AcquireRequest { claim, info, floor, .. }) = (self.shared, self.request);
        let blank = Record::blank(&claim.key);
        let found = found.unwrap_or(&blank);
        let lease = found.granted(claim, info, *floor, shared.server_now())?;
        let sent = shared.now();
        let before = shared.claims.send(claim.owner, found.version);
        let written = shared.api.write(&lease, self.until).await;
        match (&written, before) {
            // A write after an earlier one without an answer: the Lease is not any more what that one was based on.
            (Err(error), _) if error.is_ambiguous() => {}
            (Err(_), Some(before)) => drop(shared.claims.send(claim.owner, before)),
            (Ok(_), _) | (Err(_), None) => shared.claims.settle(claim.owner),
        }
        let Some(record) = written? else {
            if found.version > 0 {
                shared.waiters.lost(&self.name, shared.now());
            }
            return Ok(None);
        };
        let token = record.token()?;
        shared.waiters.won(&self.name);
        shared.note(&self.name, Some(Arc::clone(&record)), sent);
        let names = shared.claims.grant(claim.owner, record, sent.after(claim.ttl), shared.now());
        shared.note_names(names);
        Ok(Some(Attempt::Granted { token, lease: None }))
    }
}
