//! Commands for the master that is taking a slot over, which serves it only when it is asked to.

use lock_testing::{RedisCluster, RedisServer, Reply, limit};

use crate::support::{SECOND, eventually, locked_keys, locks_at};

/// Returns how often a server has sent somebody elsewhere.
fn redirected(server: &RedisServer) -> String {
    let errors = server.command(&["INFO", "errorstats"]).text().to_owned();
    errors.lines().find(|line| line.starts_with("errorstat_MOVED")).unwrap_or("never").to_owned()
}

/// `ASKING` applies to the next command of its connection, from any caller. Sent apart, it would admit another caller's command,
/// and its own command would be redirected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn no_command_comes_between_asking_and_what_it_is_for() {
    let cluster = RedisCluster::start(2);
    // The one that takes over serves the key that every connection asks for when it is opened.
    let [importing, other] = [0, 1];
    assert_eq!(cluster.masters()[importing].command(&["EXISTS", "distributed-lock:clock"]), Reply::Int(0));
    let tag = cluster.key_on(other, "t");
    let names: Vec<String> = (0..16).map(|number| format!("{{{tag}}}:{number}")).collect();
    let locks = locks_at(&cluster.url());
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name).with_ttl(60 * SECOND).await.unwrap());
    }
    cluster.open_slot(&tag, other, importing);
    cluster.move_keys(&names.iter().map(String::as_str).collect::<Vec<_>>(), other, importing);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, guard) in guards.into_iter().enumerate() {
        // A key that the same master serves anyway, over the same connection.
        let (locks, there) = (locks.clone(), cluster.key_on(importing, &format!("there:{number}:")));
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
    assert_eq!(redirected(&cluster.masters()[importing]), "never");
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("nothing is left", || cluster.masters().iter().all(|master| locked_keys(master).is_empty())).await;
}
