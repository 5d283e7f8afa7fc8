//! Sends the calls of one batch to a node of a cluster as one packed message, and reads an answer to each.
//!
//! A node takes only keys of one slot at a time. So locks are taken and freed by one script that declares no keys, and
//! whose calls fail each by itself where their slots are not, or not wholly, at this node. Some services refuse such
//! scripts: they get one for each call.

use redis::{RedisError, Value};

use crate::batch::exchange::{Answer, Call};
use crate::batch::places::Places;
use crate::connection::link::{Link, unreadable};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, NodeCall, Taken};
use lock_store::types::system::clock::Clock;

/// A call with its place among all of them.
struct Placed {
    place: usize,
    part: NodeCall,
}

/// Makes calls, and reads one answer for each.
pub(crate) async fn exchange_with_node(link: &Link, calls: Vec<Call>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = (0..calls.len()).map(|_| None).collect();
    let (mut parts, mut evals, mut places) = (Vec::with_capacity(calls.len()), Vec::new(), Places::default());
    for (place, call) in calls.into_iter().enumerate() {
        match call {
            Call::Attempt(take) => parts.push(Placed { place, part: NodeCall::Take(take) }),
            Call::Release(claim) => parts.push(Placed { place, part: NodeCall::Free(claim) }),
            Call::Place(eval) => places.add(place, eval),
            Call::Eval(eval) => evals.push((place, eval)),
            // It was not known that this is a node of a cluster.
            Call::Take(..) => answers[place] = Some(Answer::Taken(Taken::NotExecuted)),
        }
    }
    // Releases leave first, as elsewhere. Nearly all locks have the same ttl, so this is one script.
    parts.sort_by_key(|placed| placed.part.ttl());
    let together = link.runs_batches();
    let groups: Vec<&[Placed]> =
        parts.chunk_by(|one, next| together && (one.part.ttl() == next.part.ttl() || !one.part.takes())).collect();
    let scripts: Vec<Eval> = groups
        .iter()
        .map(|group| match group {
            [only] => only.part.alone(),
            several => NodeCall::together(several.iter().map(|placed| &placed.part)),
        })
        .collect();
    let confirms = places.sort_into(&mut evals);
    let all: Vec<&Eval> = scripts.iter().chain(evals.iter().map(|(_, eval)| eval)).chain(&confirms).collect();
    let mut replies = link.eval_each(&all).await.into_iter();
    let mut refused = Vec::new();
    for (group, reply) in groups.iter().zip(&mut replies) {
        match group {
            [only] => answers[only.place] = Some(read_alone(link, only, reply)),
            several => refused.extend(read_together(link, several, reply, &mut answers)),
        }
    }
    if groups.iter().any(|group| group.len() > 1) {
        let again: Vec<Eval> = refused.iter().map(|placed| placed.part.alone()).collect();
        let served = link.eval_each(&again.iter().collect::<Vec<_>>()).await;
        link.note_batch(served.iter().any(Result::is_ok));
        for (placed, reply) in refused.into_iter().zip(served) {
            answers[placed.place] = Some(read_alone(link, placed, reply));
        }
    }
    for ((place, _), reply) in evals.iter().zip(&mut replies) {
        answers[*place] = Some(reply.into());
    }
    for (place, reply) in places.replies(link, replies).await {
        answers[place] = Some(reply.into());
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Answer::Failed(unreadable()))).collect()
}

/// Reads the answers to calls that were made by one script. Returns those that must be made by themselves.
fn read_together<'a>(
    link: &Link,
    parts: &'a [Placed],
    reply: Result<Value, RedisError>,
    answers: &mut [Option<Answer>],
) -> Vec<&'a Placed> {
    let found = match reply {
        Ok(reply) => read(link, reply, parts.len()).ok_or_else(unreadable),
        // Why, each call is told that is made by itself.
        Err(error) if error.code().is_some() => return parts.iter().collect(),
        Err(error) => Err(error),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            parts.iter().for_each(|placed| answers[placed.place] = Some(Answer::Failed(error.clone())));
            return Vec::new();
        }
    };
    let mut refused = Vec::new();
    for (placed, found) in parts.iter().zip(found) {
        if steps::has_failed(&found) {
            refused.push(placed);
        } else {
            answers[placed.place] = Some(placed.answer(found));
        }
    }
    refused
}

/// Reads the answer to a call that was made by itself.
fn read_alone(link: &Link, placed: &Placed, reply: Result<Value, RedisError>) -> Answer {
    match reply.map(|reply| read(link, reply, 1)) {
        Ok(found) => found
            .and_then(|mut found| found.next())
            .map_or_else(|| Answer::Failed(unreadable()), |found| placed.answer(found)),
        Err(error) if placed.part.takes() && error.code().is_some() => Answer::Taken(Taken::Refused(error)),
        Err(error) => Answer::Failed(error),
    }
}

fn read(link: &Link, reply: Value, count: usize) -> Option<std::vec::IntoIter<Value>> {
    let (now, answers) = steps::read_batch(reply, count)?;
    link.time.observe(now, Clock::system().now());
    Some(answers)
}

impl Placed {
    fn answer(&self, found: Value) -> Answer {
        if self.part.takes() { Answer::Taken(steps::read_attempt(&found)) } else { Answer::Value(found) }
    }
}
