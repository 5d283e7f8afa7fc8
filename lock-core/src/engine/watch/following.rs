//! Follows the holder of a key by polling. One poll per second serves all followers of a key.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::shared::Engine;
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::{Timestamp, jitter};
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// How long a change may go unnoticed, besides the time of the poll itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much later than the end of a lease the store is polled: it counts in whole milliseconds.
const SLACK: Duration = Duration::from_millis(5);

/// The result of the last poll. `None` before the first poll.
pub(crate) type LastSeen = Option<Option<Holder>>;

/// The keys that are followed in one manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Following(Arc<Mutex<HashMap<LockKey, watch::Sender<LastSeen>>>>);

impl Following {
    /// Follows a key. The first poll begins at once.
    pub(crate) fn follow(&self, engine: &Arc<Engine>, key: &LockKey) -> watch::Receiver<LastSeen> {
        let mut followed = self.followed();
        if let Some(sender) = followed.get(key) {
            let mut receiver = sender.subscribe();
            // The value that earlier followers already know is new to this one.
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(None);
        followed.insert(key.clone(), sender.clone());
        let looks = Looks { following: self.clone(), engine: Arc::downgrade(engine), key: key.clone(), sender };
        let timer = Arc::clone(&engine.timer);
        engine.run_on_keeper(async move {
            let mut known_until = Timestamp::NEVER;
            while let Some(next) = looks.look(&mut known_until).await {
                tokio::select! {
                    () = timer.sleep_until(next) => {}
                    () = looks.sender.closed() => {}
                }
                if looks.ends() {
                    return;
                }
            }
        });
        receiver
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<LockKey, watch::Sender<LastSeen>>> {
        self.0.lock()
    }
}

/// The polls of one key.
struct Looks {
    following: Following,
    /// Followers keep the engine alive; this does not.
    engine: Weak<Engine>,
    key: LockKey,
    sender: watch::Sender<LastSeen>,
}

impl Looks {
    /// Polls once. Returns when to poll again, if the manager still exists.
    async fn look(&self, known_until: &mut Timestamp) -> Option<Timestamp> {
        let engine = self.engine.upgrade()?;
        let command = Arc::clone(&engine.backend).holder(self.key.clone());
        let until = engine.clock.now().after(LOOK_EVERY);
        let answer = engine.bounded("holder", &self.key, until, command).await;
        let now = engine.clock.now();
        let mut next = now.after(jitter(LOOK_EVERY / 2, LOOK_EVERY));
        match answer {
            Ok(holder) => {
                *known_until = Timestamp::NEVER;
                if let Some(left) = holder.as_ref().and_then(|holder| holder.ttl_left) {
                    *known_until = now.after(left);
                    next = next.min(known_until.after(SLACK));
                }
                self.publish(holder);
            }
            // The store could not be asked for longer than the lease that was seen. No holder is known any more.
            Err(_) if now >= *known_until => self.publish(None),
            Err(_) => {}
        }
        Some(next)
    }

    fn publish(&self, holder: Option<Holder>) {
        let who = |seen: &Option<Holder>| seen.as_ref().map(|holder| (holder.owner, holder.info.clone()));
        self.sender.send_if_modified(|seen| {
            let news = seen.as_ref().is_none_or(|seen| who(seen) != who(&holder));
            if news {
                *seen = Some(holder);
            }
            news
        });
    }

    /// Forgets the key if it has no followers any more.
    fn ends(&self) -> bool {
        let mut followed = self.following.followed();
        let ends = self.sender.receiver_count() == 0;
        if ends {
            followed.remove(&self.key);
        }
        ends
    }
}
