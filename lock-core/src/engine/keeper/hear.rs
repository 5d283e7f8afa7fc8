//! Handles the store's own messages, and leases that are due for renewal.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::claim::HolderHint;
use crate::engine::claim::free::free_stray_grant;
use crate::engine::keeper::Keeper;
use crate::engine::lease::Lease;
use crate::engine::watch::watchdog;
use lock_store::contract::backend::Message;
use lock_store::types::error::LossReason;

/// The time between the starts of two batches when very many leases are verified at once. The store has other clients
/// to serve.
const PACE: Duration = Duration::from_micros(500);

impl Keeper {
    /// Handles a message that the store sent by itself.
    pub(super) fn hear(&mut self, message: Message) {
        match message {
            Message::Granted(grant) => {
                let Some(engine) = self.engine.upgrade() else { return };
                if let Err(grant) = engine.grants.deliver(grant) {
                    // The claim has ended, so no caller of this process will ever release this lock.
                    let worker = Arc::clone(&engine);
                    engine.clean_up(async move { free_stray_grant(&worker, grant.claim).await });
                }
            }
            Message::AskAgain(owner) => {
                if let Some(engine) = self.engine.upgrade() {
                    engine.grants.verify(owner);
                }
            }
            Message::Suspect(key) => {
                let shares = self.engine.upgrade().is_some_and(|engine| engine.shares.load(Ordering::Relaxed));
                let (mut leases, mut shared) = (Vec::new(), HashSet::new());
                let mut next = Some(Message::Suspect(key));
                // Take all messages that have arrived by now and handle them in batches. A key without a holder here
                // costs one lookup.
                while let Some(Message::Suspect(key)) = &next {
                    let hold =
                        if let Some(HolderHint::Here(hold)) = self.gate.holder(key) { hold.upgrade() } else { None };
                    match hold.map(|hold| Arc::clone(hold.lease())).filter(|lease| !lease.mode().is_shared()) {
                        Some(lease) if lease.state().suspected() => leases.push(lease),
                        Some(_) => {}
                        // Several leases of this process may share the lock. The gate does not name a holder then.
                        None => drop(shares.then(|| shared.insert(key.clone()))),
                    }
                    next = self.mail.messages.try_recv().ok();
                }
                if !shared.is_empty() {
                    let of_those = |lease: &Arc<Lease>| shared.contains(&lease.claim.key) && lease.state().suspected();
                    leases.extend(watchdog::leases(&self.timer).into_iter().filter(of_those));
                }
                self.inspect(leases, PACE);
                if let Some(other) = next {
                    self.hear(other);
                }
            }
            Message::Wanted(owner) => {
                if let Some(engine) = self.engine.upgrade() {
                    engine.grants.wanted(owner);
                }
            }
            Message::Revoked { owner, actor, reason } => {
                let Some(engine) = self.engine.upgrade() else { return };
                if let Some(lease) = watchdog::leases(&self.timer).into_iter().find(|lease| lease.claim.owner == owner)
                {
                    let key = lease.claim.key.as_str();
                    tracing::warn!(
                        target: "lock_core::audit",
                        action = "revoked", key, actor, reason,
                        "an operator took this lock away"
                    );
                    watchdog::end(&engine, &lease, LossReason::Revoked);
                }
            }
            Message::Reconnected => {
                if let Some(engine) = self.engine.upgrade() {
                    engine.grants.verify_all();
                }
                self.verify(watchdog::leases(&self.timer));
            }
        }
    }

    /// Asks the store at once whether these leases still exist.
    fn verify(&mut self, leases: Vec<Arc<Lease>>) {
        for lease in &leases {
            let mut state = lease.state();
            state.suspect = true;
            state.renew_at = self.timer.clock.now();
        }
        self.inspect(leases, PACE);
    }

    /// Serves leases. If several batches must be renewed, each starts a little after the one before.
    pub(super) fn inspect(&mut self, leases: Vec<Arc<Lease>>, pace: Duration) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut pause = Duration::ZERO;
        for batch in watchdog::inspect(&engine, leases) {
            // Leases with short timeouts come first, and no batch waits longer than its timeout.
            let start = self.timer.clock.now().after(pause.min(batch[0].command_timeout()));
            let engine = Arc::clone(&engine);
            let timer = Arc::clone(&self.timer);
            let waits = !pause.is_zero();
            self.tasks.spawn(async move {
                if waits {
                    timer.sleep_until(start).await;
                }
                watchdog::renew(engine, batch).await;
            });
            pause += pace;
        }
    }
}
