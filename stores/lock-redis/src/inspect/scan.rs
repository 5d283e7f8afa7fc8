//! Walks through the keys of a server, or of every master of a cluster.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::Value;

use crate::connection::slots::Topology;
use crate::connection::url::Address;
use crate::inspect::records;
use crate::inspect::servers::{Fleet, Servers, within};
use crate::protocol::keys;
use crate::server::node::Node;
use lock_store::contract::backend::{JobVersion, ScanPage, ScanPosition};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

/// Where a walk goes on.
#[derive(Clone)]
struct Position {
    /// The server that is being read.
    server: Arc<Node>,
    /// Where to continue in its keys.
    cursor: u64,
    cluster: Option<Cluster>,
}

/// The rest of a walk through a cluster.
#[derive(Clone)]
struct Cluster {
    /// The cluster as it was when its masters were listed.
    now: Topology,
    /// The masters that are still to be read.
    ahead: VecDeque<Address>,
    /// Whether masters that are taking over a slot have been listed to be read again. Once is enough:
    /// locks that they were given later were seen on their previous master.
    settled: bool,
}

impl Servers {
    /// Reads the next locks of a walk.
    pub(super) async fn page(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        let (server, mut page, Names { locks, jobs, marks, .. }) = self.names(("string", prefix), limit, after).await?;
        page.entries = self.read(&server, &locks).await?.into_iter().filter_map(super::Found::entry).collect();
        page.jobs = records::jobs(self, &server, &jobs).await?;
        page.done = records::marks(self, &server, &marks).await?;
        Ok(page)
    }

    /// Reads the next keys of a type that are below a prefix.
    ///
    /// When all masters of a cluster have been read, those that took over slots meanwhile, or are doing so, are read again.
    pub(crate) async fn names(
        &self,
        of: (&str, &str),
        limit: u32,
        after: Option<&ScanPosition>,
    ) -> Result<(Arc<Node>, ScanPage, Names)> {
        let at = match after.and_then(ScanPosition::get::<Position>) {
            Some(position) => position.clone(),
            None => self.begin().await?,
        };
        let Position { server, cursor, cluster } = at;
        let mut found = within(&server, "scan", names(&server, cursor, of, limit)).await?;
        let is_below = |lock: &LockKey| lock.as_str().starts_with(of.1);
        found.locks.retain(is_below);
        found.jobs.retain(is_below);
        found.marks.retain(|(lock, _)| is_below(lock));
        let mut page = ScanPage::new(server.name());
        page.visited = u64::from(limit);
        page.next = match cluster {
            cluster if found.next > 0 => Some(Position { server: Arc::clone(&server), cursor: found.next, cluster }),
            Some(cluster) => self.next_master(cluster).await?,
            None => None,
        }
        .map(ScanPosition::new);
        Ok((server, page, found))
    }

    async fn begin(&self) -> Result<Position> {
        match self.look().await? {
            Fleet::One(server) => Ok(Position { server, cursor: 0, cluster: None }),
            Fleet::Cluster(now) => {
                let mut ahead: VecDeque<Address> = now.masters().into_iter().cloned().collect();
                // All slots are served, because each has a master.
                let first = ahead.pop_front().ok_or_else(|| self.named.unreadable("tell who serves which slot"))?;
                let server = self.master(&first).await?;
                Ok(Position { server, cursor: 0, cluster: Some(Cluster { now, ahead, settled: false }) })
            }
        }
    }

    /// Finds the master to continue with; `None` at the end.
    async fn next_master(&self, Cluster { mut now, mut ahead, mut settled }: Cluster) -> Result<Option<Position>> {
        if ahead.is_empty() {
            let Fleet::Cluster(then) = self.look().await? else { return Ok(None) };
            let grown = if settled { Vec::new() } else { self.grown(&then).await? };
            ahead = then.gained_since(&now).into_iter().chain(&grown).cloned().collect();
            (now, settled) = (then, true);
        }
        let Some(next) = ahead.pop_front() else { return Ok(None) };
        let server = self.master(&next).await?;
        Ok(Some(Position { server, cursor: 0, cluster: Some(Cluster { now, ahead, settled }) }))
    }
}

/// Reads the names of keys, of which some only contain the prefix.
async fn names(server: &Node, cursor: u64, (of, prefix): (&str, &str), limit: u32) -> Result<Names> {
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("COUNT").arg(limit).arg("TYPE").arg(of);
    if !prefix.is_empty() {
        // The name of what lies beside a lock mostly begins with a brace.
        command.arg("MATCH").arg(format!("*{}*", literal(prefix)));
    }
    let connection = server.pool.connection().await?;
    let answer = connection.link.send(&command).await.map_err(|error| server.failed("scan", &error))?;
    read(answer).ok_or_else(|| server.unreadable("scan"))
}

/// The keys that a server names in one answer.
pub(crate) struct Names {
    /// Where to continue.
    next: u64,
    /// Keys that locks can have.
    pub(crate) locks: Vec<LockKey>,
    /// The keys of the locks of jobs whose records lie there.
    jobs: Vec<LockKey>,
    /// The keys of the locks, and the versions, of the marks that lie there.
    marks: Vec<(LockKey, JobVersion)>,
}

/// Reads an answer of SCAN. Keys that no lock can have are left out.
fn read(answer: Value) -> Option<Names> {
    let Value::Array(parts) = answer else { return None };
    let Ok([Value::BulkString(cursor), Value::Array(found)]) = <[Value; 2]>::try_from(parts) else { return None };
    let next = std::str::from_utf8(&cursor).ok()?.parse().ok()?;
    let mut names = Names { next, locks: Vec::new(), jobs: Vec::new(), marks: Vec::new() };
    for name in found {
        let Value::BulkString(name) = name else { continue };
        let Ok(name) = String::from_utf8(name) else { continue };
        // First: a version may end as other names do.
        if let Some((lock, version)) = keys::marks::lock_of_mark(&name) {
            let lock = LockKey::new(lock).ok().filter(|lock| !keys::is_reserved(lock.as_str()));
            names.marks.extend(lock.zip(JobVersion::new(version).ok()));
        } else if let Some(lock) = keys::lock_of_job(&name) {
            names.jobs.extend(LockKey::new(lock).ok());
        } else if !keys::is_reserved(&name) {
            names.locks.extend(LockKey::new(name).ok());
        }
    }
    Some(names)
}

/// Writes text so that MATCH takes it as it is.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
