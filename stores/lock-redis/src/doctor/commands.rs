//! The commands that locks consist of, tried on keys and a channel that only the examination has.

use redis::{Cmd, PushKind, Value, cmd};

use crate::connection::greeting::{tracking, tracks};
use crate::doctor::judge::{Failure, Need, all, answer, judge};
use crate::doctor::probe::{KEPT, Probe};
use crate::protocol::steps;
use lock_store::contract::backend::Finding;
use lock_store::types::options::Durability;

type Outcome = Result<Finding, Failure>;

/// The text of the messages.
const HELLO: &str = "doctor";

/// What delivers messages.
const DELIVER: &str = "use a service that delivers a message to every subscriber";

/// Counts who hears a message, as the scripts that grant locks do.
const COUNTED: &str = "local heard = redis.call('PUBSUB', 'NUMSUB', ARGV[1])
return { heard[2], redis.call('PUBLISH', ARGV[1], ARGV[2]) }";

/// Tries everything on one server.
pub(super) async fn examine(probe: &mut Probe, durability: Durability, is_cluster: bool) -> Vec<Finding> {
    let polls = Need::Lost("a waiter is not told of its grant and polls, so locks pass on later", DELIVER);
    let late =
        Need::Lost("a loss is noticed at the next renewal, not at once", "use Redis 7.0 or later, without a proxy");
    let slow = Need::Lost("a free lock costs a script, because no command can be cut off", "connect without a proxy");
    let everywhere = Need::Lost("each node of the cluster passes on each grant", "use Redis 7.0 or later");
    let mut found = vec![
        judge("SET NX PX", &Need::Required, set(probe).await),
        judge("MULTI, XADD", &Need::Required, transaction(probe).await),
        judge("scripts", &Need::Required, scripts(probe).await),
        judge("PUBLISH", &polls, publish(probe).await),
        judge("PUBLISH in scripts", &polls, counted(probe).await),
    ];
    found.push(match is_cluster {
        true => judge("SPUBLISH", &everywhere, publish_in_slot(probe).await),
        false => Finding::works("SPUBLISH", "only the masters of a cluster need it"),
    });
    found.push(judge("CLIENT KILL", &slow, kill(probe).await));
    found.push(judge("CLIENT TRACKING", &late, track(probe).await));
    found.push(wait(probe, durability).await);
    clean_up(probe).await;
    found
}

fn take(key: &str) -> Cmd {
    let mut take = cmd("SET");
    take.arg(key).arg(HELLO).arg("NX").arg("PX").arg(KEPT);
    take
}

/// The stream of the examination, in the slot of its key.
fn stream(probe: &Probe) -> String {
    format!("{}:x", probe.key)
}

async fn set(probe: &mut Probe) -> Outcome {
    let (take, again) = (take(&probe.key), take(&probe.key));
    let mut asked = redis::pipe();
    asked.add_command(take).add_command(again);
    let answers = probe.answers(&asked).await?;
    match answers.as_slice() {
        [Value::Okay, Value::Nil] => Ok(Finding::works("SET NX PX", "a key that is taken is not taken again")),
        [Value::Okay, Value::Okay] => {
            Ok(Finding::refused("SET NX PX", "a key that is taken is taken again: locks exclude nobody")
                .with_remedy("use a service that obeys NX"))
        }
        _ => Err(Failure::unreadable()),
    }
}

/// As a free lock is taken. The stream has an expiry from its first moment.
async fn transaction(probe: &mut Probe) -> Outcome {
    let (stream, mut asked) = (stream(probe), redis::pipe());
    asked.cmd("MULTI").add_command(take(&format!("{}:m", probe.key)));
    asked.cmd("XADD").arg(&stream).arg("MAXLEN").arg("~").arg(1).arg("*").arg("k").arg("v");
    asked.cmd("PEXPIRE").arg(&stream).arg(KEPT).cmd("EXEC");
    let Some(Value::Array(results)) = probe.answers(&asked).await?.pop() else { return Err(Failure::unreadable()) };
    match all(results)?.as_slice() {
        [Value::Okay, Value::BulkString(_), Value::Int(1)] => {
            Ok(Finding::works("MULTI, XADD", "fencing tokens come from a stream, in one transaction with their lock"))
        }
        _ => Err(Failure::unreadable()),
    }
}

/// Loads the largest script, runs it twice, and tries what frees a lock.
async fn scripts(probe: &mut Probe) -> Outcome {
    let mut asked = redis::pipe();
    steps::try_out_at(&mut asked, &probe.key, &[&probe.key]);
    let mut answers = probe.ask_all(&asked).await?.into_iter().map(answer);
    let mut next = || answers.next().unwrap_or_else(|| Err(Failure::unreadable()));
    next()?;
    next()?;
    match next()? {
        Value::BulkString(none) if none.is_empty() => {
            Ok(Finding::works("scripts", "the largest is kept and runs, and may free locks"))
        }
        Value::BulkString(why) => {
            let says = format!("no lock could be given back: {}", String::from_utf8_lossy(&why));
            Ok(Finding::refused("scripts", says)
                .with_remedy("docs/operations.md#permissions lists what the user needs"))
        }
        _ => Err(Failure::unreadable()),
    }
}

async fn publish(probe: &mut Probe) -> Outcome {
    let channel = probe.channel.clone();
    arrives(probe, "PUBLISH", ["SUBSCRIBE", "PUBLISH", &channel], &PushKind::Message).await
}

async fn publish_in_slot(probe: &mut Probe) -> Outcome {
    // A channel lies in the slot of its name.
    let channel = format!("{}:{}", probe.channel, &probe.key[probe.key.rfind('{').unwrap_or(0)..]);
    arrives(probe, "SPUBLISH", ["SSUBSCRIBE", "SPUBLISH", &channel], &PushKind::SMessage).await
}

async fn arrives(probe: &mut Probe, subject: &'static str, words: [&str; 3], kind: &PushKind) -> Outcome {
    let [subscribe, publish, channel] = words;
    probe.ask(cmd(subscribe).arg(channel)).await?;
    probe.ask(cmd(publish).arg(channel).arg(HELLO)).await?;
    if probe.hears(kind, HELLO).await {
        return Ok(Finding::works(subject, "a waiter is told of its grant"));
    }
    // A message that is not delivered is something else than a connection that has fallen silent.
    probe.ask(&cmd("HELLO")).await?;
    Ok(unheard(subject, "a message does not arrive"))
}

fn unheard(subject: &'static str, why: &str) -> Finding {
    let says = format!("{why}: a waiter is not told of its grant and polls, so locks pass on later");
    Finding::warning(subject, says).with_remedy(DELIVER)
}

async fn counted(probe: &mut Probe) -> Outcome {
    let mut asked = cmd("EVAL");
    asked.arg(COUNTED).arg(1).arg(&probe.key).arg(&probe.channel).arg(HELLO);
    let subject = "PUBLISH in scripts";
    match redis::from_redis_value::<(i64, i64)>(probe.ask(&asked).await?) {
        Ok((1.., 1..)) => Ok(Finding::works(subject, "a grant that nobody hears is taken back")),
        Ok(_) => Ok(unheard(subject, "a script is not told who listens")),
        Err(_) => Err(Failure::unreadable()),
    }
}

async fn kill(probe: &mut Probe) -> Outcome {
    let mut asked = redis::pipe();
    asked.cmd("CLIENT").arg("INFO").cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX);
    let answers = probe.answers(&asked).await?;
    match answers.as_slice() {
        [_, Value::Int(0)] => Ok(Finding::works("CLIENT KILL", "a command that nobody awaits can be cut off")),
        _ => Err(Failure::unreadable()),
    }
}

async fn track(probe: &mut Probe) -> Outcome {
    let answers = probe.ask_all(&tracking()).await?;
    if tracks(&answers) {
        return Ok(Finding::works("CLIENT TRACKING", "a loss is noticed within milliseconds"));
    }
    all(answers)?;
    let says = "a loss is noticed at the next renewal, not at once, as before Redis 7.0";
    Ok(Finding::warning("CLIENT TRACKING", says).with_remedy("use Redis 7.0 or later"))
}

async fn wait(probe: &mut Probe, durability: Durability) -> Finding {
    let on_disk = matches!(durability, Durability::Fsync { .. });
    let (subject, asked) = if on_disk {
        ("WAITAOF", cmd("WAITAOF").arg(0).arg(0).arg(1).to_owned())
    } else {
        ("WAIT", cmd("WAIT").arg(0).arg(1).to_owned())
    };
    let need = if durability == Durability::Master {
        Need::Lost("acks= cannot be used: a failover may lose locks that are held", "use a service that has WAIT")
    } else {
        Need::Required
    };
    let outcome = probe.ask(&asked).await.and_then(|answer| match answer {
        Value::Int(_) | Value::Array(_) => Ok(Finding::works(subject, "replicas, or disks, can confirm locks")),
        _ => Err(Failure::unreadable()),
    });
    judge(subject, &need, outcome)
}

/// Deletes the keys. If that fails, they end by themselves.
async fn clean_up(probe: &mut Probe) {
    let mut delete = cmd("DEL");
    delete.arg(&probe.key).arg(format!("{}:m", probe.key)).arg(stream(probe));
    let _ = probe.ask(&delete).await;
}
