//! The marks of work that is done for a version.

use lock_core::{LockError, LockKey, Result};
use lock_store::{DoneMark, JobVersion};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::calls::about;
use crate::calls::call::Mark;
use crate::calls::context::Context;
use crate::calls::values::{millis, time};
use crate::session::Session;

/// Says whether it is done.
pub(super) async fn done(
    context: &Context,
    session: &Session,
    (key, version): &(LockKey, JobVersion),
) -> Result<Option<DoneMark>> {
    let text = format!("SELECT * FROM {}.done_v1($1, $2)", context.settings.schema);
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&vec![key.as_str()], Type::TEXT_ARRAY), (&version.as_str(), Type::TEXT)];
    let rows = session.ask(&text, &values).await?;
    rows.first().map(|row| mark_of(row, key)).transpose()
}

pub(super) fn mark_of(row: &Row, key: &LockKey) -> Result<DoneMark> {
    let version = JobVersion::new(row.get::<_, &str>("version"));
    let (Ok(version), Some(by)) = (version, about::read(row.get("about"))) else {
        return Err(LockError::misconfigured(
            "what the database says to be done under this lock was not written by a lock store; delete that row of the table done",
        )
        .with_key(key));
    };
    Ok(DoneMark::new(version, by, time(row.get("ago_ms"))))
}

/// Writes that it is done.
pub(super) async fn mark(context: &Context, session: &Session, (claim, version, keep): &Mark) -> Result<bool> {
    let text = format!(
        "SELECT {}.mark_done_v1($1, $2::pg_catalog.text::pg_catalog.uuid, $3, $4, $5)",
        context.settings.schema
    );
    let rows = session
        .ask(
            &text,
            &[
                (&claim.key.as_str(), Type::TEXT),
                (&claim.owner.to_hex(), Type::TEXT),
                (&version.as_str(), Type::TEXT),
                (&keep.map(millis), Type::INT8),
                (&context.settings.commit, Type::TEXT),
            ],
        )
        .await?;
    whether(&rows, &claim.key)
}

/// Forgets that it is done.
pub(super) async fn forget(
    context: &Context,
    session: &Session,
    (key, version): &(LockKey, JobVersion),
) -> Result<bool> {
    let text = format!("SELECT {}.forget_done_v1($1, $2, $3)", context.settings.schema);
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&key.as_str(), Type::TEXT), (&version.as_str(), Type::TEXT), (&context.settings.commit, Type::TEXT)];
    let rows = session.ask(&text, &values).await?;
    whether(&rows, key)
}

fn whether(rows: &[Row], key: &LockKey) -> Result<bool> {
    let row = rows.first().ok_or_else(|| LockError::unavailable("PostgreSQL gave no answer").with_key(key))?;
    Ok(row.get(0))
}
