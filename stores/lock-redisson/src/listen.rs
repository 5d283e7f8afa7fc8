//! Listening to the channels on which releases are published, at each server where claims wait.
//!
//! A channel stays open for a while after its last waiter, because a lock that was contended once mostly is again.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use lock_redis::RedisStore;
use lock_redis::layout::moved;
use lock_store::contract::backend::{Inbox, LockBackend as _};
use lock_store::types::error::{LockError, Result};
use lock_store::types::owner::OwnerId;
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::sync::Mutex;

/// How often channels are given up for which nobody has waited since the last time.
const ROUND: Duration = Duration::from_secs(30);

/// How long a server may take to open channels.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many channels are asked for in one message, and how many may stay open that nobody wants any more. They go with the
/// connection.
const AT_ONCE: usize = 100;
const SPARE: usize = 100;

/// The pauses before a connection is opened again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// How releases are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Plain,
    /// To the master of a slot alone.
    Sharded,
}

impl Verb {
    pub(crate) fn publish(self) -> &'static str {
        if self == Self::Plain { "PUBLISH" } else { "SPUBLISH" }
    }

    fn subscribe(self) -> &'static str {
        if self == Self::Plain { "SUBSCRIBE" } else { "SSUBSCRIBE" }
    }
}

#[derive(Debug, Default)]
struct Channel {
    lane: u16,
    heard: bool,
    /// The claims that are told of a release. They ask at least every second.
    waiters: Vec<OwnerId>,
    /// Whether a claim has waited since the last round.
    used: bool,
    /// A thread of Redisson that has the lock, when it was first seen, and when the lease that was seen last ends: server time.
    thread: Option<(String, Duration, Duration)>,
}

/// The channels of the locks for which claims of this process wait, or did lately.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) verb: Verb,
    by_name: Mutex<HashMap<String, Channel>>,
    /// Changes when other channels are wanted.
    changes: watch::Sender<()>,
    /// Whether it was logged that channels are refused.
    warned: AtomicBool,
}

impl Channels {
    pub(crate) fn new(verb: Verb) -> Self {
        Self { verb, by_name: Mutex::default(), changes: watch::Sender::new(()), warned: AtomicBool::new(false) }
    }

    /// Has a claim told of releases on a channel of a server. Returns whether they are heard by now.
    pub(crate) fn enter(&self, name: &str, lane: u16, owner: OwnerId) -> bool {
        let mut by_name = self.by_name.lock();
        if by_name.get(name).is_none_or(|known| known.lane != lane) {
            // It is new, or its slot has moved.
            by_name.insert(name.to_owned(), Channel { lane, used: true, ..Channel::default() });
            self.changes.send_replace(());
        }
        let Some(channel) = by_name.get_mut(name) else { return false };
        channel.used = true;
        if !channel.waiters.contains(&owner) {
            channel.waiters.push(owner);
        }
        channel.heard
    }

    pub(crate) fn leave(&self, name: &str, owner: OwnerId) {
        if let Some(channel) = self.by_name.lock().get_mut(name) {
            channel.waiters.retain(|waiter| *waiter != owner);
        }
    }

    /// Returns whether a claim has waited there lately.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.by_name.lock().contains_key(name)
    }

    fn wanted(&self, lane: u16) -> BTreeSet<String> {
        let by_name = self.by_name.lock();
        by_name.iter().filter(|(_, channel)| channel.lane == lane).map(|(name, _)| name.clone()).collect()
    }

    fn set_heard(&self, name: &str, lane: u16) {
        if let Some(channel) = self.by_name.lock().get_mut(name).filter(|channel| channel.lane == lane) {
            channel.heard = true;
        }
    }

    /// Gives up the channels of a server for which nobody has waited since the last round. Claims that wait enter the others again.
    fn end_round(&self, lane: u16, inbox: &Inbox) {
        self.by_name.lock().retain(|_, channel| {
            if channel.lane != lane {
                return true;
            }
            mem::take(&mut channel.waiters).into_iter().for_each(|owner| inbox.ask_again(owner));
            mem::take(&mut channel.used)
        });
    }

    /// Notes that nothing is heard from a server any more. Its waiters ask again, and from now on they poll.
    fn deafen(&self, lane: u16, inbox: &Inbox) {
        for channel in self.by_name.lock().values_mut().filter(|channel| channel.lane == lane) {
            if mem::take(&mut channel.heard) {
                channel.thread = None;
                channel.waiters.iter().for_each(|owner| inbox.ask_again(*owner));
            }
        }
    }

    /// Tells the waiters of a lock that it was released. As in Redisson, they race for it.
    fn wake(&self, name: &[u8], inbox: &Inbox) {
        let mut by_name = self.by_name.lock();
        if let Some(channel) = std::str::from_utf8(name).ok().and_then(|name| by_name.get_mut(name)) {
            channel.thread = None;
            channel.waiters.iter().for_each(|owner| inbox.ask_again(*owner));
        }
    }

    /// Returns since when at least a thread of Redisson has a lock, which Redisson writes nowhere. It is the time of the first look
    /// that saw it, as long as no release is heard, and no lease that a look saw has ended before the next look.
    pub(crate) fn held_since(&self, name: &str, thread: &str, now: Duration, ends: Duration) -> Option<Duration> {
        let mut by_name = self.by_name.lock();
        let channel = by_name.get_mut(name).filter(|channel| channel.heard)?;
        let known = channel.thread.take().filter(|(known, _, ended)| known == thread && now < *ended);
        let since = known.map_or(now, |(_, since, _)| since);
        channel.thread = Some((thread.to_owned(), since, ends));
        Some(since)
    }

    /// Listens at every server where claims wait. Never returns.
    pub(crate) async fn listen(self: &Arc<Self>, redis: &Arc<RedisStore>, inbox: &Inbox) {
        let (mut changes, mut served, mut tasks) = (self.changes.subscribe(), BTreeSet::new(), JoinSet::new());
        loop {
            changes.borrow_and_update();
            let lanes: BTreeSet<u16> = self.by_name.lock().values().map(|channel| channel.lane).collect();
            for lane in lanes {
                if served.insert(lane) {
                    tasks.spawn(serve(Arc::clone(self), Arc::clone(redis), lane, inbox.clone()));
                }
            }
            // The sender is this.
            let _ = changes.changed().await;
        }
    }

    /// Listens at one server, until nothing or little of what is open is wanted there.
    async fn hear(&self, redis: &RedisStore, lane: u16, inbox: &Inbox) -> Result<()> {
        let (clock, (mut connection, mut pushes, moves)) = (Clock::system(), redis.listen_at(lane).await?);
        let keep = async {
            let (mut open, mut changes) = (BTreeSet::new(), self.changes.subscribe());
            let mut round_ends = clock.now().after(ROUND);
            loop {
                changes.borrow_and_update();
                let wanted = self.wanted(lane);
                if wanted.is_empty() || open.difference(&wanted).count() > wanted.len() + SPARE {
                    return Ok::<(), LockError>(());
                }
                let fresh: Vec<String> = wanted.difference(&open).cloned().collect();
                for names in fresh.chunks(AT_ONCE) {
                    open.extend(self.open(&mut connection, names).await?);
                }
                open.intersection(&wanted).for_each(|name| self.set_heard(name, lane));
                tokio::select! {
                    _ = changes.changed() => {}
                    () = clock.sleep_until(round_ends) => {
                        self.end_round(lane, inbox);
                        round_ends = clock.now().after(ROUND);
                    }
                }
            }
        };
        tokio::select! {
            done = keep => done,
            () = self.receive(&mut pushes, inbox) => Err(LockError::unavailable("the connection for channels ended")),
            () = moved(moves) => Err(LockError::unavailable("the server is at another address")),
        }
    }

    /// Opens channels. Returns those that are open then.
    async fn open(&self, connection: &mut MultiplexedConnection, names: &[String]) -> Result<Vec<String>> {
        let (clock, mut message, mut open) = (Clock::system(), redis::pipe(), Vec::new());
        for name in names {
            message.cmd(self.verb.subscribe()).arg(name);
        }
        let answers = tokio::select! {
            answers = connection.send_packed_commands(&message, 0, names.len()) => answers.map_err(|error| error.to_string()),
            () = clock.sleep_until(clock.now().after(PATIENCE)) => Err("the server does not open channels in time".to_owned()),
        };
        for (name, answer) in names.iter().zip(answers.map_err(LockError::unavailable)?) {
            let Value::ServerError(error) = answer else {
                open.push(name.clone());
                continue;
            };
            // Its slot has moved, or the user may not listen. The next attempt asks again, where the slot is then.
            self.by_name.lock().remove(name);
            if error.code() != "MOVED" && !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(channel = name.as_str(), code = error.code(), "a channel is refused, so waiters poll");
            }
        }
        Ok(open)
    }

    /// Passes on what arrives, until the connection ends. If the server closes a channel by itself, the client takes that for the
    /// answer to another command, so the connection is over too.
    async fn receive(&self, pushes: &mut UnboundedReceiver<PushInfo>, inbox: &Inbox) {
        while let Some(PushInfo { kind, data }) = pushes.recv().await {
            match (kind, data.as_slice()) {
                // `0`: freed. `1`: readers may enter. Redisson ignores everything else.
                (PushKind::Message | PushKind::SMessage, [Value::BulkString(name), Value::BulkString(text)]) => {
                    if matches!(text.as_slice(), b"0" | b"1") {
                        self.wake(name, inbox);
                    }
                }
                (PushKind::SUnsubscribe | PushKind::Disconnection, _) => return,
                _ => {}
            }
        }
    }
}

/// Listens at one server whenever claims wait there. Never returns.
async fn serve(channels: Arc<Channels>, redis: Arc<RedisStore>, lane: u16, inbox: Inbox) {
    let (clock, mut backoff, mut changes) = (Clock::system(), BACKOFF, channels.changes.subscribe());
    loop {
        changes.borrow_and_update();
        if channels.wanted(lane).is_empty() {
            // The sender is in the channels.
            let _ = changes.changed().await;
            continue;
        }
        let begun = clock.now();
        let heard = channels.hear(&redis, lane, &inbox).await;
        channels.deafen(lane, &inbox);
        if let Err(error) = heard {
            tracing::debug!(node = redis.node(lane), %error, "cannot listen for releases");
            backoff.went_well_for(clock.now().since(begun));
            clock.sleep_until(clock.now().after(backoff.pause())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::types::owner::OwnerId;
    use lock_testing::{EventLog, Report, inbox};

    use super::{Channels, Verb};

    #[test]
    fn a_claim_is_told_only_where_releases_are_heard() {
        let (channels, owner) = (Channels::new(Verb::Plain), OwnerId::random());
        assert!(!channels.enter("c", 0, owner));
        channels.set_heard("c", 0);
        assert!(channels.enter("c", 0, owner) && channels.enter("c", 0, owner));
        assert_eq!(channels.by_name.lock()["c"].waiters, [owner]);
        assert!(!channels.enter("c", 7, owner), "its slot has moved to another server");
        assert_eq!((channels.wanted(0).len(), channels.wanted(7).len()), (0, 1));
    }

    #[test]
    fn a_channel_is_given_up_when_nobody_has_waited_for_a_round() {
        let (channels, owner) = (Channels::new(Verb::Plain), OwnerId::random());
        let (inbox, mut reports) = inbox(EventLog::default());
        channels.enter("c", 0, owner);
        channels.end_round(7, &inbox);
        assert_eq!(reports.try_next(), None, "that is another server");
        channels.end_round(0, &inbox);
        assert_eq!(reports.try_next(), Some(Report::AskAgain(owner)), "whoever waits enters again");
        assert!(channels.knows("c"));
        channels.end_round(0, &inbox);
        assert!(!channels.knows("c"));
    }

    #[test]
    fn a_thread_has_a_lock_since_it_was_seen_unless_it_may_have_taken_the_lock_anew() {
        let (channels, (inbox, _reports)) = (Channels::new(Verb::Plain), inbox(EventLog::default()));
        let look = |thread: &str, now: u64, left: u64| {
            let now = Duration::from_secs(now);
            channels.held_since("c", thread, now, now + Duration::from_secs(left)).map(|since| since.as_secs())
        };
        assert_eq!(look("a:1", 99, 30), None, "nobody waits");
        channels.enter("c", 0, OwnerId::random());
        assert_eq!(look("a:1", 99, 30), None, "a release would not be heard");
        channels.set_heard("c", 0);
        // A watchdog renews the lease every ten seconds.
        for now in 100..5000 {
            assert_eq!(look("a:1", now, 30 - now % 10), Some(100));
        }
        channels.wake(b"c", &inbox);
        assert_eq!(look("a:1", 5000, 30), Some(5000), "it released the lock, and took it again at once");
        assert_eq!(look("a:1", 5029, 30), Some(5000));
        assert_eq!(look("a:1", 5059, 30), Some(5059), "its lease may have ended, which nobody publishes");
        assert_eq!(look("a:2", 5060, 30), Some(5060), "another thread");
        channels.deafen(0, &inbox);
        assert_eq!(look("a:2", 5061, 30), None, "the connection is gone");
        channels.set_heard("c", 0);
        assert_eq!(look("a:2", 5062, 30), Some(5062), "a release may have gone unheard");
        channels.enter("c", 7, OwnerId::random());
        channels.set_heard("c", 7);
        assert_eq!(look("a:2", 5063, 30), Some(5063), "another server");
    }
}
