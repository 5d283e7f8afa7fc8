//! The command that has work done again.

use lock_core::store::JobVersion;
use lock_core::store::text::visible;
use lock_core::{LockKey, LockManager, LockManagerBuilder};
use serde_json::json;

use crate::audit;
use crate::end::{End, Failure, complain};
use crate::output::Output;
use crate::values;

/// Forgets that the work under a lock is done for a version.
pub(crate) async fn forget(url: &str, key: &LockKey, version: &JobVersion, out: &mut Output) -> Result<End, Failure> {
    let locks = LockManager::builder_for(url).and_then(LockManagerBuilder::build).map_err(Failure::Url)?;
    let forgotten = locks.forget_done(values::without(locks.key_prefix(), key), version.as_str()).await;
    let outcome = match &forgotten {
        Ok(true) => "forgotten",
        Ok(false) => "not_done",
        Err(_) => "failed",
    };
    tracing::warn!(
        target: "lock_core::audit",
        action = "forget", key = key.as_str(), version = version.as_str(), actor = audit::actor().as_str(), outcome,
        "an operator asked to forget what is done"
    );
    let forgotten = forgotten?;
    if out.is_json() {
        out.document(&json!({ "key": key.as_str(), "version": version.as_str(), "outcome": outcome }))?;
    } else if forgotten {
        out.line(&format!("{} is not done for {} any more", visible(key.as_str()), visible(version.as_str())))?;
    }
    if !forgotten {
        complain(&format!("nothing was forgotten: {key} is not done for {version}; `lockctl jobs` lists what is"));
        return Ok(End::NotFound);
    }
    Ok(End::Ok)
}
