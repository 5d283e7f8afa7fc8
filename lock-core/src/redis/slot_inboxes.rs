//! The inboxes of a process in single slots of a cluster: channels of sharded publish/subscribe, which Redis has since
//! 7.0.
//!
//! What is sent to the inbox of a process is passed on to every node of the cluster. What is sent to its inbox in a slot
//! stays at the master of that slot. Scripts ask whether anybody listens there, and else send to the other inbox, to
//! which the process listens at every master all the time. So a message arrives while an inbox is being opened, after
//! its slot has moved, where the server refuses such channels, and from and to a process of a version without them.
//!
//! An inbox is open while claims of the process wait in its slot, and for up to a minute after. The connection is one of
//! its own, because the client takes whatever says `sunsubscribe` for the answer to its next command, also what the
//! server sends by itself when a slot moves away. Then all answers after it would be those to other commands. Here each
//! is compared with what was asked, and if it is another, the connection is replaced.

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::backend::Inbox;
use crate::clock::Clock;
use crate::redis::cluster::redirect::Refusal;
use crate::redis::keep::BACKOFF;
use crate::redis::keys::{inbox_of_slot, slot_of_inbox};
use crate::redis::node::Node;

/// How often slots are given up in which nobody has waited since the last time; and how long a server that refuses such
/// channels is not asked again.
const ROUND: Duration = Duration::from_secs(30);

/// How many channels are asked for in one message.
const AT_ONCE: usize = 100;

/// The slots of one master in which claims wait, for each process that listens.
#[derive(Debug, Default)]
pub(super) struct SlotInboxes(Mutex<Vec<Arc<Slots>>>);

/// The slots in which claims of one process wait, or did lately.
#[derive(Debug)]
struct Slots {
    inbox: Arc<str>,
    /// With whether a claim has asked for a place since the last round.
    asked: Mutex<HashMap<u16, bool>>,
    added: Notify,
    credentials: Notify,
}

/// Why such a connection is over.
#[derive(Debug)]
enum Over {
    /// Nobody waits.
    Idle,
    /// The server does not know such channels, or does not let us use them.
    Refused,
    /// It broke, answers what was not asked, or has credentials that end.
    Broken,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlotInboxes {
    /// Has a process listen in a slot, in which a claim of it waits now.
    pub(super) fn open(&self, inbox: &str, slot: u16) {
        let slots = lock(&self.0).iter().find(|slots| *slots.inbox == *inbox).cloned();
        if let Some(slots) = slots
            && lock(&slots.asked).insert(slot, true).is_none()
        {
            slots.added.notify_one();
        }
    }

    /// Opens every connection again, with new credentials.
    pub(super) fn reopen(&self) {
        lock(&self.0).iter().for_each(|slots| slots.credentials.notify_waiters());
    }

    /// Takes note of the slots of one process, until the result is dropped.
    fn of<'a>(&'a self, inbox: &Inbox) -> Listed<'a> {
        let (inbox, asked) = (Arc::clone(inbox.id()), Mutex::default());
        let slots = Arc::new(Slots { inbox, asked, added: Notify::new(), credentials: Notify::new() });
        lock(&self.0).push(Arc::clone(&slots));
        Listed { all: self, slots }
    }
}

/// Takes note of the slots of one process.
struct Listed<'a> {
    all: &'a SlotInboxes,
    slots: Arc<Slots>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.all.0).retain(|slots| !Arc::ptr_eq(slots, &self.slots));
    }
}

impl Slots {
    fn now(&self) -> BTreeSet<u16> {
        lock(&self.asked).keys().copied().collect()
    }

    /// Waits until there is one.
    async fn any(&self) {
        while lock(&self.asked).is_empty() {
            self.added.notified().await;
        }
    }

    /// Gives up those in which nobody has asked for a place since the last round.
    fn end_round(&self) {
        lock(&self.asked).retain(|_, asked| mem::take(asked));
    }
}

impl Node {
    /// Listens in the slots of this master in which claims of this process wait. Never returns.
    pub(super) async fn listen_in_slots(&self, inbox: &Inbox) {
        if self.cluster.is_none() {
            return pending().await;
        }
        let listed = self.slot_inboxes.of(inbox);
        let slots = &*listed.slots;
        // That of the runtime, whose tests let a minute pass.
        let clock = Clock::of_current_runtime();
        let (mut broken, mut pause, mut told) = (false, BACKOFF.0, false);
        loop {
            slots.any().await;
            let begun = clock.now();
            match self.hear_slots(slots, inbox, &clock, &mut broken).await {
                Over::Idle => {}
                Over::Refused => {
                    if !mem::replace(&mut told, true) {
                        tracing::info!(
                            node = self.name(),
                            "grants of this master are published to all nodes of the cluster; to send them only to \
                             who waits, use Redis 7 and permit SSUBSCRIBE, SUNSUBSCRIBE, SPUBLISH, PUBSUB SHARDNUMSUB",
                        );
                    }
                    clock.sleep_until(clock.now().after(ROUND)).await;
                    slots.end_round();
                }
                Over::Broken => {
                    broken = true;
                    if clock.now().since(begun) >= BACKOFF.1 {
                        pause = BACKOFF.0;
                    }
                    self.pause(pause).await;
                    if pause == BACKOFF.1 {
                        // Nobody can wait at a master that nobody reaches.
                        slots.end_round();
                    }
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Does so over one connection. `broken` says that messages may have been lost with another.
    async fn hear_slots(&self, slots: &Slots, inbox: &Inbox, clock: &Clock, broken: &mut bool) -> Over {
        let (sender, mut pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_push_sender(sender);
        let Some(Ok(mut connection)) = self.in_time(self.pool.target().connect(&config)).await else {
            return Over::Broken;
        };
        let open = Mutex::default();
        let keep = async {
            let mut round_ends = clock.now().after(ROUND);
            while !lock(&slots.asked).is_empty() {
                if let Err(over) = self.follow_slots(&mut connection, slots, &open).await {
                    return over;
                }
                if mem::take(broken) {
                    inbox.reconnected();
                }
                tokio::select! {
                    () = slots.added.notified() => {}
                    () = clock.sleep_until(round_ends) => {
                        slots.end_round();
                        round_ends = clock.now().after(ROUND);
                    }
                }
            }
            Over::Idle
        };
        tokio::select! {
            over = keep => over,
            () = self.hear_in_slots(&mut pushes, slots, &open, inbox) => Over::Broken,
            () = slots.credentials.notified() => Over::Broken,
        }
    }

    /// Opens the inboxes of the slots in which claims wait, and closes the others.
    async fn follow_slots(
        &self,
        connection: &mut MultiplexedConnection,
        slots: &Slots,
        open: &Mutex<BTreeSet<u16>>,
    ) -> Result<(), Over> {
        let (wanted, open) = (slots.now(), lock(open).clone());
        let opens = wanted.difference(&open).map(|slot| (*slot, PushKind::SSubscribe));
        let closes = open.difference(&wanted).map(|slot| (*slot, PushKind::SUnsubscribe));
        let changes: Vec<_> = opens.chain(closes).collect();
        for changes in changes.chunks(AT_ONCE) {
            let mut message = redis::pipe();
            // Each by itself, because a command may name channels of one slot only.
            for (slot, change) in changes {
                message.cmd(&change.to_string()).arg(inbox_of_slot(&slots.inbox, *slot));
            }
            let sending = connection.send_packed_commands(&message, 0, changes.len());
            let Some(Ok(answers)) = self.in_time(sending).await else { return Err(Over::Broken) };
            for ((slot, change), answer) in changes.iter().zip(answers) {
                match answer {
                    Value::Push { kind, data } if kind == *change && slot_of(&data) == Some(*slot) => {}
                    Value::ServerError(error) if *change == PushKind::SSubscribe => {
                        let detail = error.details().unwrap_or_default();
                        match Refusal::read(error.code(), detail, self.pool.target().host()) {
                            Some(Refusal::Moved(_)) => self.leave(slots, *slot),
                            Some(Refusal::NotAllowed) | None => return Err(Over::Refused),
                            Some(_) => return Err(Over::Broken),
                        }
                    }
                    _ => return Err(Over::Broken),
                }
            }
        }
        Ok(())
    }

    /// Passes on what arrives, until the connection ends.
    async fn hear_in_slots(
        &self,
        pushes: &mut UnboundedReceiver<PushInfo>,
        slots: &Slots,
        open: &Mutex<BTreeSet<u16>>,
        inbox: &Inbox,
    ) {
        while let Some(PushInfo { kind, data }) = pushes.recv().await {
            match (kind, data.as_slice(), slot_of(&data)) {
                (PushKind::SMessage, [_, Value::BulkString(text)], _) => self.receive(text, inbox),
                (PushKind::SSubscribe, _, Some(slot)) => drop(lock(open).insert(slot)),
                (PushKind::SUnsubscribe, _, Some(slot)) => {
                    lock(open).remove(&slot);
                    // Unless it was asked for, another master serves the slot.
                    self.leave(slots, slot);
                }
                (PushKind::Disconnection, ..) => return,
                _ => {}
            }
        }
    }

    /// Gives up a slot that is not here any more. Whoever waits there asks again within a second, wherever it is then.
    fn leave(&self, slots: &Slots, slot: u16) {
        if lock(&slots.asked).remove(&slot).is_some()
            && let Some(cluster) = &self.cluster
        {
            cluster.look_soon();
        }
    }

    /// Awaits an answer for as long as opening a connection may take.
    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
        let answer = tokio::time::timeout(self.pool.target().settings.connect_within, answer).await;
        answer.ok()
    }
}

/// Returns the slot of the channel that a message of the server is about.
fn slot_of(message: &[Value]) -> Option<u16> {
    if let Some(Value::BulkString(channel)) = message.first() { slot_of_inbox(channel) } else { None }
}
