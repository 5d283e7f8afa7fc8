//! Random claims of every mode, by processes that are killed, over the store itself: whatever they do, nobody is beside
//! a writer, units stay within limits, nobody is passed, and nothing is left. The same walk over the memory store and
//! over the scripts of Redis, and over scripts with a rule removed, which it must notice.
//!
//! `LOCK_CHECK_SECONDS` says how long a walk takes, and a mutant may take; `LOCK_TEST_SEED` where it begins. The events of a walk
//! depend on the time that commands take, so a seed repeats its choices, not its outcome.

mod judge;
mod mutants;
mod scripts;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{LockBackend, MemoryStore, RedisStore};
use lock_testing::{RedisServer, limit};

use crate::checker::judge::Eyes;
use crate::checker::scripts::Rewriter;
use crate::checker::world::World;
use crate::support::{SECOND, figure, seed};

/// How many steps a walk takes before everybody is served, and a new one begins.
const STEPS: usize = 600;

/// How long walks are taken, or a few seconds.
fn duration(default: u32) -> Duration {
    let seconds = std::env::var("LOCK_CHECK_SECONDS").ok();
    SECOND * seconds.map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("LOCK_CHECK_SECONDS: {error}")))
}

/// Takes walks for a while. Returns how many grants there were, or what must not be.
async fn walk<B: LockBackend>(
    seed: u64,
    within: Duration,
    mut eyes: Option<Eyes>,
    store: impl Fn() -> Arc<B>,
) -> Result<usize, String> {
    let (began, mut number, mut grants) = (Instant::now(), 0, 0);
    while began.elapsed() < within {
        let mut world = World::start(seed.wrapping_add(number), &store, eyes).await;
        world.rare().await?;
        for _ in 0..STEPS {
            if began.elapsed() >= within {
                break;
            }
            world.step().await?;
        }
        grants += world.serve_all().await?;
        eyes = world.end();
        number += 1;
    }
    Ok(grants)
}

#[tokio::test]
#[limit(600)]
async fn the_memory_store_keeps_the_rules() {
    let (seed, store) = (seed(), Arc::new(MemoryStore::new()));
    let grants = walk(seed, duration(2), None, || Arc::clone(&store)).await.unwrap_or_else(|why| panic!("{why}"));
    figure("grants", grants);
    assert!(grants > 10, "the walk met hardly anything");
}

#[tokio::test]
#[limit(600)]
async fn the_scripts_keep_the_rules() {
    let (seed, server) = (seed(), RedisServer::start());
    let eyes = Eyes::open(&server.url()).await;
    let store = || Arc::new(RedisStore::new(&server.url()).unwrap());
    let grants = walk(seed, duration(8), Some(eyes), store).await.unwrap_or_else(|why| panic!("{why}"));
    figure("grants", grants);
    assert!(grants > 10, "the walk met hardly anything");
}

/// How many mutants are looked at side by side.
const AT_ONCE: usize = 4;

/// Each mutant has this long to be noticed.
const PATIENCE: u32 = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(1800)]
async fn a_script_without_one_of_its_rules_is_noticed() {
    assert_eq!(mutants::unknown(), [""; 0], "no script says this any more");
    let (seed, only) = (seed(), std::env::var("LOCK_CHECK_MUTANT").ok());
    let mut left: Vec<_> =
        mutants::ALL.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| name.contains(only))).collect();
    let (mut running, mut survivors) = (tokio::task::JoinSet::new(), Vec::new());
    while !left.is_empty() || !running.is_empty() {
        while running.len() < AT_ONCE
            && let Some((name, swaps)) = left.pop()
        {
            running.spawn(async move {
                let (began, server) = (Instant::now(), RedisServer::start());
                let rewriter = Rewriter::start(server.port(), swaps).await;
                let eyes = Eyes::open(&server.url()).await;
                let store = || Arc::new(RedisStore::new(&rewriter.url()).unwrap());
                let found = walk(seed, duration(PATIENCE), Some(eyes), store).await.err();
                (*name, began.elapsed(), found)
            });
        }
        let Some(ended) = running.join_next().await else { continue };
        match ended.unwrap() {
            (name, _, None) => survivors.push(name),
            (name, took, Some(why)) => figure(name, (took, why.lines().next().unwrap_or_default().to_owned())),
        }
    }
    assert!(survivors.is_empty(), "nobody noticed that these rules were gone: {survivors:#?}");
}
