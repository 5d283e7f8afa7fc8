//! Tells what goes wrong without one rule: the shortest way there, step by step, with a picture of it.
//!
//! `LOCK_MODEL_WITHOUT=Backstop cargo test -p lock-core --all-features --test model -- --exact --nocapture story::a_rule_that_is_left_out_is_told`

use std::fmt::Write as _;

use lock_testing::limit;

use crate::explore::explore;
use crate::scenario::{Rule, Scenario, Wrong};
use crate::state::{At, Command, Entry, Grant, Lock, Owner, Place, Process, Reply, Stage, State};
use crate::steps::Step;
use crate::{modes, removed, sleep};

/// Every rule, where it is missed, and what goes wrong there.
fn cases() -> Vec<(Rule, Scenario, Wrong)> {
    [removed::cases(), modes::cases(), sleep::cases()].concat()
}

/// The sentence that stands above a name in the enum that has it.
fn meaning(name: &str) -> String {
    let text = include_str!("scenario.rs");
    let before = text.split(&format!("\n    {name},\n")).next().unwrap_or_default();
    let lines: Vec<&str> = before.lines().rev().map_while(|line| line.trim().strip_prefix("/// ")).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" ")
}

/// Shows the fault that a rule prevents, or lists the rules.
fn without(name: &str) -> Result<String, String> {
    let cases = cases();
    let Some((rule, scenario, _)) = cases.iter().find(|(rule, ..)| format!("{rule:?}") == name) else {
        let mut names: Vec<String> = Vec::new();
        // Some are missed in more than one place.
        for name in cases.iter().map(|(rule, ..)| format!("{rule:?}")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        return Err(format!("the model has no rule {name:?}; it has {}", names.join(", ")));
    };
    let found = explore(&Scenario { removed: Some(*rule), ..*scenario });
    let Some(wrong) = found.wrong else { return Err(format!("nothing goes wrong without {rule:?}")) };
    let mut told = format!("Without the rule {rule:?}: {}\n", meaning(name));
    let _ = writeln!(told, "{wrong:?}: {} {} steps.\n", meaning(&format!("{wrong:?}")), found.way.len());
    let mut picture = head(&found.way[0].1);
    let mut before = State::start(scenario);
    for (number, (step, after)) in (1..).zip(found.way) {
        let _ = writeln!(told, "{number:>3}. {}", sentence(step, &before));
        let _ = writeln!(picture, "{}", row(number, step, &after));
        before = after;
    }
    Ok(format!("{told}\n{picture}\n{LEGEND}\n"))
}

/// Processes are letters.
fn name(process: usize) -> char {
    ['A', 'B', 'C'][process]
}

fn claim(at: At, number: u16) -> String {
    format!("{}{number}", name(at.process))
}

/// One step, as a sentence. A command is executed, and a message received, in the order of sending.
fn sentence(step: Step, before: &State) -> String {
    let of = |at: At| name(at.process);
    let process = |number: usize| -> &Process { &before.processes[number] };
    let key = |at: At| if before.store.locks.len() > 1 { format!(" of key {}", at.key) } else { String::new() };
    match step {
        Step::Tick => "A tick of the clock passes.".to_owned(),
        Step::Start(at, caller) => format!("Caller {caller} of {} wants the lock{}.", of(at), key(at)),
        Step::Cancel(at, caller) => format!("Caller {caller} of {} gives up.", of(at)),
        Step::Sleep(at, caller) => format!("Caller {caller} of {} is not polled any more.", of(at)),
        Step::Wake(at, caller) => format!("Caller {caller} of {} is polled again.", of(at)),
        Step::Poll(at, caller) => format!("Caller {caller} of {} is polled.", of(at)),
        Step::TakeTurn(at, caller) => format!("Caller {caller} of {} takes its turn.", of(at)),
        Step::TakeBack(at) => format!("{} takes a turn back that nobody took.", of(at)),
        Step::Finish(at) => format!("The holder in {} has done its work.", of(at)),
        Step::Expire(at) => format!("The lease of {} is over by its own clock.", of(at)),
        Step::TimeOut(at) => format!("The claim of {} has waited for long enough.", of(at)),
        Step::Backstop(at) => format!("{} asks again.", of(at)),
        Step::Renew(at, ttl) => format!("{} sends a renewal for {ttl} ticks.", of(at)),
        Step::Downgrade(at) => format!("{} goes on as a reader.", of(at)),
        Step::Upgrade(at) => format!("{}, a reader, wants the lock for itself.", of(at)),
        Step::UndoAgain(at) => format!("{} undoes a claim once more, after its deadline.", of(at)),
        Step::Execute(number) => format!("The server executes {}.", order(number, process(number).requests.first())),
        Step::ExecuteRefused(number) => {
            let order = order(number, process(number).requests.first());
            format!("The server executes {order}, but answers with an error.")
        }
        Step::ExecuteStray(number) => {
            format!("The server executes late {}.", order(number, process(number).stray.first()))
        }
        Step::LoseStray(number) => format!("Lost is {}.", order(number, process(number).stray.first())),
        Step::Receive(number) => format!("{} reads {}.", name(number), answer(process(number).replies.first())),
        Step::Hear(number) => format!("{} hears {}.", name(number), grant(process(number).inbox.first())),
        Step::BreakConnection(number) => format!("The connection of {} breaks.", name(number)),
        Step::BreakInbox(number) => format!("The inbox of {} goes deaf.", name(number)),
        Step::MendInbox(number) => format!("The inbox of {} hears again.", name(number)),
        Step::Die(number) => format!("{} dies.", name(number)),
        Step::HearNonsense(at) => format!("{} is told a token that no server gave.", of(at)),
        Step::Force(_) => "An operator frees the lock by force.".to_owned(),
        Step::StrangerTakes(_) => "A client of the classic protocol takes the lock.".to_owned(),
        Step::StrangerFrees(_) => "That client frees the lock.".to_owned(),
        Step::Flush => "The server loses everything.".to_owned(),
        Step::FailOver => "A replica takes over that lacks the last write.".to_owned(),
        Step::SetClockBack => "The clock of the server steps back.".to_owned(),
    }
}

fn order(process: usize, command: Option<&Command>) -> String {
    let what = match command {
        None => return format!("nothing of {}", name(process)),
        Some(Command::Take { claim: c, .. }) => format!("the first attempt of claim {}", claim(c.at, c.number)),
        Some(Command::Draw { claim: c, .. }) => format!("a draw for claim {}", claim(c.at, c.number)),
        Some(Command::Acquire(ask)) => {
            format!("an acquire of claim {}, attempt {}", claim(ask.claim.at, ask.claim.number), ask.attempt)
        }
        Some(Command::Release { claim: c, next: None }) => format!("the release of claim {}", claim(c.at, c.number)),
        Some(Command::Release { claim: c, next: Some(ask) }) => {
            let next = claim(ask.claim.at, ask.claim.number);
            format!("the release of claim {}, which is to be followed by {next}", claim(c.at, c.number))
        }
        Some(Command::Leave { claim: c }) => format!("that claim {} leaves the queue", claim(c.at, c.number)),
        Some(Command::Renew { claim: c, .. }) => format!("a renewal of claim {}", claim(c.at, c.number)),
        Some(Command::Downgrade { claim: c, .. }) => format!("a downgrade of claim {}", claim(c.at, c.number)),
        Some(Command::Kill) => "that the connections are killed which were given up".to_owned(),
    };
    format!("{what} ({})", name(process))
}

fn answer(reply: Option<&Reply>) -> String {
    match reply {
        None => "nothing".to_owned(),
        Some(Reply::Granted { claim: c, drawn, .. }) => {
            format!("that claim {} is granted, with token {}", claim(c.at, c.number), drawn.draw)
        }
        Some(Reply::Queued { claim: c, .. }) => format!("that claim {} is in the queue", claim(c.at, c.number)),
        Some(Reply::Busy { claim: c }) => format!("that the lock is taken (claim {})", claim(c.at, c.number)),
        Some(Reply::Stale { claim: c }) => format!("that claim {} came too late", claim(c.at, c.number)),
        Some(Reply::Undecided { claim: c, .. }) => format!("an error about claim {}", claim(c.at, c.number)),
        Some(Reply::Refused { claim: c }) => format!("that claim {} is refused", claim(c.at, c.number)),
        Some(Reply::Released { claim: c, outcome, .. }) => {
            format!("that claim {} is released; what follows: {outcome:?}", claim(c.at, c.number))
        }
        Some(Reply::Renewed { claim: c, ttl, .. }) => {
            format!("that claim {} is renewed for {ttl} ticks", claim(c.at, c.number))
        }
        Some(Reply::Lost { claim: c }) => format!("that claim {} has lost the lock", claim(c.at, c.number)),
        Some(Reply::Left { claim: c }) => format!("that claim {} has left the queue", claim(c.at, c.number)),
    }
}

fn grant(grant: Option<&Grant>) -> String {
    let Some(Grant { claim: c, drawn, stamp, .. }) = grant else { return "nothing".to_owned() };
    let of = claim(c.at, c.number);
    format!("a grant of claim {of}, with token {}, that follows the confirmation of tick {stamp}", drawn.draw)
}

const LEGEND: &str = "█ inside  ▒ granted, nobody inside  ┆ waits  · idle  x dead  ◀ does the step. The server's times are ahead of \
                      the clients'.";

fn head(state: &State) -> String {
    let names: Vec<String> = (0..state.processes.len()).map(|process| format!(" {} ", name(process))).collect();
    format!("step tick {} the server\n", names.join(" "))
}

fn row(number: usize, step: Step, state: &State) -> String {
    let actor = actor(step);
    let cell = |(place, process): (usize, &Process)| {
        let inside = |place: Place| process.gates.iter().any(|gate| gate.callers.iter().any(|at| at.place == place));
        let is = |stage: Stage| process.gates.iter().any(|gate| gate.stage == stage);
        let sign = match () {
            () if !process.alive => 'x',
            () if inside(Place::Inside) => '█',
            () if is(Stage::Holding) => '▒',
            () if is(Stage::Waiting) => '┆',
            () => '·',
        };
        format!(" {sign}{}", if actor == Some(place) { '◀' } else { ' ' })
    };
    let cells: Vec<String> = state.processes.iter().enumerate().map(cell).collect();
    let locks: Vec<String> = state.store.locks.iter().map(|lock| lies(lock, state.server_now())).collect();
    format!("{number:>4} {:>4} {} {}", state.now, cells.join(" "), locks.join(" | "))
}

fn actor(step: Step) -> Option<usize> {
    match step {
        Step::Start(at, _)
        | Step::Cancel(at, _)
        | Step::Sleep(at, _)
        | Step::Wake(at, _)
        | Step::Poll(at, _)
        | Step::TakeTurn(at, _)
        | Step::Renew(at, _)
        | Step::TakeBack(at)
        | Step::Finish(at)
        | Step::Expire(at)
        | Step::TimeOut(at)
        | Step::Backstop(at)
        | Step::Downgrade(at)
        | Step::Upgrade(at)
        | Step::UndoAgain(at)
        | Step::HearNonsense(at) => Some(at.process),
        Step::Receive(process) | Step::Hear(process) | Step::Die(process) => Some(process),
        _ => None,
    }
}

/// The keys of a lock on the server.
fn lies(lock: &Lock, now: u16) -> String {
    let until = if lock.expires <= now { "over since" } else { "until" };
    let owner = match lock.owner {
        None => "free".to_owned(),
        Some(owner) => {
            let who = match owner {
                Owner::Claim(c) => claim(c.at, c.number),
                Owner::Remnant(c) => format!("what {} left", claim(c.at, c.number)),
                Owner::Stranger => "a classic client".to_owned(),
                Owner::Phase { used, .. } => {
                    let sharers: Vec<_> =
                        lock.sharers.iter().map(|one| claim(one.claim.at, one.claim.number)).collect();
                    format!("shared by {} ({used} units)", sharers.join(" "))
                }
            };
            format!("{who} {until} {}", lock.expires)
        }
    };
    let queue: Vec<String> = lock.queue.iter().map(|Entry { claim: c, .. }| claim(c.at, c.number)).collect();
    if queue.is_empty() { owner } else { format!("{owner}, then {}", queue.join(" ")) }
}

#[test]
#[limit(300)]
fn a_rule_that_is_left_out_is_told() {
    let asked = std::env::var("LOCK_MODEL_WITHOUT").ok();
    let told = without(asked.as_deref().unwrap_or("HeldGrantIgnored"));
    // The caller cuts it out of a test's output.
    println!("\n=== story ===\n{}=== end ===", told.as_deref().unwrap_or_else(|why| why));
    if asked.is_none() {
        let told = told.unwrap();
        let overlap = told.lines().any(|line| line.contains(" █◀  █ ") || line.contains(" █   █◀"));
        assert!(told.contains("\n  1. Caller 0 of A wants the lock.\n") && overlap, "{told}");
    }
}

#[test]
#[limit]
fn every_rule_has_a_meaning_and_others_are_refused_by_a_sentence_that_lists_them() {
    for (rule, _, wrong) in cases() {
        assert!(
            meaning(&format!("{rule:?}")).ends_with('.') && meaning(&format!("{wrong:?}")).ends_with('.'),
            "{rule:?}"
        );
    }
    let refused = without("Nonsense").unwrap_err();
    assert!(refused.starts_with("the model has no rule \"Nonsense\"; it has GrantsEchoStamps, "), "{refused}");
    assert!(refused.ends_with("DeafAreWoken") && refused.lines().count() == 1, "{refused}");
}
