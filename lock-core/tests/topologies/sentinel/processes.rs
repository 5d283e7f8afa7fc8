//! Processes that queue for the same keys while another server takes over (scenario 7 of the design).

use lock_testing::{RedisSentinels, Stopwatch, limit};

use super::follow;
use crate::support::{SECOND, Scratch, Worker, bounded, figure, locked_keys, seed, take};

#[tokio::test]
#[limit]
async fn eight_processes_go_on_on_the_next_master_and_exclude_each_other() {
    let (servers, scratch) = (RedisSentinels::start(), Scratch::new());
    // Confirmed by the only replica, which takes over: no write is lost, so no two may hold one key.
    let (url, history, seed) = (format!("{}?acks=1", servers.url()), scratch.path("history"), seed());
    let mut workers: Vec<Worker> = (0..8)
        .map(|process: u64| {
            let seed = seed.wrapping_add(process * 1_000).to_string();
            let settings = [
                ("url", url.as_str()),
                ("history", &history),
                ("ttl_ms", "10000"),
                ("wait_ms", "60000"),
                ("tasks", "2"),
                ("keys", "3"),
                ("seed", &seed),
            ];
            Worker::start("compete", &settings)
        })
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.next().await, "ready");
    }
    tokio::time::sleep(SECOND).await;
    let locks = follow(&servers).await;
    let master = servers.fail_over();
    let watch = Stopwatch::start();
    take(&locks, "probe").await.release().await.unwrap();
    // A third of the time that a grant waits to be confirmed.
    bounded("first grant after the sentinels agree, 8 processes queueing", watch.elapsed(), SECOND);
    // The old master becomes the replica that confirms.
    tokio::time::sleep(3 * SECOND).await;
    let mut served = 0_u64;
    for mut worker in workers {
        let said = worker.order("stop").await;
        served += said.strip_prefix("served ").unwrap().parse::<u64>().unwrap();
        worker.ended().await;
    }
    let verdict = scratch.verdict();
    assert_eq!(verdict.violations, []);
    figure("grants of 8 processes over a failover, acks=1", served);
    assert!(served > 8, "{served}");
    assert_eq!(locked_keys(&servers.servers()[master]), [""; 0]);
}
