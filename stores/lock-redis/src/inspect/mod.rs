//! Reads the locks of a whole fleet from Redis, for people and for inspectors.
//!
//! An acquire does not use this module. A scan is paced and bounded, reads at most a kilobyte of a
//! value, and never writes.

mod holders;
mod records;
mod release;
mod scan;
pub(super) mod servers;
mod topology;
mod waiters;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use redis::Value;

use crate::calls::run::Operation as _;
use crate::calls::wrong_type::FindOtherType;
use crate::error::WrongType;
use crate::inspect::servers::{Answer, Servers, within};
use crate::masters::Masters;
use crate::protocol::{keys, steps, value};
use crate::server::node::{Node, Way};
use crate::{RedisStore, error};
use lock_store::contract::backend::{
    AnyBackend, EntryState, FleetHolder, Freed, Inspector, JobRecord, LockEntry, Revocation, ScanPage, ScanPosition,
    Waiter,
};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;

pub use topology::{Part, Server, of_members, of_store};

/// How much of a value is read. Ours are shorter; a foreign string may be of any size.
const VALUE_READ: isize = 1024;

/// A node of a cluster stands for all of it here, whatever the URL says.
impl Inspector for RedisStore {
    async fn scan(&self, prefix: &str, limit: u32, after: Option<&ScanPosition>) -> Result<ScanPage> {
        self.servers().page(prefix, limit, after).await
    }

    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        self.servers().entry(key).await
    }

    async fn waiters(&self, key: &LockKey) -> Result<Vec<Waiter>> {
        keys::Keys::of(key)?;
        let servers = self.servers();
        servers.told(waiters::read(servers, key).await, key).await
    }

    async fn revoke(&self, key: &LockKey, revocation: &Revocation) -> Result<Freed> {
        let servers = self.servers();
        servers.told(servers.revoke(key, revocation).await, key).await
    }

    async fn sharers(&self, key: &LockKey) -> Result<Vec<FleetHolder>> {
        let servers = self.servers();
        servers.told(holders::read(servers, key).await, key).await
    }

    async fn job(&self, key: &LockKey) -> Result<Option<JobRecord>> {
        let servers = self.servers();
        let from = servers.reachable().await?;
        servers.told(records::job(servers, &from, key).await, key).await
    }

    async fn keeper(&self, key: &LockKey) -> Result<Option<AnyBackend>> {
        let servers = self.servers();
        let keeper = servers.keeper_of(key).await?;
        // The one server of a store is that store, unless the URL named a node of a cluster.
        let is_this = matches!(&self.masters, Masters::One(node) if Arc::ptr_eq(node, &keeper));
        Ok((!is_this).then(|| AnyBackend::new(RedisStore::over(Masters::One(keeper)))))
    }
}

impl RedisStore {
    pub(crate) fn servers(&self) -> &Servers {
        self.servers.get_or_init(|| Servers::of(&self.masters))
    }
}

impl Servers {
    /// Reads one lock.
    async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>> {
        keys::Keys::of(key)?;
        let server = self.reachable().await?;
        let found = self.read(&server, std::slice::from_ref(key)).await;
        let found = match self.told(found, key).await?.into_iter().next() {
            Some(Found::Mistyped) => Err(error::mistyped(key.as_str())),
            found => Ok(found.and_then(Found::entry)),
        };
        self.told(found, key).await
    }

    /// Names the key that is of another type, if a failure is about one.
    async fn told<T>(&self, answer: Result<T>, key: &LockKey) -> Result<T> {
        let error = match answer {
            Err(error) if WrongType::is_of(&error) => error,
            told => return told,
        };
        let Ok(keeper) = self.keeper_of(key).await else { return Err(error) };
        let found = within(&keeper, "say what lies there", FindOtherType(key, None).at(&keeper, Way::default())).await;
        Err(found.ok().flatten().unwrap_or(error))
    }

    /// Reads locks of a server, with their leases and the length of their queues, in one pipeline.
    async fn read(&self, server: &Arc<Node>, keys: &[LockKey]) -> Result<Vec<Found>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = Vec::with_capacity(3 * keys.len());
        for key in keys {
            let left = redis::cmd("PTTL").arg(key.as_str()).to_owned();
            commands.extend([records::get(key.as_str()), left, waiters::count(key)?]);
        }
        let answers = self.ask(server, "read locks", &commands).await?;
        let found = keys.iter().zip(answers.chunks_exact(3)).map(|(key, answers)| found_at(key, answers));
        let mut found = found.collect::<Result<Vec<Found>>>()?;
        let shared = found.iter_mut().filter_map(|found| match found {
            Found::Entry(entry) if entry.state == EntryState::Shared => Some(&mut **entry),
            _ => None,
        });
        holders::note_modes(self, server, &mut shared.collect::<Vec<_>>()).await?;
        Ok(found)
    }
}

fn found_at(key: &LockKey, answers: &[Answer]) -> Result<Found> {
    let [text, left, waiters] = answers else { unreachable!("three commands have three answers") };
    let now = text.now;
    let text = match &text.value {
        Value::BulkString(text) => text,
        Value::ServerError(error) if error.code() == "WRONGTYPE" => return Ok(Found::Mistyped),
        _ => return Err(text.refusal("read")),
    };
    let left = match &left.value {
        Value::Int(-2) => return Ok(Found::Nothing),
        Value::Int(left) => steps::time_left(*left),
        _ => return Err(left.refusal("read")),
    };
    // The server itself counts a missing queue as 0. If it refuses to count, the number is unknown: the user may
    // not read it, or the key has another type.
    let waiters = if let Value::Int(waiters) = waiters.value { u64::try_from(waiters).ok() } else { None };
    let mut entry = LockEntry::new(key.clone(), value::holder(text, left), UNIX_EPOCH + Duration::from_micros(now));
    entry.waiters = waiters;
    entry.units = value::units(text);
    if entry.units.is_some() {
        entry.state = EntryState::Shared;
    }
    match entry.state {
        EntryState::Held => entry.ttl = value::ttl(text),
        EntryState::Foreign => entry.foreign_value = Some(text.clone()),
        _ => {}
    }
    Ok(Found::Entry(Box::new(entry)))
}

/// The content of a key.
enum Found {
    Entry(Box<LockEntry>),
    Nothing,
    /// A type other than a string.
    Mistyped,
}

impl Found {
    fn entry(self) -> Option<LockEntry> {
        if let Self::Entry(entry) = self { Some(*entry) } else { None }
    }
}
