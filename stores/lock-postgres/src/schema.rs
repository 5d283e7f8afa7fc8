//! The tables and functions in the database, and whether they are those that this version calls.

use lock_core::{LockError, LockErrorKind, Result};

use crate::session::Session;
use crate::url::Settings;

/// The version whose functions this crate calls, and how it is made.
const VERSION: i32 = 1;
const SQL: &str = include_str!("../sql/v1.sql");

/// Waits for whoever makes a schema, until its transaction has ended.
const MAKING: &str = "SELECT pg_advisory_xact_lock(7301, hashtext('lock_core'))";

/// The text of the schema, as [`PostgresStore::schema`](crate::PostgresStore::schema) returns it.
pub(crate) fn sql(schema: &str) -> String {
    SQL.replace("lock_core.", &format!("{schema}."))
        .replace("'lock_core_'", &format!("'{schema}_'"))
        .replace("SCHEMA lock_core", &format!("SCHEMA {schema}"))
}

/// Checks the version, and makes the schema if it is missing and the URL does not forbid it.
pub(crate) async fn check(session: &Session, settings: &Settings, may_make: bool) -> Result<()> {
    match version(session, &settings.schema).await {
        Err(error) if may_make && settings.migrate && error.kind() == LockErrorKind::Misconfigured => {
            // Another process may have made it since the version was asked for.
            if exists(session, &settings.schema).await? {
                // Its commit is seen a moment before sessions are told to forget that there was none. Its lock goes after that.
                session.ask(MAKING, &[]).await?;
            } else {
                make(session, &settings.schema).await?;
            }
            version(session, &settings.schema).await.map(drop)
        }
        known => known.map(drop),
    }
}

/// Returns the version that is there, if this program can call it.
pub(crate) async fn version(session: &Session, schema: &str) -> Result<i32> {
    let rows = session.ask(&format!("SELECT version, oldest FROM {schema}.version_v1()"), &[]).await?;
    let Some(row) = rows.first() else {
        return Err(LockError::misconfigured(format!(
            "the table {schema}.meta is empty; it says which version the lock store has"
        )));
    };
    let (version, oldest): (i32, i32) = (row.get(0), row.get(1));
    if VERSION > version {
        return Err(LockError::misconfigured(format!(
            "the lock store of this database has version {version}, and this program calls functions of version {VERSION}; migrate it, or \
             take an older lock-postgres",
        )));
    }
    if VERSION < oldest {
        return Err(LockError::misconfigured(format!(
            "the lock store of this database has version {version} and serves programs from version {oldest} on, and this one has version \
             {VERSION}; take a newer lock-postgres",
        )));
    }
    Ok(version)
}

/// The functions that a user of the store calls, as this version of the file makes them.
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    let names = SQL.split("CREATE FUNCTION lock_core.").skip(1).filter_map(|rest| rest.split('(').next());
    // Those of the others call each other, and belong to whoever made them.
    names.filter(|name| name.ends_with("_v1") || ["pin", "pin_in_statement", "mark_done", "admit"].contains(name))
}

pub(crate) async fn exists(session: &Session, schema: &str) -> Result<bool> {
    let rows = session.ask(&format!("SELECT FROM pg_namespace WHERE nspname = '{schema}'"), &[]).await?;
    Ok(!rows.is_empty())
}

/// Makes the schema, in one transaction; only one of several that try at once does.
async fn make(session: &Session, schema: &str) -> Result<()> {
    let text = sql(schema);
    let script = format!("BEGIN; {MAKING};\n{text}\nCOMMIT;");
    match session.run(&script).await {
        Ok(()) => Ok(()),
        Err(error) => {
            session.run("ROLLBACK").await?;
            // Another process has made it meanwhile.
            if exists(session, schema).await? { Ok(()) } else { Err(error) }
        }
    }
}
