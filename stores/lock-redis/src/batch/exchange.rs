//! Sends the calls of one batch to one server as one packed message, and reads an answer to each.
//!
//! First the releases, by one script, and by one more those of locks that are shared. Then the attempts at locks that are
//! probably free, in one transaction. Then all other scripts, each by itself, and the places of claims that sleep by one.

use std::time::Duration;
use std::{mem, vec};

use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::batch::places::Places;
use crate::connection::link::{Link, unreadable};
use crate::protocol::keys::{CLOCK, clock_of};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, NodeTake, Taken};
use crate::services::CROSSES;
use lock_store::contract::backend::Claim;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::Clock;

/// The errors with which a server refuses a script for its keys, before it runs.
const OF_KEYS: [&str; 5] = ["NOPERM", "CROSSSLOT", "MOVED", "ASK", "TRYAGAIN"];

/// One call.
#[derive(Debug)]
pub(crate) enum Call {
    /// Takes a lock without a script. Answered by [`Answer::Taken`].
    Take(OwnerId, redis::Cmd),
    /// The same at a node of a cluster, where the server checks the deadline.
    Attempt(NodeTake),
    /// Frees a lock at once. [`steps::freed`] reads the answer.
    Release(Claim),
    /// `acquire.lua`, for a claim that slept in its queue. Several confirmations are one script.
    Place(Eval),
    /// A script by itself.
    Eval(Eval),
}

impl Call {
    /// Returns the claim, if the call takes a lock.
    pub(crate) fn taking(&self) -> Option<OwnerId> {
        if let Self::Take(owner, _) = self { Some(*owner) } else { None }
    }
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Taken(Taken),
    Value(Value),
    Failed(RedisError),
}

impl Answer {
    /// Returns whether the connection broke before the answer.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Failed(error) if error.code().is_none())
    }
}

impl From<Result<Value, RedisError>> for Answer {
    fn from(result: Result<Value, RedisError>) -> Self {
        match result {
            Ok(Value::ServerError(error)) => Self::Failed(error.into()),
            Ok(value) => Self::Value(value),
            Err(error) => Self::Failed(error),
        }
    }
}

/// The calls of one message, by their kind, each with its place among all of them.
#[derive(Default)]
struct Sorted {
    releases: Vec<(usize, Claim)>,
    takes: Vec<usize>,
    /// The command of each of these.
    commands: Vec<redis::Cmd>,
    evals: Vec<(usize, Eval)>,
    places: Places,
}

/// Makes calls, and reads one answer for each.
pub(crate) async fn exchange(link: &Link, calls: Vec<Call>) -> Vec<Answer> {
    let count = calls.len();
    let mut answers: Vec<Option<Answer>> = (0..count).map(|_| None).collect();
    let mut sorted = Sorted::default();
    let takes = calls.iter().filter(|call| call.taking().is_some()).count();
    sorted.takes.reserve_exact(takes);
    sorted.commands.reserve_exact(takes);
    sorted.releases.reserve_exact(count - takes);
    for (place, call) in calls.into_iter().enumerate() {
        match call {
            Call::Take(_, command) => {
                sorted.takes.push(place);
                sorted.commands.push(command);
            }
            // Only a node of a cluster understands it.
            Call::Attempt(_) => answers[place] = Some(Answer::Taken(Taken::NotExecuted)),
            Call::Release(claim) => sorted.releases.push((place, claim)),
            Call::Place(eval) => sorted.places.add(place, eval),
            Call::Eval(eval) => sorted.evals.push((place, eval)),
        }
    }
    sorted.send(link, &mut answers).await;
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

impl Sorted {
    async fn send(mut self, link: &Link, answers: &mut [Option<Answer>]) {
        // The script that frees whole locks at once does not know shared locks.
        let is_shared = |(_, claim): &(usize, Claim)| claim.mode.is_shared();
        self.releases.sort_by_key(is_shared);
        let groups: Vec<_> = self.releases.chunk_by(|one, next| is_shared(one) == is_shared(next)).collect();
        let releases: Vec<Eval> = groups.iter().map(|group| release(link, group)).collect();
        let commands = mem::take(&mut self.commands);
        let together = self.places.sort_into(&mut self.evals);
        let evals: Vec<&Eval> = self.evals.iter().map(|(_, eval)| eval).chain(&together).collect();
        let mut replies = Replies(ask(link, &releases, commands, &evals).await.map(Vec::into_iter));
        let asked: Vec<_> = releases.iter().map(|eval| (eval, replies.next())).collect();
        if !self.takes.is_empty() {
            self.taken(link, &mut replies, answers);
        }
        let scripts: Vec<_> = self.evals.iter().map(|(place, eval)| (*place, eval, replies.next())).collect();
        let confirmed: Vec<_> = together.iter().map(|eval| (eval, replies.next())).collect();
        for (group, (eval, reply)) in groups.iter().zip(asked) {
            let reply = link.unless_unknown(eval, reply).await;
            released(link, group, reply, answers).await;
        }
        for (place, eval, reply) in scripts {
            answers[place] = Some(link.unless_unknown(eval, reply).await.into());
        }
        let mut places = Vec::with_capacity(confirmed.len());
        for (eval, reply) in confirmed {
            places.push(link.unless_unknown(eval, reply).await);
        }
        for (place, reply) in self.places.replies(link, places.into_iter()).await {
            answers[place] = Some(reply.into());
        }
    }

    /// Reads the replies to the transaction.
    fn taken(&self, link: &Link, replies: &mut Replies, answers: &mut [Option<Answer>]) {
        let count = self.takes.len();
        let taken = replies.read(count + 3, |transaction| {
            if !matches!(transaction[0], Value::Okay) {
                // The server does not know transactions, or does not let us use them.
                link.refuse_native();
            }
            steps::read_taken(transaction, count)
        });
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                self.takes.iter().for_each(|place| answers[*place] = Some(Answer::Failed(error.clone())));
                return;
            }
        };
        // One draw is that of all.
        let draw = taken.iter().find_map(|taken| if let Taken::With(draw) = taken { Some(draw) } else { None });
        if let Some(draw) = draw
            && draw.seq == 0
        {
            // The first number of a millisecond is drawn within that millisecond, so the clock was
            // not ahead of the time.
            link.time.observe(draw.ms.saturating_mul(1000), Clock::system().now());
        }
        for (place, taken) in self.takes.iter().zip(taken) {
            answers[*place] = Some(Answer::Taken(taken));
        }
    }
}

/// The replies to one message, in order. If the connection failed, that failure is the reply to each command.
struct Replies(Result<vec::IntoIter<Value>, RedisError>);

impl Replies {
    fn next(&mut self) -> Result<Value, RedisError> {
        match &mut self.0 {
            Ok(replies) => replies.next().ok_or_else(unreadable),
            Err(error) => Err(error.clone()),
        }
    }

    /// Reads so many replies together.
    fn read<T>(&mut self, count: usize, read: impl FnOnce(&[Value]) -> T) -> Result<T, RedisError> {
        let replies = self.0.as_mut().map_err(|error| error.clone())?;
        let read = replies.as_slice().get(..count).map(read).ok_or_else(unreadable);
        replies.by_ref().take(count).for_each(drop);
        read
    }
}

/// Sends everything as one message.
async fn ask(
    link: &Link,
    releases: &[Eval],
    takes: Vec<redis::Cmd>,
    evals: &[&Eval],
) -> Result<Vec<Value>, RedisError> {
    let mut scripts = releases.iter().chain(evals.iter().copied());
    if takes.is_empty()
        && releases.len() + evals.len() == 1
        && let Some(only) = scripts.next()
    {
        return Ok(vec![link.send(only.by_hash()).await?]);
    }
    let count = releases.len() + evals.len() + if takes.is_empty() { 0 } else { takes.len() + 3 };
    let mut message = Pipeline::with_capacity(count);
    for eval in releases {
        message.add_command(eval.by_hash().clone());
    }
    if !takes.is_empty() {
        steps::draw(&mut message, takes, link.empties_clock());
    }
    for eval in evals {
        message.add_command(eval.by_hash().clone());
    }
    link.send_all(&message).await
}

fn release(link: &Link, group: &[(usize, Claim)]) -> Eval {
    let clock = match group {
        [(_, claim), ..] if link.is_cluster() => clock_of(&claim.key),
        _ => CLOCK.into(),
    };
    steps::release(group.iter().map(|(_, claim)| claim), &clock, Duration::ZERO)
}

/// Reads the answers to some releases. If the server refuses them together because of one release's
/// keys, each is sent again by itself.
async fn released(
    link: &Link,
    group: &[(usize, Claim)],
    reply: Result<Value, RedisError>,
    answers: &mut [Option<Answer>],
) {
    let of_keys = |error: &RedisError| error.code().is_some_and(|code| OF_KEYS.contains(&code));
    match reply {
        Ok(reply) => {
            for ((place, _), reply) in group.iter().zip(steps::each_freed(reply, group.len())) {
                answers[*place] = Some(Answer::Value(reply));
            }
        }
        Err(error) if of_keys(&error) && (group.len() > 1 || link.crosses(&error)) => {
            for part in group.chunks(1) {
                let eval = release(link, part);
                let reply = link.send(eval.by_hash()).await;
                let reply = link.unless_unknown(&eval, reply).await;
                answers[part[0].0] = Some(match reply {
                    Ok(reply) => steps::each_freed(reply, 1).next().map_or_else(missing, Answer::Value),
                    Err(error) => Answer::Failed(error),
                });
            }
        }
        Err(error) => group.iter().for_each(|(place, _)| answers[*place] = Some(Answer::Failed(error.clone()))),
    }
}

impl Link {
    /// Sends a script with its text if the server does not know the hash, as after a restart, a failover
    /// or SCRIPT FLUSH.
    pub(crate) async fn unless_unknown(
        &self,
        eval: &Eval,
        reply: Result<Value, RedisError>,
    ) -> Result<Value, RedisError> {
        match reply.and_then(Value::extract_error) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(&eval.by_text()).await
            }
            reply => reply,
        }
    }

    /// Runs a script, by its hash if the server knows it.
    pub(crate) async fn eval(&self, eval: &Eval) -> Result<Value, RedisError> {
        let reply = self.send(eval.by_hash()).await;
        self.unless_unknown(eval, reply).await
    }

    /// Runs several scripts, sent as one message.
    pub(crate) async fn eval_each(&self, evals: &[&Eval]) -> Vec<Result<Value, RedisError>> {
        match evals {
            [] => return Vec::new(),
            [only] => return vec![self.eval(only).await],
            _ => {}
        }
        let mut message = Pipeline::with_capacity(evals.len());
        for eval in evals {
            message.add_command(eval.by_hash().clone());
        }
        let replies = match self.send_all(&message).await {
            Ok(replies) => replies,
            Err(error) => return evals.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = Vec::with_capacity(evals.len());
        for (eval, reply) in evals.iter().zip(replies) {
            answers.push(self.unless_unknown(eval, Ok(reply)).await);
        }
        answers
    }

    /// Runs a script on a master that is taking over the slot of its keys.
    ///
    /// In one message, because the permission is for the next command of the connection, from any caller.
    pub(crate) async fn eval_asking(&self, eval: &Eval) -> Result<Value, RedisError> {
        match self.asking(eval.by_hash().clone()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.asking(eval.by_text()).await
            }
            reply => reply,
        }
    }

    async fn asking(&self, command: redis::Cmd) -> Result<Value, RedisError> {
        let mut message = Pipeline::with_capacity(2);
        message.cmd("ASKING").add_command(command);
        self.send_all(&message).await?.pop().ok_or_else(unreadable)?.extract_error()
    }

    /// Notes that the server is a node of a cluster, if this error shows it. Returns whether that was not known
    /// before.
    pub(crate) fn crosses(&self, error: &RedisError) -> bool {
        let crosses = error.code() == Some("CROSSSLOT") || error.detail().is_some_and(|text| text.contains(CROSSES));
        crosses && self.note_cluster()
    }
}

/// The outcome of a call without an answer.
fn missing() -> Answer {
    Answer::Failed(unreadable())
}

#[cfg(test)]
#[path = "tests/exchange.rs"]
mod tests;
