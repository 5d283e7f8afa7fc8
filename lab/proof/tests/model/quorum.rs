//! Random walks over a quorum: members with clocks that differ, which restart empty; processes whose messages are
//! late or lost, which die, renew and repair.
//!
//! At every tick: never two holders before their deadlines; at every entry: a token greater than all before it.

mod client;
mod node;

use std::collections::BTreeMap;

use lock_testing::limit;

use crate::quorum::client::Client;
use crate::quorum::node::{Answer, Node, PER_TICK, Question};

/// How long a lease is, in ticks.
const TTL: i64 = 24;

/// How long a message is on its way at most, unless those before it are later.
const MAX_DELAY: i64 = 40;

const NODES: usize = 5;
const CLIENTS: usize = 3;
const TICKS: i64 = 600;

/// Which rules are removed, and what else is different.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one rule")]
struct Rules {
    reborn_counts: bool,
    one_round: bool,
    half_is_enough: bool,
    enters_late: bool,
    replaces_member: bool,
    reuses_claims: bool,
    // These must do no harm.
    adds_member: bool,
    never_agrees: bool,
    no_proposal: bool,
    no_repair: bool,
    wide_skew: bool,
    shared_clock: bool,
    reconnects: bool,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Exclusion,
    Token,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    grants: u64,
    in_one_round: u64,
    renewals: u64,
    repairs: u64,
}

enum Message {
    Question { client: usize, node: usize, claim: u64, round: u64, question: Question },
    Answer { client: usize, node: usize, claim: u64, round: u64, answer: Answer },
}

/// Everything but the clients.
struct World {
    rules: Rules,
    now: i64,
    random: fastrand::Rng,
    /// Whether nothing is lost, nobody restarts, and little is late.
    calm: bool,
    nodes: Vec<Node>,
    /// By arrival.
    on_their_way: BTreeMap<(i64, u64), Message>,
    sent: u64,
    /// By client and node: when the last question arrives, before which no later one does.
    arrivals: [[i64; NODES]; CLIENTS],
    claims: u64,
    /// The greatest token that anybody entered with.
    entered: i64,
    tally: Tally,
}

impl World {
    fn new(seed: u64, rules: Rules) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let skew = if rules.wide_skew { 12 } else { 3 };
        Self {
            rules,
            now: 1000,
            calm: random.u32(..1000) < 300,
            nodes: (0..NODES).map(|_| Node::new(random.i64(-skew..=skew), -1000)).collect(),
            random,
            on_their_way: BTreeMap::new(),
            sent: 0,
            arrivals: [[0; NODES]; CLIENTS],
            claims: 0,
            entered: 0,
            tally: Tally::default(),
        }
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.random.i64(0..bound)
    }

    /// Says yes so often of a thousand times.
    fn chance(&mut self, often: u32) -> bool {
        self.random.u32(..1000) < often
    }

    fn new_claim(&mut self) -> u64 {
        self.claims += 1;
        self.claims
    }

    fn ask(&mut self, client: usize, node: usize, claim: u64, round: u64, question: Question) {
        if !self.calm && self.chance(60) {
            return;
        }
        let very_late = !self.calm && self.chance(30);
        let delay = if very_late { 10 + self.below(25) } else { 1 + self.below(if self.calm { 2 } else { 6 }) };
        // Questions over one connection arrive in order; the last over a connection that is replaced may be late.
        let in_order = !(self.rules.reconnects && very_late);
        let last = &mut self.arrivals[client][node];
        let at = (self.now + delay).max(*last);
        if in_order {
            *last = at;
        }
        self.post(at, Message::Question { client, node, claim, round, question });
    }

    fn post(&mut self, at: i64, message: Message) {
        self.sent += 1;
        self.on_their_way.insert((at, self.sent), message);
    }

    fn next_arrival(&mut self) -> Option<Message> {
        let due = self.on_their_way.first_entry().filter(|first| first.key().0 <= self.now);
        due.map(std::collections::btree_map::OccupiedEntry::remove)
    }

    fn faults(&mut self) {
        for node in 0..NODES {
            if !self.calm && self.chance(4) {
                let (now, skew) = (self.now, self.nodes[node].skew);
                self.nodes[node] = Node::new(skew, now + 1);
                self.nodes[node].down_until = now + self.below(6);
            }
            if self.rules.shared_clock && self.chance(300) {
                let pushed = (self.now + 4) * PER_TICK - self.below(8);
                self.nodes[node].fence = self.nodes[node].fence.max(pushed);
            }
        }
    }
}

/// One walk. Returns what went wrong, and what happened.
fn walk(seed: u64, rules: Rules) -> (Option<Found>, Tally) {
    let mut world = World::new(seed, rules);
    let members = if rules.replaces_member || rules.adds_member || world.chance(500) { 3 } else { 5 };
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(members, 1100 + world.below(200))).collect();
    for now in 1000..1000 + TICKS {
        world.now = now;
        world.faults();
        while let Some(message) = world.next_arrival() {
            match message {
                Message::Question { client, node, claim, round, question } => {
                    if world.nodes[node].down_until <= now {
                        let answer = world.nodes[node].answer(claim, question, now);
                        if world.calm || !world.chance(60) {
                            let at = now + 1 + world.below(6);
                            world.post(at, Message::Answer { client, node, claim, round, answer });
                        }
                    }
                }
                Message::Answer { client, node, claim, round, answer } => {
                    if clients[client].claim == claim
                        && let Some(found) = clients[client].hear(client, &mut world, (node, round), answer)
                    {
                        return (Some(found), world.tally);
                    }
                }
            }
        }
        if clients.iter().filter(|client| client.holds(now, &rules)).count() > 1 {
            return (Some(Found::Exclusion), world.tally);
        }
        for (me, client) in clients.iter_mut().enumerate() {
            client.step(me, &mut world);
        }
    }
    (None, world.tally)
}

fn seeds(walks: u64) -> std::ops::Range<u64> {
    let only = std::env::var("LOCK_TEST_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    only.map_or(0..walks, |seed| seed..seed + 1)
}

#[test]
#[limit(300)]
fn a_quorum_with_all_rules_never_has_two_holders_nor_falling_tokens() {
    let all = Rules::default();
    let mut walks = 0;
    for (name, rules) in [
        ("all rules", all),
        ("connections that are replaced", Rules { reconnects: true, ..all }),
        ("a member added", Rules { adds_member: true, ..all }),
        ("clocks that differ by half a ttl", Rules { wide_skew: true, ..all }),
        ("one clock for all keys", Rules { shared_clock: true, ..all }),
        ("no proposal", Rules { no_proposal: true, ..all }),
        ("always two rounds", Rules { never_agrees: true, ..all }),
        ("no repair", Rules { no_repair: true, ..all }),
    ] {
        let mut sum = Tally::default();
        for seed in seeds(1500) {
            let (found, tally) = walk(seed, rules);
            assert_eq!(found, None, "{name}, LOCK_TEST_SEED={seed}");
            sum.grants += tally.grants;
            sum.in_one_round += tally.in_one_round;
            sum.renewals += tally.renewals;
            sum.repairs += tally.repairs;
            walks += 1;
        }
        let Tally { grants, in_one_round, renewals, repairs } = sum;
        println!("{name}: {grants} grants, {in_one_round} in one round, {renewals} renewals, {repairs} repairs");
    }
    println!("figure: walks over a quorum with all rules: {walks}");
}

#[test]
#[limit(300)]
fn a_quorum_without_any_one_rule_goes_wrong() {
    let all = Rules::default();
    let cases = [
        ("members that lost their data do not count", Rules { reborn_counts: true, ..all }),
        ("a second round", Rules { one_round: true, wide_skew: true, ..all }),
        ("more than half", Rules { half_is_enough: true, adds_member: true, ..all }),
        ("the deadline is checked at entry", Rules { enters_late: true, ..all }),
        ("members change one at a time", Rules { replaces_member: true, ..all }),
        ("unanswered releases", Rules { reuses_claims: true, reconnects: true, ..all }),
    ];
    let of = cases.len();
    for (rule, rules) in cases {
        let mut walks = seeds(20_000).map(|seed| (seed, walk(seed, rules).0));
        let first = walks.find_map(|(seed, found)| found.map(|found| (seed, found)));
        println!("without \"{rule}\": {first:?}");
        assert!(first.is_some(), "nothing goes wrong without \"{rule}\"");
    }
    println!("figure: quorums without one rule that the model catches: {of} of {of}");
}
