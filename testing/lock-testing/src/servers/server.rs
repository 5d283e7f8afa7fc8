//! A real `redis-server`, started for one test.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Reply;
use crate::servers::process::{freeze, kill, thaw, wait_until};
use crate::servers::session::Session;
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// A Redis server for one test: on a free port, without persistence, in a directory that is removed with it.
///
/// It is killed and reaped when this is dropped.
///
/// ```no_run
/// use lock_testing::{RedisServer, Reply};
///
/// let mut server = RedisServer::start();
/// assert_eq!(server.command(&["SET", "k", "v"]), Reply::Text("OK".to_owned()));
/// server.kill();
/// server.restart();
/// ```
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisServerBuilder,
    port: u16,
    /// The port on which it speaks TLS, if it does.
    tls_port: u16,
    directory: PathBuf,
    /// `None` while it is killed.
    child: Option<Child>,
}

/// Settings of a [`RedisServer`] to start.
///
/// ```no_run
/// use lock_testing::RedisServer;
///
/// let server = RedisServer::builder().with_password("open-sesame").with_maxmemory("10mb", "noeviction").start();
/// println!("{}", server.url());
/// ```
#[derive(Clone, Debug, Default)]
pub struct RedisServerBuilder {
    /// `redis-server` if `None`.
    program: Option<String>,
    password: Option<String>,
    tls: bool,
    arguments: Vec<String>,
    /// The configuration of a sentinel, if it is one.
    sentinel: Option<String>,
    environment: Vec<(String, String)>,
}

impl RedisServerBuilder {
    /// Starts another program than the first `redis-server` of `PATH`.
    #[must_use]
    pub fn with_program(mut self, program: &str) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Requires a password from clients.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.with_words("requirepass", &[password])
    }

    /// Limits the memory, with an eviction policy such as `noeviction`.
    #[must_use]
    pub fn with_maxmemory(self, limit: &str, policy: &str) -> Self {
        self.with("maxmemory", limit).with("maxmemory-policy", policy)
    }

    /// Speaks TLS on a second port, with a certificate and its key in PEM files. Does not ask clients for a certificate.
    #[must_use]
    pub fn with_tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = true;
        self.with_words("tls-cert-file", &[&certificate.display().to_string()])
            .with_words("tls-key-file", &[&key.display().to_string()])
            .with("tls-auth-clients", "no")
    }

    /// Sets any directive of `redis.conf`. A value with spaces becomes several words.
    #[must_use]
    pub fn with(self, directive: &str, value: &str) -> Self {
        // Redis 6.2 takes an argument with spaces as one word.
        let words: Vec<&str> = if value.is_empty() { vec![""] } else { value.split(' ').collect() };
        self.with_words(directive, &words)
    }

    fn with_words(mut self, directive: &str, words: &[&str]) -> Self {
        self.arguments.push(format!("--{directive}"));
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets a variable of the environment in which the server starts.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a sentinel.
    pub(crate) fn with_sentinel_config(mut self, config: &str) -> Self {
        self.sentinel = Some(config.to_owned());
        self
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// Panics if `redis-server` is not installed or does not start. A test is never skipped because of that.
    #[must_use]
    pub fn start(self) -> RedisServer {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lock-core-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory for the server can be made");
        let mut server = RedisServer { settings: self, port: 0, tls_port: 0, directory, child: None };
        for _ in 0..5 {
            let bus = server.settings.arguments.iter().any(|argument| argument == "--cluster-enabled");
            (server.port, server.tls_port) = (free_port(bus), free_port(false));
            // Another process may take the port before the server does.
            if server.launch() {
                return server;
            }
        }
        panic!("redis-server does not start; its log ends with:\n{}", server.log_tail());
    }
}

impl RedisServer {
    /// Starts a server with default settings and waits until it answers.
    ///
    /// # Panics
    ///
    /// Like [`RedisServerBuilder::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts from default settings.
    #[must_use]
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// Returns the URL to connect to, with the password if one is set.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.settings.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Returns the URL to connect to by TLS, with the server name that is in its certificate.
    #[must_use]
    pub fn tls_url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.tls_port)
    }

    /// Returns the TCP port. It stays the same after a [`restart`](Self::restart).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id.
    ///
    /// # Panics
    ///
    /// Panics if the server was killed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Stops the process without ending it. Connections stay open, but the server does not answer.
    pub fn pause(&self) {
        freeze(self.pid());
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        thaw(self.pid());
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Removed before another process can get its number.
            running().retain(|(_, server)| *server != child.id());
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Restarts it on the same port, empty. Kills it first if it runs.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let started = (0..5).any(|_| self.launch());
        assert!(started, "redis-server does not start again; its log ends with:\n{}", self.log_tail());
    }

    /// Runs one command like any other client, on its own connection.
    ///
    /// # Panics
    ///
    /// Panics if the server does not answer within a minute.
    #[expect(clippy::must_use_candidate, reason = "most commands are sent for what they do")]
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?} got no answer: {error}"))
    }

    fn try_command(&self, words: &[&str]) -> std::io::Result<Reply> {
        Session::open(self.port, self.settings.password.as_deref())?.ask(words)
    }

    /// Opens a connection for several commands in a row.
    pub(crate) fn session(&self) -> Session {
        let opened = Session::open(self.port, self.settings.password.as_deref());
        opened.unwrap_or_else(|error| panic!("the server cannot be connected to: {error}"))
    }

    fn launch(&mut self) -> bool {
        let mut command = Command::new(self.settings.program.as_deref().unwrap_or("redis-server"));
        if let Some(config) = &self.settings.sentinel {
            // A sentinel writes what it learns into its file.
            fs::write(self.directory.join("sentinel.conf"), config).expect("its directory can be written");
            command.args(["sentinel.conf", "--sentinel"]);
        }
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]).arg(self.port.to_string());
        // Newer servers open the log before they read --dir.
        command.current_dir(&self.directory);
        command.envs(self.settings.environment.iter().map(|(name, value)| (name, value)));
        command.args(["--logfile", "server.log", "--dir"]).arg(&self.directory).args(&self.settings.arguments);
        if self.settings.tls {
            command.arg("--tls-port").arg(self.tls_port.to_string());
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("cannot start redis-server ({error}); run `sh scripts/test.sh`, which says how to get one")
        });
        running().push((std::thread::current().name().unwrap_or_default().to_owned(), child.id()));
        self.child = Some(child);
        let mut alive = true;
        let ready = wait_until(|| {
            alive = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
            !alive || self.try_command(&["PING"]).is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
        });
        // A foreign server on the same port would have answered too, while this one could not bind.
        let own = || self.command(&["INFO", "server"]).text().contains(&format!("process_id:{}\r", self.pid()));
        let started = ready && alive && own();
        if !started {
            self.kill();
        }
        started
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.directory.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Returns the directory that is removed with the server.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The servers that run, by the name of the thread that started them.
fn running() -> MutexGuard<'static, Vec<(String, u32)>> {
    static RUNNING: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
    RUNNING.lock()
}

/// Kills the servers that a test has started on its own thread.
pub(crate) fn kill_servers_of(test: &str) {
    for (_, server) in running().iter().filter(|(thread, _)| thread == test) {
        kill(*server);
    }
}

/// Returns a port on which no program listened a moment ago. It is outside the range that systems use for outgoing
/// connections. Otherwise a connection could have the port when the server is restarted.
///
/// With `bus`, the port 10,000 above it is free too. The nodes of a cluster talk over it.
///
/// # Panics
///
/// Panics if no port is free.
#[must_use]
pub fn free_port(bus: bool) -> u16 {
    let most = if bus { 22_000 } else { 32_000 };
    let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..most)).take(1_000);
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    ports.find(|port| free(*port) && (!bus || free(port + 10_000))).expect("there is a free port")
}
