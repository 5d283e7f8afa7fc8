//! What a server says of itself, its clock and its settings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::cmd;

use crate::doctor::judge::{Failure, Need, judge};
use crate::doctor::probe::Probe;
use crate::server::checks::{eviction_policy, replication, version};
use crate::wire::greeting::Introduction;
use lock_store::contract::backend::Finding;
use lock_store::types::system::clock::Clock;

type Outcome = Result<Finding, Failure>;

/// Beyond what the way to the server explains, clocks may differ by this without a word, and without a warning.
const SAME: Duration = Duration::from_secs(1);
const NEAR: Duration = Duration::from_secs(60);

/// What the examination knows of a server.
pub(super) struct About {
    pub(super) server: Finding,
    pub(super) role: Finding,
    pub(super) active: Finding,
}

/// Asks what the server is. The connection speaks RESP3 already.
pub(super) async fn about(probe: &mut Probe) -> About {
    let known = probe.with(async |link| Ok(version(link).await)).await.ok().flatten();
    let server = match known {
        Some(name) => Finding::works("server", format!("{name}, which speaks RESP3 (HELLO 3)")),
        None => Finding::unknown("server", "it speaks RESP3 (HELLO 3), but INFO does not tell what it is")
            .with_remedy("permit INFO"),
    };
    let hello = probe.ask(&cmd("HELLO")).await;
    let info = probe.info("replication").await;
    let role = match (hello, &info) {
        (Err(failure), _) => Err(failure),
        (Ok(hello), _) => match Introduction::read(Some(hello), None).is_replica() {
            Some(true) => Ok(Finding::refused("role", "it is a replica, which takes no writes")
                .with_remedy("name the master, or turn read/write splitting off")),
            Some(false) => Ok(Finding::works("role", "it is a master")),
            None => Err(Failure::Silent("HELLO does not tell it".to_owned())),
        },
    };
    About { server, role: judge("role", &Need::Required, role), active: active(probe, info).await }
}

/// Where two masters take writes, each grants a lock of its own.
async fn active(probe: &mut Probe, replication: Result<String, Failure>) -> Finding {
    let subject = "active-active";
    let modules = probe.info("modules").await;
    let found = replication.map(|replication| {
        let role = line(&replication, "role:").unwrap_or_default().to_owned();
        let is_crdt = modules.is_ok_and(|text| text.contains("name=crdt"));
        if role == "active-replica" || is_crdt {
            Finding::refused(subject, "several masters take writes, so a lock has a holder at each of them: no exclusion")
                .with_remedy("active-replica no, and multi-master no; or use a database that has one master")
        } else {
            Finding::works(subject, "no other master takes writes, as far as the server tells")
        }
    });
    judge(subject, &Need::Required, found.map_err(told_nothing))
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
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(apart(server, here, way))
}

/// Judges the difference of two clocks, of which one was read over a way that took some time.
fn apart(server: Duration, here: Duration, way: Duration) -> Finding {
    let apart = server.abs_diff(here).saturating_sub(way);
    if apart < SAME {
        return Finding::works("clock", "within a second of this machine's");
    }
    let side = if server > here { "ahead of" } else { "behind" };
    let says = format!("{} s {side} this machine's", apart.as_secs());
    if apart < NEAR {
        return Finding::works("clock", format!("{says}; no lease depends on it"));
    }
    let says = format!("{says}: no lease depends on it, but a token of this store may be smaller than one of another store");
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
    let on = line(&info, "aof_enabled:").ok_or_else(Failure::unreadable)? == "1";
    if !on {
        let snapshots = matches!(probe.setting("save").await, Ok(Some(save)) if !save.is_empty());
        let says = if snapshots {
            "snapshots only: a restart forgets the locks since the last one"
        } else {
            "none: a restart forgets every lock"
        };
        return Ok(Finding::warning("persistence", says).with_remedy("appendonly yes, and appendfsync everysec"));
    }
    let says = match probe.setting("appendfsync").await {
        Ok(Some(fsync)) if fsync == "always" => "an append-only file, written to the disk at once".to_owned(),
        Ok(Some(fsync)) => format!("an append-only file (appendfsync {fsync}); a crash forgets the last second or more"),
        _ => "an append-only file; how often it reaches the disk is not told".to_owned(),
    };
    Ok(Finding::works("persistence", says))
}

/// Returns how many replicas are connected, and without how many the server refuses writes.
pub(super) async fn replicas(probe: &mut Probe) -> Option<(u32, u32)> {
    probe.with(async |link| Ok(replication(link).await)).await.ok().flatten()
}

fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::FindingGrade;

    use super::apart;

    #[test]
    fn clocks_are_apart_by_what_the_way_does_not_explain() {
        for (server, here, way, grade, says) in [
            (100_900, 100_000, 10, FindingGrade::Works, "within a second"),
            (105_000, 100_000, 4_500, FindingGrade::Works, "within a second"),
            (105_000, 100_000, 0, FindingGrade::Works, "5 s ahead of"),
            (100_000, 105_000, 0, FindingGrade::Works, "5 s behind"),
            (100_000, 200_000, 0, FindingGrade::Warning, "100 s behind"),
        ] {
            let [server, here, way] = [server, here, way].map(Duration::from_millis);
            let found = apart(server, here, way);
            assert!(found.grade == grade && found.says.contains(says), "{found:?}");
        }
    }
}
