//! The commands that take, renew and release a lease: a lock that outlives this program.

use std::io::{self, Write as _};
use std::time::UNIX_EPOCH;

use lock_core::inspect::FleetReader;
use lock_core::lease::{Lease, LeaseRequest, of_site};
use lock_core::store::Freed;
use lock_core::store::text::{human, visible};
use lock_core::{
    FencingToken, Holder, LockErrorKind, LockKey, LockLabel, LockManager, LockManagerBuilder, ReleaseOutcome,
};
use serde_json::json;

use crate::args::{Acquire, LeaseArgs};
use crate::end::{End, Failure, complain, flush};
use crate::output::Output;
use crate::{audit, values, waiting};

fn manager(url: &str) -> Result<LockManager, Failure> {
    LockManager::builder_for(url).and_then(LockManagerBuilder::build).map_err(Failure::Url)
}

/// Names a lease. The key is its own family, as in `run`.
fn request(locks: &LockManager, key: &LockKey, holder: &str) -> LeaseRequest {
    let name = values::without(locks.key_prefix(), key);
    locks.lease(LockKey::new(name).map(|key| key.with_label(LockLabel::new(name.to_owned())))).holder(holder)
}

pub(crate) async fn acquire(url: &str, wanted: &Acquire, out: &mut Output) -> Result<End, Failure> {
    let locks = manager(url)?;
    let LeaseArgs { key, holder, ttl } = &wanted.lease;
    let mut request = request(&locks, key, holder).ttl(*ttl).wait(wanted.wait).on_waiting(waiting::tell);
    if let Some(reason) = &wanted.reason {
        request = request.reason(reason);
    }
    if wanted.exclusive_holder {
        request = request.exclusive_holder();
    }
    let taken = request.acquire().await;
    waiting::end();
    match taken {
        Ok(lease) => {
            show(&lease, "is held", out)?;
            Ok(End::Ok)
        }
        Err(error) if matches!(error.kind(), LockErrorKind::Busy | LockErrorKind::Timeout) => {
            let text = error.to_string().replace("set a wait to queue for it", "set --wait to queue for it");
            if out.is_json() {
                out.failure(&text, End::Busy as u8)?;
            }
            complain(&text);
            Ok(End::Busy)
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn renew(url: &str, wanted: &LeaseArgs, out: &mut Output) -> Result<End, Failure> {
    let locks = manager(url)?;
    let LeaseArgs { key, holder, ttl } = wanted;
    let renewed = match request(&locks, key, holder).ttl(*ttl).find().await? {
        Some(mut lease) => match lease.renew(&locks).await {
            Err(error) if error.kind() == LockErrorKind::Lost => None,
            renewed => renewed.map(|()| Some(lease))?,
        },
        None => None,
    };
    match renewed {
        Some(lease) => {
            show(&lease, "is renewed", out)?;
            Ok(End::Ok)
        }
        None => not_held(&locks, key, "nothing was renewed", holder, out).await,
    }
}

fn show(lease: &Lease, what: &str, out: &mut Output) -> Result<(), Failure> {
    let expires = lease.expires_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    if out.is_json() {
        out.document(&json!({
            "key": lease.key.as_str(),
            "holder": lease.holder,
            // Text, because a number of JSON does not hold it exactly.
            "token": lease.token.map(|token| token.to_string()),
            "ttl_seconds": lease.ttl.as_secs_f64(),
            "expires_at_unix_seconds": expires,
        }))?;
        return Ok(());
    }
    let token = lease.token.as_ref().map(FencingToken::to_string);
    let token = token.map_or_else(String::new, |token| format!(" under the token {token}"));
    let (key, holder) = (visible(lease.key.as_str()), visible(&lease.holder));
    out.line(&format!("{key} {what} by {holder}{token}, for {}", human(lease.ttl)))?;
    Ok(())
}

/// Says who has a lock that this holder does not have.
async fn not_held(
    locks: &LockManager,
    key: &LockKey,
    what: &str,
    holder: &str,
    out: &mut Output,
) -> Result<End, Failure> {
    let now = found(locks, key).await?;
    let who = now.as_ref().map_or_else(|| "it is free".to_owned(), |now| format!("it is held by {}", name(now)));
    let text = format!("{what}: {key} is not held by {holder}; {who}");
    if out.is_json() {
        let now = now.as_ref().map(name);
        out.document(&json!({ "key": key.as_str(), "outcome": "not_held", "held_by": now, "error": text }))?;
    }
    complain(&text);
    Ok(End::NotFound)
}

async fn found(locks: &LockManager, key: &LockKey) -> Result<Option<Holder>, Failure> {
    Ok(locks.holder(values::without(locks.key_prefix(), key)).await?)
}

/// Names a holder: a lease by the name that it goes by, anything else as it describes itself.
fn name(holder: &Holder) -> String {
    match of_site(holder.site()) {
        Some((name, "")) => name.to_owned(),
        Some((name, reason)) => format!("{name} ({reason})"),
        None => holder.to_string(),
    }
}

/// How to take a lease away from another holder.
pub(crate) struct Force<'a> {
    pub(crate) reason: &'a str,
}

pub(crate) async fn release(
    url: &str,
    key: &LockKey,
    holder: &str,
    force: Option<Force<'_>>,
    out: &mut Output,
) -> Result<End, Failure> {
    let locks = manager(url)?;
    let released = match request(&locks, key, holder).find().await? {
        Some(lease) => lease.release(&locks).await? == ReleaseOutcome::Released,
        None => false,
    };
    if released {
        if out.is_json() {
            out.document(&json!({ "key": key.as_str(), "outcome": "released", "holder": holder }))?;
        } else {
            out.line(&format!("released {}, held by {}", visible(key.as_str()), visible(holder)))?;
        }
        return Ok(End::Ok);
    }
    let owner = found(&locks, key).await?.and_then(|now| Some((now.owner?, name(&now))));
    let (Some(Force { reason }), Some((owner, other))) = (force, owner) else {
        return not_held(&locks, key, "nothing was released", holder, out).await;
    };
    if !confirmed(key, &other) {
        complain("nothing was released: the answer was not yes");
        return Ok(End::NotFound);
    }
    let fleet = FleetReader::new(url).map_err(Failure::Url)?;
    let key = values::within(fleet.key_prefix(), key)?;
    // Records who asked and why, and tells the process of that holder.
    match fleet.release(&key, owner, &audit::actor(), reason).await? {
        Freed::Released if out.is_json() => {
            out.document(&json!({ "key": key.as_str(), "outcome": "forced", "taken_from": other }))?;
            Ok(End::Ok)
        }
        Freed::Released => {
            out.line(&format!("released {}, taken from {}", visible(key.as_str()), visible(&other)))?;
            Ok(End::Ok)
        }
        Freed::NotHeld => not_held(&locks, &key, "nothing was released", &other, out).await,
    }
}

/// Asks whether a lock shall be taken away. The answer comes from standard input.
fn confirmed(key: &LockKey, other: &str) -> bool {
    flush();
    let question = format!("{key} is held by {other}. It may still work under it. Take it away? Answer yes or no: ");
    let mut answer = String::new();
    let asked = io::stderr().write_all(visible(&question).as_bytes());
    asked.and_then(|()| io::stdin().read_line(&mut answer)).is_ok() && answer.trim() == "yes"
}
