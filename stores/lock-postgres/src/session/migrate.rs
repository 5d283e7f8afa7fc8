//! Whether the tables and functions in the database are those that this version calls, and making them so.

use lock_core::{LockError, LockErrorKind, Result};
use tokio_postgres::types::Type;

use crate::session::connection::Session;
use crate::session::schema::{self, VERSION};
use crate::url::Settings;

/// Waits for whoever makes or migrates a schema, until its transaction has ended.
const MAKING: &str = "SELECT pg_advisory_xact_lock(7301, hashtext('lock_core'))";

/// What is there.
struct Installed {
    version: i32,
    /// The oldest version whose programs it serves.
    oldest: i32,
    /// The functions of this version that are not there.
    missing: Vec<String>,
}

/// Checks the version. Makes the schema if it is missing, and migrates it if it is older, unless the URL forbids that.
pub(crate) async fn check(session: &Session, settings: &Settings, may_make: bool) -> Result<()> {
    let (name, may_make) = (&*settings.schema, may_make && settings.migrate);
    let mut found = match installed(session, name).await {
        Err(error) if may_make && error.kind() == LockErrorKind::Misconfigured => {
            // Another process may have made it since the version was asked for.
            if exists(session, name).await? {
                // Its commit is seen a moment before sessions are told to forget that there was none. Its lock goes after that.
                session.ask(MAKING, &[]).await?;
            } else {
                make(session, name).await?;
            }
            installed(session, name).await?
        }
        known => known?,
    };
    if may_make && (1..VERSION).contains(&found.version) {
        match together(session, &schema::sql(name, found.version)).await {
            Ok(()) => found = installed(session, name).await?,
            // Somebody else has to: the sentence below says what.
            Err(error) if error.kind() == LockErrorKind::Misconfigured => {
                tracing::debug!(%error, "the lock store could not be migrated");
            }
            Err(error) => return Err(error),
        }
    }
    found.usable(name).map(drop)
}

/// Returns the version that is there, if this program can call it.
pub(crate) async fn version(session: &Session, schema: &str) -> Result<i32> {
    installed(session, schema).await?.usable(schema)
}

async fn installed(session: &Session, schema: &str) -> Result<Installed> {
    let wanted: Vec<String> = schema::functions().map(|name| format!("{schema}.{name}")).collect();
    let look = format!(
        "SELECT version, oldest, ARRAY(SELECT f FROM unnest($1) f WHERE to_regproc(f) IS NULL) FROM {schema}.version_v1()"
    );
    let rows = session.ask(&look, &[(&wanted, Type::TEXT_ARRAY)]).await?;
    let Some(row) = rows.first() else {
        return Err(LockError::misconfigured(format!(
            "the table {schema}.meta is empty; it says which version the lock store has"
        )));
    };
    Ok(Installed { version: row.get(0), oldest: row.get(1), missing: row.get(2) })
}

impl Installed {
    /// Returns the version, if this program can call it.
    fn usable(&self, schema: &str) -> Result<i32> {
        let Self { version, oldest, missing } = self;
        let refused = |text: String| Err(LockError::misconfigured(text));
        if VERSION > *version {
            return refused(format!(
                "the lock store of this database has version {version}, and this program calls functions of version {VERSION}; run \
                 {} of the crate lock-postgres as the owner of the schema {schema}, or connect as that user without migrate=never",
                schema::files(*version),
            ));
        }
        if VERSION < *oldest {
            return refused(format!(
                "the lock store of this database has version {version} and serves programs from version {oldest} on, and this one has \
                 version {VERSION}; take a newer lock-postgres",
            ));
        }
        if !missing.is_empty() {
            return refused(format!(
                "the lock store of this database was made by a build from before version 1 was complete, and lacks {}; while nobody \
                 holds a lock run DROP SCHEMA {schema} CASCADE, and connect again",
                missing.join(", "),
            ));
        }
        Ok(*version)
    }
}

pub(crate) async fn exists(session: &Session, schema: &str) -> Result<bool> {
    let rows = session.ask(&format!("SELECT FROM pg_namespace WHERE nspname = '{schema}'"), &[]).await?;
    Ok(!rows.is_empty())
}

/// Makes the schema; only one of several that try at once does.
async fn make(session: &Session, schema: &str) -> Result<()> {
    match together(session, &schema::sql(schema, 0)).await {
        // Another process has made it meanwhile.
        Err(_) if exists(session, schema).await? => Ok(()),
        known => known,
    }
}

/// Runs statements in one transaction, beside nobody else who does.
async fn together(session: &Session, statements: &str) -> Result<()> {
    match session.run(&format!("BEGIN; {MAKING};\n{statements}\nCOMMIT;")).await {
        Ok(()) => Ok(()),
        Err(error) => {
            session.run("ROLLBACK").await?;
            Err(error)
        }
    }
}
