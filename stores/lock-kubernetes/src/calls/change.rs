//! Changes a Lease in one step, however often other clients write to it meanwhile.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use lock_store::{LockError, LockKey, Result, Timestamp};

use crate::names::lease_of;
use crate::record::Record;
use crate::shared::{Shared, check_key};

/// How often a write is tried that another client's write has made void.
pub(super) const TRIES: u32 = 8;

/// The decision of an edit: the Lease to be written, if anything is to be written, and its answer.
pub(super) type Edited<T> = Result<(Option<Lease>, T)>;

/// Changes the Lease of a lock. `edit` sees it as it is now, with the time of the server's clock, and decides anew after each write
/// of another client. Begins with what is `known`, or else with a read. `None` if there is no Lease.
pub(super) async fn change<T>(
    shared: &Shared,
    key: &LockKey,
    mut known: Option<Arc<Record>>,
    until: Timestamp,
    edit: impl Fn(&Record, i64) -> Edited<T>,
) -> Result<Option<T>> {
    let name = lease_of(key);
    for _ in 0..TRIES {
        let record = match known.take() {
            Some(record) => record,
            None => match shared.read(&name, until).await?.record {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        check_key(&record, key)?;
        let (lease, answer) = edit(&record, shared.server_now())?;
        let Some(lease) = lease else { return Ok(Some(answer)) };
        let sent = shared.now();
        if let Some(record) = shared.api.write(&lease, until).await? {
            shared.note(&name, Some(record), sent);
            return Ok(Some(answer));
        }
    }
    Err(never_quiet())
}

/// Says that other clients write to a Lease all the time.
pub(super) fn never_quiet() -> LockError {
    LockError::not_executed("other clients write to the Lease all the time; try again")
}
