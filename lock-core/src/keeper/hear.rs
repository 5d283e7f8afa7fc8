//! What the keeper does about the store's own reports, and about leases to renew.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Message;
use crate::claim::Known;
use crate::error::LossReason;
use crate::keeper::{Keeper, release, watchdog};
use crate::tenure::Tenure;

/// How far apart batches start when very many leases are verified at once: the store has others to
/// serve.
const PACE: Duration = Duration::from_micros(500);

impl Keeper {
    /// Acts on what the store reported by itself.
    pub(super) fn hear(&mut self, message: Message) {
        match message {
            Message::Granted(grant) => {
                let Some(engine) = self.engine.upgrade() else { return };
                if let Err(grant) = engine.grants.deliver(grant) {
                    // Its claim has ended: nobody here will ever release it.
                    let worker = Arc::clone(&engine);
                    engine.clean_up(async move { release::forget(&worker, grant.claim).await });
                }
            }
            Message::Suspect(key) => {
                let Some(engine) = self.engine.upgrade() else { return };
                let mut tenures = Vec::new();
                let mut next = Some(Message::Suspect(key));
                // All that have come by now, in batches. A key that nobody here holds costs a look.
                while let Some(Message::Suspect(key)) = &next {
                    if let Some(Known::Here(lease)) = engine.gate.holder(key)
                        && let Some(lease) = lease.upgrade()
                        && lease.tenure.state().suspected()
                    {
                        tenures.push(Arc::clone(&lease.tenure));
                    }
                    next = self.messages.try_recv().ok();
                }
                self.inspect(tenures, PACE);
                if let Some(other) = next {
                    self.hear(other);
                }
            }
            Message::Revoked { owner, actor, reason } => {
                let Some(engine) = self.engine.upgrade() else { return };
                let tenures = self.schedule.tenures();
                if let Some(tenure) = tenures.into_iter().find(|tenure| tenure.claim.owner == owner) {
                    let key = tenure.claim.key.as_str();
                    tracing::warn!(
                        target: "lock_core::audit",
                        action = "revoked", key, actor, reason,
                        "an operator took this lock away"
                    );
                    watchdog::end(&engine, &tenure, LossReason::Revoked);
                }
            }
            Message::Reconnected => {
                if let Some(engine) = self.engine.upgrade() {
                    engine.grants.verify_all();
                }
                self.verify(self.schedule.tenures());
            }
        }
    }

    /// Asks the store at once whether these tenures last.
    fn verify(&mut self, tenures: Vec<Arc<Tenure>>) {
        for tenure in &tenures {
            let mut state = tenure.state();
            state.suspect = true;
            state.renew_at = self.schedule.clock.now();
        }
        self.inspect(tenures, PACE);
    }

    /// Serves tenures. Of several batches to renew, each starts a little after the one before.
    pub(super) fn inspect(&mut self, tenures: Vec<Arc<Tenure>>, pace: Duration) {
        let Some(engine) = self.engine.upgrade() else { return };
        let mut pause = Duration::ZERO;
        for batch in watchdog::inspect(&engine, tenures) {
            // Impatient leases come first, and none waits long for its turn.
            let start = self.schedule.clock.now().after(pause.min(batch[0].command_timeout()));
            let engine = Arc::clone(&engine);
            let schedule = Arc::clone(&self.schedule);
            let waits = !pause.is_zero();
            self.tasks.spawn(async move {
                if waits {
                    schedule.sleep_until(start).await;
                }
                watchdog::renew(engine, batch).await;
            });
            pause += pace;
        }
    }
}
