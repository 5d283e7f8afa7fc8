//! The connection that listens in single slots of a cluster, to the inboxes of [`slot_inboxes`](crate::server::slot_inboxes).
//!
//! An inbox is open while claims of the process wait in its slot, and for up to a minute after. The connection is one of
//! its own, because the client takes whatever says `sunsubscribe` for the answer to its next command, also what the
//! server sends by itself when a slot moves away. Then all answers after it would be those to other commands. Here each
//! is compared with what was asked, and if it is another, the connection is replaced.

use std::collections::BTreeSet;
use std::future::pending;
use std::mem;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::connection::redirect::Refusal;
use crate::protocol::keys::{inbox_of_slot, slot_of_inbox};
use crate::server::node::{BACKOFF, Node};
use crate::server::slot_inboxes::Slots;
use lock_store::contract::backend::Inbox;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::sync::Mutex;

/// How often slots are given up in which nobody has waited since the last time; and how long a server that refuses such
/// channels is not asked again.
const ROUND: Duration = Duration::from_secs(30);

/// How many channels are asked for in one message.
const AT_ONCE: usize = 100;

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

impl Node {
    /// Listens in the slots of this master in which claims of this process wait. Never returns.
    pub(crate) async fn listen_in_slots(&self, inbox: &Inbox) {
        if self.cluster.is_none() {
            return pending().await;
        }
        let (slots, _listed) = self.slot_inboxes.of(inbox);
        // That of the runtime, whose tests let a minute pass.
        let clock = Clock::of_current_runtime();
        let (mut broken, mut backoff, mut told) = (false, BACKOFF, false);
        loop {
            slots.any().await;
            let begun = clock.now();
            match self.hear_slots(&slots, inbox, &clock, &mut broken).await {
                Over::Idle => {}
                Over::Refused => {
                    if !mem::replace(&mut told, true) {
                        tracing::info!(
                            node = self.name(),
                            "grants of this master are published to all nodes of the cluster; to send them only to \
                             waiters, use Redis 7 and permit SSUBSCRIBE, SUNSUBSCRIBE, SPUBLISH, PUBSUB SHARDNUMSUB",
                        );
                    }
                    clock.sleep_until(clock.now().after(ROUND)).await;
                    slots.end_round();
                }
                Over::Broken => {
                    broken = true;
                    backoff.went_well_for(clock.now().since(begun));
                    let for_long = backoff.is_longest();
                    self.pause(&mut backoff).await;
                    if for_long {
                        // No claim can wait at a master that cannot be reached.
                        slots.end_round();
                    }
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
        let target = self.pool.target();
        let Some(Ok(mut connection)) = target.in_time(target.connect(&config)).await else {
            return Over::Broken;
        };
        let open = Mutex::default();
        let keep = async {
            let mut round_ends = clock.now().after(ROUND);
            while !slots.is_empty() {
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
        let (wanted, open) = (slots.now(), open.lock().clone());
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
            let Some(Ok(answers)) = self.pool.target().in_time(sending).await else { return Err(Over::Broken) };
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
                (PushKind::SSubscribe, _, Some(slot)) => drop(open.lock().insert(slot)),
                (PushKind::SUnsubscribe, _, Some(slot)) => {
                    open.lock().remove(&slot);
                    // Unless it was asked for, another master serves the slot.
                    self.leave(slots, slot);
                }
                (PushKind::Disconnection, ..) => return,
                _ => {}
            }
        }
    }

    /// Gives up a slot that has left this master. Its waiters get their messages at the inbox of the process, wherever the slot is then.
    fn leave(&self, slots: &Slots, slot: u16) {
        if slots.remove(slot)
            && let Some(cluster) = &self.cluster
        {
            cluster.look_soon();
        }
    }
}

/// Returns the slot of the channel that a message of the server is about.
fn slot_of(message: &[Value]) -> Option<u16> {
    if let Some(Value::BulkString(channel)) = message.first() { slot_of_inbox(channel) } else { None }
}
