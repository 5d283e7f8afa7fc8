//! Whether the tables and functions in the database are those that this version calls, and making them so.
//!
//! Behind a pooler the search path belongs to other users. So each statement here names the schema of every function, table, type and
//! operator: a role that may create objects in `public` could otherwise have its own code run as this user.

use lock_core::{LockError, LockErrorKind, Result};
use tokio_postgres::types::Type;

use crate::error::RUN;
use crate::session::connection::{ANSWER, Session};
use crate::session::schema::{self, VERSION};
use crate::url::Settings;

/// Waits until no other process makes or migrates a schema.
const MAKING: &str = "SELECT pg_catalog.pg_advisory_xact_lock(7301, pg_catalog.hashtext('lock_core'))";

/// What is there.
struct Installed {
    version: i32,
    /// The oldest version whose programs it serves.
    oldest: i32,
    /// The functions of this version that are not there.
    missing: Vec<String>,
}

/// Checks the version. Makes the schema if it is missing, and brings it up to date if it is older, unless the URL forbids that.
pub(crate) async fn check(session: &Session, settings: &Settings, may_make: bool) -> Result<()> {
    let (name, may_make) = (&*settings.schema, may_make && settings.migrate);
    let mut found = installed(session, name).await;
    let may_help = match &found {
        Ok(found) => found.version > 0 && found.is_older(),
        Err(error) => error.kind() == LockErrorKind::Misconfigured,
    };
    if may_make && may_help {
        match bring_up_to_date(session, name).await {
            // Only the owner can. If this user may not, the sentence below says what the owner has to do.
            Err(error) if error.kind() == LockErrorKind::Misconfigured && exists(session, name).await? => {
                tracing::debug!(%error, "the lock store could not be migrated");
            }
            known => known?,
        }
        found = installed(session, name).await;
    }
    found?.usable(name)?;
    // Before the first grant: this server may have been promoted, and lack the last tokens of the one before.
    let rows = session.ask(&format!("SELECT {name}.arrived_v1()"), &[]).await?;
    if rows.first().is_some_and(|row| row.get(0)) {
        tracing::info!("the locks in PostgreSQL are on another server than before; tokens go on above those of the server before");
    }
    Ok(())
}

/// Returns the version that is there, if this program can call it.
pub(crate) async fn version(session: &Session, schema: &str) -> Result<i32> {
    installed(session, schema).await?.usable(schema)
}

async fn installed(session: &Session, schema: &str) -> Result<Installed> {
    let wanted: Vec<String> = schema::functions().map(|name| format!("{schema}.{name}")).collect();
    let look = format!(
        "SELECT version, oldest, ARRAY(SELECT f FROM pg_catalog.unnest($1) f WHERE pg_catalog.to_regproc(f) IS NULL) \
         FROM {schema}.version_v1()"
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
    /// Returns whether this version's files have something to add.
    fn is_older(&self) -> bool {
        self.version < VERSION || (self.version == VERSION && !self.missing.is_empty())
    }

    /// Returns the version, if this program can call it.
    fn usable(&self, schema: &str) -> Result<i32> {
        let Self { version, oldest, missing } = self;
        let refused = |text: String| Err(LockError::misconfigured(text));
        if VERSION < *oldest {
            return refused(format!(
                "the lock store of this database has version {version} and serves programs from version {oldest} on, and this one has \
                 version {VERSION}; take a newer lock-postgres",
            ));
        }
        if self.is_older() {
            let lacks = match missing.is_empty() {
                true => String::new(),
                false => format!(" and lacks {}", missing.join(", ")),
            };
            return refused(format!(
                "the lock store of this database has version {version}{lacks}, and this program calls functions of version {VERSION}; run \
                 {RUN} as the owner of the schema {schema}, or connect as that user without migrate=never",
            ));
        }
        Ok(*version)
    }
}

pub(crate) async fn exists(session: &Session, schema: &str) -> Result<bool> {
    let rows = session.ask(&format!("SELECT FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) '{schema}'"), &[]).await?;
    Ok(!rows.is_empty())
}

/// Makes the schema or brings it up to date, while no other process does: one that has waited finds nothing left to do.
async fn bring_up_to_date(session: &Session, schema: &str) -> Result<()> {
    // Another process may be at it for longer than a call would wait for a row.
    session.answer_within(ANSWER);
    session.run(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '8s'; {MAKING}")).await?;
    let done = match bring_alone(session, schema).await {
        Ok(()) => session.run("COMMIT").await,
        Err(error) => Err(error),
    };
    if done.is_err() {
        session.run("ROLLBACK").await?;
    }
    done
}

async fn bring_alone(session: &Session, schema: &str) -> Result<()> {
    let look = format!("SELECT pg_catalog.to_regproc('{schema}.version_v1') IS NULL");
    let rows = session.ask(&look, &[]).await?;
    if rows.first().is_some_and(|row| row.get(0)) || installed(session, schema).await?.is_older() {
        return session.run(&schema::sql(schema)).await;
    }
    Ok(())
}
