//! The annotations of a Lease: what a holder says of itself, the record of a job, and marks of finished work.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_store::{DoneMark, HolderInfo, JobRecord, JobRun, JobVersion, LockError, LockKey, LockLabel, OwnerId, Result};
use serde_json::{Value, json};

use crate::names::hash;

/// The annotations of one Lease.
pub(crate) type Annotations = BTreeMap<String, String>;

pub(crate) const KEY: &str = "lock-core/key";
pub(crate) const BASE: &str = "lock-core/base";
pub(crate) const FENCE: &str = "lock-core/fence";
const HOLDER: &str = "lock-core/holder";
const REVOKED: &str = "lock-core/revoked";
const JOB: &str = "lock-core/job";
const WAITS: &str = "lock-core/waits-";
const DONE: &str = "lock-core/done-";

/// How many waiters announce themselves in one Lease.
const MOST_WAITS: usize = 64;

/// How many bytes the marks of one Lease may have. The server refuses more than 256 KiB of annotations.
const MOST_MARKS: usize = 200 * 1024;

/// Returns the time between two readings of a server's clock.
pub(crate) fn between(from: i64, to: i64) -> Duration {
    Duration::from_millis(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

/// Returns the reading of a server's clock after a time. It lies in the future at least for as long.
pub(crate) fn later(now: i64, by: Duration) -> i64 {
    now.saturating_add(millis(by)).saturating_add(1)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Writes what a holder says of itself.
pub(crate) fn describe(notes: &mut Annotations, key: &LockKey, owner: OwnerId, ttl: Duration, info: &HolderInfo) {
    notes.insert(KEY.to_owned(), key.as_str().to_owned());
    write(notes, HOLDER, info, json!({ "owner": owner.to_hex(), "ttl_ms": millis(ttl) }));
    notes.remove(REVOKED);
    remove_wait(notes, owner);
}

/// Reads what the last holder of this library said of itself.
pub(crate) fn info(notes: &Annotations) -> Option<HolderInfo> {
    read_about(&read(notes, HOLDER)?)
}

/// Reads the owner that last had the lock.
pub(crate) fn owner(notes: &Annotations) -> Option<OwnerId> {
    OwnerId::from_hex(read(notes, HOLDER)?["owner"].as_str()?)
}

/// Reads the ttl of the last holder.
pub(crate) fn ttl(notes: &Annotations) -> Option<Duration> {
    read(notes, HOLDER)?["ttl_ms"].as_u64().map(Duration::from_millis)
}

/// Writes a note with what a holder or a waiter says of itself.
fn write(notes: &mut Annotations, name: &str, info: &HolderInfo, mut note: Value) {
    (note["host"], note["pid"], note["site"]) = (json!(&*info.host), json!(info.pid), json!(&*info.site));
    note["lock"] = json!(info.lock.as_ref().map(LockLabel::as_str));
    notes.insert(name.to_owned(), note.to_string());
}

fn read(notes: &Annotations, name: &str) -> Option<Value> {
    serde_json::from_str(notes.get(name)?).ok()
}

fn read_about(value: &Value) -> Option<HolderInfo> {
    let pid = u32::try_from(value["pid"].as_u64()?).ok()?;
    let info = HolderInfo::new(value["host"].as_str()?, pid, value["site"].as_str()?);
    Some(match value["lock"].as_str() {
        None => info,
        Some(lock) => info.with_lock(LockLabel::new(lock.to_owned())),
    })
}

/// Records the run of a job that started and ended at these times of the server's clock.
pub(crate) fn write_job(notes: &mut Annotations, run: JobRun, info: &HolderInfo, started: i64, now: i64) {
    let before = read(notes, JOB).filter(|job| job["until"].as_i64().is_some_and(|until| until > now));
    let before = before.filter(|_| !run.succeeded).and_then(|job| job["without_success_since"].as_i64());
    let value = json!({
        "every_ms": millis(run.every), "succeeded": run.succeeded, "started": started,
        "without_success_since": before.unwrap_or(started), "until": later(now, run.kept_for()),
    });
    write(notes, JOB, info, value);
}

/// Reads the record of a job. `None` if there is none, or its time is over.
pub(crate) fn job(notes: &Annotations, now: i64) -> Option<JobRecord> {
    let job = read(notes, JOB)?;
    let number = |name: &str| job[name].as_i64();
    if number("until")? <= now {
        return None;
    }
    let every = Duration::from_millis(u64::try_from(number("every_ms")?).ok()?);
    let run = JobRun::new(every, job["succeeded"].as_bool()?);
    let (started, since) = (number("started")?, number("without_success_since")?);
    Some(JobRecord::new(run, read_about(&job)?, between(started, now), between(since, now)))
}

fn mark_of(version: &JobVersion) -> String {
    format!("{DONE}{}", hash(version.as_str()))
}

/// Writes the mark of a version, and removes marks whose time is over.
pub(crate) fn write_mark(
    notes: &mut Annotations,
    version: &JobVersion,
    info: &HolderInfo,
    now: i64,
    keep: Duration,
) -> Result<()> {
    notes.retain(|name, text| !name.starts_with(DONE) || read_mark(text, now).is_some());
    let value = json!({ "version": version.as_str(), "at": now, "until": later(now, keep) });
    write(notes, &mark_of(version), info, value);
    let bytes = |(name, text): (&String, &String)| name.len() + text.len();
    if notes.iter().filter(|(name, _)| name.starts_with(DONE)).map(bytes).sum::<usize>() > MOST_MARKS {
        return Err(LockError::misconfigured(
            "the Lease of this lock has no room for more marks of finished versions; keep them for a shorter time, or forget old ones",
        ));
    }
    Ok(())
}

fn read_mark(text: &str, now: i64) -> Option<DoneMark> {
    let mark: Value = serde_json::from_str(text).ok()?;
    if mark["until"].as_i64()? <= now {
        return None;
    }
    let version = JobVersion::new(mark["version"].as_str()?).ok()?;
    Some(DoneMark::new(version, read_about(&mark)?, between(mark["at"].as_i64()?, now)))
}

/// Reads the mark of a version. Foreign text in its place is an error, because it says neither yes nor no.
pub(crate) fn mark(notes: &Annotations, version: &JobVersion, now: i64) -> Result<Option<DoneMark>> {
    let name = mark_of(version);
    let Some(text) = notes.get(&name) else { return Ok(None) };
    let is_readable = serde_json::from_str::<Value>(text)
        .is_ok_and(|mark| mark["until"].is_i64() && mark["version"].as_str() == Some(version.as_str()));
    if !is_readable {
        return Err(LockError::misconfigured(format!(
            "the annotation {name} has text that no lock store has written; remove it, and the work is done again"
        )));
    }
    Ok(read_mark(text, now))
}

/// Removes the mark of a version. Returns whether one existed whose time was not over.
pub(crate) fn remove_mark(notes: &mut Annotations, version: &JobVersion, now: i64) -> bool {
    notes.remove(&mark_of(version)).is_some_and(|text| read_mark(&text, now).is_some())
}

/// Lists the marks of a lock.
pub(crate) fn marks(notes: &Annotations, now: i64) -> Vec<DoneMark> {
    notes.iter().filter(|(name, _)| name.starts_with(DONE)).filter_map(|(_, text)| read_mark(text, now)).collect()
}

/// A claim that waits, as it has announced itself.
pub(crate) struct Wait {
    pub(crate) owner: OwnerId,
    pub(crate) info: HolderInfo,
    /// Since when, by the server's clock.
    pub(crate) since: i64,
}

/// Lists the claims that wait, in order of arrival.
pub(crate) fn waits(notes: &Annotations, now: i64) -> Vec<Wait> {
    let read = |(name, text): (&String, &String)| {
        let (owner, wait) = (OwnerId::from_hex(name.strip_prefix(WAITS)?)?, serde_json::from_str::<Value>(text).ok()?);
        let info = read_about(&wait).filter(|_| wait["until"].as_i64().is_some_and(|until| until > now))?;
        Some(Wait { owner, info, since: wait["since"].as_i64()? })
    };
    let mut waits: Vec<Wait> = notes.iter().filter_map(read).collect();
    waits.sort_by_key(|wait| wait.since);
    waits
}

/// Announces that a claim waits, and removes announcements whose time is over. Returns whether there is room.
pub(crate) fn write_wait(notes: &mut Annotations, owner: OwnerId, info: &HolderInfo, since: i64, until: i64) -> bool {
    let living: Vec<OwnerId> = waits(notes, since).into_iter().map(|wait| wait.owner).collect();
    notes.retain(|name, _| name.strip_prefix(WAITS).is_none_or(|of| living.iter().any(|owner| owner.to_hex() == of)));
    let has_room = living.len() < MOST_WAITS || living.contains(&owner);
    if has_room {
        write(notes, &format!("{WAITS}{}", owner.to_hex()), info, json!({ "since": since, "until": until }));
    }
    has_room
}

/// Removes the announcement of a claim. Returns whether there was one.
pub(crate) fn remove_wait(notes: &mut Annotations, owner: OwnerId) -> bool {
    notes.remove(&format!("{WAITS}{}", owner.to_hex())).is_some()
}

/// Writes which holder an operator takes a lock from, and why.
pub(crate) fn write_revocation(notes: &mut Annotations, owner: OwnerId, actor: &str, reason: &str) {
    let text = json!({ "owner": owner.to_hex(), "actor": actor, "reason": reason }).to_string();
    notes.insert(REVOKED.to_owned(), text);
}

/// Reads the operator and the reason, if the lock was taken from this owner.
pub(crate) fn revocation(notes: &Annotations, owner: OwnerId) -> Option<(String, String)> {
    let note = read(notes, REVOKED).filter(|note| note["owner"].as_str() == Some(&owner.to_hex()))?;
    Some((note["actor"].as_str()?.to_owned(), note["reason"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::{HolderInfo, JobRun, JobVersion, LockKey, LockLabel, OwnerId};

    use super::{
        Annotations, BASE, describe, info, job, mark, marks, owner, remove_mark, remove_wait, revocation, ttl, waits,
        write_job, write_mark, write_revocation, write_wait,
    };

    fn about() -> HolderInfo {
        HolderInfo::new("web-\"3\"", 7, "a::b\n").with_lock(LockLabel::from_static("order:<id>"))
    }

    #[test]
    fn a_holder_describes_itself() {
        let (mut notes, of) = (Annotations::new(), OwnerId::random());
        write_revocation(&mut notes, of, "ana", "its host is gone");
        assert_eq!(revocation(&notes, of), Some(("ana".to_owned(), "its host is gone".to_owned())));
        assert_eq!(revocation(&notes, OwnerId::random()), None);
        describe(&mut notes, &LockKey::new("é").unwrap(), of, Duration::from_millis(1500), &about());
        assert_eq!((info(&notes), owner(&notes)), (Some(about()), Some(of)));
        assert_eq!((ttl(&notes), revocation(&notes, of)), (Some(Duration::from_millis(1500)), None));
    }

    #[test]
    fn waiters_are_listed_in_order_and_those_of_dead_processes_end() {
        let (mut notes, [one, two]) = (Annotations::new(), [(); 2].map(|()| OwnerId::random()));
        assert!(write_wait(&mut notes, one, &about(), 20, 1_000) && write_wait(&mut notes, two, &about(), 10, 50));
        let owners =
            |notes: &Annotations, now| waits(notes, now).into_iter().map(|wait| wait.owner).collect::<Vec<_>>();
        assert_eq!((owners(&notes, 30), owners(&notes, 50)), (vec![two, one], vec![one]));
        assert!(write_wait(&mut notes, one, &about(), 60, 2_000));
        assert_eq!(notes.len(), 1, "the announcement whose time is over is removed");
        assert!(remove_wait(&mut notes, one) && !remove_wait(&mut notes, one));
        let count = (0..99).filter(|_| write_wait(&mut notes, OwnerId::random(), &about(), 60, 2_000)).count();
        assert_eq!((count, notes.len()), (64, 64));
    }

    #[test]
    fn the_record_of_a_job_counts_from_its_last_success_and_ends() {
        let mut notes = Annotations::new();
        let run = |succeeded| JobRun::new(Duration::from_secs(60), succeeded);
        write_job(&mut notes, run(true), &about(), 1_000, 2_000);
        write_job(&mut notes, run(false), &about(), 61_000, 62_000);
        let record = job(&notes, 71_000).unwrap();
        assert_eq!((record.succeeded, record.info), (false, about()));
        assert_eq!(
            (record.started_ago, record.without_success_for),
            (Duration::from_secs(10), Duration::from_secs(70))
        );
        assert_eq!(job(&notes, 662_001), None);
    }

    #[test]
    fn marks_are_kept_apart_and_end() {
        let (mut notes, day) = (Annotations::new(), Duration::from_secs(86_400));
        let [one, two] = ["v1", "v2"].map(|text| JobVersion::new(text).unwrap());
        write_mark(&mut notes, &one, &about(), 5, Duration::from_millis(10)).unwrap();
        assert_eq!(mark(&notes, &one, 9).unwrap().unwrap().ago, Duration::from_millis(4));
        assert_eq!((mark(&notes, &one, 99), mark(&notes, &two, 9)), (Ok(None), Ok(None)));
        write_mark(&mut notes, &two, &about(), 99, day).unwrap();
        assert_eq!((notes.len(), marks(&notes, 100).len()), (1, 1), "a mark that has ended is removed");
        assert!(remove_mark(&mut notes, &two, 100) && !remove_mark(&mut notes, &two, 100));
        notes.insert(super::mark_of(&two), "done".to_owned());
        assert!(mark(&notes, &two, 100).is_err(), "foreign text says neither yes nor no");
        notes.insert(BASE.to_owned(), "1".to_owned());
        let full = (0..900).try_for_each(|number| {
            let version = JobVersion::new(format!("{number}{}", "x".repeat(300))).unwrap();
            write_mark(&mut notes, &version, &about(), 99, day)
        });
        assert!(full.is_err(), "the server would refuse them");
    }
}
