//! Reads the steps of a server: the effect of each on each key.

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::trace::log::Group;
use crate::spec::trace::steps::{DRAWS, Effect, Key, Kind, LONGEST_WINDOW, Times, WINDOW, owner_of};

/// All keys of a run.
pub(super) struct Reader {
    pub(super) times: Times,
    /// The millisecond at which the log begins.
    pub(super) base: Option<i64>,
    /// Each process, with the number of its claim among claims that exist at the same time.
    processes: Vec<(u32, usize)>,
    pub(super) keys: BTreeMap<String, Key>,
    line: usize,
    /// Tokens without another trace in the store, each with its step. They come from repeats that raised nothing, and
    /// from attempts that took nothing.
    pub(super) alone: BTreeMap<i64, usize>,
}

/// How long a queue is kept after a confirmation, ms.
const KEPT: i64 = 30_000;

impl Reader {
    pub(super) fn new(times: Times) -> Self {
        Self { times, base: None, processes: Vec::new(), keys: BTreeMap::new(), line: 0, alone: BTreeMap::new() }
    }

    /// Reads one step of the log.
    pub(super) fn read(&mut self, group: &Group) -> Result<(), String> {
        self.line += 1;
        let later = group.iter().find(|words| words[0] == "XADD").and_then(|words| draw_of(words));
        let (mut draw, mut effects) = (None, Vec::<(String, Effect)>::new());
        let mut last = "";
        for words in group {
            let number = |place: usize| words.get(place).and_then(|word: &String| word.parse::<i64>().ok());
            match (words[0].as_str(), words.get(1).map_or("", |key| key)) {
                ("XADD", _) => draw = Some(draw_of(words).ok_or_else(|| unread(words))?),
                ("SET", key) => {
                    let (draw, native) = (draw.or(later).ok_or_else(|| unread(words))?, draw.is_none());
                    let ends = number(4).filter(|_| words[3] == "PXAT").ok_or_else(|| unread(words))?;
                    let effect = on(&mut effects, key);
                    (effect.set, effect.native) = (Some((words[2].clone(), ends, draw)), native);
                }
                ("UNLINK", _) => words[1..].iter().for_each(|key| self.expired(key)),
                ("DEL", _) => {
                    for key in words[1..].iter().filter(|key| !key.contains('@')) {
                        let effect = on(&mut effects, key);
                        // The grant reached no process, so the same step took it back.
                        effect.freed |= effect.set.take().is_none();
                    }
                }
                ("PEXPIREAT", key) if !key.contains('@') => {
                    let ends = number(2).ok_or_else(|| unread(words))?;
                    on(&mut effects, key).raised = Some((ends, draw.filter(|_| last == "XADD")));
                }
                ("PEXPIREAT", queue) => on(&mut effects, &key_of(queue)).kept = number(2),
                ("HSET", waiters) if words[2] == "others" => {
                    on(&mut effects, &key_of(waiters)).window = window_of(words)?;
                }
                ("HSET", waiters) => {
                    let fields: Vec<&str> = words[3].split('|').collect();
                    let read = |place: usize| fields.get(place).and_then(|field| field.parse::<i64>().ok());
                    let (confirmed, process) = (read(2), read(8));
                    let (Some(confirmed), Some(process)) = (confirmed, process) else { return Err(unread(words)) };
                    let effect = on(&mut effects, &key_of(waiters));
                    // A waiter that was passed over took no step.
                    if fields[3] == "1" {
                        effect.passed_over = true;
                    } else {
                        effect.entered = Some((words[2].clone(), confirmed, process));
                    }
                }
                ("ZREM", queue) => on(&mut effects, &key_of(queue)).left.extend(words[2..].iter().cloned()),
                ("HDEL", waiters) if words[2] == "others" => {
                    if let Some(key) = self.keys.get_mut(&key_of(waiters)) {
                        key.window = false;
                    }
                }
                // The place of a new waiter follows from its score, which is the highest. `ZADD` adds no information.
                ("SELECT" | "ZADD" | "HDEL", _) => {}
                _ => return Err(unread(words)),
            }
            last = &words[0];
        }
        if let (Some(draw), []) = (draw, &effects[..]) {
            self.alone.insert(draw, self.line);
        }
        effects.iter().try_for_each(|(key, effect)| self.happened(key, effect))
    }

    /// The lease of a key expired, and the server deleted it.
    fn expired(&mut self, key: &str) {
        let Some(key) = self.keys.get_mut(key) else { return };
        key.line = self.line;
        if let Some(owner) = key.held.take() {
            key.now = key.now.max(key.ends);
            let claims = BTreeSet::from([key.names[&owner]]);
            key.lost.insert(owner);
            key.push(Kind::Expire, claims, vec!["Expire"]);
        }
    }

    fn happened(&mut self, name: &str, effect: &Effect) -> Result<(), String> {
        let times = &self.times;
        let first = effect.set.as_ref().map(|(_, ends, _)| ends - times.ttl);
        let first = first.or(effect.entered.as_ref().map(|(_, confirmed, _)| confirmed / 1000));
        let Some(base) = self.base.or(first) else { return Err(format!("the log of {name} begins in the middle")) };
        self.base = Some(base);
        let key = self.keys.entry(name.to_owned()).or_default();
        let mut know = |owner: &str, process: u32| {
            if key.names.contains_key(owner) {
                return;
            }
            // A process may use a new claim while the end of its old one is in flight. It then counts as two processes.
            let free = (0..).find(|lane| {
                let place = self.processes.iter().position(|known| *known == (process, *lane));
                place.and_then(|place| key.last.get(&place)).is_none_or(|last| key.is_over(last))
            });
            let known = (process, free.unwrap_or(0));
            let place = self.processes.iter().position(|other| *other == known).unwrap_or_else(|| {
                self.processes.push(known);
                self.processes.len() - 1
            });
            let count = key.counts.entry(place).or_default();
            *count += 1;
            key.names.insert(owner.to_owned(), (place, *count));
            key.last.insert(place, owner.to_owned());
        };
        if let Some((owner, confirmed, process)) = &effect.entered {
            if effect.kept.is_some_and(|kept| confirmed / 1000 > kept - KEPT + times.slack) {
                return Err(format!(
                    "{owner} sleeps in the queue of {name}, which Lock.tla has not: a log of less than 3 s has none"
                ));
            }
            know(owner, u32::try_from(*process).map_err(|error| error.to_string())?);
        }
        if let Some((value, ..)) = &effect.set {
            let (owner, process) = owner_of(value).ok_or_else(|| format!("{value:?} is no value of a lock"))?;
            know(owner, process);
        }
        key.line = self.line;
        key.happened(effect, base, times);
        Ok(())
    }
}

/// The effect of a step on a key so far.
fn on<'a>(effects: &'a mut Vec<(String, Effect)>, key: &str) -> &'a mut Effect {
    let place = effects.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
        effects.push((key.to_owned(), Effect::default()));
        effects.len() - 1
    });
    &mut effects[place].1
}

/// `ms-seq` of an `XADD`, as one number.
fn draw_of(words: &[String]) -> Option<i64> {
    let (ms, seq) = words.iter().rev().nth(2)?.split_once('-')?;
    Some(ms.parse::<i64>().ok()? * DRAWS + seq.parse::<i64>().ok()?)
}

/// When a window began, in ms. The log has its end, and a window is longer where a client of another library is expected.
fn window_of(words: &[String]) -> Result<Option<i64>, String> {
    let fields = words[3].split_once('|');
    let number = |text: &str| text.parse::<i64>().ok();
    let read = fields.and_then(|(window, foreign)| Some((number(window)?, number(foreign)?)));
    let (window, foreign) = read.ok_or_else(|| unread(words))?;
    let lasts = if foreign == 0 { WINDOW } else { LONGEST_WINDOW };
    Ok((window != 0).then_some(window / 1000 - lasts))
}

/// The key of `{K}@queue` and `{K}@waiters`.
fn key_of(name: &str) -> String {
    name.split_once("}@").map_or(name, |(key, _)| key.trim_start_matches('{')).to_owned()
}

fn unread(words: &[String]) -> String {
    format!("the store logged {:?}, which says nothing of a lock that one claim has alone", words.join(" "))
}
