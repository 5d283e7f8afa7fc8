//! Sends the calls of one batch to a node of a cluster as one packed message, and reads an answer to each.
//!
//! A node takes only keys of one slot at a time. So locks are taken and freed by one script that declares no keys, and
//! whose calls fail each by itself where their slots are not, or not wholly, at this node. Some services refuse such
//! scripts: they get one for each call.

use redis::{RedisError, Value};

use crate::clock::Clock;
use crate::redis::exchange::{Answer, Call, unreadable};
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::redis::script::Eval;
use crate::redis::steps::{self, NodeCall, Taken};

/// A call with its place among all of them.
struct Placed {
    place: usize,
    part: NodeCall,
    takes: bool,
}

/// Makes calls, and reads one answer for each.
pub(super) async fn exchange_with_node(link: &Link, calls: Vec<Call>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = (0..calls.len()).map(|_| None).collect();
    let (mut parts, mut evals) = (Vec::new(), Vec::new());
    for (place, call) in calls.into_iter().enumerate() {
        match call {
            Call::Attempt(part) => parts.push(Placed { place, part, takes: true }),
            Call::Release(lock, holding) => {
                let part = NodeCall::free(&Keys::of_taken(&lock), holding.owner);
                parts.push(Placed { place, part, takes: false });
            }
            Call::Eval(eval) => evals.push((place, eval)),
            // It was not known that this is a node of a cluster.
            Call::Take(..) => answers[place] = Some(Answer::Taken(Taken::NotExecuted)),
        }
    }
    let together = parts.len() > 1 && link.runs_batches();
    let scripts: Vec<Eval> = if together {
        vec![NodeCall::together(parts.iter().map(|placed| &placed.part))]
    } else {
        parts.iter().map(|placed| placed.part.alone()).collect()
    };
    let all: Vec<&Eval> = scripts.iter().chain(evals.iter().map(|(_, eval)| eval)).collect();
    let mut replies = link.eval_each(&all).await.into_iter();
    if together {
        let reply = replies.next().unwrap_or_else(|| Err(unreadable()));
        let refused = read_together(link, &parts, reply, &mut answers);
        let again: Vec<Eval> = refused.iter().map(|placed| placed.part.alone()).collect();
        let served = link.eval_each(&again.iter().collect::<Vec<_>>()).await;
        link.note_batch(served.iter().any(Result::is_ok));
        for (placed, reply) in refused.into_iter().zip(served) {
            answers[placed.place] = Some(read_alone(link, placed, reply));
        }
    } else {
        for (placed, reply) in parts.iter().zip(&mut replies) {
            answers[placed.place] = Some(read_alone(link, placed, reply));
        }
    }
    for ((place, _), reply) in evals.iter().zip(replies) {
        answers[*place] = Some(reply.into());
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
        Ok(Some(mut found)) if found.len() == 1 => placed.answer(found.remove(0)),
        Ok(_) => Answer::Failed(unreadable()),
        Err(error) if placed.takes && error.code().is_some() => Answer::Taken(Taken::Refused(error)),
        Err(error) => Answer::Failed(error),
    }
}

fn read(link: &Link, reply: Value, count: usize) -> Option<Vec<Value>> {
    let (now, answers) = steps::read_batch(reply, count)?;
    link.time.observe(now, Clock::system().now());
    Some(answers)
}

impl Placed {
    fn answer(&self, found: Value) -> Answer {
        if self.takes { Answer::Taken(steps::read_attempt(&found)) } else { Answer::Value(found) }
    }
}
