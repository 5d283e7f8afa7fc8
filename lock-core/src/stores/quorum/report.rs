//! What observers are told of a quorum.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::Inbox;
use crate::contract::event::{MemberHealth, Notice, QuorumHealth};
use crate::stores::quorum::shared::Shared;
use crate::types::system::clock::Timestamp;

/// How often observers are told.
const EVERY: Duration = Duration::from_secs(2);

/// Tells observers again and again. What is counted is told once, also if several keepers tell.
pub(super) async fn report(shared: Arc<Shared>, inbox: Inbox) {
    let clock = shared.clock();
    loop {
        clock.sleep_until(clock.now().after(EVERY)).await;
        inbox.notice(&Notice::Quorum { node: &shared.name, health: &shared.health(clock.now()) });
    }
}

impl Shared {
    fn health(&self, now: Timestamp) -> QuorumHealth {
        let members = self.members.iter().map(|member| {
            let mut health = MemberHealth::new(Arc::clone(&member.name), member.health.state(now));
            health.repairs = member.health.take_repairs();
            health
        });
        let mut health = QuorumHealth::new(members.collect(), self.list.majority);
        health.degraded_holds = self.sessions.degraded(now);
        (health.rounds, health.second_rounds) = self.rounds.take();
        health
    }
}
