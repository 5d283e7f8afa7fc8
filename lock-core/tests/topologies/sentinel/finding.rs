//! How the master is found, and what is said when it is not.

use lock_core::{LockErrorKind, LockManager, LockOptions, RedisStore};
use lock_testing::{RedisSentinels, RedisServer, Reply, limit};

use super::follow;
use crate::support::{SECOND, eventually, exists, take};

/// Returns what connecting fails with.
async fn refusal(url: &str) -> (LockErrorKind, String) {
    let error = LockManager::connect(url).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test]
#[limit]
async fn one_sentinel_of_the_url_is_enough() {
    let mut servers = RedisSentinels::start();
    let port = servers.sentinels()[1].port();
    let [dead, silent] = [0, 2].map(|at| servers.sentinels()[at].port());
    servers.sentinels_mut()[0].kill();
    servers.sentinels()[2].pause();
    let url = format!("redis+sentinel://127.0.0.1:{dead},localhost:{port},127.0.0.1:{silent}/mymaster/2");
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = take(&locks, "k").await;
    assert_eq!(servers.servers()[0].command(&["DBSIZE"]).int(), 0, "it is in another database");
    guard.release().await.unwrap();
    let store = RedisStore::new(&url).unwrap();
    assert_eq!(format!("{store:?}"), format!("RedisStore(mymaster@127.0.0.1:{dead}/2)"));
}

#[tokio::test]
#[limit]
async fn the_sentinels_of_a_master_have_credentials_of_their_own() {
    let password = |password| RedisServer::builder().with_password(password);
    let servers =
        RedisSentinels::builder().with_servers(password("m%ster")).with_sentinels(password("s@ntinel")).start();
    let hosts = servers.url().trim_start_matches("redis+sentinel://").to_owned();
    let url = format!("redis+sentinel://:m%25ster@{hosts}?sentinel_password=s%40ntinel");
    let locks = LockManager::connect(&url).await.unwrap();
    take(&locks, "k").await.release().await.unwrap();
    for (url, says) in [
        (format!("redis+sentinel://:m%25ster@{hosts}"), "sentinel_password"),
        (format!("redis+sentinel://:m%25ster@{hosts}?sentinel_password=wr0ng"), "sentinel_password"),
        (format!("redis+sentinel://:wr0ng@{hosts}?sentinel_password=s%40ntinel"), "correct them in the URL"),
        (format!("redis+sentinel://{hosts}?sentinel_password=s%40ntinel"), "put it into the URL"),
    ] {
        let (kind, text) = refusal(&url).await;
        assert!(kind == LockErrorKind::Misconfigured && text.contains(says), "{kind:?} {text}");
        assert!(!text.contains("wr0ng") && !text.contains("ntinel\""), "{text}");
    }
}

#[tokio::test]
#[limit]
async fn what_cannot_be_found_says_what_to_write() {
    let mut servers = RedisSentinels::builder().with_replicas(0).start();
    let sentinel = servers.sentinels()[0].port();
    let (kind, text) = refusal(&servers.url().replace("mymaster", "another")).await;
    assert!(kind == LockErrorKind::Misconfigured, "{text}");
    assert!(text.contains("no service \"another\"") && text.contains("but: mymaster"), "{text}");
    // A sentinel keeps no locks.
    let (kind, text) = refusal(&format!("redis://127.0.0.1:{sentinel}")).await;
    assert_eq!(kind, LockErrorKind::Misconfigured);
    assert!(text.contains(&format!("write redis+sentinel://127.0.0.1:{sentinel}/service")), "{text}");
    // A server is not a sentinel.
    let server = servers.servers()[0].port();
    let (kind, text) = refusal(&format!("redis+sentinel://127.0.0.1:{server}/mymaster")).await;
    assert_eq!(kind, LockErrorKind::Misconfigured);
    assert!(text.contains(&format!("127.0.0.1:{server} is no sentinel")) && text.contains("write redis://"), "{text}");
    servers.sentinels_mut().iter_mut().for_each(RedisServer::kill);
    let (kind, text) = refusal(&servers.url()).await;
    assert_eq!(kind, LockErrorKind::Unavailable);
    assert!(text.contains("none of the sentinels of mymaster@") && text.contains("start them"), "{text}");
    assert!(servers.sentinels().iter().all(|sentinel| text.contains(&sentinel.port().to_string())), "{text}");
}

#[tokio::test]
#[limit]
async fn one_sentinel_that_refuses_us_stands_in_nobodys_way() {
    let servers = RedisSentinels::start();
    servers.sentinels()[0].command(&["ACL", "SETUSER", "default", "on", "resetpass", ">s3cret"]);
    let locks = follow(&servers).await;
    take(&locks, "k").await.release().await.unwrap();
    assert!(!exists(&servers.servers()[0], "k"));
}

/// Its writes would be refused, but what it says of locks may be old.
#[tokio::test]
#[limit]
async fn a_server_that_the_sentinels_name_is_not_used_while_it_is_a_replica() {
    let servers = RedisSentinels::start();
    let (replica, url) = (&servers.servers()[1], servers.url());
    let port = replica.port().to_string();
    for sentinel in servers.sentinels() {
        for words in [
            &["REMOVE", "mymaster"][..],
            &["MONITOR", "mymaster", "127.0.0.1", &port, "2"],
            &["SET", "mymaster", "down-after-milliseconds", "600000"],
        ] {
            assert_eq!(sentinel.command(&[&["SENTINEL"], words].concat()), Reply::Text("OK".to_owned()));
        }
    }
    let (kind, text) = refusal(&url).await;
    assert_eq!(kind, LockErrorKind::Unavailable);
    assert!(text.contains("is a replica, although its sentinels name it"), "{text}");
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let locks = LockManager::connect(&url).await.unwrap();
    take(&locks, "k").await.release().await.unwrap();
}

#[test]
#[limit]
fn bad_urls_of_sentinels_say_what_to_write() {
    for (url, says) in [
        ("redis+sentinel://h", "names no service"),
        ("redis+sentinel://h/", "names no service"),
        ("redis+sentinel://:s3cret@h//0", "names no service"),
        ("redis+sentinel:///mymaster", "a host or a port"),
        ("redis+sentinel://h:s3/mymaster", "a host or a port"),
        ("redis+sentinel://h/mymaster/nine", "cannot be read"),
        ("redis+sentinel://h/mymaster?sentinel_tls=maybe", "neither yes nor no"),
        ("redis+sentinel://h/mymaster?sentinel_user=s3", "without a sentinel_password"),
        ("redis+sentinel://h/mymaster?timeout=s3", "sentinel_tls"),
    ] {
        let error = RedisStore::new(url).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains(says) && !error.to_string().contains("s3"), "{url}: {error}");
    }
}

/// Takes locks before and after a planned failover.
async fn follows(locks: &LockManager, servers: &RedisSentinels) {
    let held = take(locks, "held").await;
    eventually("every server has it", || servers.servers().iter().all(|server| exists(server, "held"))).await;
    let master = servers.fail_over();
    take(locks, "k").await.release().await.unwrap();
    assert!(exists(&servers.servers()[master], "held"));
    held.ensure_held().unwrap();
    held.release().await.unwrap();
}

fn patient(store: RedisStore) -> LockManager {
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(30 * SECOND);
    LockManager::builder(store).options(options).build().unwrap()
}

#[tokio::test]
#[limit]
async fn sentinels_and_their_master_are_reached_over_tls() {
    let file = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/tls").join(name);
    let server = || RedisServer::builder().with_tls(&file("server.pem"), &file("server.key"));
    let reached = |server: &RedisServer| server.tls_url("localhost").trim_start_matches("rediss://").to_owned();
    let nat = |servers: &[RedisServer]| {
        let pairs = servers.iter().map(|server| format!("127.0.0.1:{}>{}", server.port(), reached(server)));
        pairs.collect::<Vec<_>>().join(",")
    };
    let store = |url: &str, authority: &str| {
        let authority = std::fs::read(file(authority)).unwrap();
        RedisStore::builder(url).certificate_authority(authority).build().unwrap()
    };
    for sentinels_too in [true, false] {
        // Other values each time: a master that was just replaced is not a replica yet, and keeps its data.
        let servers = RedisSentinels::builder().with_servers(server()).with_sentinels(server()).start();
        let sentinel = reached(&servers.sentinels()[0]);
        let all = format!("{},{}", nat(servers.servers()), nat(servers.sentinels()));
        let plain = servers.url().trim_start_matches("redis+sentinel://").to_owned();
        if !sentinels_too {
            let url = format!("rediss+sentinel://{plain}?sentinel_tls=no&nat={}", nat(servers.servers()));
            follows(&patient(store(&url, "authority.pem")), &servers).await;
            continue;
        }
        let url = format!("rediss+sentinel://{sentinel}/mymaster?nat={all}");
        let stranger = LockManager::builder(store(&url, "other-authority.pem")).build().unwrap();
        let error = stranger.ping().await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        follows(&patient(store(&url, "authority.pem")), &servers).await;
    }
}

#[tokio::test]
#[limit]
async fn sentinels_and_their_master_are_reached_over_ipv6() {
    let both = || RedisServer::builder().with("bind", "127.0.0.1 ::1");
    let servers = RedisSentinels::builder().with_servers(both()).with_sentinels(both()).start();
    let ports = |servers: &[RedisServer]| servers.iter().map(RedisServer::port).collect::<Vec<_>>();
    let hosts: Vec<String> = ports(servers.sentinels()).iter().map(|port| format!("[::1]:{port}")).collect();
    // They were told of each other by the other addresses.
    let known = [ports(servers.servers()), ports(servers.sentinels())].concat();
    let nat: Vec<String> = known.iter().map(|port| format!("127.0.0.1:{port}>[::1]:{port}")).collect();
    let url = format!("redis+sentinel://{}/mymaster?nat={}", hosts.join(","), nat.join(","));
    let store = RedisStore::new(&url).unwrap();
    assert_eq!(format!("{store:?}"), format!("RedisStore(mymaster@{})", hosts[0]));
    follows(&patient(store), &servers).await;
}
