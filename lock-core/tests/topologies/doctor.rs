//! The findings of `lockctl doctor` about a store of Redis, on real servers.

use lock_core::{LockBackend, RedisStore};
use lock_store::{Doctor as _, Finding, FindingGrade};
use lock_testing::{Direction, FaultProxy, RedisCluster, RedisRelative, RedisSentinels, RedisServer, Reply, limit};

pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    RedisStore::new(url).unwrap().doctor().unwrap().examine().await
}

fn grade(found: &[Finding], subject: &str) -> FindingGrade {
    of(found, subject).grade
}

fn of<'a>(found: &'a [Finding], subject: &str) -> &'a Finding {
    let all = || found.iter().map(|one| &one.subject).collect::<Vec<_>>();
    found.iter().find(|one| one.subject == subject).unwrap_or_else(|| panic!("nothing about {subject}: {:?}", all()))
}

/// The findings that are not as they should be.
fn bad(found: &[Finding]) -> Vec<(&str, FindingGrade)> {
    let bad = found.iter().filter(|one| one.grade != FindingGrade::Works);
    bad.map(|one| (&*one.subject, one.grade)).collect()
}

/// The keys of a server.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    keys.iter().map(|key| key.text().to_owned()).collect()
}

const EVERYTHING: [&str; 17] = [
    "server",
    "role",
    "active-active",
    "SET NX PX",
    "MULTI, XADD",
    "scripts",
    "PUBLISH",
    "PUBLISH in scripts",
    "SPUBLISH",
    "CLIENT KILL",
    "CLIENT TRACKING",
    "WAIT",
    "clock",
    "maxmemory-policy",
    "persistence",
    "replicas",
    "slots",
];

#[tokio::test]
#[limit]
async fn a_server_that_is_set_up_well_has_no_warning_since_redis_7() {
    let server = RedisServer::builder().with("appendonly", "yes").start();
    let found = examine(&server.url()).await;
    assert_eq!(bad(&found), [], "{found:#?}");
    let subjects: Vec<&str> = found.iter().map(|one| &*one.subject).collect();
    assert_eq!(subjects, EVERYTHING[..16]);
    assert_eq!(keys(&server), Vec::<String>::new(), "nothing is left behind");
    assert_eq!(server.command(&["PUBSUB", "CHANNELS"]), Reply::List(Vec::new()));
}

#[tokio::test]
#[limit]
async fn each_fault_of_a_setting_is_found_and_said() {
    let server = RedisServer::builder().with_maxmemory("50mb", "allkeys-lru").start();
    let replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let follows = || replica.command(&["INFO", "replication"]).text().contains("master_link_status:up");
    while !follows() {
        tokio::task::yield_now().await;
    }
    let found = examine(&server.url()).await;
    for (subject, remedy) in
        [("maxmemory-policy", "maxmemory-policy noeviction"), ("persistence", "appendonly yes"), ("replicas", "acks=1")]
    {
        let finding = of(&found, subject);
        assert_eq!(finding.grade, FindingGrade::Warning, "{finding:?}");
        assert!(finding.remedy.as_deref().unwrap().contains(remedy), "{finding:?}");
    }
    for chosen in ["acks=0", "acks=1"] {
        let found = examine(&format!("{}?{chosen}", server.url())).await;
        assert_eq!(grade(&found, "replicas"), FindingGrade::Works, "{chosen}: {found:#?}");
    }
    let found = examine(&replica.url()).await;
    assert_eq!(grade(&found, "role"), FindingGrade::Refused, "{found:#?}");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "3"]);
    let found = examine(&server.url()).await;
    assert_eq!(grade(&found, "SET NX PX"), FindingGrade::Refused, "{found:#?}");
}

/// A user with the permissions that the documentation lists, and one without each of them.
#[tokio::test]
#[limit]
async fn one_refused_check_does_not_spoil_the_others_since_redis_7() {
    let server = RedisServer::builder().with("appendonly", "yes").start();
    let url = format!("redis://app:pass@127.0.0.1:{}", server.port());
    let rules = |more: &str| {
        let all =
            format!("ACL SETUSER app reset on >pass ~lock:* resetchannels &distributed-lock:inbox:* +@all {more}");
        assert_eq!(server.command(&all.split_whitespace().collect::<Vec<_>>()), Reply::Text("OK".to_owned()));
    };
    for (less, subject, expected) in [
        ("-xadd", "MULTI, XADD", FindingGrade::Refused),
        ("-evalsha", "scripts", FindingGrade::Refused),
        ("-pexpire", "scripts", FindingGrade::Refused),
        ("-subscribe", "PUBLISH", FindingGrade::Warning),
        ("-client|tracking", "CLIENT TRACKING", FindingGrade::Warning),
        ("-client|kill", "CLIENT KILL", FindingGrade::Warning),
        ("-wait", "WAIT", FindingGrade::Warning),
        ("-info -config", "maxmemory-policy", FindingGrade::Unknown),
        ("-info -config", "replicas", FindingGrade::Unknown),
        ("-info", "persistence", FindingGrade::Unknown),
        ("-info", "active-active", FindingGrade::Unknown),
        ("-time", "clock", FindingGrade::Refused),
        ("resetkeys ~other:*", "SET NX PX", FindingGrade::Unknown),
        ("resetchannels", "PUBLISH", FindingGrade::Unknown),
    ] {
        rules(less);
        let found = examine(&url).await;
        let finding = of(&found, subject);
        assert_eq!(finding.grade, expected, "{less}: {finding:?}");
        assert_eq!(found.len(), 16, "{less}");
        assert!(found.iter().filter(|one| one.grade == FindingGrade::Works).count() >= 9, "{less}: {found:#?}");
        assert!(!format!("{found:?}").contains("pass@"), "{found:?}");
    }
    assert_eq!(keys(&server), Vec::<String>::new());
}

#[tokio::test]
#[limit]
async fn masters_of_a_cluster_are_examined_each_and_slots_without_a_master_are_found_since_redis_7() {
    let mut cluster = RedisCluster::with(RedisServer::builder().with("appendonly", "yes"), 3);
    let found = examine(&cluster.url()).await;
    assert_eq!(bad(&found), [], "{found:#?}");
    assert!(EVERYTHING.iter().all(|subject| found.iter().filter(|one| one.subject == *subject).count() == 1));
    // One of them without the scheme of clusters.
    let found = examine(&cluster.masters()[1].url()).await;
    assert_eq!(bad(&found), [("URL", FindingGrade::Warning)], "{found:#?}");
    assert!(cluster.masters().iter().all(|master| keys(master).is_empty()));
    let _replica = cluster.start_replica_of(1);
    cluster.kill(2);
    let found = examine(&cluster.masters()[1].url()).await;
    let replicas: Vec<_> = found.iter().filter(|one| one.subject == "replicas").map(|one| one.grade).collect();
    assert!(replicas.contains(&FindingGrade::Warning), "{found:#?}");
    assert!(found.iter().any(|one| one.grade == FindingGrade::Unknown && one.subject == "server"), "{found:#?}");
    cluster.masters()[1].command(&["CLUSTER", "DELSLOTS", "7000"]);
    let found = examine(&cluster.masters()[1].url()).await;
    assert_eq!(grade(&found, "slots"), FindingGrade::Refused, "{found:#?}");
}

#[tokio::test]
#[limit]
async fn a_master_behind_sentinels_is_found_and_its_failover_is_exposed() {
    let servers = RedisSentinels::start();
    let found = examine(&servers.url()).await;
    assert_eq!(grade(&found, "sentinels"), FindingGrade::Works, "{found:#?}");
    assert_eq!(grade(&found, "replicas"), FindingGrade::Warning, "{found:#?}");
    let found = examine(&format!("{}?acks=0", servers.url())).await;
    assert_eq!(grade(&found, "replicas"), FindingGrade::Works, "{found:#?}");
}

/// A server that falls silent, and one whose connection ends, at every place of the exchange.
#[tokio::test]
#[limit]
async fn a_cut_anywhere_is_unknown_and_leaves_nothing_behind_since_redis_7() {
    let server = RedisServer::builder().with("appendonly", "yes").start();
    let proxy = FaultProxy::start(server.port());
    assert_eq!(bad(&examine(&proxy.url()).await), []);
    let passed = |direction| usize::try_from(proxy.bytes(direction)).unwrap();
    let whole = passed(Direction::ToServer);
    let halves = [Direction::ToServer, Direction::ToClient].map(|direction| (direction, passed(direction) / 2));
    for part in 0..12 {
        proxy.cut_after(Direction::ToServer, whole * part / 12 + 1);
        let found = examine(&proxy.url()).await;
        proxy.resume();
        let all: Vec<_> = bad(&found).into_iter().filter(|(_, grade)| *grade != FindingGrade::Unknown).collect();
        assert!(all.is_empty() && !bad(&found).is_empty(), "cut {part}: {found:#?}");
    }
    for (direction, half) in halves {
        proxy.silent_after(direction, half);
        let found = examine(&proxy.url()).await;
        proxy.resume();
        proxy.kill_connections();
        assert!(bad(&found).iter().all(|(_, grade)| *grade == FindingGrade::Unknown), "{found:#?}");
        assert!(!bad(&found).is_empty());
    }
    // A key that could not be deleted expires: each key has an expiry from its first moment.
    for key in keys(&server) {
        assert!(
            (0..=5_000).contains(&server.command(&["PTTL", &key]).int())
                || server.command(&["EXISTS", &key]).int() == 0
        );
    }
    // The same holds if the caller goes away halfway.
    for _ in 0..20 {
        let examination = tokio::spawn(async { tokio::task::yield_now().await });
        let url = server.url();
        tokio::select! {
            _ = examine(&url) => {}
            _ = examination => {}
        }
    }
    for key in keys(&server) {
        let left = server.command(&["PTTL", &key]).int();
        assert!(left == -2 || (0..=5_000).contains(&left), "{key} stays for {left} ms");
    }
}

#[tokio::test]
#[limit]
async fn a_server_that_cannot_be_reached_is_unknown_and_a_wrong_password_is_refused() {
    let found = examine("redis://127.0.0.1:1").await;
    assert_eq!(bad(&found), [("server", FindingGrade::Unknown)]);
    let server = RedisServer::builder().with_password("right").start();
    let found = examine(&format!("redis://:wrong@127.0.0.1:{}", server.port())).await;
    assert_eq!(bad(&found), [("server", FindingGrade::Refused)]);
    assert!(!format!("{found:?}").contains("wrong@"));
    let found = examine(&format!("redis+cluster://:right@127.0.0.1:{}", server.port())).await;
    assert_eq!(bad(&found), [("server", FindingGrade::Refused)], "no node of a cluster");
}

#[tokio::test]
#[limit]
async fn each_relative_is_told_what_it_lacks_since_redis_7() {
    use FindingGrade::{Refused, Unknown, Warning};
    for relative in RedisRelative::ALL {
        let server = RedisServer::builder().with("appendonly", "yes").start();
        let proxy = FaultProxy::start_as(relative, server.port());
        let found = examine(&proxy.url()).await;
        let lost = [("CLIENT KILL", Warning), ("CLIENT TRACKING", Warning), ("WAIT", Warning)];
        let expected: &[(&str, FindingGrade)] = match relative {
            RedisRelative::TairCluster => {
                &[&[("scripts", Refused), ("PUBLISH in scripts", Warning)], &lost[..]].concat()
            }
            RedisRelative::TairClusterUnchecked => &lost,
            RedisRelative::TairDisk => &[
                ("MULTI, XADD", Refused),
                ("scripts", Refused),
                ("PUBLISH in scripts", Warning),
                ("CLIENT TRACKING", Warning),
            ],
            RedisRelative::Dragonfly => &[("scripts", Refused)],
            RedisRelative::Garnet => &[("MULTI, XADD", Refused), ("CLIENT TRACKING", Warning), ("WAIT", Warning)],
            RedisRelative::ElastiCacheServerless => &[("PUBLISH", Warning), ("WAIT", Warning)],
            RedisRelative::MemoryDb => &[],
            RedisRelative::KeyDbActive => &[("active-active", Refused)],
        };
        assert_eq!(bad(&found), expected, "{relative:?}: {found:#?}");
        assert!(found.iter().all(|one| one.grade != Unknown), "{relative:?}");
        let refused = found.iter().filter(|one| one.grade == Refused);
        assert!(refused.clone().all(|one| one.remedy.is_some()), "{relative:?}: {found:#?}");
        assert_eq!(keys(&server), Vec::<String>::new(), "{relative:?}");
        if relative == RedisRelative::TairCluster {
            let remedy = of(&found, "scripts").remedy.as_deref().unwrap();
            assert!(remedy.contains("set its parameter script_check_enable to 0"), "{remedy}");
        }
    }
}
