//! The names of the nodes.
//!
//! A name cannot contain every character of a key, so it has a hash of the key. The key itself is in the node's data.

use std::fmt;

use lock_store::{LockKey, OwnerId};

/// How many directories the locks are spread over. One would outgrow the largest answer, and one for each key would never be removed.
pub(crate) const SHARDS: u16 = 1024;

/// The hash of a key: FNV-1a with 128 bits. Two keys with one hash would be one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(u128);

impl KeyHash {
    pub(crate) fn of(key: &LockKey) -> Self {
        Self::of_text(key.as_str())
    }

    pub(crate) fn of_text(text: &str) -> Self {
        const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        Self(text.bytes().fold(START, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }

    /// Returns the number of its directory.
    pub(crate) fn shard(self) -> u16 {
        let folded = self.0 ^ (self.0 >> 64);
        u16::try_from(folded % u128::from(SHARDS)).unwrap_or(0)
    }

    fn read(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The paths of a store. Only this file spells them.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The node below which everything is.
    pub(crate) root: String,
    /// The directory of the directories of locks.
    pub(crate) locks: String,
    /// The directory of the directories of marks.
    pub(crate) all_marks: String,
    /// The directory of the nodes that sessions write to.
    pub(crate) beats: String,
    /// The directory of notes about locks that an operator has taken away.
    pub(crate) revoked: String,
    /// The node with the number that is added to every token.
    pub(crate) base: String,
}

impl Paths {
    pub(crate) fn new(root: String) -> Self {
        let [locks, all_marks, beats, revoked, base] =
            ["l", "d", "h", "r", "base"].map(|name| format!("{root}/{name}"));
        Self { root, locks, all_marks, beats, revoked, base }
    }

    /// Names a directory of locks.
    pub(crate) fn shard(&self, shard: u16) -> String {
        format!("{}/{shard:03x}", self.locks)
    }

    /// Names a node in the directory of a lock.
    pub(crate) fn beside(&self, hash: KeyHash, name: &str) -> String {
        format!("{}/{name}", self.shard(hash.shard()))
    }

    /// Begins the path of a claim. The server adds the sequence.
    pub(crate) fn claim(&self, hash: KeyHash, owner: OwnerId) -> String {
        self.beside(hash, &format!("{hash}-{}-", owner.to_hex()))
    }

    /// Names the node that keeps a released lock taken.
    pub(crate) fn kept(&self, hash: KeyHash) -> String {
        self.beside(hash, &format!("{hash}-kept"))
    }

    /// Names the record of a job.
    pub(crate) fn job(&self, hash: KeyHash) -> String {
        self.beside(hash, &format!("{hash}-job"))
    }

    /// Names a directory of marks.
    pub(crate) fn marks(&self, shard: u16) -> String {
        format!("{}/{shard:03x}", self.all_marks)
    }

    /// Names the mark of a version.
    pub(crate) fn mark(&self, hash: KeyHash, version: &str) -> String {
        format!("{}/{hash}-{}", self.marks(hash.shard()), KeyHash::of_text(version))
    }

    /// Names the node that a session writes to.
    pub(crate) fn beat(&self, session: i64) -> String {
        format!("{}/{:016x}", self.beats, session.cast_unsigned())
    }

    /// Names the note about a lock that is taken away from an owner.
    pub(crate) fn revoked_from(&self, owner: OwnerId) -> String {
        format!("{}/{}", self.revoked, owner.to_hex())
    }
}

/// A node in a directory of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// A claim that has the lock or waits for it.
    Claim {
        owner: OwnerId,
        sequence: i32,
    },
    Kept,
    Job,
}

/// Reads the name of a node. `None` if no store of locks has written it.
pub(crate) fn read(name: &str) -> Option<(KeyHash, Child)> {
    let (hash, rest) = name.split_once('-')?;
    let child = match rest {
        "kept" => Child::Kept,
        "job" => Child::Job,
        _ => {
            let (owner, sequence) = rest.split_once('-')?;
            Child::Claim { owner: OwnerId::from_hex(owner)?, sequence: sequence.parse().ok()? }
        }
    };
    Some((KeyHash::read(hash)?, child))
}

/// One claim in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    pub(crate) owner: OwnerId,
    pub(crate) name: String,
    sequence: i32,
}

/// The nodes of one lock: its claims in order of arrival, and whether others lie beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The first of them has the lock, unless it is kept.
    pub(crate) claims: Vec<InLine>,
    pub(crate) kept: bool,
    pub(crate) job: bool,
}

impl Line {
    /// Finds the nodes of a lock in its directory.
    pub(crate) fn of(hash: KeyHash, names: &[String]) -> Self {
        let mut line = Self::default();
        for name in names {
            if let Some((_, child)) = read(name).filter(|(found, _)| *found == hash) {
                line.add(name, child);
            }
        }
        line.sort();
        line
    }

    pub(crate) fn add(&mut self, name: &str, child: Child) {
        match child {
            Child::Claim { owner, sequence } => self.claims.push(InLine { owner, name: name.to_owned(), sequence }),
            Child::Kept => self.kept = true,
            Child::Job => self.job = true,
        }
    }

    /// Puts the claims in order. The server's counter has 32 bits and wraps, so only differences tell the order.
    pub(crate) fn sort(&mut self) {
        let Some(first) = self.claims.first().map(|claim| claim.sequence) else { return };
        self.claims.sort_by_key(|claim| claim.sequence.wrapping_sub(first));
    }

    /// Returns how many claims came before the one with this node. `None` if the node is gone.
    ///
    /// The owner of a claim does not tell which node is its own: an earlier session may have left another, which ends with that session.
    pub(crate) fn position(&self, path: &str) -> Option<usize> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        self.claims.iter().position(|claim| claim.name == name)
    }

    /// Returns the names of all nodes of an owner.
    pub(crate) fn names_of(&self, owner: OwnerId) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(move |claim| claim.owner == owner).map(|claim| &*claim.name)
    }
}

#[cfg(test)]
mod tests {
    use lock_store::{LockKey, OwnerId};

    use super::{Child, KeyHash, Line, Paths, read};

    #[test]
    fn what_is_named_is_read() {
        let (key, owner) = (LockKey::new("order/42").unwrap(), OwnerId::random());
        let (hash, paths) = (KeyHash::of(&key), Paths::new("/locks".to_owned()));
        let path = paths.claim(hash, owner);
        assert!(path.starts_with(&format!("/locks/l/{:03x}/", hash.shard())), "{path}");
        let name = |path: &str| path.rsplit_once('/').unwrap().1.to_owned();
        let claim = |sequence| Some((hash, Child::Claim { owner, sequence }));
        assert_eq!(read(&format!("{}0000000007", name(&path))), claim(7));
        assert_eq!(read(&format!("{}-2147483648", name(&path))), claim(i32::MIN));
        assert_eq!(read(&name(&paths.kept(hash))), Some((hash, Child::Kept)));
        assert_eq!(read(&name(&paths.job(hash))), Some((hash, Child::Job)));
        for no in ["", "-", "lock-0000000001", "a-kept", &format!("{hash}-x-1")] {
            assert_eq!(read(no), None, "{no}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_published_function_and_fill_every_directory() {
        assert_eq!(KeyHash::of_text("").to_string(), "6c62272e07bb014262b821756295c58d");
        assert_eq!(KeyHash::of_text("a").to_string(), "d228cb696f1a8caf78912b704e4a8964");
        let mut shards: Vec<u16> =
            (0..20_000).map(|number| KeyHash::of_text(&format!("order:{number}")).shard()).collect();
        shards.sort_unstable();
        shards.dedup();
        assert_eq!(shards.len(), 1024);
    }

    #[test]
    fn claims_stand_in_order_of_arrival_also_when_the_counter_wraps() {
        let hash = KeyHash::of_text("k");
        let owners: Vec<OwnerId> = (0..4).map(|_| OwnerId::random()).collect();
        let sequences = ["-2147483648", "2147483646", "-2147483647", "2147483647"];
        let mut names: Vec<String> = owners
            .iter()
            .zip(sequences)
            .map(|(owner, sequence)| format!("{hash}-{}-{sequence}", owner.to_hex()))
            .collect();
        names.push(format!("{}-kept", KeyHash::of_text("other")));
        let line = Line::of(hash, &names);
        let order: Vec<OwnerId> = line.claims.iter().map(|claim| claim.owner).collect();
        assert_eq!(order, [1, 3, 0, 2].map(|at| owners[at]));
        assert_eq!((line.position(&format!("/l/000/{}", names[0])), line.kept, line.job), (Some(2), false, false));
        assert_eq!(line.names_of(owners[0]).collect::<Vec<_>>(), [&names[0]]);
    }
}
