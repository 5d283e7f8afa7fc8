//! A peer that accepts and says nothing more, at every stage of a connection and over every kind of servers: each call
//! ends within its bound.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use lock_core::inspect::{FleetReader, ScanOptions};
use lock_core::{LockBackend as _, LockErrorKind, LockKey, LockManager, LockOptions, LossReason};
use lock_testing::{Direction, FaultProxy, RedisCluster, RedisSentinels, RedisServer, Stopwatch, limit};

use crate::support::{MS, SECOND, lost};

/// The time that a loaded machine may add to a bound.
const SLACK: Duration = Duration::from_secs(2);

/// Starts a proxy that passes on so many bytes of the answers of each connection, and then nothing, with every connection
/// left open. Returns its port.
fn silent_after(bytes: usize, server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // It has gone with its test.
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            let (mut answers, mut client) = (server, client);
            std::thread::spawn(move || {
                let mut passed = vec![0; 1];
                for _ in 0..bytes {
                    if !matches!(answers.read(&mut passed), Ok(1)) || client.write_all(&passed).is_err() {
                        return;
                    }
                }
                // Its end is seen, and what the server says is read.
                let _ = std::io::copy(&mut answers, &mut std::io::sink());
            });
        }
    });
    port
}

/// Requires that each call of a program ends within its bound at a store that may be silent.
async fn every_call_ends(stage: &str, url: &str) {
    let manager = || {
        let options = LockOptions::default().with_ttl(3 * SECOND).with_wait(SECOND);
        LockManager::builder_for(url).unwrap().options(options).build().unwrap()
    };
    let told = |call: &str| format!("{call}, {stage}, {url}");
    let connecting = async {
        let watch = Stopwatch::start();
        let _ = LockManager::connect(url).await;
        watch.assert_within(5 * SECOND + SLACK, &told("connect"));
    };
    let acquiring = async {
        let (locks, watch) = (manager(), Stopwatch::start());
        let _ = locks.lock("a").await;
        watch.assert_within(SECOND + SLACK, &told("acquire"));
        let watch = Stopwatch::start();
        let _ = locks.shutdown(SECOND).await;
        watch.assert_within(SECOND + SLACK, &told("shutdown"));
    };
    let trying = async {
        let (locks, watch) = (manager(), Stopwatch::start());
        let _ = locks.lock("t").try_acquire().await;
        let _ = locks.lock_all(["t1", "{t1}2"]).try_acquire().await;
        let _ = locks.read("t2").try_acquire().await;
        watch.assert_within(3 * 500 * MS + SLACK, &told("try"));
        let watch = Stopwatch::start();
        let _ = locks.holder("t").await;
        let _ = locks.last_run("t").await;
        let _ = locks.done("t", "1").await;
        watch.assert_within(3 * 500 * MS + SLACK, &told("holder"));
        let watch = Stopwatch::start();
        let _ = locks.ping().await;
        watch.assert_within(5 * SECOND + SLACK, &told("ping"));
    };
    let inspecting = async {
        if url.starts_with("redlock") {
            return;
        }
        let (fleet, key) = (FleetReader::new(url).unwrap(), LockKey::new("i").unwrap());
        let within = |watch: Stopwatch, call: &str| watch.assert_within(8 * SECOND + SLACK, &told(call));
        let watch = Stopwatch::start();
        let _ = fleet.ping().await;
        within(watch, "ping of an inspector");
        let watch = Stopwatch::start();
        let _ = fleet.scan(ScanOptions::new()).next().await;
        within(watch, "list");
        let watch = Stopwatch::start();
        let _ = fleet.entry(&key).await;
        within(watch, "show");
        let watch = Stopwatch::start();
        let _ = fleet.waiters(&key).await;
        within(watch, "waiters");
        let watch = Stopwatch::start();
        let _ = fleet.holders(&key).await;
        within(watch, "holders");
    };
    let examining = async {
        let watch = Stopwatch::start();
        if !url.starts_with("redlock") {
            let _ = FleetReader::new(url).unwrap().examine().await;
        }
        watch.assert_within(12 * SECOND + SLACK, &told("doctor"));
    };
    tokio::join!(connecting, acquiring, trying, inspecting, examining);
}

/// At these numbers of bytes the greeting, the first command, or the answer of a script is cut short.
const STAGES: [usize; 9] = [0, 1, 60, 170, 300, 520, 900, 1400, 2000];

async fn at_every_stage(urls: impl Fn(usize) -> Vec<String>) {
    at_stages(&STAGES, urls).await;
}

async fn at_stages(stages: &[usize], urls: impl Fn(usize) -> Vec<String>) {
    let mut all = tokio::task::JoinSet::new();
    for &bytes in stages {
        for url in urls(bytes) {
            all.spawn(async move { every_call_ends(&format!("silent after {bytes} bytes"), &url).await });
        }
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_silent_server_holds_no_call_up_at_any_stage() {
    let server = RedisServer::start();
    at_every_stage(|bytes| {
        let port = silent_after(bytes, server.port());
        vec![format!("redis://127.0.0.1:{port}"), format!("redis://127.0.0.1:{port}/1?acks=1")]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_handshake_that_never_ends_holds_no_call_up() {
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");
    let (certificate, key) = (format!("{files}server.pem"), format!("{files}server.key"));
    let server = RedisServer::builder().with_tls(certificate.as_ref(), key.as_ref()).start();
    let tls: u16 = server.tls_url("").trim_start_matches("rediss://:").parse().unwrap();
    // In the handshake, and after it. Each connection reads the authorities of the machine, which is slow without optimization.
    at_stages(&[0, 700, 2400], |bytes| {
        let port = silent_after(bytes, tls);
        vec![format!("rediss://localhost:{port}?ca={files}authority.pem")]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_silent_sentinel_or_master_holds_no_call_up_at_any_stage() {
    let servers = RedisSentinels::start();
    let (sentinel, master) = (servers.sentinels()[0].port(), servers.servers()[0].port());
    at_every_stage(|bytes| {
        let (of_sentinel, of_master) = (silent_after(bytes, sentinel), silent_after(bytes, master));
        vec![
            format!(
                "redis+sentinel://127.0.0.1:{of_sentinel}/mymaster?nat=127.0.0.1:{sentinel}>127.0.0.1:{of_sentinel}"
            ),
            format!("{}?nat=127.0.0.1:{master}>127.0.0.1:{of_master}", servers.url()),
        ]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_silent_node_of_a_cluster_holds_no_call_up_at_any_stage() {
    let cluster = RedisCluster::start(2);
    let [one, two] = [0, 1].map(|at| cluster.masters()[at].port());
    at_every_stage(|bytes| {
        let (of_one, of_two) = (silent_after(bytes, one), silent_after(bytes, two));
        let nat = format!("127.0.0.1:{one}>127.0.0.1:{of_one},127.0.0.1:{two}>127.0.0.1:{of_two}");
        vec![
            format!("redis+cluster://127.0.0.1:{of_one}?nat={nat}"),
            format!("redis+cluster://127.0.0.1:{one}?nat=127.0.0.1:{two}>127.0.0.1:{of_two}"),
        ]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn silent_members_of_a_quorum_hold_no_call_up_at_any_stage() {
    let servers = [0, 1, 2].map(|_| RedisServer::start());
    at_every_stage(|bytes| {
        let silent = servers.each_ref().map(|server| silent_after(bytes, server.port()));
        let url = |ports: [u16; 3]| format!("redlock://{}", ports.map(|port| format!("127.0.0.1:{port}")).join(","));
        let live = servers.each_ref().map(RedisServer::port);
        vec![url(silent), url([live[0], silent[1], silent[2]]), url([live[0], live[1], silent[2]])]
    })
    .await;
}

/// The same for what is held when the servers fall silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn what_is_held_when_the_server_falls_silent_ends_within_its_lease() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let options = LockOptions::default().with_ttl(3 * SECOND).with_wait(SECOND);
    let locks = LockManager::builder_for(&proxy.url()).unwrap().options(options).build().unwrap();
    let mut guards = Vec::new();
    for key in ["lost", "released", "extended", "dropped", "turned"] {
        guards.push(locks.lock(key).await.unwrap());
    }
    let [lost_one, released, extended, dropped, turned] = <[_; 5]>::try_from(guards).unwrap();
    proxy.black_hole(Direction::ToClient);
    let watch = Stopwatch::start();
    tokio::join!(
        async {
            assert_eq!(lost(&lost_one).await, LossReason::Unreachable);
            watch.assert_within(3 * SECOND + SLACK, "a loss");
        },
        async {
            let _ = released.release().await;
            watch.assert_within(3 * SECOND + SLACK, "a release");
        },
        async {
            let _ = extended.extend(5 * SECOND).await;
            watch.assert_within(3 * SECOND + SLACK, "an extension");
        },
        async {
            let error = turned.downgrade().await.unwrap_err();
            assert!(matches!(error.kind(), LockErrorKind::Lost | LockErrorKind::Unavailable), "{error}");
            watch.assert_within(3 * SECOND + SLACK, "a downgrade");
        },
    );
    drop(dropped);
    let watch = Stopwatch::start();
    let _ = locks.shutdown(SECOND).await;
    watch.assert_within(SECOND + SLACK, "a shutdown");
    // A store that nobody manages.
    let store = lock_core::RedisStore::new(&proxy.url()).unwrap();
    let watch = Stopwatch::start();
    let _ = store.ping().await;
    watch.assert_within(6 * SECOND + SLACK, "a ping of the store");
}
