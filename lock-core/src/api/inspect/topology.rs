//! Finds the servers behind a URL.

use crate::api::connect::{open, redlock};
use crate::api::inspect::FleetReader;
use crate::contract::backend::AnyBackend;
use crate::stores::quorum::Quorum;
use crate::stores::redis::RedisStore;
use crate::stores::redis::inspect::Topology;
use crate::types::error::Result;
use crate::types::url::StoreUrl;

impl Topology {
    /// Asks every server behind a URL of Redis: one server, sentinels, a cluster or a quorum.
    ///
    /// A server that cannot be asked, or that has a wrong state, is listed with its
    /// [`problem`](crate::inspect::Server::problem).
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the URL cannot be read. The message
    /// never repeats the URL.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn read(url: &str) -> Result<Self> {
        let mut url = StoreUrl::read(url);
        if !url.is_quorum() {
            url.take_key_prefix()?;
            return Self::of_store(&RedisStore::read(url)?).await;
        }
        let (members, quorum) = (redlock::take_members(&mut url.clone())?, Quorum::read(url)?);
        let mut topology = Self::of_members(members, quorum.list()).await;
        for server in &mut topology.servers {
            server.excluded_for = server.excluded_for.filter(|_| !quorum.remembers());
            let other = server.lists.iter().find(|other| !quorum.fits(other));
            server.disagrees = other.is_some();
            server.problem = server.problem.take().or_else(|| {
                let other = other?;
                Some(format!("it also serves a quorum of {} of the members {}", other.majority, other.names.join(", ")))
            });
        }
        Ok(topology)
    }
}

impl FleetReader {
    /// Names the servers behind a URL, one by one: the members of a quorum, or the one store of any other URL.
    ///
    /// ```
    /// use lock_core::inspect::FleetReader;
    ///
    /// let members = FleetReader::members("redlock://10.0.0.1,10.0.0.2,10.0.0.3")?;
    /// assert_eq!(members[2].node(), "10.0.0.3:6379");
    /// assert_eq!(FleetReader::members("redis://10.0.0.1")?.len(), 1);
    /// # Ok::<(), lock_core::LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new).
    pub fn members(url: &str) -> Result<Vec<Self>> {
        let mut url = StoreUrl::read(url);
        let prefix = url.take_key_prefix()?;
        if !url.is_quorum() {
            return Ok(vec![Self::of(open(url)?.0).within(prefix.as_deref())]);
        }
        // Finds mistakes in the list as a whole.
        Quorum::read(url.clone())?;
        let members = redlock::take_members(&mut url)?.into_iter().map(AnyBackend::new);
        Ok(members.map(|member| Self::of(member).within(prefix.as_deref())).collect())
    }
}
