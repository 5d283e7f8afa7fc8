//! The server's time for one claim that shares a lock, beside others: what `INFO commandstats` says of scripts.
//!
//! The other side are scripts that send, command for command, what those of Redisson 3.5x send to the server for a
//! read lock and for a permit that expires. They draw no token and keep no queue. The commands that Redisson
//! sends besides, one that deletes a latch after each release, are left out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{AcquireRequest, Attempt, Claim, HolderInfo, LockBackend as _, LockKey, Mode, RedisStore, Release};
use redis::Script;
use tokio::runtime::{Builder, Runtime};

use crate::Result;
use crate::bench::Bench;
use crate::contestant::TTL_MS;
use crate::outcome::{Figure, Outcome};
use crate::stats::median;
use crate::target::Target;

/// How many others read.
const READERS: u32 = 64;
/// How many permits there are, all but one of them taken.
const PERMITS: u32 = 16;

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let pairs = bench.scale.pick(2000, 500, 20);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..bench.rounds {
        let permit = Mode::permits(1, PERMITS)?;
        let round = [
            ours(bench, &runtime, Mode::READ, READERS, pairs)?,
            theirs(bench, &READ, READERS, pairs)?,
            ours(bench, &runtime, permit, PERMITS - 1, pairs)?,
            theirs(bench, &PERMIT, PERMITS - 1, pairs)?,
        ];
        rounds.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    let ratio = |one: usize, other: usize| {
        median(rounds[one].iter().zip(&rounds[other]).map(|(one, other)| one / other).collect())
    };
    let targets = vec![
        Target::at_most("read beside 64, us / Redisson's commands", ratio(0, 1), 0.3),
        Target::at_most("16th of 16 permits, us / Redisson's commands", ratio(2, 3), 3.0),
    ];
    let names = ["read beside 64, us", "the same, Redisson's", "16th of 16 permits, us", "the same, Redisson's"];
    let figures = names.into_iter().zip(rounds).map(|(name, round)| Figure::new(name, "µs a pair", round)).collect();
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

/// Measures our pairs beside `others`, in µs of the server.
fn ours(bench: &mut Bench, runtime: &Runtime, mode: Mode, others: u32, pairs: u32) -> Result<f64> {
    bench.server.flush()?;
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}/", bench.server.port()))?;
    let request = || -> Result<AcquireRequest> {
        let claim = Claim::new(LockKey::new("bench:pair")?, Duration::from_millis(TTL_MS)).with_mode(mode);
        Ok(AcquireRequest::new(claim, HolderInfo::new("bench", 1, "lock-bench")))
    };
    let take = async |request: &AcquireRequest| match store.try_acquire(request).await? {
        Attempt::Shared { .. } => Ok(()),
        other => Err(crate::Failure::from(format!("a claim that fits was answered {other:?}"))),
    };
    runtime.block_on(async {
        for _ in 0..others {
            take(&request()?).await?;
        }
        let before = bench.server.sample()?;
        for _ in 0..pairs {
            let request = request()?;
            take(&request).await?;
            store.release(&Release::new(request.claim)).await?;
        }
        Ok(bench.server.sample()?.script_us_since(&before) / f64::from(pairs))
    })
}

/// Two scripts, how many keys each has, and what must be there before.
struct Peer {
    take: &'static str,
    free: &'static str,
    keys: &'static [&'static str],
    /// How many permits are in stock at first.
    stock: Option<u32>,
}

/// Measures the pairs of a peer, in µs of the server.
fn theirs(bench: &mut Bench, peer: &Peer, others: u32, pairs: u32) -> Result<f64> {
    bench.server.flush()?;
    let mut connection = redis::Client::open(("127.0.0.1", bench.server.port()))?.get_connection()?;
    if let Some(stock) = peer.stock {
        redis::cmd("SET").arg(peer.keys[0]).arg(stock).exec(&mut connection)?;
    }
    let (take, free) = (Script::new(peer.take), Script::new(peer.free));
    let mut run = |script: &Script, holder: u32| -> Result<()> {
        let mut call = script.prepare_invoke();
        for key in peer.keys {
            call.key(*key);
        }
        // As long as theirs: an id, a colon and a thread.
        let holder = format!("f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f:{holder}");
        Ok(call.arg(TTL_MS).arg(holder).arg(now_ms()?).invoke(&mut connection)?)
    };
    for other in 1..=others {
        run(&take, other)?;
    }
    run(&take, 0)?;
    run(&free, 0)?;
    let before = bench.server.sample()?;
    for _ in 0..pairs {
        run(&take, 0)?;
        run(&free, 0)?;
    }
    Ok(bench.server.sample()?.script_us_since(&before) / f64::from(pairs))
}

fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// A hash with a count for each holder, and a key that expires for each hold. Whoever leaves looks at all of them.
const READ: Peer = Peer {
    take: "
        local mode = redis.call('HGET', KEYS[1], 'mode')
        if mode and mode ~= 'read' then return redis.call('PTTL', KEYS[1]) end
        if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
        local lease = KEYS[2] .. ':' .. ARGV[2] .. ':' .. redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
        redis.call('SET', lease, 1)
        redis.call('PEXPIRE', lease, ARGV[1])
        redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))",
    free: "
        local answer = redis.call('GET', KEYS[3])
        if not redis.call('HGET', KEYS[1], 'mode') or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
            return answer
        end
        local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
        if count == 0 then redis.call('HDEL', KEYS[1], ARGV[2]) end
        redis.call('DEL', KEYS[2] .. ':' .. ARGV[2] .. ':' .. count + 1)
        if redis.call('HLEN', KEYS[1]) > 1 then
            local longest = -3
            for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
                for hold = tonumber(redis.call('HGET', KEYS[1], holder)) or 0, 1, -1 do
                    longest = math.max(longest, redis.call('PTTL', KEYS[2] .. ':' .. holder .. ':' .. hold))
                end
            end
            redis.call('PEXPIRE', KEYS[1], longest)
            redis.call('SET', KEYS[3], 0, 'PX', 20)
            return 0
        end
        redis.call('DEL', KEYS[1])
        redis.call('SET', KEYS[3], 1, 'PX', 20)
        return 1",
    keys: &["bench:pair", "{bench:pair}:lease", "{bench:pair}:latch"],
    stock: None,
};

/// A count of what is in stock, and the expiry of each permit that is out. The client tells the time.
const PERMIT: Peer = Peer {
    take: "
        local ended = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[3], 'LIMIT', 0, 1)
        if #ended > 0 then
            redis.call('ZREM', KEYS[2], unpack(ended))
            redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], #ended))
        end
        if (tonumber(redis.call('GET', KEYS[1])) or 0) < 1 then return 0 end
        redis.call('DECRBY', KEYS[1], 1)
        redis.call('ZADD', KEYS[2], ARGV[3] + ARGV[1], ARGV[2])
        local left = redis.call('PTTL', KEYS[1])
        if left > 0 then redis.call('PEXPIRE', KEYS[2], left) end
        return 1",
    free: "
        local ends = redis.call('ZSCORE', KEYS[2], ARGV[2])
        if redis.call('ZREM', KEYS[2], ARGV[2]) == 0 then return 0 end
        redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], 1))
        return tonumber(ends) > tonumber(ARGV[3]) and 1 or 0",
    keys: &["bench:pair", "{bench:pair}:timeout", "{bench:pair}:channel"],
    stock: Some(PERMITS),
};
