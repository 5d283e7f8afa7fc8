//! The inboxes of a process in single slots of a cluster: channels of sharded publish/subscribe, which Redis has since
//! 7.0. Here is where claims wait; [`slot_push`](crate::server::slot_push) listens there.
//!
//! A message to the inbox of a process goes to every node of the cluster. A message to its inbox in a slot
//! stays at the master of that slot. Scripts ask whether the inbox of the slot has a listener. Otherwise they send to the
//! other inbox, to which the process listens at every master all the time. So a message also arrives while an inbox is being
//! opened, after its slot has moved, if the server refuses such channels, and from and to versions without them.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::on_drop::OnDrop;
use lock_store::contract::backend::Inbox;
use lock_store::types::system::sync::Mutex;

/// The slots of one master in which claims wait, for each process that listens.
#[derive(Debug, Default)]
pub(crate) struct SlotInboxes(Mutex<Vec<Arc<Slots>>>);

/// The slots in which claims of one process wait, or did lately.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) inbox: Arc<str>,
    /// With whether a claim has asked for a place since the last round.
    asked: Mutex<HashMap<u16, bool>>,
    pub(crate) added: Notify,
    pub(crate) credentials: Notify,
}

impl SlotInboxes {
    /// Has a process listen in a slot, in which a claim of it waits now.
    pub(crate) fn open(&self, inbox: &str, slot: u16) {
        let slots = self.0.lock().iter().find(|slots| *slots.inbox == *inbox).cloned();
        if let Some(slots) = slots
            && slots.asked.lock().insert(slot, true).is_none()
        {
            slots.added.notify_one();
        }
    }

    /// Opens every connection again, with new credentials.
    pub(crate) fn reopen(&self) {
        self.0.lock().iter().for_each(|slots| slots.credentials.notify_waiters());
    }

    /// Takes note of the slots of one process, until the result is dropped.
    pub(crate) fn of(&self, inbox: &Inbox) -> (Arc<Slots>, OnDrop<impl FnMut()>) {
        let (inbox, asked) = (Arc::clone(inbox.id()), Mutex::default());
        let slots = Arc::new(Slots { inbox, asked, added: Notify::new(), credentials: Notify::new() });
        self.0.lock().push(Arc::clone(&slots));
        let listed = Arc::clone(&slots);
        (slots, OnDrop(move || self.0.lock().retain(|slots| !Arc::ptr_eq(slots, &listed))))
    }
}

impl Slots {
    pub(crate) fn now(&self) -> BTreeSet<u16> {
        self.asked.lock().keys().copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.lock().is_empty()
    }

    /// Waits until there is one.
    pub(crate) async fn any(&self) {
        while self.is_empty() {
            self.added.notified().await;
        }
    }

    /// Gives one up. Returns whether it was there.
    pub(crate) fn remove(&self, slot: u16) -> bool {
        self.asked.lock().remove(&slot).is_some()
    }

    /// Gives up those in which nobody has asked for a place since the last round.
    pub(crate) fn end_round(&self) {
        self.asked.lock().retain(|_, asked| mem::take(asked));
    }
}
