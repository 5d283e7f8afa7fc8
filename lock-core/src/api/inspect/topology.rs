//! Finds the servers behind a URL.

use lock_quorum::{Quorum, take_members};
use lock_redis::RedisStore;
use lock_redis::inspect::{Server, of_members, of_store};
use lock_store::contract::backend::LockBackend as _;
use lock_store::types::error::Result;
use lock_store::types::options::Durability;
use lock_store::types::url::StoreUrl;

/// The servers behind one URL, as they were found.
///
/// ```no_run
/// use lock_core::inspect::Topology;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let topology = Topology::read("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster?acks=1").await?;
/// for server in &topology.servers {
///     println!("{} ({}): {:?}", server.name, server.part.as_str(), server.problem);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Topology {
    /// `server`, `sentinel`, `cluster` or `quorum`.
    pub kind: &'static str,
    /// Where locks must have arrived before they count, if their requests do not say: that of the URL.
    pub durability: Durability,
    /// Of a quorum: how many members must grant a lock.
    pub majority: Option<usize>,
    /// Every server that is known: each master with its replicas after it, then sentinels.
    pub servers: Vec<Server>,
}

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
            ["layout", "redisson_publish"].iter().try_for_each(|other| url.take(other).map(drop))?;
            let store = RedisStore::read(url)?;
            let (kind, servers) = of_store(&store).await?;
            return Ok(Self { kind, durability: store.durability(), majority: None, servers });
        }
        let (members, quorum) = (take_members(&mut url.clone())?, Quorum::read(url)?);
        let mut servers = of_members(members, quorum.list()).await;
        for server in &mut servers {
            server.excluded_for = server.excluded_for.filter(|_| !quorum.remembers());
            let other = server.lists.iter().find(|other| !quorum.fits(other));
            server.disagrees = other.is_some();
            server.problem = server.problem.take().or_else(|| {
                let other = other?;
                Some(format!("it also serves a quorum of {} of the members {}", other.majority, other.names.join(", ")))
            });
        }
        let majority = Some(quorum.list().majority);
        Ok(Self { kind: "quorum", durability: Durability::Master, majority, servers })
    }
}
