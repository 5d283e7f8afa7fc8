//! The server's own account of itself, of its settings, and of the user.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{LockError, LockErrorKind, Result};
use lock_store::Finding;
use tokio_postgres::Config;
use tokio_postgres::types::Type;

use crate::session::Session;

/// A setting whose name the server does not know is left out.
const SETTINGS: [&str; 17] = [
    "autovacuum",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "fsync",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "max_connections",
    "reserved_connections",
    "server_encoding",
    "server_version",
    "statement_timeout",
    "superuser_reserved_connections",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_counts",
    "transaction_timeout",
];

/// Everything that is read at the beginning.
#[derive(Debug)]
pub(super) struct Facts {
    /// The version of the server, as 150014.
    pub(super) version: i32,
    /// Whether it follows another server.
    pub(super) follows: bool,
    /// The user, as a statement names it.
    pub(super) user: String,
    /// Whether the user may make a schema.
    pub(super) may_make: bool,
    /// How many sessions there are at this server.
    pub(super) sessions: i64,
    /// How many sessions this user may have, and this database, and how many there are. `None` without such a limit.
    pub(super) limits: [Option<(i64, i64)>; 2],
    /// The database, as a statement names it.
    pub(super) database: String,
    /// How many servers follow this one, and how many of them a commit waits for. `None` where the user may not see that.
    pub(super) standbys: (i64, Option<i64>),
    /// How far the server's clock is ahead of ours, us, and how long it took to ask.
    pub(super) ahead: i128,
    pub(super) asked_for: Duration,
    /// Whether there is a pooler by transaction in between.
    pub(super) pooled: bool,
    /// What leads here.
    pub(super) config: Config,
    /// Each with where it was set.
    pub(super) settings: BTreeMap<String, (String, String)>,
}

impl Facts {
    pub(super) async fn read(session: &Session, config: Config) -> Result<Self> {
        let missing = || LockError::unavailable("PostgreSQL said nothing of itself");
        // Once before, so that the answer takes no longer than it must.
        session.run("SELECT 1").await?;
        let before = now();
        let clock = "SELECT pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";
        let rows = session.ask(clock, &[]).await?;
        let after = now();
        let theirs: i64 = rows.first().ok_or_else(missing)?.get(0);
        let ours = i128::try_from((before + after).as_micros() / 2).unwrap_or(i128::MAX);
        let about = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), quote_ident(current_user), \
                     has_database_privilege(current_database(), 'CREATE'), \
                     (SELECT sum(numbackends)::bigint FROM pg_stat_database), (SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'), \
                     (SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication \
                       HAVING bool_and(sync_state IS NOT NULL)), quote_ident(current_database()), \
                     nullif(r.rolconnlimit, -1)::bigint, (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid), \
                     nullif(d.datconnlimit, -1)::bigint, (SELECT count(*) FROM pg_stat_activity WHERE datid = d.oid AND usesysid IS NOT NULL), \
                     r.rolsuper \
                     FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()";
        let rows = session.look(about, &[]).await?;
        let row = rows.first().ok_or_else(missing)?;
        let names: Vec<&str> = SETTINGS.to_vec();
        // Neither limit counts for a superuser.
        let limit = |column: usize| {
            let most = row.get::<_, Option<i64>>(column).filter(|_| !row.get::<_, bool>(12));
            most.map(|most| (most, row.get::<_, i64>(column + 1)))
        };
        let read = "SELECT name, setting, source FROM pg_settings WHERE name = ANY ($1)";
        let values = session.look(read, &[(&names, Type::TEXT_ARRAY)]).await?;
        Ok(Self {
            version: row.get(0),
            follows: row.get(1),
            user: row.get(2),
            may_make: row.get(3),
            sessions: row.get::<_, Option<i64>>(4).unwrap_or_default(),
            limits: [limit(8), limit(10)],
            database: row.get(7),
            standbys: (row.get(5), row.get(6)),
            ahead: i128::from(theirs) - ours,
            asked_for: after.saturating_sub(before),
            pooled: session.is_pooled().await?,
            config,
            settings: values.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect(),
        })
    }

    /// Returns a setting as a session of this user has it, times in ms. `None` if the server has none of this name.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(|(value, _)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.parse().ok()
    }

    /// Writes the statement that sets something for every later session of this user. It overrules what is set for all users.
    pub(super) fn set(&self, setting: &str, value: &str) -> String {
        let Self { user, database, .. } = self;
        match self.settings.get(setting).map(|(_, source)| source.as_str()) {
            Some("client") => format!("leave {setting} out of options= in the URL"),
            // This has more weight than what is set for the user alone.
            Some("database user") => format!("ALTER ROLE {user} IN DATABASE {database} SET {setting} = {value}"),
            _ => format!("ALTER ROLE {user} SET {setting} = {value}"),
        }
    }
}

/// The time of day on this machine.
fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "it is shown beside the server's, and nothing depends on it")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Makes a finding of an error: the subject is refused, or it is not known.
pub(super) fn without(error: &LockError, subject: &'static str) -> Finding {
    match error.kind() {
        LockErrorKind::Misconfigured => Finding::refused(subject, error.to_string()),
        _ => Finding::unknown(subject, error.to_string()),
    }
}

#[cfg(test)]
impl Facts {
    /// A server about which nothing is known.
    pub(super) fn example() -> Self {
        Self {
            version: 180_000,
            follows: false,
            user: "app".to_owned(),
            may_make: true,
            sessions: 1,
            limits: [None, None],
            database: "shop".to_owned(),
            standbys: (0, None),
            ahead: 0,
            asked_for: Duration::ZERO,
            pooled: false,
            config: Config::new(),
            settings: BTreeMap::new(),
        }
    }
}
