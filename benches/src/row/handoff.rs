//! The server's time for a release that grants the lock to a claim that waits, beside a script of the bare commands that
//! any such hand-off takes: what `INFO commandstats` says of scripts.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    AcquireRequest, Attempt, Claim, Freed, HolderInfo, LockBackend as _, LockKey, RedisStore, Release, Ticket,
};
use redis::{Client, Connection, Script};
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::bench::Bench;
use crate::contestant::TTL_MS;
use crate::outcome::{Figure, Outcome};
use crate::stats::median;
use crate::target::Target;

/// The name by which grants find the process that waits.
const INBOX: &str = "bench";
const CHANNEL: &str = "distributed-lock:inbox:bench";

/// Reads who holds and who waits, draws a token, writes the lock, tells, and takes the waiter out. It checks nothing.
const BARE: &str = "
    redis.call('GETRANGE', KEYS[1], 0, 511)
    local heir = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    local entry = redis.call('HGET', KEYS[3], heir)
    redis.call('TIME')
    local token = redis.call('XADD', KEYS[4], '*', 'k', 'v')
    redis.call('SET', KEYS[1], entry, 'PX', ARGV[2])
    redis.call('PUBLISH', ARGV[1], token)
    redis.call('ZREM', KEYS[2], heir)
    redis.call('HDEL', KEYS[3], heir)";

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let locks = bench.scale.pick(5000, 1000, 20);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Somebody must hear of the grants, or they are none. The messages are left to the socket.
    let mut connection = connect(bench)?;
    let mut heard = connection.as_pubsub();
    heard.subscribe(CHANNEL)?;
    let mut rounds: [Vec<f64>; 2] = Default::default();
    for _ in 0..bench.rounds {
        let round = [ours(bench, &runtime, locks)?, bare(bench, &runtime, locks)?];
        rounds.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
        for _ in 0..2 * locks {
            heard.get_message()?;
        }
    }
    let ratio = median(rounds[0].iter().zip(&rounds[1]).map(|(one, other)| one / other).collect());
    // Before there were readers and permits it was 2.3 times that, and must not become much more.
    let targets = vec![Target::at_most("hand-off, us / bare commands", ratio, 2.5)];
    let names = ["a release that grants, us", "the bare commands"];
    let figures = names.into_iter().zip(rounds).map(|(name, round)| Figure::new(name, "µs", round)).collect();
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

fn connect(bench: &Bench) -> Result<Connection> {
    let connection = Client::open(("127.0.0.1", bench.server.port()))?.get_connection()?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(connection)
}

/// Releases locks that one other claim waits for. Returns µs of the server for each.
fn ours(bench: &mut Bench, runtime: &Runtime, locks: u32) -> Result<f64> {
    bench.server.flush()?;
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}/", bench.server.port()))?;
    let inbox: Arc<str> = INBOX.into();
    runtime.block_on(async {
        let mut held = Vec::new();
        for number in 0..locks {
            let request = || -> Result<AcquireRequest> {
                let claim = Claim::new(LockKey::new(format!("bench:{number}"))?, Duration::from_millis(TTL_MS));
                Ok(AcquireRequest::new(claim, HolderInfo::new("bench", 1, "lock-bench")))
            };
            let (holds, mut waits) = (request()?, request()?);
            waits.ticket = Some(Ticket::new(Arc::clone(&inbox), 1, Duration::from_millis(TTL_MS)));
            match (store.try_acquire(&holds).await?, store.try_acquire(&waits).await?) {
                (Attempt::Granted { .. }, Attempt::Queued { .. }) => held.push(holds.claim),
                other => return Err(format!("a claim and one behind it were answered {other:?}").into()),
            }
        }
        let before = bench.server.sample()?;
        for claim in held {
            match store.release(&Release::new(claim)).await? {
                Freed::Released => {}
                other => return Err(format!("a claim that holds was answered {other:?}").into()),
            }
        }
        Ok(bench.server.sample()?.script_us_since(&before) / f64::from(locks))
    })
}

/// The same with nothing but the commands, over a connection of the same kind.
fn bare(bench: &mut Bench, runtime: &Runtime, locks: u32) -> Result<f64> {
    bench.server.flush()?;
    let client = Client::open(("127.0.0.1", bench.server.port()))?;
    let script = Script::new(BARE);
    let owner = |number: u32, what: &str| format!("{what}{number:028}");
    runtime.block_on(async {
        let mut connection = client.get_multiplexed_async_connection().await?;
        for number in 0..locks {
            let keys = keys(number);
            let value = format!("{}|{TTL_MS}|bench|1|lock-bench|", owner(number, "wait"));
            let mut pipe = redis::pipe();
            pipe.cmd("SET").arg(&keys[0]).arg(owner(number, "hold")).arg("PX").arg(TTL_MS);
            pipe.cmd("ZADD").arg(&keys[1]).arg(number).arg(owner(number, "wait"));
            pipe.cmd("HSET").arg(&keys[2]).arg(owner(number, "wait")).arg(value);
            pipe.exec_async(&mut connection).await?;
        }
        script.prepare_invoke().load_async(&mut connection).await?;
        let before = bench.server.sample()?;
        for number in 0..locks {
            let mut call = script.prepare_invoke();
            for key in keys(number) {
                call.key(key);
            }
            let () = call.arg(CHANNEL).arg(TTL_MS).invoke_async(&mut connection).await?;
        }
        Ok(bench.server.sample()?.script_us_since(&before) / f64::from(locks))
    })
}

/// A lock, who waits, what is known of them, and the clock.
fn keys(number: u32) -> [String; 4] {
    let beside = |what: &str| format!("{{bench:{number}}}:{what}");
    [format!("bench:{number}"), beside("order"), beside("known"), "bench-clock".to_owned()]
}
