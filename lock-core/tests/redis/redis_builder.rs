//! Stores that need more than a URL: lists of addresses, names, timeouts, credentials that rotate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::{Credentials, LockErrorKind, LockManager, LockOptions, RedisStore, Renew};
use lock_testing::{EventLog, FaultProxy, RedisCluster, RedisSentinels, RedisServer, Stopwatch, limit};

use crate::support::{MS, SECOND, eventually, locks_at, renewals, take};

fn clients(server: &RedisServer, word: &str) -> usize {
    server.command(&["CLIENT", "LIST"]).text().lines().filter(|line| line.contains(word)).count()
}

#[tokio::test]
#[limit]
async fn a_client_has_the_name_it_is_given() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).client_name("billing-7").build().unwrap();
    let locks = LockManager::builder(store).build().unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    assert!(clients(&server, "name=billing-7") > 0);
    for name in ["", "two words", "line\nbreak", "ü"] {
        let error = RedisStore::builder(server.url()).client_name(name).build().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{name:?}: {error}");
    }
}

#[tokio::test]
#[limit]
async fn opening_a_connection_has_its_own_limit() {
    // It accepts connections, and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let store = RedisStore::builder(url).connect_timeout(200 * MS).build().unwrap();
    let locks = LockManager::builder(store).build().unwrap();
    let watch = Stopwatch::start();
    let error = locks.ping().await.unwrap_err();
    watch.assert_within(2 * SECOND, "a time-out of 200 ms");
    assert!(error.to_string().contains("200ms"), "{error}");
    let zero = RedisStore::builder("redis://h").connect_timeout(std::time::Duration::ZERO).build();
    assert_eq!(zero.unwrap_err().kind(), LockErrorKind::Misconfigured);
}

/// A provider that gives the passwords `pw-1`, `pw-2`, … of the user `app`.
fn passwords(asked: &Arc<AtomicU32>, valid_for: std::time::Duration) -> impl Fn() -> std::future::Ready<Given> + use<> {
    let asked = Arc::clone(asked);
    move || {
        let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(Ok(Credentials::new(format!("pw-{number}")).with_username("app").valid_for(valid_for)))
    }
}

type Given = Result<Credentials, Box<dyn std::error::Error + Send + Sync>>;

fn user(server: &RedisServer, passwords: &[&str]) {
    let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", "~*", "&*", "+@all"];
    words.extend(passwords);
    server.command(&words);
}

/// Returns how often clients have logged in by AUTH.
fn log_ins(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.text().lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
#[limit]
async fn credentials_are_asked_for_before_they_end_and_living_connections_log_in_again() {
    let server = RedisServer::start();
    user(&server, &[">pw-1", ">pw-2", ">pw-3", ">pw-4", ">pw-5", ">pw-6"]);
    let asked = Arc::new(AtomicU32::new(0));
    let store = RedisStore::builder(server.url()).credentials(passwords(&asked, 5 * SECOND)).build().unwrap();
    let locks = LockManager::builder(store).build().unwrap();
    let guard = locks.lock("k").with_ttl(60 * SECOND).with_renew(Renew::Every(200 * MS)).await.unwrap();
    eventually("all connections are open", || clients(&server, "user=app") >= 3).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1, "connections that open together ask once");
    let ids = || {
        let list = server.command(&["CLIENT", "LIST"]);
        let app = list.text().lines().filter(|line| line.contains("user=app"));
        app.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let (before, logged_in) = (ids(), log_ins(&server));
    // The caller's connection, the keeper's, and the one that listens.
    eventually("they log in again", || log_ins(&server) >= logged_in + 3).await;
    assert!(asked.load(Ordering::SeqCst) >= 2);
    assert_eq!(ids(), before, "no connection was opened anew");
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
}

/// Refuses the first password to one who connects anew, and waits until connections that live log in with the second:
/// of the caller, the one that listens, and those over which caller and keeper have locks confirmed.
async fn every_connection_logs_in_again(url: &str, servers: &[&RedisServer], keys: &[String]) {
    servers.iter().for_each(|server| user(server, &[">pw-1"]));
    let (asked, events) = (Arc::new(AtomicU32::new(0)), EventLog::default());
    let store = RedisStore::builder(url).credentials(passwords(&asked, 600 * SECOND)).build().unwrap();
    let locks = LockManager::builder(store).observer(events.clone()).build().unwrap();
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.lock(key).with_ttl(60 * SECOND).with_renew(Renew::Every(200 * MS)).await.unwrap());
    }
    for server in servers {
        eventually("somebody listens", || clients(server, "sub=2") > 0).await;
    }
    renewals(&events, 3 * keys.len()).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1, "all servers take what the provider gave once");
    let before: Vec<u64> = servers.iter().map(|server| log_ins(server)).collect();
    servers.iter().for_each(|server| user(server, &[">pw-2"]));
    // On a runtime of its own, so over a connection of its own.
    let (elsewhere, key) = (locks.clone(), format!("{{{}}}", keys[0]));
    let anew = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while elsewhere.lock(&key).await.is_err() {
                tokio::time::sleep(10 * MS).await;
            }
        });
    });
    for (server, before) in servers.iter().zip(before) {
        eventually("every connection logs in again", || log_ins(server) >= before + 4).await;
    }
    anew.join().unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2, "and what it gave next");
    for guard in guards {
        guard.ensure_held().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn every_master_of_a_cluster_is_told_of_new_credentials() {
    let cluster = RedisCluster::start(3);
    let _replicas = [0, 1, 2].map(|master| cluster.start_replica_of(master));
    let servers: Vec<&RedisServer> = cluster.masters().iter().collect();
    let keys: Vec<String> = (0..3).map(|master| cluster.key_on(master, "lock:")).collect();
    every_connection_logs_in_again(&format!("{}?acks=1", cluster.url()), &servers, &keys).await;
}

#[tokio::test]
#[limit]
async fn who_waits_in_a_cluster_goes_on_listening_with_new_credentials() {
    let cluster = RedisCluster::start(1);
    let (master, key) = (&cluster.masters()[0], cluster.key_on(0, "lock:"));
    user(master, &[">pw-1", ">pw-2", ">pw-3", ">pw-4", ">pw-5", ">pw-6"]);
    let held = take(&locks_at(&cluster.url()), &key).await;
    let asked = Arc::new(AtomicU32::new(0));
    let store = RedisStore::builder(cluster.url()).credentials(passwords(&asked, 5 * SECOND)).build().unwrap();
    let locks = LockManager::builder(store).build().unwrap();
    let waiting = tokio::spawn(async move { take(&locks, &key).await.release().await });
    let listener = || {
        let clients = master.command(&["CLIENT", "LIST"]);
        let line = clients.text().lines().find(|line| line.contains(" ssub=1 ") && line.contains("user=app"))?;
        line.split(' ').next().map(str::to_owned)
    };
    eventually("it listens where it waits", || listener().is_some()).await;
    let first = listener();
    eventually("over another connection", || listener().is_some_and(|id| Some(&id) != first.as_ref())).await;
    assert!(asked.load(Ordering::SeqCst) >= 2);
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
#[limit]
async fn the_master_behind_sentinels_is_told_of_new_credentials() {
    let servers = RedisSentinels::start();
    let url = format!("{}?acks=1", servers.url());
    every_connection_logs_in_again(&url, &[&servers.servers()[0]], &["k".to_owned()]).await;
}

#[tokio::test]
#[limit]
async fn refused_credentials_are_asked_for_again() {
    let server = RedisServer::start();
    user(&server, &[">pw-2"]);
    let asked = Arc::new(AtomicU32::new(0));
    let store = RedisStore::builder(server.url()).credentials(passwords(&asked, 600 * SECOND)).build().unwrap();
    let locks = LockManager::builder(store).build().unwrap();
    let mut refused = 0;
    let guard = loop {
        match locks.lock("k").await {
            Ok(guard) => break guard,
            Err(error) if refused < 5 => {
                refused += 1;
                assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
                assert!(!format!("{error:?}").contains("pw-"), "{error:?}");
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(asked.load(Ordering::SeqCst) >= 2);
    guard.release().await.unwrap();

    let failing = RedisStore::builder(server.url()).credentials(async || Err("no token".into())).build().unwrap();
    let error = LockManager::builder(failing).build().unwrap().ping().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("provider") && !error.to_string().contains("host and port"), "{error}");
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    assert!(chain.map(ToString::to_string).any(|text| text == "no token"), "{error:?}");
    assert!(!format!("{:?}", Credentials::new("s3cret").with_username("app")).contains("s3cret"));
}

/// A provider that hangs, and one that blocks its thread, at the second call.
#[tokio::test]
#[limit]
async fn a_provider_that_never_answers_is_asked_again_and_holds_nobody_up() {
    for blocks in [false, true] {
        let server = RedisServer::start();
        user(&server, &[">pw"]);
        let between = FaultProxy::start(server.port());
        let (asked, events) = (Arc::new(AtomicU32::new(0)), EventLog::default());
        let times = Arc::clone(&asked);
        let provider = move || {
            let number = times.fetch_add(1, Ordering::SeqCst);
            if number == 1 && blocks {
                loop {
                    std::thread::park();
                }
            }
            async move {
                if number == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(Credentials::new("pw").with_username("app").valid_for(SECOND))
            }
        };
        let store = RedisStore::builder(between.url()).credentials(provider).build().unwrap();
        let locks = LockManager::builder(store).observer(events.clone()).build().unwrap();
        let guard = locks.lock("held").with_ttl(30 * SECOND).with_renew(Renew::Every(200 * MS)).await.unwrap();
        eventually("it is asked before they end", || asked.load(Ordering::SeqCst) >= 2).await;
        // The next connection takes the provider's next answer, and the lock goes on being renewed.
        between.kill_connections();
        let before = events.count("Renewed");
        take_patiently(&locks, "k").await;
        eventually("the lock is renewed", || events.count("Renewed") > before).await;
        assert!(asked.load(Ordering::SeqCst) >= 3, "it was asked again");
        guard.ensure_held().unwrap();
        guard.release().await.unwrap();
    }
}

async fn take_patiently(locks: &LockManager, key: &str) {
    locks.lock(key).with_wait(60 * SECOND).await.unwrap().release().await.unwrap();
}

/// Returns the addresses of servers, as something that looks them up would give them.
fn addresses(servers: &[RedisServer]) -> impl Iterator<Item = SocketAddr> {
    servers.iter().map(|server| SocketAddr::from(([127, 0, 0, 1], server.port())))
}

#[tokio::test]
#[limit]
async fn the_sentinels_may_be_a_list_of_addresses() {
    let mut servers = RedisSentinels::start();
    let list: Vec<SocketAddr> = addresses(servers.sentinels()).collect();
    let follow = || {
        let store = RedisStore::builder("redis+sentinel:///mymaster/1").addresses(&list).build().unwrap();
        let options = LockOptions::default().with_ttl(10 * SECOND).with_wait(30 * SECOND);
        LockManager::builder(store).options(options).build().unwrap()
    };
    let locks = follow();
    take(&locks, "k").await.release().await.unwrap();
    servers.notice_within(500);
    servers.kill(0);
    take(&locks, "k").await.release().await.unwrap();
    assert_eq!(servers.wait_for_another_than(0), 1, "the replica has taken over");
    // The first is gone, and the list of the others says enough.
    servers.sentinels_mut()[0].kill();
    take(&follow(), "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn the_nodes_of_a_cluster_may_be_a_list_of_addresses() {
    let mut cluster = RedisCluster::start(3);
    let keys: Vec<String> = (0..3).map(|master| cluster.key_on(master, "lock:")).collect();
    let list: Vec<SocketAddr> = addresses(cluster.masters()).collect();
    cluster.kill(0);
    let store = RedisStore::builder("redis+cluster://").addresses(list);
    let locks = LockManager::builder(store.build().unwrap()).build().unwrap();
    for key in &keys[1..] {
        take(&locks, key).await.release().await.unwrap();
    }
}

mod tls {
    use lock_core::{LockErrorKind, LockManager, RedisStore};
    use lock_testing::{RedisServer, limit};

    use crate::support::Authority;

    #[tokio::test]
    #[limit]
    async fn an_authority_and_a_client_certificate_of_our_own() {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let folder = std::env::temp_dir().join(format!("lock-core-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = authority.issue("localhost");
        let ca = file("ca.pem", &authority.pem());
        let server = RedisServer::builder()
            .with_tls(&file("server.pem", &certificate), &file("server.key", &key))
            .with("tls-ca-cert-file", ca.to_str().unwrap())
            .with("tls-auth-clients", "yes")
            .start();
        let url = server.tls_url("localhost");
        let connect = async |authority: &Authority, client: Option<(String, String)>| {
            let mut store = RedisStore::builder(&url).certificate_authority(authority.pem());
            if let Some((certificate, key)) = client {
                store = store.client_certificate(certificate, key);
            }
            let locks = LockManager::builder(store.build().unwrap()).build().unwrap();
            locks.ping().await.map(|()| locks)
        };

        let locks = connect(&authority, Some(authority.issue("billing"))).await.unwrap();
        let guard = locks.lock("k").await.unwrap();
        assert_eq!(server.command(&["EXISTS", "k"]).int(), 1, "seen over the plain port of the same server");
        guard.release().await.unwrap();

        let unknown_server = connect(&stranger, Some(authority.issue("billing"))).await.unwrap_err();
        assert_eq!(unknown_server.kind(), LockErrorKind::Misconfigured, "{unknown_server}");
        for (client, what) in [(None, "no certificate"), (Some(stranger.issue("billing")), "that of a stranger")] {
            let error = connect(&authority, client).await.unwrap_err();
            assert!(
                matches!(error.kind(), LockErrorKind::Misconfigured | LockErrorKind::Unavailable),
                "{what}: {error}"
            );
        }

        // The same as files that the URL names.
        let (certificate, key) = authority.issue("billing");
        let files =
            [("ca", ca), ("cert", file("client & more.pem", &certificate)), ("cert_key", file("client.key", &key))];
        let named = |url: &str, names: &[&str]| {
            let files = files.iter().filter(|(name, _)| names.contains(name));
            let path = |path: &std::path::Path| path.to_str().unwrap().replace('&', "%26");
            let query: Vec<String> = files.map(|(name, file)| format!("{name}={}", path(file))).collect();
            format!("{url}?{}", query.join("&"))
        };
        let all = ["ca", "cert", "cert_key"];
        LockManager::connect(&named(&url, &all)).await.unwrap();
        lock_core::inspect::FleetReader::new(&named(&url, &all)).unwrap().ping().await.unwrap();
        let quorum = format!("redlocks://{},localhost:1,localhost:2", url.trim_start_matches("rediss://"));
        let quorum = lock_core::inspect::FleetReader::new(&named(&quorum, &all)).unwrap();
        let key = lock_core::LockKey::new("k").unwrap();
        let members = quorum.members(&key).await.unwrap().unwrap().nodes;
        assert!(members[0].answer.is_ok() && members[1].answer.is_err(), "{members:?}");
        let error = LockManager::connect(&named(&url, &["ca"])).await.unwrap_err();
        assert!(matches!(error.kind(), LockErrorKind::Misconfigured | LockErrorKind::Unavailable), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[limit]
    fn what_is_no_certificate_is_a_mistake_that_repeats_nothing() {
        let (certificate, key) = Authority::new().issue("billing");
        let at = |url: &str| RedisStore::builder(url);
        for (store, says) in [
            (at("redis://h").certificate_authority(certificate.clone()), "write rediss://"),
            (at("rediss://h").certificate_authority("s3cret"), "PEM"),
            (at("rediss://h").client_certificate("s3cret", key.clone()), "PEM"),
            (at("rediss://h").client_certificate(certificate, "s3cret"), "PEM"),
        ] {
            let error = store.build().unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(says) && !format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
