//! Claims that sleep, and confirm their places together: one script for those of a server, or of one slot.

use redis::{RedisError, Value};

use crate::connection::link::{Link, unreadable};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, confirm};

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

    /// Reads the replies to these scripts. A call that needs more than a confirmation, or was refused together with others,
    /// asks by itself. Returns the reply to each call, with its place.
    pub(crate) async fn replies(
        self,
        link: &Link,
        confirmed: impl Iterator<Item = Result<Value, RedisError>> + Send,
    ) -> Vec<(usize, Result<Value, RedisError>)> {
        let (mut calls, mut apart, mut replies) = (self.calls.into_iter(), Vec::new(), Vec::new());
        for (count, reply) in self.groups.into_iter().zip(confirmed) {
            let group = calls.by_ref().take(count);
            let answers = match reply {
                Ok(reply) => steps::read_confirmed(reply, count).ok_or_else(unreadable),
                Err(error) if error.code().is_some() => Ok(vec![None; count]),
                Err(error) => Err(error),
            };
            match answers {
                Ok(answers) => {
                    for ((place, acquire), answer) in group.zip(answers) {
                        match answer {
                            Some(answer) => replies.push((place, Ok(answer))),
                            None => apart.push((place, acquire)),
                        }
                    }
                }
                Err(error) => replies.extend(group.map(|(place, _)| (place, Err(error.clone())))),
            }
        }
        let evals: Vec<&Eval> = apart.iter().map(|(_, acquire)| acquire).collect();
        let alone = link.eval_each(&evals).await;
        replies.extend(apart.iter().map(|(place, _)| *place).zip(alone));
        replies
    }
}
