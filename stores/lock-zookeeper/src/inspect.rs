//! The locks of a whole fleet. These calls have a session of their own, so a long answer delays no renewal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lock_store::{
    Freed, Holder, Inspector, JobRecord, LockEntry, LockError, LockKey, Mode, Result, Revocation, RevokeFrom, ScanPage,
    ScanPosition, Waiter,
};
use zookeeper_client::MultiWriteError::OperationFailed;
use zookeeper_client::{CreateMode, Error, MultiReadResult};

use crate::calls::beside;
use crate::data::{ClaimData, JobData, KeptData, MarkData, between, write_revocation};
use crate::error::of_request;
use crate::names::{KeyHash, Line, read};
use crate::session::{Read, Session, acls};
use crate::shared::{Shared, kept_holder, since};
use crate::store::ZooKeeper;

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(10);

/// How many nodes are read in one request, and how many waiters are listed.
const TOGETHER: usize = 100;
const MOST_WAITERS: usize = 1000;

impl ZooKeeper {
    /// Runs a look in the session for looks.
    async fn look<A: Send + 'static, F: Future<Output = Result<A>> + Send>(
        &self,
        ask: impl FnOnce(Arc<Shared>, Arc<Session>) -> F + Send + 'static,
    ) -> Result<A> {
        let look = move |shared: Arc<Shared>, until| async move {
            let session = shared.looks.session(&shared.settings, &shared.clock, until).await?;
            // Its server may be behind. When it answers a write, it has all that was answered to others before.
            shared.write(&session).await.map_err(of_request)?;
            ask(Arc::clone(&shared), session).await
        };
        self.thread.ask_within(LOOK, look).await
    }
}

impl Inspector for ZooKeeper {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let from = after.map_or(Some(0), |after| after.get::<u16>().copied());
        let Some(from) = from else {
            return Err(LockError::misconfigured("the position of the walk is of another store"));
        };
        let prefix = prefix.to_owned();
        self.look(move |shared, session| async move { step(&shared, &session, &prefix, limit, from).await }).await
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        let (key, hash) = (key.clone(), KeyHash::of(key));
        self.look(move |shared, session| async move {
            let line = shared.line(&session, hash).await?;
            let seen = see(&shared, &session, vec![(hash, line)]).await?;
            Ok(seen.entries.into_iter().find(|entry| entry.key == key))
        })
        .await
    }

    async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        let key = key.clone();
        self.look(move |shared, session| async move { waiters(&shared, &session, &key).await }).await
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        // No other library writes such nodes.
        let RevokeFrom::Owner(owner) = revocation.from else { return Ok(Freed::NotHeld) };
        let (key, note) = (key.clone(), write_revocation(&revocation.actor, &revocation.reason));
        self.look(move |shared, session| async move {
            let hash = KeyHash::of(&key);
            let line = shared.line(&session, hash).await?;
            let is_kept = line.kept && shared.kept(&session, &key, shared.server_now()).await?.is_some();
            let first = line.claims.first().filter(|first| first.owner == owner && !is_kept);
            let Some(first) = first else { return Ok(Freed::NotHeld) };
            let (path, mut told) = (shared.paths.beside(hash, &first.name), shared.paths.revoked_from(owner));
            loop {
                // The name of the node has its owner, so only this claim can lose it.
                let mut step = session.client.new_multi_writer();
                let options = CreateMode::Ephemeral.with_acls(acls(&shared.settings));
                let mut added = step.add_delete(&path, None);
                if !told.is_empty() {
                    added = added.and_then(|()| step.add_create(&told, &note, &options));
                }
                added.map_err(of_request)?;
                match step.commit().await {
                    Ok(_) => return Ok(Freed::Released),
                    Err(OperationFailed { index: 0, source: Error::NoNode }) => return Ok(Freed::NotHeld),
                    // Another operator has told the holder, a quota is used up, or the directory is gone: without a note, the holder
                    // learns of it when it renews.
                    Err(OperationFailed { index: 1, .. }) => told.clear(),
                    Err(error) => return Err(of_request(error).with_key(&key)),
                }
            }
        })
        .await
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let key = key.clone();
        self.look(move |shared, session| async move { beside::last_run(&shared, &session, &key).await }).await
    }
}

/// Reads many nodes. `None` for one that is gone.
async fn read_many(session: &Session, paths: &[String]) -> Result<Vec<Read>> {
    let mut all = Vec::with_capacity(paths.len());
    for paths in paths.chunks(TOGETHER) {
        let mut reader = session.client.new_multi_reader();
        for path in paths {
            reader.add_get_data(path).map_err(of_request)?;
        }
        for found in reader.commit().await.map_err(of_request)? {
            match found {
                MultiReadResult::Data { data, stat } => all.push(Some((data, stat))),
                MultiReadResult::Error { err } if err != Error::NoNode => return Err(of_request(err)),
                _ => all.push(None),
            }
        }
    }
    Ok(all)
}

/// The locks and jobs of some directories.
#[derive(Default)]
struct Seen {
    entries: Vec<LockEntry>,
    jobs: Vec<(LockKey, JobRecord)>,
}

/// Reads the first claims of some locks, what keeps them, and the records of their jobs.
async fn see(shared: &Shared, session: &Session, lines: Vec<(KeyHash, Line)>) -> Result<Seen> {
    let mut paths = Vec::new();
    for (hash, line) in &lines {
        paths.extend(line.claims.first().map(|first| shared.paths.beside(*hash, &first.name)));
        paths.extend(line.kept.then(|| shared.paths.kept(*hash)));
        paths.extend(line.job.then(|| shared.paths.job(*hash)));
    }
    let read = read_many(session, &paths).await?;
    let owners = read.iter().flatten().map(|(_, stat)| stat.ephemeral_owner).filter(|owner| *owner != 0);
    let mut beats: HashMap<i64, i64> = owners.map(|owner| (owner, 0)).collect();
    let sessions: Vec<i64> = beats.keys().copied().collect();
    let paths: Vec<String> = sessions.iter().map(|session| shared.paths.beat(*session)).collect();
    for (session, beat) in sessions.into_iter().zip(read_many(session, &paths).await?) {
        beats.insert(session, beat.map_or(0, |(_, stat)| stat.mtime));
    }
    let (now, mut read, mut seen) = (shared.server_now(), read.into_iter(), Seen::default());
    for (hash, line) in &lines {
        let first = line.claims.first().and_then(|first| Some((first, read.next().flatten()?)));
        let kept = if line.kept { read.next().flatten() } else { None };
        let job = if line.job { read.next().flatten() } else { None };
        let kept = kept.and_then(|(data, _)| KeptData::read(&data)).filter(|kept| kept.until > now);
        if let Some(job) = job.and_then(|(data, _)| JobData::read(&data)) {
            let key = job.key.clone();
            seen.jobs.extend(job.record(now).map(|record| (key, record)));
        }
        let time = since(now).unwrap_or(UNIX_EPOCH);
        let waiting = |behind: usize| u64::try_from(line.claims.len().saturating_sub(behind)).ok();
        if let Some(kept) = kept {
            let mut entry = LockEntry::new(kept.key.clone(), kept_holder(&kept, now), time);
            (entry.waiters, entry.details) = (waiting(0), vec![("node", shared.paths.kept(*hash))]);
            seen.entries.push(entry);
        } else if let Some((first, (data, stat))) = first {
            // Only this library writes such names.
            let Some(data) = ClaimData::read(&data) else { continue };
            // Its process has renewed its claims when it last wrote, or this one was granted later.
            let confirmed = beats.get(&stat.ephemeral_owner).copied().unwrap_or(0).max(stat.mtime);
            let left = data.ttl.saturating_sub(between(confirmed, now));
            let left = shared.places.left(first.owner, shared.now()).unwrap_or(left);
            let mut holder = Holder::foreign(Some(left));
            (holder.owner, holder.info, holder.since) = (Some(first.owner), Some(data.info), since(stat.mtime));
            let mut entry = LockEntry::new(data.key, holder, time);
            (entry.waiters, entry.ttl) = (waiting(1), Some(data.ttl));
            let session = format!("{:#x}, which ends {:?} after its process", stat.ephemeral_owner, data.session);
            entry.details.push(("session", session));
            seen.entries.push(entry);
        }
    }
    Ok(seen)
}

/// Reads the directories from one on, until enough nodes were visited.
async fn step(shared: &Shared, session: &Session, prefix: &str, limit: u32, from: u16) -> Result<ScanPage> {
    let mut shards = session.children(&shared.paths.locks).await?;
    shards.extend(session.children(&shared.paths.all_marks).await?);
    let mut shards: Vec<u16> = shards.iter().filter_map(|name| u16::from_str_radix(name, 16).ok()).collect();
    shards.retain(|shard| *shard >= from);
    shards.sort_unstable();
    shards.dedup();
    let (mut page, mut shards) = (ScanPage::new(&*shared.settings.hosts), shards.into_iter().peekable());
    while let Some(shard) = shards.next() {
        let mut lines: BTreeMap<String, (KeyHash, Line)> = BTreeMap::new();
        for name in session.children(&shared.paths.shard(shard)).await? {
            if let Some((hash, child)) = read(&name) {
                lines.entry(hash.to_string()).or_insert_with(|| (hash, Line::default())).1.add(&name, child);
            }
        }
        let mut lines: Vec<(KeyHash, Line)> = lines.into_values().collect();
        lines.iter_mut().for_each(|(_, line)| line.sort());
        page.visited += lines.len() as u64;
        let seen = see(shared, session, lines).await?;
        page.entries.extend(seen.entries.into_iter().filter(|entry| entry.key.as_str().starts_with(prefix)));
        page.jobs.extend(seen.jobs.into_iter().filter(|(key, _)| key.as_str().starts_with(prefix)));
        let folder = shared.paths.marks(shard);
        let names = session.children(&folder).await?;
        let marks: Vec<String> = names.iter().map(|name| format!("{folder}/{name}")).collect();
        page.visited += marks.len() as u64;
        for (data, _) in read_many(session, &marks).await?.into_iter().flatten() {
            let mark = MarkData::read(&data).filter(|mark| mark.key.as_str().starts_with(prefix));
            let Some(mark) = mark else { continue };
            let key = mark.key.clone();
            page.done.extend(mark.mark(shared.server_now()).map(|mark| (key, mark)));
        }
        if page.visited >= u64::from(limit.max(1)) && shards.peek().is_some() {
            page.next = Some(ScanPosition::new(shard + 1));
            break;
        }
    }
    Ok(page)
}

/// Lists the claims behind the holder.
async fn waiters(shared: &Shared, session: &Session, key: &LockKey) -> Result<Vec<Waiter>> {
    let hash = KeyHash::of(key);
    let line = shared.line(session, hash).await?;
    let now = shared.server_now();
    let is_kept = line.kept && shared.kept(session, key, now).await?.is_some();
    let behind: Vec<_> = line.claims.iter().skip(usize::from(!is_kept)).take(MOST_WAITERS).collect();
    let paths: Vec<String> = behind.iter().map(|claim| shared.paths.beside(hash, &claim.name)).collect();
    let mut waiters = Vec::new();
    for (claim, read) in behind.into_iter().zip(read_many(session, &paths).await?) {
        let Some((data, stat)) = read else { continue };
        let mut waiter = Waiter::new(waiters.len() + 1, claim.owner, between(stat.ctime, now));
        (waiter.info, waiter.mode) = (ClaimData::read(&data).map(|data| data.info), Some(Mode::Exclusive));
        waiters.push(waiter);
    }
    Ok(waiters)
}
