//! Values of statements and of their rows, as both sides write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Holder, LockError, LockKey, Result};
use lock_store::AcquireRequest;
use tokio_postgres::Row;

use crate::calls::about;
use crate::pin::unsigned;

pub(super) fn millis(time: Duration) -> i64 {
    // A lease is at most a century long; a longer one would not fit the server's calendar.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(100 * 366 * 24 * 3_600_000)
}

pub(super) fn time(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

pub(super) fn texts<T>(asked: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
    asked.iter().map(text).collect()
}

/// Returns the places of so many claims in the order in which every statement touches rows: two of them never wait for each
/// other in a ring.
pub(super) fn order_by_key<'a>(count: usize, key: impl Fn(usize) -> &'a LockKey) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| key(*one).as_str().cmp(key(*other).as_str()));
    order
}

/// Returns the rows of an answer, if there is one for each that was asked about.
pub(super) fn exactly(count: usize, what: &str, answer: Result<Vec<Row>>) -> Result<Vec<Row>> {
    match answer {
        Ok(rows) if rows.len() != count => {
            Err(LockError::unavailable(format!("PostgreSQL gave fewer answers than there were {what}")))
        }
        answer => answer,
    }
}

pub(super) fn too_late() -> LockError {
    LockError::not_executed(
        "PostgreSQL came to the claim when its time was over, and did not take the lock; try again, or look for what keeps the database busy",
    )
}

pub(super) fn beyond(request: &AcquireRequest) -> LockError {
    LockError::misconfigured(format!(
        "the newest token known, {}, lies more than an hour ahead of the clock of PostgreSQL, so no token can exceed it; find out which \
         resource stored it",
        request.floor,
    ))
    .with_key(&request.claim.key)
}

/// Reads a holder, whose description has a column of this name.
pub(super) fn read_holder(row: &Row, described: &str) -> Holder {
    let owner: Option<&str> = row.get("owner");
    let owner = owner.and_then(|text| lock_core::OwnerId::from_hex(&text.replace('-', "")));
    let mut holder = Holder::foreign(row.get::<_, Option<i64>>("left_ms").map(time));
    holder.info = row.get::<_, Option<&str>>(described).and_then(about::read);
    holder.token = row.get::<_, Option<i64>>("token").map(unsigned);
    let since: Option<i64> = row.get("since_us");
    holder.since = since
        .and_then(|micros| SystemTime::checked_add(&UNIX_EPOCH, Duration::from_micros(u64::try_from(micros).ok()?)));
    match owner {
        Some(_) => {
            holder.owner = owner;
            holder
        }
        None => holder.kept(),
    }
}
