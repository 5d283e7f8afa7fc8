//! The data of the nodes: lines of text, so that an operator can read them.

use std::fmt::Display;
use std::time::Duration;

use lock_store::{DoneMark, HolderInfo, JobRecord, JobRun, JobVersion, LockKey, LockLabel};

/// The first line. A reader of another format must not misread this one.
const FORMAT: &str = "lock-core 1";

/// Writes one field a line. A field may have any character.
fn write<'a>(fields: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let escaped = fields.into_iter().map(|field| field.replace('\\', "\\\\").replace('\n', "\\n"));
    let lines: Vec<String> = std::iter::once(FORMAT.to_owned()).chain(escaped).collect();
    lines.join("\n").into_bytes()
}

/// Reads what [`write`] has written. `None` for anything else.
fn read(data: &[u8]) -> Option<Vec<String>> {
    let mut lines = std::str::from_utf8(data).ok()?.split('\n');
    if lines.next()? != FORMAT {
        return None;
    }
    Some(lines.map(unescape).collect())
}

fn unescape(line: &str) -> String {
    let (mut text, mut chars) = (String::with_capacity(line.len()), line.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => text.push('\n'),
            ('\\', Some(other)) => text.push(other),
            _ => text.push(c),
        }
    }
    text
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the time between two readings of a server's clock.
pub(crate) fn between(from: i64, to: i64) -> Duration {
    Duration::from_millis(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

/// Returns the reading of a server's clock after a time. It lies in the future at least for as long.
pub(crate) fn later(now: i64, by: Duration) -> i64 {
    now.saturating_add(millis(by)).saturating_add(1)
}

/// Writes the key, the fields of one kind of node, and the holder.
fn write_of(key: &LockKey, own: &[&dyn Display], info: &HolderInfo) -> Vec<u8> {
    let own: Vec<String> = own.iter().map(ToString::to_string).collect();
    let (pid, lock) = (info.pid.to_string(), info.lock.as_ref().map_or("", LockLabel::as_str));
    let about = [&*info.host, pid.as_str(), &*info.site, lock];
    write(std::iter::once(key.as_str()).chain(own.iter().map(String::as_str)).chain(about))
}

/// Reads what [`write_of`] has written, with that many fields of its own.
fn read_of<const N: usize>(data: &[u8]) -> Option<(LockKey, [String; N], HolderInfo)> {
    let mut fields = read(data)?;
    let about: [String; 4] = fields.split_off(fields.len().checked_sub(4)?).try_into().ok()?;
    let [host, pid, site, lock] = about;
    let info = HolderInfo::new(host, pid.parse().ok()?, site);
    let info = if lock.is_empty() { info } else { info.with_lock(LockLabel::new(lock)) };
    let mut fields = fields.into_iter();
    let key = LockKey::new(fields.next()?).ok()?;
    Some((key, fields.collect::<Vec<_>>().try_into().ok()?, info))
}

fn time(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// The data of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimData {
    pub(crate) key: LockKey,
    pub(crate) ttl: Duration,
    /// How long the session of its process lasts.
    pub(crate) session: Duration,
    pub(crate) info: HolderInfo,
}

impl ClaimData {
    pub(crate) fn write(&self) -> Vec<u8> {
        write_of(&self.key, &[&millis(self.ttl), &millis(self.session)], &self.info)
    }

    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (key, [ttl, session], info) = read_of(data)?;
        Some(Self { key, ttl: time(&ttl)?, session: time(&session)?, info })
    }
}

/// The data of a lock that was released and stays taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptData {
    pub(crate) key: LockKey,
    /// When it becomes free, by the server's clock.
    pub(crate) until: i64,
    /// When it was granted.
    pub(crate) since: i64,
    pub(crate) info: HolderInfo,
}

impl KeptData {
    pub(crate) fn write(&self) -> Vec<u8> {
        write_of(&self.key, &[&self.until, &self.since], &self.info)
    }

    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (key, [until, since], info) = read_of(data)?;
        Some(Self { key, until: until.parse().ok()?, since: since.parse().ok()?, info })
    }
}

/// The data of a job's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobData {
    pub(crate) key: LockKey,
    pub(crate) run: JobRun,
    /// When the last run started, by the server's clock.
    pub(crate) started: i64,
    /// When the last successful run started, or else the first recorded one.
    pub(crate) succeeded: i64,
    /// When the record ends.
    pub(crate) until: i64,
    pub(crate) info: HolderInfo,
}

impl JobData {
    pub(crate) fn write(&self) -> Vec<u8> {
        let ended = if self.run.succeeded { "succeeded" } else { "failed" };
        let own: [&dyn Display; 5] = [&millis(self.run.every), &ended, &self.started, &self.succeeded, &self.until];
        write_of(&self.key, &own, &self.info)
    }

    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (key, [every, ended, started, succeeded, until], info) = read_of(data)?;
        let run = JobRun::new(time(&every)?, ended == "succeeded");
        let (started, succeeded) = (started.parse().ok()?, succeeded.parse().ok()?);
        Some(Self { key, run, started, succeeded, until: until.parse().ok()?, info })
    }

    /// Describes the job at a time of the server's clock. `None` if the record has ended.
    pub(crate) fn record(self, now: i64) -> Option<JobRecord> {
        let (started, succeeded) = (between(self.started, now), between(self.succeeded, now));
        (self.until > now).then(|| JobRecord::new(self.run, self.info, started, succeeded))
    }
}

/// The data of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkData {
    pub(crate) key: LockKey,
    pub(crate) version: JobVersion,
    pub(crate) at: i64,
    pub(crate) until: i64,
    pub(crate) info: HolderInfo,
}

impl MarkData {
    pub(crate) fn write(&self) -> Vec<u8> {
        write_of(&self.key, &[&self.version.as_str(), &self.at, &self.until], &self.info)
    }

    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let (key, [version, at, until], info) = read_of(data)?;
        Some(Self {
            key,
            version: JobVersion::new(version).ok()?,
            at: at.parse().ok()?,
            until: until.parse().ok()?,
            info,
        })
    }

    /// Describes the mark at a time of the server's clock. `None` if it has ended.
    pub(crate) fn mark(self, now: i64) -> Option<DoneMark> {
        let ago = between(self.at, now);
        (self.until > now).then(|| DoneMark::new(self.version, self.info, ago))
    }
}

/// Writes the note about a lock that an operator takes away.
pub(crate) fn write_revocation(actor: &str, reason: &str) -> Vec<u8> {
    write([actor, reason])
}

/// Reads the operator and the reason.
pub(crate) fn read_revocation(data: &[u8]) -> Option<(String, String)> {
    let [actor, reason] = <[String; 2]>::try_from(read(data)?).ok()?;
    Some((actor, reason))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::{HolderInfo, JobRun, JobVersion, LockKey, LockLabel};

    use super::{ClaimData, JobData, KeptData, MarkData, between, later, read_revocation, write_revocation};

    #[test]
    fn what_is_written_is_read() {
        let key = LockKey::new("a\\nb\n\u{1f}é").unwrap();
        let plain = HolderInfo::new("h\\", 7, "a::b");
        for info in [plain.clone(), plain.with_lock(LockLabel::from_static("order:<id>"))] {
            let (ttl, session) = (Duration::from_millis(1500), Duration::from_secs(20));
            let claim = ClaimData { key: key.clone(), ttl, session, info: info.clone() };
            assert_eq!(ClaimData::read(&claim.write()), Some(claim));
            let kept = KeptData { key: key.clone(), until: 9, since: -1, info: info.clone() };
            assert_eq!(KeptData::read(&kept.write()), Some(kept));
            let run = JobRun::new(Duration::from_secs(60), false);
            let job = JobData { key: key.clone(), run, started: 5, succeeded: 3, until: 60_000, info: info.clone() };
            assert_eq!(JobData::read(&job.write()), Some(job.clone()));
            assert_eq!(job.clone().record(60_000), None);
            assert_eq!(job.record(10).map(|record| record.without_success_for), Some(Duration::from_millis(7)));
            let version = JobVersion::new("v\n1\\").unwrap();
            let mark = MarkData { key: key.clone(), version, at: 5, until: 9, info };
            assert_eq!(MarkData::read(&mark.write()), Some(mark.clone()));
            assert_eq!(
                (mark.clone().mark(9), mark.mark(8).map(|mark| mark.ago)),
                (None, Some(Duration::from_millis(3)))
            );
        }
        assert_eq!(read_revocation(&write_revocation("ana", "gone\n")), Some(("ana".to_owned(), "gone\n".to_owned())));
    }

    #[test]
    fn other_data_is_not_misread() {
        for data in
            [&b""[..], b"lock-core 1", b"lock-core 2\nk\n1\n1\nh\n1\ns\n", b"\xff", b"lock-core 1\n\n1\n1\nh\n1\ns\n"]
        {
            assert_eq!((ClaimData::read(data), KeptData::read(data)), (None, None));
        }
    }

    #[test]
    fn a_time_of_the_servers_clock_is_never_too_early() {
        assert_eq!((later(5, Duration::from_micros(1_500)), later(1, Duration::MAX)), (7, i64::MAX));
        assert_eq!((between(5, 3), between(3, 5)), (Duration::ZERO, Duration::from_millis(2)));
    }
}
