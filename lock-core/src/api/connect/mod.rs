//! Makes a manager from a URL, options and the environment.

mod check;

use std::env::VarError;

use crate::api::manager::{LockManager, LockManagerBuilder};
use crate::memory::MemoryStore;
use lock_store::contract::backend::{AnyBackend, opened};
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::{LockOptions, NAMES};
use lock_store::types::url::{StoreUrl, explained};

impl LockManager {
    /// Connects to the store that a URL names, and checks that it answers.
    ///
    /// It also takes a lock of its own and releases it. A problem that would fail the first lock is a warning in the
    /// log. [`strict`](LockManagerBuilder::strict) makes it an error.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory://` | this process, for tests and programs that run alone; shared by all who connect to it here |
    /// | `memory://name` | another one of this process |
    /// | `redis://[user:password@]host[:port][/db]` | Redis or Valkey, 6.2 or newer |
    /// | `rediss://…` | the same over TLS (feature `tls`) |
    /// | `valkey://…`, `valkeys://…` | the same as `redis://` and `rediss://` |
    /// | `redis+unix:///path/to.sock` | the same over a Unix socket |
    /// | `redis+sentinel://[user:password@]host[:26379],…/service[/db]` | the master that Redis Sentinel names, followed through failovers; `rediss+sentinel://` for TLS |
    /// | `redis+cluster://[user:password@]host[:port],…` | a Redis Cluster, by some of its nodes; `rediss+cluster://…` over TLS |
    /// | `redlock://host,host,host[?max_ttl=60s]` | a [`Quorum`](crate::Quorum) of at least three of them; `redlocks://` over TLS |
    /// | `postgres://[user:password@]host[:5432],…/database` | PostgreSQL, if the program has `use lock_postgres as _;` (crate `lock-postgres`) |
    /// | `zookeeper://[user:password@]host[:2181],…/path` | ZooKeeper, if the program has `use lock_zookeeper as _;` (crate `lock-zookeeper`) |
    /// | `kubernetes://[context]/[namespace]` | Leases of Kubernetes, if the program has `use lock_kubernetes as _;` (crate `lock-kubernetes`) |
    ///
    /// Each takes `?key_prefix=prod:`, see [`LockManagerBuilder::key_prefix`]. One server, sentinels and clusters take
    /// `?acks=1` or `?fsync=local`, see [`Durability`](crate::Durability). URLs over TLS take the PEM files of an
    /// authority and of a client certificate: `?ca=/etc/ssl/redis.pem&cert=/etc/ssl/app.pem&cert_key=/etc/ssl/app.key`.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for a URL that cannot be understood and
    /// for credentials that are refused. [`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable) if the store
    /// does not answer within 5 s.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped future keeps no connection.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, LockOptions::default()).await
    }

    /// Connects like [`connect`](Self::connect), with other defaults for every lock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_core::{LockManager, LockOptions};
    ///
    /// # async fn demo() -> Result<(), lock_core::LockError> {
    /// let options = LockOptions::default().with_ttl(Duration::from_secs(10)).with_wait(Duration::from_secs(1));
    /// let locks = LockManager::connect_with("memory://", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect), and [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for
    /// options that contradict each other.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped future keeps no connection.
    pub async fn connect_with(url: &str, options: LockOptions) -> Result<Self> {
        Self::builder_for(url)?.options(options).connect().await
    }

    /// Starts to build a manager of the store that a URL names, as in [`connect`](Self::connect). Opens no connection.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) for a URL that cannot be understood.
    pub fn builder_for(url: &str) -> Result<LockManagerBuilder> {
        at(url)
    }

    /// Connects with the settings of the environment.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `LOCK_URL` | the store, as in [`connect`](Self::connect); required |
    /// | `LOCK_KEY_PREFIX` | comes before every key, see [`LockManagerBuilder::key_prefix`] |
    /// | `LOCK_TTL` | the lease, for example `10s` or `1m30s` |
    /// | `LOCK_WAIT` | how long to wait: `none`, `forever`, or a time |
    /// | `LOCK_RENEW` | the watchdog: `auto`, `off`, or an interval |
    /// | `LOCK_MAX_HOLD`, `LOCK_MIN_HOLD` | bounds of a hold |
    /// | `LOCK_STUCK_AFTER` | the age at which a hold counts as stuck |
    /// | `LOCK_HANDOFF` | `true` or `false`: whether locks pass directly between callers of a process |
    /// | `LOCK_RELEASE_IN_BACKGROUND` | `true` or `false` |
    /// | `LOCK_STRICT` | `true`: see [`LockManagerBuilder::strict`] |
    /// | `LOCK_DURABILITY` | `acks=1`, `acks=all`, `fsync=local`, `fsync=1` or `master` |
    ///
    /// Each is an option of [`LockOptions`] with its default. An empty variable counts as not set.
    ///
    /// If an application opens its own Redis client with `LOCK_URL`, set the namespace with `LOCK_KEY_PREFIX`. Only
    /// this library reads `?key_prefix=` in the URL. Other clients refuse it, or ignore it and use other keys.
    ///
    /// # Errors
    ///
    /// Like [`connect_with`](Self::connect_with); [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured)
    /// names the variable that cannot be read. A missing `LOCK_URL` is an error without a fallback: an in-process store
    /// would appear to work although no other process sees its locks.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped future keeps no connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::from_env().await?;
    /// # drop(locks);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_env() -> Result<Self> {
        Self::builder_from_env()?.connect().await
    }

    /// Starts to build a manager with the settings of the environment, as in [`from_env`](Self::from_env). Opens no
    /// connection.
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder_from_env()?.serve_while_stopping().connect().await?;
    /// # drop(locks);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) names the variable that is missing or
    /// cannot be read.
    pub fn builder_from_env() -> Result<LockManagerBuilder> {
        configured(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(LockError::misconfigured(format!("{name} is not text"))),
        })
    }
}

/// Reads the variables.
fn configured(variable: impl Fn(&str) -> Result<Option<String>>) -> Result<LockManagerBuilder> {
    let set = |name: &str| Ok::<_, LockError>(variable(name)?.filter(|value| !value.trim().is_empty()));
    let url = set("LOCK_URL")?.ok_or_else(|| {
        LockError::misconfigured(
            "LOCK_URL is not set; set it to the store of the locks, such as redis://127.0.0.1:6379, or to memory:// for \
             locks of this process only",
        )
    })?;
    let mut options = LockOptions::default();
    for option in NAMES {
        let name = format!("LOCK_{}", option.to_ascii_uppercase());
        if let Some(value) = set(&name)? {
            options.set(option, &value).map_err(|error| LockError::misconfigured(format!("{name}: {error}")))?;
        }
    }
    let builder = at(&url)?.options(options);
    let builder = match set("LOCK_STRICT")?.as_deref().map(str::trim) {
        Some("true") => builder.strict(),
        None | Some("false") => builder,
        Some(_) => return Err(LockError::misconfigured("LOCK_STRICT is neither true nor false")),
    };
    Ok(match set("LOCK_KEY_PREFIX")? {
        Some(prefix) => builder.key_prefix(prefix),
        None => builder,
    })
}

/// Starts to build a manager of the store that a URL names. Opens no connection.
fn at(url: &str) -> Result<LockManagerBuilder> {
    let (store, key_prefix) = open(StoreUrl::read(url))?;
    let builder = LockManager::builder_of(store);
    Ok(match key_prefix {
        Some(prefix) => builder.key_prefix(prefix),
        None => builder,
    })
}

/// Makes the store that a URL names. Returns it with the namespace that the URL adds to its keys. Opens no connection.
pub(crate) fn open(mut url: StoreUrl) -> Result<(AnyBackend, Option<String>)> {
    let key_prefix = url.take_key_prefix()?;
    let has = |names: &[&str]| url.parameters().any(|(name, _)| names.contains(&name));
    let layout = url.parameters().find(|(name, _)| *name == "layout").map(|(name, value)| format!("{name}={value}"));
    let store = match layout.as_deref().unwrap_or(url.scheme()) {
        "" => {
            let error = LockError::misconfigured(
                "the URL of the store has no scheme; write redis://host:6379, or memory:// for locks of this process only",
            );
            return Err(explained(error, &url.to_text()));
        }
        "memory" if has(&["acks", "fsync"]) => {
            return Err(LockError::misconfigured("memory:// has no replicas and no disk; remove acks and fsync"));
        }
        "memory" if url.has_fragment() || url.parameters().next().is_some() => {
            return Err(LockError::misconfigured(
                "the URL of a store in memory takes only key_prefix; ttl and wait are options of locks",
            ));
        }
        "memory" => AnyBackend::new(MemoryStore::named(url.address.trim_start_matches('/'))),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => AnyBackend::new(lock_redis::RedisStore::read(url)?),
        #[cfg(all(feature = "redis", feature = "quorum"))]
        "redlock" | "redlocks" => AnyBackend::new(lock_quorum::Quorum::read(url)?),
        #[cfg(all(feature = "redis", not(feature = "quorum")))]
        "redlock" | "redlocks" => {
            return Err(LockError::misconfigured("this build has no quorum; enable the feature `quorum` of lock-core"));
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" | "redlock" | "redlocks" => {
            return Err(LockError::misconfigured(
                "this build has no Redis store; enable the feature `redis` of lock-core",
            ));
        }
        other => match opened(other, &url.to_text()) {
            Some(store) => store?,
            None => return Err(explained(unknown(other), &url.to_text())),
        },
    };
    Ok((store, key_prefix))
}

/// Explains why a scheme or a layout does not name a store. The text is not repeated: it may have a password.
fn unknown(scheme: &str) -> LockError {
    if let Some(store) = ["postgres", "zookeeper", "kubernetes"].into_iter().find(|store| scheme.starts_with(store)) {
        return LockError::misconfigured(format!(
            "this program has no store for {store}://; add lock-{store} to the dependencies in Cargo.toml, and the line \
             use lock_{store} as _; to main.rs"
        ));
    }
    LockError::misconfigured(if scheme.starts_with("layout=") {
        "for layout=redisson add lock-redisson and use lock_redisson as _;"
    } else {
        "the URL of the store begins with an unknown scheme; use memory://, redis://host:6379 (Redis or Valkey), rediss://…, \
         redis+unix:///path, redis+sentinel://host:26379/service, redis+cluster://host,… or redlock://host,host,host, or with \
         their crates postgres://host/database, zookeeper://host,… or kubernetes://context/namespace"
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::configured;
    use crate::api::manager::LockManager;
    use lock_store::types::options::{Renew, Wait};

    fn with(variables: &[(&str, &str)]) -> crate::Result<LockManager> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        configured(|name| Ok(find(name)))?.build()
    }

    #[test]
    fn the_environment_says_how_to_connect() {
        let locks = with(&[
            ("LOCK_URL", "memory://"),
            ("LOCK_TTL", "10s"),
            ("LOCK_WAIT", "forever"),
            ("LOCK_RENEW", "2s"),
            ("LOCK_MAX_HOLD", "1h"),
            ("LOCK_MIN_HOLD", "1s"),
            ("LOCK_STUCK_AFTER", "5m"),
            ("LOCK_HANDOFF", "false"),
            ("LOCK_RELEASE_IN_BACKGROUND", "true"),
            ("LOCK_KEY_PREFIX", "prod:"),
        ])
        .unwrap();
        let options = locks.options();
        assert_eq!((options.ttl, options.wait), (Duration::from_secs(10), Wait::Forever));
        assert_eq!((options.renew, options.handoff), (Renew::Every(Duration::from_secs(2)), false));
        assert_eq!(options.max_hold, Some(Duration::from_secs(3600)));
        assert_eq!((options.min_hold, options.release_in_background), (Duration::from_secs(1), true));
        assert_eq!(options.stuck_after, Some(Duration::from_secs(300)));
        assert_eq!(locks.key("job").unwrap().as_str(), "prod:job");
    }

    #[test]
    fn a_variable_that_is_wrong_is_named() {
        let url = ("LOCK_URL", "memory://");
        for (variables, says) in [
            (&[][..], "LOCK_URL is not set"),
            (&[("LOCK_URL", " ")], "LOCK_URL is not set"),
            (&[url, ("LOCK_TTL", "10")], "LOCK_TTL: \"10\" is not a duration"),
            (&[url, ("LOCK_WAIT", "never")], "LOCK_WAIT: "),
            (&[url, ("LOCK_HANDOFF", "yes")], "LOCK_HANDOFF: \"yes\" is neither true nor false"),
            (&[url, ("LOCK_STRICT", "yes")], "LOCK_STRICT is neither true nor false"),
            (&[url, ("LOCK_TTL", "1ms")], "use at least 1s"),
            (&[url, ("LOCK_KEY_PREFIX", "prod")], "colon"),
        ] {
            let error = with(variables).unwrap_err();
            assert!(error.to_string().contains(says), "{variables:?}: {error}");
        }
        assert!(with(&[url, ("LOCK_TTL", ""), ("LOCK_SURPRISE", "x")]).is_ok());
    }
}
