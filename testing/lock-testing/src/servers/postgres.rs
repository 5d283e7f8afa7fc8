//! A real PostgreSQL, started for tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};

use crate::servers::installed::{find, give_away, make_data, new_folder, prepare, program, unprivileged};
use crate::servers::process::{freeze_all, thaw_all, wait_until};
use crate::servers::server::free_port;
use lock_store::types::system::sync::Mutex;

/// Ends the server and removes its folder when standard input ends, even if the test that started it is killed.
const GUARDED: &str = r#"
folder=$1; shift
"$@" >"$folder/log" 2>&1 &
server=$!
cat >/dev/null
# At once, not after the clients: the one for PostgreSQL, the other for its pooler.
kill -CONT $server 2>/dev/null
kill -QUIT $server 2>/dev/null
kill -TERM $server 2>/dev/null
wait $server
rm -rf "$folder"
"#;

/// A PostgreSQL server for one test: on a free port, in a directory that is removed with it.
///
/// Every connection from this machine is accepted: as `test`, a superuser, to the database `postgres`. Commits are not
/// flushed to the disk, because a test does not need that. `initdb` runs once on a machine, so all servers of one
/// version have the same system identifier.
///
/// ```no_run
/// use lock_testing::PostgresServer;
///
/// let server = PostgresServer::start();
/// server.run("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)");
/// println!("{}", server.url());
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// `None` while it is stopped.
    guard: Option<Child>,
}

impl PostgresServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start. A test is never skipped because of that.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with settings of `postgresql.conf`, for example `("statement_timeout", "1ms")`.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::initialised(settings).started()
    }

    /// Starts a server with this certificate and key (PEM). It refuses connections without TLS.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Self {
        let server = Self::initialised(&[("ssl", "on"), ("ssl_cert_file", "own.pem"), ("ssl_key_file", "own.key")]);
        let data = server.folder.join("data");
        for (from, name) in [(certificate, "own.pem"), (key, "own.key")] {
            let file = data.join(name);
            fs::copy(from, &file).expect("the certificate can be copied");
            // The server refuses a key that other users may read.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
                .expect("a file of ours can be closed to others");
            give_away(&file);
        }
        fs::write(data.join("pg_hba.conf"), "hostssl all all all trust\n").expect("the rules can be written");
        server.started()
    }

    /// Starts a standby, which replicates this server and has this name there. `port` is where it finds this server:
    /// its own port, or the port of a [`FaultProxy`](crate::FaultProxy) in front of it.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn standby(&self, name: &str, port: u16) -> Self {
        let folder = new_folder();
        let from = format!("host=127.0.0.1 port={port} user=test application_name={name}");
        let copied = unprivileged(&program("pg_basebackup"), &folder)
            .args(["--wal-method=stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-d", &from, "-D"])
            .arg(folder.join("data"))
            .output()
            .expect("pg_basebackup can be run");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        Self { folder, port: 0, settings: vec!["wal_retrieve_retry_interval=200ms".to_owned()], guard: None }.started()
    }

    /// Promotes a standby to a server of its own, which takes writes.
    ///
    /// # Panics
    ///
    /// Panics if it is not promoted within a minute.
    pub fn promote(&self) {
        assert_eq!(self.run("SELECT pg_promote(true, 60)"), "t", "the standby was promoted");
    }

    /// Returns which of these programs is not installed, and how to install it: `initdb` for a server, `pgbouncer` for
    /// a [`pooler`](Self::pooler). `None` if all of them are installed. For programs that name what they cannot run; a
    /// test fails instead.
    #[must_use]
    pub fn missing(programs: &[&str]) -> Option<String> {
        let missing = programs.iter().find(|name| find(name).is_none())?;
        Some(format!("{missing} is missing, run sh scripts/need-databases.sh"))
    }

    fn initialised(settings: &[(&str, &str)]) -> Self {
        let folder = new_folder();
        make_data(&folder);
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self { folder, port: 0, settings, guard: None }
    }

    fn started(mut self) -> Self {
        for _ in 0..5 {
            self.port = free_port(false);
            // Another process may take the port before the server does.
            if self.launch() {
                return self;
            }
        }
        panic!("PostgreSQL does not start; its log:\n{}", self.log());
    }

    /// Returns the server that tests of this process share. The first test starts it, and it ends with the last one.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    fn launch(&mut self) -> bool {
        let mut server = guarded(&self.folder, "postgres");
        server.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        server.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-c", "fsync=off", "-c", "max_connections=200"]);
        for setting in &self.settings {
            server.args(["-c", setting]);
        }
        let mut guard = server.spawn().expect("a shell can be started");
        let mut ended = false;
        let answers = wait_until(|| {
            ended = guard.try_wait().is_ok_and(|status| status.is_some()) || self.log().contains("FATAL:  could not");
            ended || self.is_ready() && self.try_run("SELECT 1").is_ok()
        });
        self.guard = Some(guard);
        answers && !ended
    }

    /// Returns whether the server has written that it takes sessions. Asking it costs a process each time.
    fn is_ready(&self) -> bool {
        let written = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        written.lines().nth(7).is_some_and(|state| ["ready", "standby"].contains(&state.trim()))
    }

    /// Returns the URL to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a pooler in transaction mode in front of the server.
    ///
    /// # Panics
    ///
    /// Panics if `pgbouncer` is not installed or does not start.
    #[must_use]
    pub fn pooler(&self) -> PostgresPooler {
        self.pooler_of(40)
    }

    /// Starts a pooler by transaction that opens at most so many sessions at the server.
    ///
    /// # Panics
    ///
    /// As [`pooler`](Self::pooler).
    #[must_use]
    pub fn pooler_of(&self, sessions: u16) -> PostgresPooler {
        let mut said = String::new();
        for _ in 0..5 {
            let (folder, port) = (new_folder(), free_port(false));
            let settings = format!(
                "[databases]\n* = host=127.0.0.1 port={} user=test\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = any\nadmin_users = test\npool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = {sessions}\n",
                self.port,
            );
            let file = folder.join("pgbouncer.ini");
            fs::write(&file, settings).expect("the settings can be written");
            let guard = guarded(&folder, "pgbouncer").arg(&file).spawn().expect("a shell can be started");
            let pooler = PostgresPooler { port, folder, guard: Some(guard) };
            let up = wait_until(|| {
                said = fs::read_to_string(pooler.folder.join("log")).unwrap_or_default();
                said.contains("process up") || said.contains("FATAL")
            });
            // Another process may take the port before the pooler does.
            if up && !said.contains("FATAL") {
                return pooler;
            }
        }
        panic!("pgbouncer does not start: {said}");
    }

    /// Stops all processes of the server, which then accepts connections and never answers, or lets them go on.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub fn pause(&self, paused: bool) {
        let file = self.folder.join("data/postmaster.pid");
        let written = fs::read_to_string(file).unwrap_or_default();
        let number = written.lines().next().and_then(|line| line.parse().ok()).expect("a running server has a number");
        if paused { freeze_all(number) } else { thaw_all(number) }
    }

    /// Runs statements as the user `test`. Returns their rows, one per line, with `|` between the columns.
    ///
    /// # Panics
    ///
    /// Panics if one of them fails.
    #[expect(clippy::must_use_candidate, reason = "most statements are run for what they do")]
    pub fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs statements. Each is a transaction unless the statements say otherwise.
    ///
    /// # Errors
    ///
    /// The error text of `psql`.
    ///
    /// # Panics
    ///
    /// Panics if `psql` is missing.
    pub fn try_run(&self, sql: &str) -> Result<String, String> {
        let mut client = Command::new(program("psql"));
        client.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "test", "-d", "postgres"]);
        client.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-f", "-"]).env("PGCONNECT_TIMEOUT", "20");
        let mut client = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql can be run");
        let mut input = client.stdin.take().expect("it is piped");
        // If `psql` ends early, it does not read all of the input.
        let _ = std::io::Write::write_all(&mut input, sql.as_bytes());
        drop(input);
        let output = client.wait_with_output().expect("psql ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Returns what the server has written into its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        end(self.guard.take(), &self.folder);
    }
}

/// A pooler in transaction mode in front of a [`PostgresServer`], made by its [`pooler`](PostgresServer::pooler).
///
/// See the example of [`PostgresServer`].
#[derive(Debug)]
pub struct PostgresPooler {
    port: u16,
    folder: PathBuf,
    guard: Option<Child>,
}

impl PostgresPooler {
    /// Returns the URL to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PostgresPooler {
    fn drop(&mut self) {
        end(self.guard.take(), &self.folder);
    }
}

/// Prepares to start a program that ends with this process.
fn guarded(folder: &Path, name: &str) -> Command {
    let mut guard = Command::new("sh");
    guard.args(["-c", GUARDED, "guard"]).arg(folder).arg(program(name));
    prepare(&mut guard, folder);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    guard
}

fn end(guard: Option<Child>, folder: &Path) {
    if let Some(mut guard) = guard {
        drop(guard.stdin.take());
        let _ = guard.wait();
    }
    let _ = fs::remove_dir_all(folder);
}
