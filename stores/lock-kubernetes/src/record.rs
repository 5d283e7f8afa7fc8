//! One Lease as client-go's leader election reads and writes it, with the annotations of this library.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use lock_store::{Claim, FencingToken, HolderInfo, LockError, LockKey, OwnerId, Result};

use crate::data::{self, Annotations};
use crate::names::lease_of;

/// Begins the `holderIdentity` of a lock that was released and stays taken.
const KEPT: &str = "kept-until-";

/// How much of a host's name is in a `holderIdentity`.
const HOST: usize = 80;

/// How long a holder has its Lease that says nothing about it: client-go's default.
const UNSAID: i32 = 15;

/// A Lease as it was read or answered.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    lease: Lease,
    /// Its `resourceVersion`. It grows with every write to any Lease. 0 if there is no Lease yet.
    pub(crate) version: u64,
}

/// The state of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    Free,
    /// A claim of this library has it.
    Claim(OwnerId),
    /// It was released, and stays taken until this time of the server's clock.
    Kept(i64),
    /// A client of another library has it, by this name.
    Foreign(String),
}

impl Record {
    pub(crate) fn of(lease: Lease) -> Result<Self> {
        let version = lease.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version.ok_or_else(|| {
            LockError::misconfigured("the API server gave a Lease without a resourceVersion that is a number")
        })?;
        Ok(Self { lease, version })
    }

    /// Returns the record of a Lease that is not there yet, without a holder.
    pub(crate) fn blank(key: &LockKey) -> Self {
        let mut lease = Lease::default();
        lease.metadata.name = Some(lease_of(key));
        notes_of(&mut lease).insert(data::KEY.to_owned(), key.as_str().to_owned());
        Self { lease, version: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        self.lease.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns whether its holder has not written since. Annotations of others, for example of waiters, do not count.
    pub(crate) fn is_unchanged_since(&self, before: &Self) -> bool {
        self.lease.spec == before.lease.spec && self.lease.metadata.uid == before.lease.metadata.uid
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    pub(crate) fn notes(&self) -> &Annotations {
        static NONE: Annotations = Annotations::new();
        self.lease.metadata.annotations.as_ref().unwrap_or(&NONE)
    }

    /// Returns the key of its lock. A Lease of another client is the lock that has its name.
    pub(crate) fn key(&self) -> Option<LockKey> {
        let text = self.notes().get(data::KEY).map_or(self.name(), String::as_str);
        LockKey::new(text).ok().filter(|key| lease_of(key) == self.name())
    }

    pub(crate) fn holding(&self) -> Holding {
        let holder = self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() {
            return Holding::Free;
        }
        if let Some(until) = holder.strip_prefix(KEPT).and_then(|until| until.parse::<jiff::Timestamp>().ok()) {
            return Holding::Kept(until.as_millisecond());
        }
        let owner = holder.rsplit_once('_').and_then(|(_, owner)| OwnerId::from_hex(owner));
        // The annotations outlive a candidate of client-go that has taken over. Its identity is a UUID without that owner.
        match owner.filter(|owner| data::owner(self.notes()) == Some(*owner)) {
            Some(owner) => Holding::Claim(owner),
            None => Holding::Foreign(holder.to_owned()),
        }
    }

    /// Returns the owner that has the lock, if it is of this library.
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        if let Holding::Claim(owner) = self.holding() { Some(owner) } else { None }
    }

    /// Returns for how long it must be seen unchanged before another claim may take it over.
    pub(crate) fn lasts(&self) -> Duration {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds).unwrap_or(UNSAID);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    pub(crate) fn info(&self) -> Option<HolderInfo> {
        data::info(self.notes())
    }

    /// Returns when the holder says that it got the lock, and that it last renewed it, in ms since 1970.
    pub(crate) fn times(&self) -> (Option<i64>, Option<i64>) {
        let millis = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0.as_millisecond());
        self.spec().map_or((None, None), |spec| (millis(&spec.acquire_time), millis(&spec.renew_time)))
    }

    pub(crate) fn transitions(&self) -> i32 {
        self.spec().and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    /// Returns the token of the grant that this record is the answer to.
    pub(crate) fn token(&self) -> Result<FencingToken> {
        let token = base(self.notes())?.checked_add(self.version.saturating_mul(FencingToken::PER_GRANT));
        let fits =
            |token: &u64| token.checked_add(FencingToken::PER_GRANT).is_some_and(|end| i64::try_from(end).is_ok());
        token.filter(fits).map(FencingToken::new).ok_or_else(|| {
            LockError::misconfigured(
                "the tokens of this lock have no room left in 64 bits; remove the annotation lock-core/base",
            )
        })
    }

    /// Returns this Lease with a new holder, to be written. If its token might not exceed the floor, its base is raised in the same write.
    pub(crate) fn granted(&self, claim: &Claim, info: &HolderInfo, floor: FencingToken, now: i64) -> Result<Lease> {
        let mut lease = self.lease.clone();
        let notes = notes_of(&mut lease);
        let based = base(notes)?;
        // Its own version will be greater.
        let least = based.saturating_add(self.version.saturating_mul(FencingToken::PER_GRANT));
        if least <= floor.get() {
            notes.insert(data::BASE.to_owned(), based.saturating_add(floor.get() - least + 1).to_string());
        }
        data::describe(notes, &claim.key, claim.owner, claim.ttl, info);
        let is_again = self.owner() == Some(claim.owner);
        // A new Lease counts from 0.
        let is_other = !is_again && self.version > 0;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(identity(info, claim.owner));
        (spec.lease_duration_seconds, spec.renew_time) = (Some(seconds(claim.ttl)), time(self.later(now)));
        spec.lease_transitions = Some(self.transitions().saturating_add(i32::from(is_other)));
        spec.acquire_time = spec.acquire_time.take().filter(|_| is_again).or_else(|| time(now));
        Ok(lease)
    }

    /// Returns a time for the next write. It differs from that of the last one, because candidates watch whether it changes.
    fn later(&self, now: i64) -> i64 {
        now.max(self.times().1.map_or(now, |before| before + 1))
    }

    /// Returns this Lease renewed for at least `lasts`, to be written.
    pub(crate) fn renewed(&self, lasts: Duration, now: i64) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        (spec.renew_time, spec.lease_duration_seconds) = (time(self.later(now)), Some(seconds(lasts)));
        lease
    }

    /// Returns this Lease without a holder, as client-go releases it, to be written.
    pub(crate) fn freed(&self, now: i64) -> Lease {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (Some(String::new()), Some(1));
        spec.renew_time = time(now);
        lease
    }

    /// Returns this Lease released and still taken until a time of the server's clock, to be written.
    pub(crate) fn kept(&self, until: i64, lasts: Duration, now: i64) -> Lease {
        let mut lease = self.freed(now);
        let spec = lease.spec.get_or_insert_default();
        let until = jiff::Timestamp::from_millisecond(until).unwrap_or(jiff::Timestamp::MAX);
        spec.holder_identity = Some(format!("{KEPT}{until}"));
        spec.lease_duration_seconds = Some(seconds(lasts));
        lease
    }
}

pub(crate) fn notes_of(lease: &mut Lease) -> &mut Annotations {
    lease.metadata.annotations.get_or_insert_default()
}

/// Returns the name of a holder: its host and the id of its claim, as client-go adds a UUID.
fn identity(info: &HolderInfo, owner: OwnerId) -> String {
    let host: String = info.host.chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(HOST).collect();
    format!("{host}_{}", owner.to_hex())
}

fn base(notes: &Annotations) -> Result<u64> {
    let Some(text) = notes.get(data::BASE) else { return Ok(FencingToken::PLAIN.get()) };
    text.parse().map_err(|_| {
        LockError::misconfigured("the annotation lock-core/base of a Lease is not a number; remove it, or restore it")
    })
}

/// Rounds a lease up to whole seconds.
fn seconds(time: Duration) -> i32 {
    let up = u64::from(time.subsec_nanos() > 0);
    i32::try_from(time.as_secs().saturating_add(up)).unwrap_or(i32::MAX).max(1)
}

fn time(millis: i64) -> Option<MicroTime> {
    jiff::Timestamp::from_millisecond(millis).ok().map(MicroTime)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::Lease;
    use lock_store::{Claim, FencingToken, HolderInfo, LockKey};

    use super::{Holding, Record, seconds};

    const NONE: FencingToken = FencingToken::new(0);

    fn claim() -> (Claim, HolderInfo) {
        (Claim::new(LockKey::new("report").unwrap(), Duration::from_millis(1500)), HolderInfo::new("web 3", 7, "a::b"))
    }

    fn answered(mut lease: Lease, version: u64) -> Record {
        lease.metadata.resource_version = Some(version.to_string());
        Record::of(lease).unwrap()
    }

    #[test]
    fn a_grant_is_read_as_client_go_reads_it() {
        let (one, info) = claim();
        let first = answered(Record::blank(&one.key).granted(&one, &info, NONE, 5_000).unwrap(), 7);
        assert_eq!((first.holding(), first.lasts()), (Holding::Claim(one.owner), Duration::from_secs(2)));
        assert_eq!(
            (first.transitions(), first.times(), first.key()),
            (0, (Some(5_000), Some(5_000)), Some(one.key.clone()))
        );
        let text = serde_json::to_string(first.lease()).unwrap();
        for part in [&format!("\"holderIdentity\":\"web3_{}\"", one.owner.to_hex()), "\"leaseDurationSeconds\":2"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let renewed = answered(first.renewed(Duration::from_secs(9), 6_000), 8);
        assert_eq!((renewed.owner(), renewed.lasts()), (Some(one.owner), Duration::from_secs(9)));
        assert_eq!((renewed.times(), renewed.transitions()), ((Some(5_000), Some(6_000)), 0));
        let free = answered(renewed.freed(7_000), 9);
        assert_eq!((free.holding(), free.transitions()), (Holding::Free, 0));
        let kept = answered(renewed.kept(8_500, Duration::from_secs(1), 7_000), 9);
        assert_eq!((kept.holding(), kept.info().unwrap().pid), (Holding::Kept(8_500), 7));
        let (two, info) = claim();
        let early = answered(free.granted(&two, &info, NONE, 6_500).unwrap(), 10);
        assert_eq!(early.times(), (Some(6_500), Some(7_001)), "the clock of the holder before was ahead");
        let second = answered(free.granted(&two, &info, NONE, 9_000).unwrap(), 10);
        assert_eq!((second.owner(), second.transitions()), (Some(two.owner), 1), "as client-go counts");
        assert!(second.token().unwrap().get() >= first.token().unwrap().get() + FencingToken::PER_GRANT);
    }

    #[test]
    fn a_candidate_of_client_go_that_takes_over_is_not_taken_for_the_claim_before() {
        let (one, info) = claim();
        let mut lease = answered(Record::blank(&one.key).granted(&one, &info, NONE, 0).unwrap(), 7).lease().clone();
        let identity = "pod-1_0c1e9a0e-7d4b-4d0a-9d43-0a4b3b7ad0aa".to_owned();
        lease.spec.as_mut().unwrap().holder_identity = Some(identity.clone());
        lease.spec.as_mut().unwrap().lease_duration_seconds = None;
        let taken = answered(lease, 8);
        assert_eq!((taken.holding(), taken.lasts()), (Holding::Foreign(identity), Duration::from_secs(15)));
    }

    #[test]
    fn a_token_exceeds_its_floor_in_one_write() {
        let (one, info) = claim();
        let floor = FencingToken::new(FencingToken::PLAIN.get() + 1_000_000);
        let first = answered(Record::blank(&one.key).granted(&one, &info, floor, 0).unwrap(), 7);
        let next = answered(first.granted(&one, &info, NONE, 0).unwrap(), 8);
        assert!(first.token().unwrap() > floor && next.token().unwrap() > first.token().unwrap());
        let far = FencingToken::new(next.token().unwrap().get() + 1_000_000);
        let raised = answered(next.granted(&one, &info, far, 0).unwrap(), 9);
        assert!(raised.token().unwrap() > far);
    }

    #[test]
    fn a_lease_is_never_rounded_down() {
        let times = [
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_secs(2),
            Duration::from_millis(2001),
            Duration::MAX,
        ];
        assert_eq!(times.map(seconds), [1, 1, 2, 3, i32::MAX]);
    }
}
