//! Listening to the sentinels, so that a move is known when they decide it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::task::JoinSet;

use crate::connection::connect::Target;
use crate::connection::url::Address;
use crate::sentinel::Sentinels;
use crate::sentinel::one::{subscribe, view, within};
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::Clock;

/// How often the sentinels are asked although nothing has happened: to learn of new ones, and of a message missed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The upper limits of the pause before connecting to a sentinel again: the first, and the longest.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

impl Sentinels {
    /// Listens to every sentinel. Runs on the keeper, and never returns.
    pub(crate) async fn hear(self: &Arc<Self>) {
        let clock = Clock::system();
        let mut ears = JoinSet::new();
        let mut heard = BTreeSet::new();
        let mut learnt = self.learnt.subscribe();
        loop {
            for address in self.all().difference(&heard.clone()) {
                heard.insert(address.clone());
                let (sentinels, address) = (Arc::clone(self), address.clone());
                ears.spawn(async move {
                    sentinels.hear_one(&address).await;
                    address
                });
            }
            tokio::select! {
                _ = learnt.changed() => {}
                Some(Ok(gone)) = ears.join_next() => {
                    heard.remove(&gone);
                }
                () = clock.sleep_until(clock.now().after(LOOK_EVERY)) => {
                    let _ = self.look().await;
                }
            }
        }
    }

    /// Listens to one sentinel, for as long as it is one of them.
    async fn hear_one(&self, address: &Address) {
        let clock = Clock::system();
        let mut backoff = BACKOFF;
        while self.all().contains(address) {
            let Ok(target) = self.sentinel.sibling(&address.host, address.port) else { return };
            match within(&target, subscribe(&target)).await {
                Ok((mut connection, mut pushes)) => {
                    backoff.reset();
                    // The messages from before this process listened.
                    self.ask_again(address, &target, &mut connection).await;
                    while let Some(push) = pushes.recv().await {
                        match push.kind {
                            PushKind::Message if self.is_ours(&push) => {
                                self.ask_again(address, &target, &mut connection).await;
                            }
                            PushKind::Disconnection => break,
                            _ => {}
                        }
                    }
                }
                Err(error) => {
                    self.warn_of(address, &error);
                    tracing::debug!(%error, "cannot listen to a sentinel");
                }
            }
            clock.sleep_until(clock.now().after(backoff.pause())).await;
        }
    }

    /// Returns whether a message may be about our service: its name is a word of it.
    fn is_ours(&self, push: &PushInfo) -> bool {
        matches!(push.data.as_slice(), [_, Value::BulkString(text)]
            if text.split(|byte| *byte == b' ').any(|word| word == self.service.as_bytes()))
    }

    /// Asks the sentinel that we listen to what it knows now.
    async fn ask_again(&self, address: &Address, target: &Target, connection: &mut MultiplexedConnection) {
        let asked = within(target, async { view(target, connection, &self.service).await }).await;
        let believed = asked.and_then(|view| {
            self.state.lock().told.note(address, &view);
            self.believe(view)
        });
        if let Err(error) = believed {
            tracing::debug!(%error, "a sentinel did not say where the master is");
        }
    }
}
