//! Takes a lock: creates its Lease, or updates the Lease that was read.
//!
//! A claim becomes a holder in no other way. An update is refused by the `resourceVersion` in it if anybody has written since, so what this process
//! believes of a Lease may be old, and costs a request at most.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use lock_store::{AcquireRequest, Attempt, Claim, LockError, LockErrorKind, Release, Result, Timestamp};

use crate::api::Written;
use crate::calls::change::{TRIES, never_quiet};
use crate::calls::release::release;
use crate::calls::wait::withdraw;
use crate::held::Based;
use crate::known::{Seen, Standing};
use crate::names::lease_of;
use crate::record::{Record, check_floor, created};
use crate::shared::{LAST, Shared, check_key};

/// One attempt of a claim.
struct Attempting<'a> {
    shared: &'a Arc<Shared>,
    request: &'a AcquireRequest,
    name: String,
    until: Timestamp,
}

/// Takes the lock before `until`, or says what is in the way.
pub(crate) async fn acquire(shared: &Arc<Shared>, request: &AcquireRequest, until: Timestamp) -> Result<Attempt> {
    let claim = &request.claim;
    check_floor(request.floor, &claim.key)?;
    let attempting = Attempting { shared, request, name: lease_of(&claim.key), until };
    let attempt = attempting.run().await;
    if matches!(attempt, Ok(Attempt::Granted { .. })) {
        // Its announcement was removed in the same write.
        shared.waiters.leave(&attempting.name, claim.owner);
    } else if !matches!(attempt, Ok(Attempt::Queued { .. }))
        && shared.waiters.leave(&attempting.name, claim.owner) == Some(true)
    {
        shared.spawn(withdraw(Arc::clone(shared), claim.key.clone(), claim.owner));
    }
    if shared.now() <= until || !matches!(attempt, Ok(Attempt::Granted { .. })) {
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
        if self.request.ticket.is_some() && shared.tells() {
            // Before the Lease is looked at, so that no release goes unheard.
            shared.waiters.enter(&self.name, claim.owner, &self.request.info, (shared.server_now(), shared.now()));
        }
        let mut seen = shared.known.get(&self.name).filter(|_| is_settled);
        if seen.is_none() && is_settled && !self.request.repeated {
            // Most likely there is none, and then one request is enough.
            match self.create().await {
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
                Standing::Free if self.others_first(now) => return Ok(self.queued(&found)),
                Standing::Free | Standing::Own => {
                    let attempt = match &found.record {
                        Some(record) => self.update(record).await?,
                        None => self.create().await?,
                    };
                    if let Some(attempt) = attempt {
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

    /// Returns whether other processes go first, because this one has just had the lock.
    fn others_first(&self, now: Timestamp) -> bool {
        let (shared, name) = (self.shared, &self.name);
        self.request.ticket.is_some() && shared.tells() && shared.waiters.yields(name, now)
    }

    fn taken(&self, found: &Seen) -> Attempt {
        let (shared, name) = (self.shared, &self.name);
        shared.waiters.saw_another(name, shared.now());
        if self.request.tentative {
            return Attempt::Contended;
        }
        if self.request.ticket.is_some() && shared.tells() {
            return self.queued(found);
        }
        Attempt::Held { holder: shared.in_the_way(found) }
    }

    /// Says that the claim is among the waiters, in no order.
    fn queued(&self, found: &Seen) -> Attempt {
        self.shared.plan(&self.name);
        Attempt::Queued { holder: self.shared.in_the_way(found) }
    }

    async fn create(&self) -> Result<Option<Attempt>> {
        let AcquireRequest { claim, info, floor, .. } = self.request;
        let lease = created(claim, info, *floor, self.shared.server_now())?;
        self.write(&lease, Based::Nothing).await
    }

    async fn update(&self, before: &Record) -> Result<Option<Attempt>> {
        let AcquireRequest { claim, info, floor, .. } = self.request;
        let lease = before.granted(claim, info, *floor, self.shared.server_now())?;
        self.write(&lease, Based::Version(before.version)).await
    }

    /// Writes the claim into the Lease. `None` if another client was first.
    async fn write(&self, lease: &Lease, based: Based) -> Result<Option<Attempt>> {
        let (shared, claim) = (self.shared, &self.request.claim);
        let sent = shared.now();
        let before = shared.claims.send(claim.owner, based);
        let written = match based {
            Based::Nothing => shared.api.create(lease, self.until).await,
            Based::Version(_) => shared.api.update(lease, self.until).await,
        };
        match (&written, before) {
            // A write after an earlier one without an answer: the Lease is not any more what that one was based on.
            (Err(error), _) if error.is_ambiguous() => {}
            (Err(_), Some(before)) => drop(shared.claims.send(claim.owner, before)),
            (Ok(_), _) | (Err(_), None) => shared.claims.settle(claim.owner),
        }
        let Written::Done(record) = written? else {
            if based != Based::Nothing {
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
