//! Where the one server of a store is: at the address of its URL, or where its sentinels say.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use crate::connection::connect::{Settings, Target};
use crate::connection::greeting::{Greeting, Listening, Opened};
use crate::sentinel::Sentinels;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::Durability;
use lock_store::types::url::StoreUrl;

/// Where a server is found.
#[derive(Clone)]
pub(crate) enum Place {
    /// Always at the same address.
    Fixed(Arc<Target>),
    /// Where the sentinels say that the master is.
    Sentinels(Arc<Sentinels>),
}

impl Place {
    /// Reads a URL. Opens nothing.
    pub(crate) fn parse(url: &StoreUrl, settings: Settings, durability: Durability) -> Result<Self> {
        Ok(match url.scheme() {
            "redis+sentinel" | "rediss+sentinel" => Self::Sentinels(Arc::new(Sentinels::parse(url, settings)?)),
            _ if durability == Durability::AllReplicas => return Err(all_of_unknown()),
            _ => Self::Fixed(Arc::new(Target::parse(&url.to_text(), settings)?)),
        })
    }

    /// Returns how many replicas there are that could take over, if anybody knows them all.
    pub(crate) fn replicas(&self) -> Result<u64> {
        match self {
            Self::Fixed(_) => Err(all_of_unknown()),
            Self::Sentinels(sentinels) => sentinels.replicas(),
        }
    }

    /// Returns the name of the server, which stays the same when its address changes. Never a credential.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Fixed(target) => target.node(),
            Self::Sentinels(sentinels) => &sentinels.name,
        }
    }

    /// Returns how servers are reached: credentials, TLS and database. Its address may be that of another server.
    pub(crate) fn target(&self) -> &Target {
        match self {
            Self::Fixed(target) => target,
            Self::Sentinels(sentinels) => &sentinels.master,
        }
    }

    /// Opens a connection. The driver of the connection owns `presence`.
    pub(crate) async fn open(&self, presence: impl Send + Sync + 'static) -> Result<Opened<Greeting>> {
        let presence = Arc::new(presence);
        let open = |target: Arc<Target>| {
            let presence = Arc::clone(&presence);
            async move { target.open(presence).await }
        };
        self.reach(open).await
    }

    /// Opens a connection that listens.
    pub(crate) async fn listen(&self, channels: &[&str]) -> Result<Opened<Listening>> {
        self.reach(|target: Arc<Target>| async move { target.listen(channels).await }).await
    }

    async fn reach<T, F>(&self, open: impl Fn(Arc<Target>) -> F) -> Result<Opened<T>>
    where
        F: Future<Output = Result<Opened<T>>>,
    {
        let sentinels = match self {
            Self::Fixed(target) => return open(Arc::clone(target)).await,
            Self::Sentinels(sentinels) => sentinels,
        };
        let named = |target: Arc<Target>| {
            let opening = open(Arc::clone(&target));
            async move {
                let mut opened = opening.await?;
                opened.history.get_or_insert_with(|| target.node().into());
                Ok(opened)
            }
        };
        let (mut opened, moves) = sentinels.at_the_master(named).await?;
        opened.moves = Some(moves);
        Ok(opened)
    }

    /// Follows the server from address to address, as far as it is told. Never returns.
    pub(crate) async fn follow(&self) {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Sentinels(sentinels) => sentinels.hear().await,
        }
    }

    /// Waits until the server turns out to be at another address. Never returns if that cannot happen.
    pub(crate) async fn moved(&self) {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Sentinels(sentinels) => sentinels.moved().await,
        }
    }
}

/// Takes out of a URL where locks must have arrived before they count, and whether it accepts that a failover loses some.
pub(crate) fn take_durability(url: &mut StoreUrl) -> Result<(Durability, bool)> {
    let acks = url.take("acks")?;
    let accepts_loss = acks.as_deref() == Some("0");
    match (acks.filter(|_| !accepts_loss), url.take("fsync")?) {
        (None, None) => Ok((Durability::Master, accepts_loss)),
        (Some(acks), None) => Ok((format!("acks={acks}").parse()?, false)),
        (None, Some(fsync)) => Ok((format!("fsync={fsync}").parse()?, accepts_loss)),
        _ => Err(LockError::misconfigured("the Redis URL has both acks and fsync: keep fsync, which means both")),
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.name())
    }
}

/// The error where nobody knows all replicas.
pub(crate) fn all_of_unknown() -> LockError {
    LockError::misconfigured(
        "acks=all takes the URL of sentinels or of a cluster, redis+sentinel://… or redis+cluster://…, which know all \
         replicas; a server knows only those that are connected: write their number, as in acks=1",
    )
}
