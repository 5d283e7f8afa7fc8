//! The processes that wait for one key, in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::memory::State;
use lock_store::contract::backend::{AcquireRequest, Grant, Waiter};
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::Timestamp;

/// How many entries one move visits. The next move visits the rest.
const WALK: usize = 32;

/// A claim may sleep after it has been in the queue for this long.
const ASLEEP_AFTER: Duration = Duration::from_secs(3);

/// How many reachable waiters watch the lock. They ask again when the holder's lease is due to end.
const WATCHERS: usize = 2;

/// About this many of the other waiters ask during one sleep of the first of them. None sleeps longer than
/// [`LONGEST_SLEEP`] of those times.
const SLEEPERS: u32 = 20;
const LONGEST_SLEEP: u32 = 30;

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Entry>);

/// One waiting claim, with everything that a grant needs.
#[derive(Debug)]
struct Entry {
    request: AcquireRequest,
    arrived: Timestamp,
    confirmed_at: Timestamp,
    /// How long it sleeps after that time, if it sleeps.
    pause: Option<Duration>,
    reach: Reach,
}

/// Whether the process of an entry could be notified of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Unknown,
    /// It could not be notified and was passed over. It keeps its place.
    PassedOver,
    /// It asked again after that. It is alive, and learns of a grant by asking.
    Polling,
}

/// The reason why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// The caller is next.
    ToCaller,
    /// The next claim does not fit, or the lock was granted exclusively.
    Blocked,
    /// No claim is left that could be granted.
    Through,
}

impl Queue {
    /// Adds a claim at the tail, or confirms its place. `left` is how long the holder's lease lasts, or the first of
    /// several. Returns how long the claim sleeps, if it does.
    pub(super) fn enter(
        &mut self,
        request: &AcquireRequest,
        left: Option<Duration>,
        now: Timestamp,
    ) -> Option<Duration> {
        let place = self.0.iter().position(|entry| entry.request.claim.owner == request.claim.owner);
        let Some(place) = place else {
            let (request, reach) = (request.clone(), Reach::Unknown);
            self.0.push_back(Entry { request, arrived: now, confirmed_at: now, pause: None, reach });
            return None;
        };
        let in_front = self.0.iter().take(place).filter(|entry| entry.reach != Reach::PassedOver).count();
        let entry = &mut self.0[place];
        entry.request = request.clone();
        (entry.confirmed_at, entry.pause) = (now, None);
        if entry.reach == Reach::PassedOver {
            entry.reach = Reach::Polling;
        }
        let least = request.ticket.as_ref()?.sleep?;
        if entry.reach != Reach::Unknown || now.since(entry.arrived) < ASLEEP_AFTER {
            return None;
        }
        let many = u32::try_from(place + 1).unwrap_or(u32::MAX);
        let pause = match left? {
            left if in_front < WATCHERS => left.min(least),
            _ => (least / SLEEPERS).saturating_mul(many).clamp(least, least * LONGEST_SLEEP),
        };
        entry.pause = Some(pause).filter(|pause| *pause > (entry.grant_ttl() / 3).min(Duration::from_secs(1)));
        entry.pause
    }
}

impl Entry {
    fn grant_ttl(&self) -> Duration {
        self.request.ticket.as_ref().map_or(Duration::ZERO, |ticket| ticket.grant_ttl)
    }

    /// Returns whether it has missed three confirmations. Its process is then considered gone.
    fn is_gone(&self, now: Timestamp) -> bool {
        let pauses = self.pause.unwrap_or_default() * 3;
        now.since(self.confirmed_at) > self.grant_ttl().max(pauses)
    }
}

impl State {
    /// Lists the waiters of a key.
    pub(super) fn waiters(&self, key: &LockKey, now: Timestamp) -> Vec<Waiter> {
        let waiter = |(at, entry): (usize, &Entry)| {
            let AcquireRequest { claim, info, .. } = &entry.request;
            let mut waiter = Waiter::new(at + 1, claim.owner, now.since(entry.arrived));
            (waiter.info, waiter.mode) = (Some(info.clone()), Some(claim.mode));
            waiter.asleep = entry.pause.is_some();
            waiter.confirmed = (!waiter.asleep).then(|| now.since(entry.confirmed_at));
            waiter
        };
        self.queues.get(key).iter().flat_map(|queue| &queue.0).enumerate().map(waiter).collect()
    }

    /// Removes a claim from the queue. Returns whether it was there.
    pub(super) fn leave_queue(&mut self, key: &LockKey, owner: OwnerId) -> bool {
        let Some(queue) = self.queues.get_mut(key) else { return false };
        let before = queue.0.len();
        queue.0.retain(|entry| entry.request.claim.owner != owner);
        let left = queue.0.len();
        if left == 0 {
            self.queues.remove(key);
        }
        left < before
    }

    /// Makes one of the first two reachable waiters ask again, if it sleeps. The lock has another holder now, and a
    /// waiter that has just become one of the two does not know that it must watch. Wakes the second, or the first if
    /// the second cannot be told.
    pub(super) fn wake_watcher(&self, key: &LockKey) {
        let Some(queue) = self.queues.get(key) else { return };
        let reached = queue.0.iter().filter(|entry| entry.reach != Reach::PassedOver);
        let watchers: Vec<&Entry> = reached.take(WATCHERS).collect();
        for entry in watchers.into_iter().rev() {
            let inbox = entry.request.ticket.as_ref().and_then(|ticket| self.inboxes.get(&ticket.inbox));
            match inbox.filter(|inbox| inbox.is_open()) {
                _ if entry.pause.is_none() => return,
                Some(inbox) => return inbox.ask_again(entry.request.claim.owner),
                None => {}
            }
        }
    }

    /// Grants the lock to waiters in order of arrival, as long as the next one fits: to one exclusive claim, or to a
    /// batch that shares. The caller gets its own grant in the reply.
    pub(super) fn move_on(&mut self, key: &LockKey, now: Timestamp, caller: Option<OwnerId>) -> Walked {
        let Some(mut queue) = self.queues.remove(key) else { return Walked::Through };
        let before = queue.0.len();
        let walked = self.walk(key, &mut queue, now, caller);
        let left = queue.0.len();
        if left > 0 {
            self.queues.insert(key.clone(), queue);
        }
        if left < before {
            self.wake_watcher(key);
        }
        walked
    }

    fn walk(&mut self, key: &LockKey, queue: &mut Queue, now: Timestamp, caller: Option<OwnerId>) -> Walked {
        let (mut index, mut shared) = (0, false);
        for _ in 0..WALK {
            let Some(entry) = queue.0.get_mut(index) else { return Walked::Through };
            if Some(entry.request.claim.owner) == caller {
                return Walked::ToCaller;
            }
            if entry.is_gone(now) {
                queue.0.remove(index);
                continue;
            }
            let Some(ticket) = entry.request.ticket.clone() else {
                queue.0.remove(index);
                continue;
            };
            let inbox = self.inboxes.get(&ticket.inbox).filter(|inbox| inbox.is_open()).cloned();
            let mode = entry.request.claim.mode;
            if !self.fits(key, mode, now) {
                // Only a claim that can be told may make others wait. A claim that has missed a confirmation is checked
                // here.
                let missed = entry.pause.is_some() || now.since(entry.confirmed_at) > entry.grant_ttl() * 2 / 5;
                if entry.reach == Reach::Unknown && missed && inbox.is_none() {
                    entry.reach = Reach::PassedOver;
                }
                if entry.reach != Reach::PassedOver {
                    return Walked::Blocked;
                }
                index += 1;
                continue;
            }
            if inbox.is_none() && entry.reach != Reach::Polling {
                entry.reach = Reach::PassedOver;
                index += 1;
                continue;
            }
            let Some(Entry { request, .. }) = queue.0.remove(index) else { return Walked::Through };
            let token = match mode {
                Mode::Exclusive => self.grant(&request, ticket.grant_ttl, now),
                Mode::Shared { .. } => self.join(&request, ticket.grant_ttl, now),
            };
            let mut claim = request.claim.clone();
            claim.ttl = ticket.grant_ttl;
            if let Some(inbox) = inbox {
                inbox.granted(Grant::new(claim, token, ticket.stamp));
            }
            if mode == Mode::Exclusive {
                return Walked::Blocked;
            }
            shared = true;
        }
        // The rest of a batch is left for the next move. A claim that asks now must not pass it.
        if shared && index < queue.0.len() { Walked::Blocked } else { Walked::Through }
    }
}
