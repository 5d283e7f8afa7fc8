//! A real master with its replicas and sentinels, started for one test.

use crate::servers::process::wait_until;
use crate::servers::server::{RedisServer, RedisServerBuilder};
use crate::{FaultProxy, Reply};

/// The name under which the sentinels watch the master.
const SERVICE: &str = "mymaster";

/// A master, its replicas and its sentinels. They are killed when this is dropped.
///
/// No server counts as failed within a minute, however slow the machine is, unless
/// [`notice_within`](Self::notice_within) sets another time.
///
/// ```no_run
/// use lock_core::LockManager;
/// use lock_testing::RedisSentinels;
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let servers = RedisSentinels::start();
/// let locks = LockManager::connect(&servers.url()).await?;
/// let guard = locks.lock("k").await?;
/// servers.fail_over();
/// guard.ensure_held()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisSentinels {
    /// The first master, then its replicas.
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    /// The proxy that the replicas and the sentinels know as the first master.
    front: Option<FaultProxy>,
}

/// Settings of [`RedisSentinels`] to start.
///
/// ```no_run
/// use lock_testing::{RedisSentinels, RedisServer};
///
/// let server = RedisServer::builder().with_password("s3cret");
/// let servers = RedisSentinels::builder().with_servers(server).with_replicas(2).start();
/// ```
#[derive(Clone, Debug)]
pub struct RedisSentinelsBuilder {
    server: RedisServerBuilder,
    sentinel: RedisServerBuilder,
    replicas: usize,
    sentinels: usize,
    proxied: bool,
}

impl RedisSentinelsBuilder {
    /// Sets how the master and its replicas are started.
    #[must_use]
    pub fn with_servers(mut self, server: RedisServerBuilder) -> Self {
        self.server = server;
        self
    }

    /// Sets how the sentinels are started.
    #[must_use]
    pub fn with_sentinels(mut self, sentinel: RedisServerBuilder) -> Self {
        self.sentinel = sentinel;
        self
    }

    /// Sets how many replicas the master has.
    #[must_use]
    pub fn with_replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Lets replicas and sentinels reach the first master only through a [`FaultProxy`]. Other clients may bypass it.
    #[must_use]
    pub fn behind_a_proxy(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Starts everything, and waits until the sentinels know each other and the replicas.
    ///
    /// # Panics
    ///
    /// Panics if `redis-server` is not installed or does not start.
    #[must_use]
    pub fn start(self) -> RedisSentinels {
        // A replica need not wait for others that may come later.
        let mut settings = self.server.with("repl-diskless-sync-delay", "0").with("repl-ping-replica-period", "1");
        let password = settings.password().map(str::to_owned);
        if let Some(password) = &password {
            settings = settings.with("masterauth", password);
        }
        let master = settings.clone().start();
        let front = self.proxied.then(|| FaultProxy::start(master.port()));
        let port = front.as_ref().map_or(master.port(), FaultProxy::port).to_string();
        let replica = || settings.clone().with("replicaof", &format!("127.0.0.1 {port}")).start();
        let mut servers = vec![master];
        servers.extend((0..self.replicas).map(|_| replica()));
        let linked =
            |replica: &RedisServer| replica.command(&["INFO", "replication"]).text().contains("link_status:up");
        assert!(wait_until(|| servers[1..].iter().all(linked)), "the replicas do not follow their master");
        let auth = password.map_or(String::new(), |password| format!("sentinel auth-pass {SERVICE} {password}\n"));
        let config = format!(
            "sentinel monitor {SERVICE} 127.0.0.1 {port} {}\nsentinel down-after-milliseconds {SERVICE} 60000\n\
             sentinel failover-timeout {SERVICE} 5000\n{auth}",
            self.sentinels / 2 + 1,
        );
        let sentinels =
            (0..self.sentinels).map(|_| self.sentinel.clone().with_sentinel_config(&config).start()).collect();
        let started = RedisSentinels { servers, sentinels, front };
        for sentinel in &started.sentinels {
            // A sentinel that was stalled for two seconds would do nothing for half a minute. It would then find every
            // replica too old to take over. Before Redis 7 this cannot be changed.
            sentinel.command(&["SENTINEL", "DEBUG", "tilt-trigger", "60000"]);
        }
        let others = format!("\nnum-other-sentinels\n{}\n", self.sentinels - 1);
        let replicas = format!("\nnum-slaves\n{}\n", self.replicas);
        let complete = |sentinel: &RedisServer| {
            let master = words(&sentinel.command(&["SENTINEL", "MASTER", SERVICE]));
            let known = words(&sentinel.command(&["SENTINEL", "REPLICAS", SERVICE]));
            master.contains(&others)
                && master.contains(&replicas)
                && known.matches("\nmaster-link-status\nok\n").count() == self.replicas
        };
        assert!(wait_until(|| started.sentinels.iter().all(complete)), "the sentinels do not find together");
        started
    }
}

impl RedisSentinels {
    /// Starts a master, a replica and three sentinels.
    ///
    /// # Panics
    ///
    /// Panics if `redis-server` is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts from default settings: one replica, three sentinels.
    #[must_use]
    pub fn builder() -> RedisSentinelsBuilder {
        let (server, sentinel) = (RedisServer::builder(), RedisServer::builder());
        RedisSentinelsBuilder { server, sentinel, replicas: 1, sentinels: 3, proxied: false }
    }

    /// Returns the URL to connect to, which names every sentinel.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Returns a URL that bypasses the proxy.
    ///
    /// # Panics
    ///
    /// Panics without a proxy.
    #[must_use]
    pub fn direct_url(&self) -> String {
        let (front, master) = (self.front().port(), self.servers[0].port());
        format!("{}?nat=127.0.0.1:{front}>127.0.0.1:{master}", self.url())
    }

    /// Returns the first master and its replicas, whatever roles they have now.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the sentinels mutably, so that a test can kill them.
    pub fn sentinels_mut(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// Returns the proxy through which replicas and sentinels reach the first master.
    ///
    /// # Panics
    ///
    /// Panics without a proxy.
    #[must_use]
    pub fn front(&self) -> &FaultProxy {
        self.front.as_ref().expect("it was started behind a proxy")
    }

    /// Returns which server a sentinel names as the master, by its index.
    ///
    /// # Panics
    ///
    /// Panics if it names none of them.
    #[must_use]
    pub fn master_of(&self, sentinel: usize) -> usize {
        let named = words(&self.sentinels[sentinel].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]));
        let front = self.front.as_ref().map(FaultProxy::port);
        let is_named = |port: u16| named.ends_with(&format!("\n{port}\n"));
        if front.is_some_and(is_named) {
            return 0;
        }
        self.servers.iter().position(|server| is_named(server.port())).expect("a server of ours is the master")
    }

    /// Returns which server every sentinel names as the master. `None` while they do not agree.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let masters: Vec<usize> = (0..self.sentinels.len())
            .filter(|at| self.sentinels[*at].is_running())
            .map(|at| self.master_of(at))
            .collect();
        masters.first().copied().filter(|first| masters.iter().all(|master| master == first))
    }

    /// Makes the sentinels consider a silent master dead after this many milliseconds.
    pub fn notice_within(&self, millis: u32) {
        for sentinel in &self.sentinels {
            let set = ["SENTINEL", "SET", SERVICE, "down-after-milliseconds", &millis.to_string()];
            assert_eq!(sentinel.command(&set), Reply::Text("OK".to_owned()));
        }
    }

    /// Kills the process of a server.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    /// Restarts a server that was killed, without its data.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn restart(&mut self, server: usize) {
        self.servers[server].restart();
    }

    /// Makes another server the master, like an operator, and waits until every sentinel knows. Returns its index.
    ///
    /// # Panics
    ///
    /// Panics if the failover does not happen within a minute.
    #[expect(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn fail_over(&self) -> usize {
        let before = self.master().expect("the sentinels agree");
        let replaced = || {
            // Sentinels give up a failover when a replica does not take over in time. While a failover is under way,
            // this command is refused.
            if self.master_of(0) == before {
                self.sentinels[0].command(&["SENTINEL", "FAILOVER", SERVICE]);
            }
            self.master().is_some_and(|master| master != before)
        };
        assert!(wait_until(replaced), "the master is not replaced");
        self.master().expect("they have just agreed")
    }

    /// Waits until every sentinel names another server as the master. Returns its index.
    ///
    /// # Panics
    ///
    /// Panics if this does not happen within a minute.
    #[expect(clippy::must_use_candidate, reason = "called for what it waits for")]
    pub fn wait_for_another_than(&self, before: usize) -> usize {
        assert!(wait_until(|| self.master().is_some_and(|master| master != before)), "the master is not replaced");
        self.master().expect("they have just agreed")
    }
}

/// Returns all words of a nested reply, each on its own line.
fn words(reply: &Reply) -> String {
    match reply {
        Reply::List(items) => items.iter().map(words).collect(),
        Reply::Text(text) | Reply::Error(text) => format!("\n{text}\n"),
        Reply::Int(number) => format!("\n{number}\n"),
        Reply::Nil => String::new(),
    }
    .replace("\n\n", "\n")
}
