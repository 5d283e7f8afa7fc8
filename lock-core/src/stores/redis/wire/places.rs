//! Claims that sleep, and confirm their places together: one script for those of a server, or of one slot.

use redis::{RedisError, Value};

use crate::stores::redis::steps::script::Eval;
use crate::stores::redis::steps::{self, confirm};
use crate::stores::redis::wire::exchange::{Answer, unreadable};
use crate::stores::redis::wire::link::Link;

/// The calls of one message that confirm places, each with its place among all calls.
#[derive(Default)]
pub(crate) struct Places {
    calls: Vec<(usize, Eval)>,
    /// How many of them each script confirms, in order.
    groups: Vec<usize>,
}

impl Places {
    pub(crate) fn add(&mut self, place: usize, acquire: Eval) {
        self.calls.push((place, acquire));
    }

    /// Makes the scripts that confirm several places. A claim that is alone joins the others that ask by themselves.
    pub(crate) fn sort_into(&mut self, alone: &mut Vec<(usize, Eval)>) -> Vec<Eval> {
        self.calls.sort_by(|(_, one), (_, next)| steps::whereabouts(one).cmp(&steps::whereabouts(next)));
        let mut calls = std::mem::take(&mut self.calls).into_iter().peekable();
        let mut scripts = Vec::new();
        while let Some(first) = calls.next() {
            let mut group = vec![first];
            while let Some(next) =
                calls.next_if(|(_, next)| steps::whereabouts(next) == steps::whereabouts(&group[0].1))
            {
                group.push(next);
            }
            if group.len() == 1 {
                alone.extend(group);
            } else {
                scripts.push(confirm(&group.iter().map(|(_, acquire)| acquire).collect::<Vec<_>>()));
                self.groups.push(group.len());
                self.calls.extend(group);
            }
        }
        scripts
    }

    /// Reads the replies to these scripts. Whoever has more to do than to confirm a place, or was refused together with others,
    /// asks by itself.
    pub(crate) async fn answer(
        self,
        link: &Link,
        replies: Vec<(&Eval, Result<Value, RedisError>)>,
        answers: &mut [Option<Answer>],
    ) {
        let (mut calls, mut apart) = (self.calls.into_iter(), Vec::new());
        for (count, (script, reply)) in self.groups.into_iter().zip(replies) {
            let group = calls.by_ref().take(count);
            let confirmed = match link.unless_unknown(script, reply).await {
                Ok(reply) => steps::read_confirmed(reply, count).ok_or_else(unreadable),
                Err(error) if error.code().is_some() => Ok(vec![None; count]),
                Err(error) => Err(error),
            };
            match confirmed {
                Ok(confirmed) => {
                    for ((place, acquire), answer) in group.zip(confirmed) {
                        match answer {
                            Some(answer) => answers[place] = Some(Answer::Value(answer)),
                            None => apart.push((place, acquire)),
                        }
                    }
                }
                Err(error) => group.for_each(|(place, _)| answers[place] = Some(Answer::Failed(error.clone()))),
            }
        }
        let evals: Vec<&Eval> = apart.iter().map(|(_, acquire)| acquire).collect();
        for ((place, _), reply) in apart.iter().zip(link.eval_each(&evals).await) {
            answers[*place] = Some(reply.into());
        }
    }
}
