//! Whether a server takes writes, and if not, why: it is a standby, or the user may only read.

use lock_core::{LockError, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::of_command;

/// Refuses a server that takes no writes. The driver asks too, but cannot tell the two reasons apart.
pub(super) async fn takes_writes(client: &Client, node: &str) -> Result<()> {
    let look = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only'), \
                pg_catalog.quote_ident(current_user)";
    let rows = client.simple_query(look).await.map_err(|error| of_command(error, "of the store"))?;
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some([0, 1, 2].map(|column| row.get(column).unwrap_or_default())),
        _ => None,
    });
    match row {
        None => Err(LockError::not_executed("PostgreSQL said nothing of itself")),
        Some(["t", ..]) => Err(LockError::not_executed(format!(
            "PostgreSQL at {node} is a standby, which grants no locks; name the primary in the URL, or both hosts, of which the one that \
             takes writes is used"
        ))),
        Some([_, "on", user]) => Err(LockError::not_executed(format!(
            "PostgreSQL at {node} grants no locks to this user, whose transactions only read (default_transaction_read_only = on); run \
             ALTER ROLE {user} SET default_transaction_read_only = off, or find out for how long the server is set so"
        ))),
        Some(_) => Ok(()),
    }
}
