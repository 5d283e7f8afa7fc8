//! The state that the calls of a store share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lock_store::thread::ThreadState;
use lock_store::types::system::sync::Mutex;
use lock_store::{Holder, LockKey, Result, Timestamp};
use tokio::sync::Semaphore;
use zookeeper_client::{Error, Stat};

use crate::data::{ClaimData, KeptData, between};
use crate::error::{Answer, foreign};
use crate::names::{KeyHash, Line, Paths};
use crate::places::{Known, Places};
use crate::session::{Read, Session, make_beat, sleep};
use crate::slot::Slot;
use crate::url::Settings;

/// For how long a lock counts as contended after it was found taken, and how many are remembered.
const CONTENDED: Duration = Duration::from_secs(10);
const MOST: usize = 4096;

/// The number of a transaction, and the base as it was known when the answer or the event with this number came.
pub(crate) type Numbers = (i64, Option<Read>);

/// How many bytes of paths claims watch. After a reconnection, the client mixes up the answers if it has to send more than 128 KiB.
const WATCHED: usize = 96 * 1024;

/// The state that the calls of a store share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) paths: Paths,
    thread: ThreadState,
    /// The session of the locks.
    pub(crate) locks: Slot,
    /// The session of everything that may be large: a long answer on the other one would delay renewals.
    pub(crate) looks: Slot,
    pub(crate) places: Places,
    /// A time of the server's clock, and when the request was sent that it answered.
    server_time: Mutex<(Timestamp, i64)>,
    contended: Mutex<HashMap<LockKey, Timestamp>>,
    pub(crate) watched: Semaphore,
}

impl Deref for Shared {
    type Target = ThreadState;

    fn deref(&self) -> &ThreadState {
        &self.thread
    }
}

impl Shared {
    pub(crate) fn new(settings: Settings, thread: ThreadState) -> Self {
        Self {
            paths: Paths::new(settings.root.clone()),
            settings,
            thread,
            locks: Slot::new(false),
            looks: Slot::new(true),
            places: Places::default(),
            server_time: Mutex::new((Timestamp::from_nanos(0), 0)),
            contended: Mutex::default(),
            watched: Semaphore::new(WATCHED),
        }
    }

    /// Returns the session of the locks.
    pub(crate) async fn session(&self, until: Timestamp) -> Result<Arc<Session>> {
        self.locks.session(&self.settings, &self.clock, until).await
    }

    /// Ends the claims of a session that has ended, before there is another one.
    pub(crate) fn lose(&self, session: &Session) {
        self.places.lose(session.id);
        if self.locks.leave(session)
            && let Some(inbox) = self.inbox()
        {
            // Every holder asks at once, and learns that its lock is lost.
            inbox.reconnected();
        }
        self.looks.leave(session);
    }

    /// Notes an answered write, and the time of the server's clock in its answer.
    pub(crate) fn note_written(&self, session: &Session, sent: Timestamp, millis: i64) {
        session.note_written(sent);
        let mut known = self.server_time.lock();
        if sent >= known.0 {
            *known = (sent, millis);
        }
    }

    /// Returns the time of the server's clock, or one that is later by the time of an answer.
    pub(crate) fn server_now(&self) -> i64 {
        let (sent, millis) = *self.server_time.lock();
        let since = i64::try_from(self.now().since(sent).as_millis()).unwrap_or(0);
        millis.saturating_add(since).saturating_add(1)
    }

    pub(crate) fn note_contended(&self, key: &LockKey) {
        let mut contended = self.contended.lock();
        if contended.len() >= MOST {
            contended.clear();
        }
        contended.insert(key.clone(), self.now());
    }

    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        self.contended.lock().get(key).is_some_and(|found| self.now().since(*found) < CONTENDED)
    }

    /// Writes to the node of a session. It is sent at once, before the returned future is polled, and what is read behind it is not older.
    pub(crate) fn write<'a>(&'a self, session: &'a Session) -> impl Future<Output = Answer<Stat>> + Send + 'a {
        let (sent, write) = (self.now(), session.client.set_data(&session.beat, &[], None));
        async move {
            let stat = match write.await {
                // An operator has removed the node. Without it, no lease of this session could be extended any more.
                Err(Error::NoNode) => match make_beat(&session.client, &self.settings, &self.paths).await {
                    // Another call was first.
                    Err(Error::NodeExists) => session.client.set_data(&session.beat, &[], None).await?,
                    made => made?,
                },
                written => written?,
            };
            self.note_written(session, sent, stat.mtime);
            Ok(stat)
        }
    }

    /// Reads which claims a lock has.
    pub(crate) async fn line(&self, session: &Session, hash: KeyHash) -> Result<Line> {
        Ok(Line::of(hash, &session.children(&self.paths.shard(hash.shard())).await?))
    }

    /// Reads which claims a lock has, the number of the newest transaction that added or removed one, and the base as it is known then.
    ///
    /// The number makes the token of a claim that is the first. It exceeds the tokens of all holders before, because their nodes were
    /// removed after their grants. All later holders are granted theirs after the removal of this claim's node.
    pub(crate) async fn standing(&self, session: &Session, hash: KeyHash) -> Answer<(Line, Numbers)> {
        // Both from one answer: a number that is read later may be that of the removal of a listed name.
        let (names, stat) = session.client.get_children(&self.paths.shard(hash.shard())).await?;
        Ok((Line::of(hash, &names), (stat.pzxid, session.known_base())))
    }

    /// Reads by what a released lock is kept. A time that is over keeps nothing, and its node is removed.
    pub(crate) async fn kept(&self, session: &Session, key: &LockKey, now: i64) -> Result<Option<KeptData>> {
        let path = self.paths.kept(KeyHash::of(key));
        let Some((data, stat)) = session.read(&path).await? else { return Ok(None) };
        let kept = KeptData::read(&data).ok_or_else(|| foreign(&path, key))?;
        if kept.until > now {
            return Ok(Some(kept));
        }
        session.remove_read(&path, &stat).await.map(|()| None)
    }

    /// Describes the holder of a lock. The holder may have gone since the line was read.
    pub(crate) async fn holder(&self, session: &Session, key: &LockKey, line: &Line) -> Result<Option<Holder>> {
        let now = self.server_now();
        if line.kept
            && let Some(kept) = self.kept(session, key, now).await?
        {
            return Ok(Some(kept_holder(&kept, now)));
        }
        let Some(first) = line.claims.first() else { return Ok(None) };
        let path = self.paths.beside(KeyHash::of(key), &first.name);
        let Some((data, stat)) = session.read(&path).await? else { return Ok(None) };
        let data = ClaimData::read(&data).ok_or_else(|| foreign(&path, key))?;
        // Another process may have renewed its lease just now. If it is dead, its lock ends with its session.
        let left = self.places.left(first.owner, self.now()).unwrap_or_else(|| data.ttl.min(data.session));
        let mut holder = Holder::foreign(Some(left));
        (holder.owner, holder.info, holder.since) = (Some(first.owner), Some(data.info), since(stat.mtime));
        Ok(Some(holder))
    }

    /// Describes what is in the way of a claim.
    pub(crate) async fn in_the_way(&self, session: &Session, key: &LockKey, line: &Line) -> Result<Holder> {
        self.note_contended(key);
        Ok(self.holder(session, key, line).await?.unwrap_or_else(Holder::unseen))
    }

    /// Writes to the node of a claim. From now on, its time tells since when the lock is held.
    ///
    /// The number of this transaction exceeds those of all grants before, unlike the number of the one that made the node: the holder
    /// before may have been granted its lock again since.
    pub(crate) async fn rewrite(&self, session: &Session, place: &Known) -> Answer<Stat> {
        let sent = self.now();
        let stat = session.client.set_data(&place.path, &place.data.write(), None).await?;
        self.note_written(session, sent, stat.mtime);
        Ok(stat)
    }

    /// Removes a node, and does not give up before it is gone or the session has ended.
    pub(crate) async fn remove(&self, session: &Session, path: &str) {
        while !session.has_ended() {
            match session.client.delete(path, None).await {
                Ok(()) | Err(Error::NoNode) => return,
                Err(error) => {
                    tracing::debug!(%error, "a node of a lock that is over is not removed yet");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Describes a lock that was released and stays taken.
pub(crate) fn kept_holder(kept: &KeptData, now: i64) -> Holder {
    let mut holder = Holder::foreign(Some(between(now, kept.until)));
    (holder.info, holder.since) = (Some(kept.info.clone()), since(kept.since));
    holder.kept()
}

/// Reads a time of the server's clock.
pub(crate) fn since(millis: i64) -> Option<std::time::SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(millis).ok()?))
}
