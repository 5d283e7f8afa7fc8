//! Random walks of whole processes over a quorum whose networks break and whose members lose their data.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use lock_core::{FencingToken, LockGuard, LockManager};
use lock_testing::limit;

use crate::quorum::network::{Network, Process, process_with, stores};
use crate::quorum::{MS, SECOND};

const PROCESSES: usize = 3;
const WALKS: u64 = 60;

/// The holders inside, and the tokens of all that have entered.
#[derive(Default)]
struct Section {
    inside: Option<(usize, Rc<LockGuard>)>,
    newest: FencingToken,
    entries: u32,
}

/// Takes the lock again and again.
async fn work(me: usize, locks: LockManager, section: Rc<RefCell<Section>>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed * 1000 + me as u64);
    let until = tokio::time::Instant::now() + 40 * SECOND;
    while tokio::time::Instant::now() < until {
        let wait = random.u32(1..4) * SECOND;
        if let Ok(guard) = locks.lock("k").with_ttl(2 * SECOND).with_wait(wait).await {
            let guard = Rc::new(guard);
            {
                let mut section = section.borrow_mut();
                if let Some((other, before)) = &section.inside {
                    assert!(before.ensure_held().is_err() || guard.ensure_held().is_err(), "{me} beside {other}");
                }
                let (token, newest) = (guard.token(), section.newest);
                assert!(token > newest || guard.ensure_held().is_err(), "{me}: {token} after {newest}");
                section.newest = newest.max(token);
                section.entries += 1;
                section.inside = Some((me, Rc::clone(&guard)));
            }
            tokio::time::sleep(random.u32(0..1500) * MS).await;
            {
                let mut section = section.borrow_mut();
                if section.inside.as_ref().is_some_and(|(_, inside)| Rc::ptr_eq(inside, &guard)) {
                    section.inside = None;
                }
            }
            if let Ok(guard) = Rc::try_unwrap(guard) {
                let _ = guard.release().await;
            }
        }
        tokio::time::sleep(random.u32(0..30) * MS).await;
    }
}

/// Breaks and mends networks and members.
async fn break_things(processes: &[Process], random: &mut fastrand::Rng) {
    loop {
        tokio::time::sleep(random.u32(1..400) * MS).await;
        let members = processes[0].networks.len();
        let (process, member) = (&processes[random.usize(..processes.len())], random.usize(..members));
        let network = match random.u32(..9) {
            0 => Network::Refuses,
            1 => Network::Swallows,
            2 => Network::Mutes,
            3 => Network::Delays(random.u32(1..150) * MS),
            4 if random.u32(..4) == 0 => {
                process.networks[member].store.lose_data();
                continue;
            }
            _ => Network::Up,
        };
        process.set([member], network);
    }
}

#[test]
#[limit(300)]
fn nothing_goes_wrong_on_random_walks() {
    let only = std::env::var("LOCK_TEST_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = only.map_or(0..WALKS, |seed| seed..seed + 1);
    let mut entries = 0;
    for seed in seeds {
        println!("LOCK_TEST_SEED={seed}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let local = tokio::task::LocalSet::new();
        entries += local.block_on(&runtime, async {
            fastrand::seed(seed);
            let mut random = fastrand::Rng::with_seed(seed);
            let stores = stores(if random.bool() { 3 } else { 5 });
            let max_ttl = Duration::from_secs(2);
            let processes =
                [(); PROCESSES].map(|()| process_with(&stores, |quorum| quorum.with_max_ttl(max_ttl).unwrap()));
            let section: Rc<RefCell<Section>> = Rc::default();
            let work = processes.iter().enumerate().map(|(me, process)| {
                tokio::task::spawn_local(work(me, process.locks.clone(), Rc::clone(&section), seed))
            });
            let work: Vec<_> = work.collect();
            tokio::select! {
                () = break_things(&processes, &mut random) => {}
                () = async { for done in work { done.await.unwrap(); } } => {}
            }
            section.borrow().entries
        });
    }
    println!("figure: entries on random walks over a quorum: {entries}");
    assert!(only.is_some() || entries > 500, "{entries}: the walks are too hard to say anything");
}
