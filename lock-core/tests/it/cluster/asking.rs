//! Commands for the master that is taking a slot over, which serves it only when it is asked to.

use lock_core::testing::{RedisCluster, RedisServer, limit};

use crate::support::{SECOND, eventually, locked_keys, locks_at};

/// Returns how often a server has sent somebody elsewhere.
fn redirected(server: &RedisServer) -> String {
    let errors = server.command(&["INFO", "errorstats"]).text().to_owned();
    errors.lines().find(|line| line.starts_with("errorstat_MOVED")).unwrap_or("never").to_owned()
}

/// `ASKING` holds for the next command of its connection, whoever sends it: sent apart, it would let in another's command,
/// and its own would be sent elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn no_command_comes_between_asking_and_what_it_is_for() {
    let cluster = RedisCluster::start(2);
    let tag = cluster.key_on(0, "t");
    let names: Vec<String> = (0..16).map(|number| format!("{{{tag}}}:{number}")).collect();
    let locks = locks_at(&cluster.url());
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name).with_ttl(60 * SECOND).await.unwrap());
    }
    cluster.open_slot(&tag, 0, 1);
    cluster.move_keys(&names.iter().map(String::as_str).collect::<Vec<_>>(), 0, 1);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, guard) in guards.into_iter().enumerate() {
        // One that the other master serves anyhow, over the same connection.
        let (locks, there) = (locks.clone(), cluster.key_on(1, &format!("there:{number}:")));
        tasks.spawn(async move {
            for _ in 0..20 {
                let (extended, taken) = tokio::join!(guard.extend(60 * SECOND), locks.lock(&there).acquire());
                extended.unwrap();
                taken.unwrap().release().await.unwrap();
            }
            guard
        });
    }
    let guards = tasks.join_all().await;
    assert_eq!(redirected(&cluster.masters()[1]), "never");
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("nothing is left", || cluster.masters().iter().all(|master| locked_keys(master).is_empty())).await;
}
