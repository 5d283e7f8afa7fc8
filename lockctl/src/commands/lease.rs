//! The commands that take, renew and release a lease: a lock that outlives this program.

use std::io::{self, Write as _};
use std::time::UNIX_EPOCH;

use lock_core::inspect::FleetReader;
use lock_core::lease::{Lease, LeaseRequest, of_site};
use lock_core::store::Freed;
use lock_core::store::text::{human, visible};
use lock_core::{Holder, LockErrorKind, LockKey, LockLabel, LockManager, LockManagerBuilder, ReleaseOutcome};
use serde_json::json;

use crate::args::{Acquire, LeaseArgs};
use crate::end::{End, Failure, complain, flush};
use crate::output::Output;
use crate::{audit, values, waiting};

/// Names a lease. The key is its own family, as in `run`.
fn request(url: &str, key: &LockKey, holder: &str) -> Result<(LockManager, LeaseRequest), Failure> {
    let locks = LockManager::builder_for(url).and_then(LockManagerBuilder::build).map_err(Failure::Url)?;
    let name = values::without(locks.key_prefix(), key);
    let key = LockKey::new(name).map(|key| key.with_label(LockLabel::new(name.to_owned())));
    let request = locks.lease(key).holder(holder);
    Ok((locks, request))
}

pub(crate) async fn acquire(url: &str, wanted: &Acquire, out: &mut Output) -> Result<End, Failure> {
    let LeaseArgs { key, holder, ttl } = &wanted.lease;
    let (_locks, request) = request(url, key, holder)?;
    let mut request = request.ttl(*ttl).wait(wanted.wait).on_waiting(waiting::tell);
    request = request.reason(wanted.reason.as_deref().unwrap_or_default());
    if wanted.exclusive_holder {
        request = request.exclusive_holder();
    }
    let taken = request.acquire().await;
    flush();
    show(&taken?, "is held", out)
}

pub(crate) async fn renew(url: &str, wanted: &LeaseArgs, out: &mut Output) -> Result<End, Failure> {
    let LeaseArgs { key, holder, ttl } = wanted;
    let (locks, request) = request(url, key, holder)?;
    if let Some(mut lease) = request.ttl(*ttl).find().await? {
        match lease.renew(&locks).await {
            Err(error) if error.kind() == LockErrorKind::Lost => {}
            renewed => return show(&renewed.map(|()| lease)?, "is renewed", out),
        }
    }
    not_held(&locks, key, "nothing was renewed", holder, out).await
}

fn show(lease: &Lease, what: &str, out: &mut Output) -> Result<End, Failure> {
    // Text, because a number of JSON does not hold it exactly.
    let token = lease.token.map(|token| token.to_string());
    let document = json!({
        "key": lease.key.as_str(),
        "holder": lease.holder,
        "token": token,
        "ttl_seconds": lease.ttl.as_secs_f64(),
        "expires_at_unix_seconds": lease.expires_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
    });
    let token = token.map_or_else(String::new, |token| format!(" under the token {token}"));
    let (key, holder, ttl) = (&lease.key, &lease.holder, human(lease.ttl));
    out.either(&document, &format!("{key} {what} by {holder}{token}, for {ttl}"))?;
    Ok(End::Ok)
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

/// Releases a lease by the name of its holder. With the reason of a `force`, takes it away from another holder.
pub(crate) async fn release(
    url: &str,
    key: &LockKey,
    holder: &str,
    force: Option<&str>,
    out: &mut Output,
) -> Result<End, Failure> {
    let (locks, request) = request(url, key, holder)?;
    if let Some(lease) = request.find().await?
        && lease.release(&locks).await? == ReleaseOutcome::Released
    {
        let document = json!({ "key": key.as_str(), "outcome": "released", "holder": holder });
        out.either(&document, &format!("released {key}, held by {holder}"))?;
        return Ok(End::Ok);
    }
    let owner = found(&locks, key).await?.and_then(|now| Some((now.owner?, name(&now))));
    let (Some(reason), Some((owner, other))) = (force, owner) else {
        return not_held(&locks, key, "nothing was released", holder, out).await;
    };
    if !confirmed(key, &other) {
        complain("nothing was released: the answer was not yes");
        return Ok(End::NotFound);
    }
    let fleet = FleetReader::new(url).map_err(Failure::Url)?;
    let key = values::within(fleet.key_prefix(), key)?;
    // Records who asked and why, and tells the process of that holder.
    if fleet.release(&key, owner, &audit::actor(), reason).await? == Freed::NotHeld {
        return not_held(&locks, &key, "nothing was released", &other, out).await;
    }
    let document = json!({ "key": key.as_str(), "outcome": "forced", "taken_from": other });
    out.either(&document, &format!("released {key}, taken from {other}"))?;
    Ok(End::Ok)
}

/// Asks whether a lock shall be taken away. The answer comes from standard input.
fn confirmed(key: &LockKey, other: &str) -> bool {
    flush();
    let question = format!("{key} is held by {other}. It may still work under it. Take it away? Answer yes or no: ");
    let mut answer = String::new();
    let asked = io::stderr().write_all(visible(&question).as_bytes());
    asked.and_then(|()| io::stdin().read_line(&mut answer)).is_ok() && answer.trim() == "yes"
}
