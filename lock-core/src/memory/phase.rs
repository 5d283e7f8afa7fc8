//! A lock that several claims share.

use std::sync::Arc;
use std::time::Duration;

use crate::memory::{State, described};
use lock_store::contract::backend::{AcquireRequest, Claim, FleetHolder, Freed, Release, Renewal};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::{Holder, HolderInfo, OwnerId};
use lock_store::types::system::clock::Timestamp;

/// The time from the first shared grant of a lock until its last holder has gone.
#[derive(Debug)]
pub(super) struct Phase {
    /// The token of all its holders.
    token: FencingToken,
    /// The holder that began it.
    opener: HolderInfo,
    /// In the order in which they came.
    holders: Vec<Sharer>,
}

#[derive(Debug)]
struct Sharer {
    /// `None` while released units are kept for a `min_hold`.
    owner: Option<OwnerId>,
    info: HolderInfo,
    mode: Mode,
    /// The inbox through which its process hears of waiters. `None` if it does not listen.
    inbox: Option<Arc<str>>,
    since: Timestamp,
    expires: Timestamp,
}

impl Phase {
    fn sharer(&mut self, owner: OwnerId) -> Option<&mut Sharer> {
        self.holders.iter_mut().find(|sharer| sharer.owner == Some(owner))
    }

    /// Returns how many units are in use.
    pub(super) fn used(&self) -> u64 {
        let units = |mode| if let Mode::Shared { units, .. } = mode { u64::from(units) } else { 0 };
        self.holders.iter().map(|sharer| units(sharer.mode)).sum()
    }

    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.holders.iter().any(|sharer| sharer.expires > now)
    }

    /// Describes the whole phase by its opener.
    pub(super) fn holder(&self, now: Timestamp) -> Holder {
        let ends = self.holders.iter().map(|sharer| sharer.expires).max().unwrap_or(now);
        let mut holder = Holder::foreign(Some(ends.since(now)));
        (holder.info, holder.token, holder.shared) = (Some(self.opener.clone()), Some(self.token), true);
        holder
    }
}

impl State {
    /// Returns whether a claim of this mode can have the lock now. Expired leases must be removed first.
    pub(super) fn fits(&self, key: &LockKey, mode: Mode, now: Timestamp) -> bool {
        if self.locks.get(key).is_some_and(|slot| slot.expires > now) {
            return false;
        }
        match (self.phases.get(key), mode) {
            (None, Mode::Exclusive) => true,
            (None, Mode::Shared { units, limit }) => units <= limit,
            (Some(_), Mode::Exclusive) => false,
            (Some(phase), Mode::Shared { units, limit }) => phase.used() + u64::from(units) <= u64::from(limit),
        }
    }

    /// Removes the holders of a shared lock whose leases have expired. Returns whether any was removed. The queue must
    /// then move on, whatever the step was called for.
    pub(super) fn take_out(&mut self, key: &LockKey, now: Timestamp) -> bool {
        let Some(phase) = self.phases.get_mut(key) else { return false };
        let before = phase.holders.len();
        phase.holders.retain(|sharer| sharer.expires > now);
        let (left, ended) = (phase.holders.len(), phase.holders.len() < before);
        if left == 0 {
            self.phases.remove(key);
        }
        ended
    }

    /// Lets a claim that fits share the lock. Returns the token of the phase.
    pub(super) fn join(&mut self, request: &AcquireRequest, ttl: Duration, now: Timestamp) -> FencingToken {
        let AcquireRequest { claim, info, ticket, .. } = request;
        let sharer = Sharer {
            owner: Some(claim.owner),
            info: info.clone(),
            mode: claim.mode,
            inbox: ticket.as_ref().map(|ticket| Arc::clone(&ticket.inbox)),
            since: now,
            expires: now.after(ttl),
        };
        if let Some(phase) = self.phases.get_mut(&claim.key) {
            phase.holders.push(sharer);
            return phase.token;
        }
        let token = self.draw(request, now);
        self.locks.remove(&claim.key);
        self.phases.insert(claim.key.clone(), Phase { token, opener: info.clone(), holders: vec![sharer] });
        self.sweep(now);
        token
    }

    /// Extends the lease of a claim that already shares the lock. Returns the token of the phase.
    pub(super) fn confirm_shared(&mut self, claim: &Claim, now: Timestamp) -> Option<FencingToken> {
        let phase = self.phases.get_mut(&claim.key)?;
        let token = phase.token;
        let sharer = phase.sharer(claim.owner)?;
        sharer.expires = sharer.expires.max(now.after(claim.ttl));
        Some(token)
    }

    pub(super) fn renew_shared(&mut self, claim: &Claim, now: Timestamp) -> Renewal {
        let ended = self.take_out(&claim.key, now);
        let known = claim.token != FencingToken::default();
        let other = self.phases.get(&claim.key).is_some_and(|phase| known && phase.token != claim.token);
        let confirmed = if other { None } else { self.confirm_shared(claim, now) };
        if ended {
            self.move_on(&claim.key, now, None);
        }
        match confirmed {
            Some(_) if self.is_wanted(&claim.key) => Renewal::Wanted,
            Some(_) => Renewal::Renewed,
            None => Renewal::Lost,
        }
    }

    /// Removes a claim from the phase, or keeps its units taken for a while.
    pub(super) fn free_shared(&mut self, release: &Release, now: Timestamp) -> Freed {
        let Claim { key, owner, .. } = &release.claim;
        let Some(phase) = self.phases.get_mut(key) else { return Freed::NotHeld };
        let Some(sharer) = phase.sharer(*owner) else { return Freed::NotHeld };
        if release.keep_for.is_zero() {
            phase.holders.retain(|sharer| sharer.owner != Some(*owner));
            if phase.holders.is_empty() {
                self.phases.remove(key);
            }
        } else {
            (sharer.owner, sharer.expires) = (None, now.after(release.keep_for));
        }
        Freed::Released
    }

    pub(super) fn downgrade(&mut self, claim: &Claim, token: FencingToken, now: Timestamp) -> Renewal {
        let key = &claim.key;
        if !claim.mode.is_shared() {
            return Renewal::Lost;
        }
        if !self.owns(claim, now) {
            // This is a repeat, or the lock was lost.
            return self.renew_shared(claim, now);
        }
        let Some(slot) = self.locks.remove(key) else { return Renewal::Lost };
        let expires = slot.expires.max(now.after(claim.ttl));
        let (owner, info, since) = (Some(claim.owner), slot.info.clone(), slot.granted);
        let sharer = Sharer { owner, info, mode: claim.mode, inbox: None, since, expires };
        self.phases.insert(key.clone(), Phase { token, opener: slot.info, holders: vec![sharer] });
        self.move_on(key, now, None);
        if self.is_wanted(key) { Renewal::Wanted } else { Renewal::Renewed }
    }

    /// Tells the processes that share a lock that a claim waits for it.
    pub(super) fn tell_wanted(&self, key: &LockKey) {
        for sharer in self.phases.get(key).iter().flat_map(|phase| &phase.holders) {
            if let (Some(owner), Some(inbox)) = (sharer.owner, &sharer.inbox)
                && let Some(inbox) = self.inboxes.get(inbox)
            {
                inbox.wanted(owner);
            }
        }
    }

    /// Returns how long the holder's lease lasts. For a shared lock, this is the first lease that ends. `None` if it is
    /// free.
    pub(super) fn first_end(&self, key: &LockKey, now: Timestamp) -> Option<Duration> {
        let alone = self.locks.get(key).map(|slot| slot.expires);
        let shared = || self.phases.get(key)?.holders.iter().map(|sharer| sharer.expires).min();
        alone.filter(|expires| *expires > now).or_else(shared).map(|expires| expires.since(now))
    }

    pub(super) fn phase_holder(&self, key: &LockKey, now: Timestamp) -> Option<Holder> {
        self.phases.get(key).filter(|phase| phase.is_live(now)).map(|phase| phase.holder(now))
    }

    /// Describes all holders of a shared lock.
    pub(super) fn sharers(&self, key: &LockKey, now: Timestamp) -> Vec<Holder> {
        let Some(phase) = self.phases.get(key) else { return Vec::new() };
        let live = phase.holders.iter().filter(|sharer| sharer.expires > now);
        live.map(|sharer| described(&sharer.info, sharer.owner, phase.token, sharer.expires.since(now))).collect()
    }

    /// Describes all holders of a shared lock, in the order in which their leases end.
    pub(super) fn fleet_sharers(&self, key: &LockKey, now: Timestamp) -> Vec<FleetHolder> {
        let Some(phase) = self.phases.get(key) else { return Vec::new() };
        let mut live: Vec<&Sharer> = phase.holders.iter().filter(|sharer| sharer.expires > now).collect();
        live.sort_by_key(|sharer| sharer.expires);
        let described = |sharer: &Sharer| {
            let mut holder = FleetHolder::new(sharer.owner, Some(sharer.expires.since(now)));
            (holder.info, holder.mode) = (Some(sharer.info.clone()), Some(sharer.mode));
            holder.held_for = Some(now.since(sharer.since));
            holder
        };
        live.into_iter().map(described).collect()
    }
}
