//! The processes that wait for one key, in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::{AcquireRequest, Grant};
use crate::clock::Timestamp;
use crate::key::LockKey;
use crate::memory::State;
use crate::owner::OwnerId;

/// How many entries one move looks at; the next move looks at the rest.
const WALK: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Entry>);

/// One waiting claim. It carries everything that a grant needs.
#[derive(Debug)]
struct Entry {
    request: AcquireRequest,
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
            None => self.0.push_back(Entry { request: request.clone(), confirmed_at: now, reach: Reach::Unknown }),
        }
    }
}

impl Entry {
    fn grant_ttl(&self) -> Duration {
        self.request.ticket.as_ref().map_or(Duration::ZERO, |ticket| ticket.grant_ttl)
    }
}

impl State {
    pub(super) fn leave_queue(&mut self, key: &LockKey, owner: OwnerId) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.0.retain(|entry| entry.request.claim.owner != owner);
            if queue.0.is_empty() {
                self.queues.remove(key);
            }
        }
    }

    /// Grants a free lock to the first in its queue that can be reached. Returns whether that is
    /// `caller`, which gets the grant in the reply instead.
    pub(super) fn move_on(&mut self, key: &LockKey, now: Timestamp, caller: Option<OwnerId>) -> bool {
        let Some(mut queue) = self.queues.remove(key) else { return false };
        let mut reached_caller = false;
        let mut index = 0;
        for _ in 0..WALK {
            let Some(entry) = queue.0.get_mut(index) else { break };
            // The entry missed three confirmations: its process is gone.
            if now.since(entry.confirmed_at) > entry.grant_ttl() {
                queue.0.remove(index);
                continue;
            }
            if Some(entry.request.claim.owner) == caller {
                reached_caller = true;
                break;
            }
            let Some(ticket) = entry.request.ticket.clone() else {
                queue.0.remove(index);
                continue;
            };
            let inbox = self.inboxes.get(&ticket.inbox).filter(|inbox| inbox.is_open()).cloned();
            if inbox.is_none() && entry.reach != Reach::Polling {
                entry.reach = Reach::PassedOver;
                index += 1;
                continue;
            }
            if let Some(Entry { request, .. }) = queue.0.remove(index) {
                let token = self.grant(&request, ticket.grant_ttl, now);
                let mut claim = request.claim.clone();
                claim.ttl = ticket.grant_ttl;
                if let Some(inbox) = inbox {
                    inbox.granted(Grant::new(claim, token, ticket.stamp));
                }
            }
            break;
        }
        if !queue.0.is_empty() {
            self.queues.insert(key.clone(), queue);
        }
        reached_caller
    }
}
