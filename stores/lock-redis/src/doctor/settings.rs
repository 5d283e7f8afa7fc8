//! The role of a server, its clock and its settings, as the server reports them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::cmd;

use crate::connection::greeting::{Introduction, line};
use crate::doctor::judge::{Failure, Need, judge};
use crate::doctor::probe::Probe;
use crate::server::checks::{eviction_policy, version};
use lock_store::contract::backend::Finding;
use lock_store::types::system::clock::Clock;

type Outcome = Result<Finding, Failure>;

/// Beyond what the way to the server explains, clocks may differ by this without a word, and without a warning.
const SAME: Duration = Duration::from_secs(1);
const NEAR: Duration = Duration::from_secs(60);

/// Asks what the server is, and which role it has. The connection speaks RESP3 already.
pub(super) async fn about(probe: &mut Probe) -> [Finding; 3] {
    let server = match probe.with(async |link| Ok(version(link).await)).await.ok().flatten() {
        Some(name) => Finding::works("server", format!("{name}, which speaks RESP3 (HELLO 3)")),
        None => Finding::unknown("server", "it speaks RESP3 (HELLO 3), but INFO does not tell what it is; permit INFO"),
    };
    let hello = probe.ask(&cmd("HELLO")).await;
    let info = probe.info("replication").await;
    let role = hello.and_then(|hello| match Introduction::read(Some(hello), None).is_replica() {
        Some(true) => Ok(Finding::refused("role", "it is a replica, which takes no writes")
            .with_remedy("name the master, or turn read/write splitting off")),
        Some(false) => Ok(Finding::works("role", "it is a master")),
        None => Err(Failure::Silent("HELLO does not tell it".to_owned())),
    });
    let active = active(probe, info).await.map_err(told_nothing);
    [server, judge("role", &Need::Required, role), judge("active-active", &Need::Required, active)]
}

/// Where two masters take writes, each grants a lock of its own.
async fn active(probe: &mut Probe, replication: Result<String, Failure>) -> Outcome {
    let is_replica = line(&replication?, "role:") == Some("active-replica");
    let is_crdt = probe.info("modules").await?.contains("name=crdt");
    if is_replica || is_crdt || matches!(probe.setting("active-replica").await, Ok(Some(active)) if active == "yes") {
        let says = "several masters take writes, so a lock has a holder at each of them: no exclusion";
        let remedy = "active-replica no, and multi-master no; or use a database that has one master";
        return Ok(Finding::refused("active-active", says).with_remedy(remedy));
    }
    Ok(Finding::works("active-active", "no other master takes writes, as far as the server tells"))
}

/// A server that tells nothing of itself refuses no lock.
fn told_nothing(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(error) => Failure::Silent(format!("the server does not tell ({error}); permit INFO")),
        silent @ Failure::Silent(_) => silent,
    }
}

/// Examines the clock and the settings.
pub(super) async fn examine(probe: &mut Probe) -> Vec<Finding> {
    vec![
        judge("clock", &Need::Required, clock(probe).await),
        judge("maxmemory-policy", &Need::Required, eviction(probe).await.map_err(told_nothing)),
        judge("persistence", &Need::Required, persistence(probe).await.map_err(told_nothing)),
    ]
}

async fn clock(probe: &mut Probe) -> Outcome {
    let asked = Clock::system().now();
    let time: (u64, u64) =
        redis::from_redis_value(probe.ask(&cmd("TIME")).await?).map_err(|_| Failure::unreadable())?;
    let way = Clock::system().now().since(asked);
    let server = Duration::from_micros(time.0.saturating_mul(1_000_000).saturating_add(time.1));
    #[expect(clippy::disallowed_methods, reason = "compared with the server's, for a person")]
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(apart(server, here, way))
}

/// Judges the difference of two clocks, of which one was read over a way that took some time.
pub(super) fn apart(server: Duration, here: Duration, way: Duration) -> Finding {
    let apart = server.abs_diff(here).saturating_sub(way);
    if apart < SAME {
        return Finding::works("clock", "within a second of this machine's");
    }
    let side = if server > here { "ahead of" } else { "behind" };
    let says = format!("{} s {side} this machine's", apart.as_secs());
    if apart < NEAR {
        return Finding::works("clock", format!("{says}; no lease depends on it"));
    }
    let says =
        format!("{says}: no lease depends on it, but a token of this store may be smaller than one of another store");
    Finding::warning("clock", says).with_remedy("let both machines follow one time, for example by NTP")
}

async fn eviction(probe: &mut Probe) -> Outcome {
    let policy = probe.with(async |link| Ok(eviction_policy(link).await)).await?;
    match policy.as_deref() {
        Some("noeviction") => Ok(Finding::works("maxmemory-policy", "noeviction")),
        Some(other) => {
            let says = format!("{other}: when the memory is full, the server takes locks away from their holders");
            Ok(Finding::warning("maxmemory-policy", says).with_remedy("maxmemory-policy noeviction"))
        }
        None => Err(Failure::Silent("neither CONFIG GET nor INFO tells it; permit INFO".to_owned())),
    }
}

async fn persistence(probe: &mut Probe) -> Outcome {
    let info = probe.info("persistence").await?;
    if line(&info, "aof_enabled:").ok_or_else(Failure::unreadable)? != "1" {
        let says = "no append-only file: a restart forgets every lock, or those since the last snapshot";
        return Ok(Finding::warning("persistence", says).with_remedy("appendonly yes, and appendfsync everysec"));
    }
    let says = match probe.setting("appendfsync").await {
        Ok(Some(fsync)) if fsync == "always" => "an append-only file, written to the disk at once".to_owned(),
        Ok(Some(fsync)) => {
            format!("an append-only file (appendfsync {fsync}); a crash forgets the last second or more")
        }
        _ => "an append-only file; how often it reaches the disk is not told".to_owned(),
    };
    Ok(Finding::works("persistence", says))
}
