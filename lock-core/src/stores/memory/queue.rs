//! The processes that wait for one key, in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::contract::backend::{AcquireRequest, Grant, Waiter};
use crate::stores::memory::State;
use crate::types::key::LockKey;
use crate::types::mode::Mode;
use crate::types::owner::OwnerId;
use crate::types::system::clock::Timestamp;

/// How many entries one move looks at; the next move looks at the rest.
const WALK: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Entry>);

/// One waiting claim. It carries everything that a grant needs.
#[derive(Debug)]
struct Entry {
    request: AcquireRequest,
    arrived: Timestamp,
    confirmed_at: Timestamp,
    reach: Reach,
}

/// Whether the process of an entry could be notified of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Unknown,
    /// It could not be notified, and was passed over. It keeps its place.
    PassedOver,
    /// It asked again after that: it is alive, and learns of a grant by asking.
    Polling,
}

/// What ended a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// The caller is next.
    ToCaller,
    /// Somebody is next for whom the lock is not free, or the lock was granted to one alone.
    Blocked,
    /// Nobody is left who could be granted anything.
    Through,
}

impl Queue {
    /// Adds a claim at the tail, or confirms its place.
    pub(super) fn enter(&mut self, request: &AcquireRequest, now: Timestamp) {
        match self.0.iter_mut().find(|entry| entry.request.claim.owner == request.claim.owner) {
            Some(entry) => {
                entry.request = request.clone();
                entry.confirmed_at = now;
                if entry.reach == Reach::PassedOver {
                    entry.reach = Reach::Polling;
                }
            }
            None => {
                let request = request.clone();
                self.0.push_back(Entry { request, arrived: now, confirmed_at: now, reach: Reach::Unknown });
            }
        }
    }
}

impl Entry {
    fn grant_ttl(&self) -> Duration {
        self.request.ticket.as_ref().map_or(Duration::ZERO, |ticket| ticket.grant_ttl)
    }
}

impl State {
    /// Lists who waits for a key.
    pub(super) fn waiters(&self, key: &LockKey, now: Timestamp) -> Vec<Waiter> {
        let waiter = |(at, entry): (usize, &Entry)| {
            let AcquireRequest { claim, info, .. } = &entry.request;
            let mut waiter = Waiter::new(at + 1, claim.owner, now.since(entry.arrived));
            (waiter.info, waiter.mode) = (Some(info.clone()), Some(claim.mode));
            waiter.confirmed = Some(now.since(entry.confirmed_at));
            waiter
        };
        self.queues.get(key).iter().flat_map(|queue| &queue.0).enumerate().map(waiter).collect()
    }

    pub(super) fn leave_queue(&mut self, key: &LockKey, owner: OwnerId) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.0.retain(|entry| entry.request.claim.owner != owner);
            if queue.0.is_empty() {
                self.queues.remove(key);
            }
        }
    }

    /// Grants to those who wait, in order of arrival, for as long as the next one fits: one for itself, or a
    /// batch that shares. The caller gets its grant in the reply instead.
    pub(super) fn move_on(&mut self, key: &LockKey, now: Timestamp, caller: Option<OwnerId>) -> Walked {
        let Some(mut queue) = self.queues.remove(key) else { return Walked::Through };
        let walked = self.walk(key, &mut queue, now, caller);
        if !queue.0.is_empty() {
            self.queues.insert(key.clone(), queue);
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
            // The entry missed three confirmations: its process is gone.
            if now.since(entry.confirmed_at) > entry.grant_ttl() {
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
                // Only who can be told may make others wait. Whoever has missed a confirmation is looked for.
                let missed = now.since(entry.confirmed_at) > entry.grant_ttl() * 2 / 5;
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
        // What remains of a batch is the next move's work, and is not passed by whoever asks now.
        if shared && index < queue.0.len() { Walked::Blocked } else { Walked::Through }
    }
}
