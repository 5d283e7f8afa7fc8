//! Servers that cannot be relied on are refused, by a sentence that says why.

use std::io::{Read as _, Write as _, copy};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::spawn;

use lock_core::{LockErrorKind, LockManager};
use lock_testing::limit;
use lock_zookeeper as _;

use crate::servers::{NEWEST, Servers, is_installed};

/// Starts a server that calls itself something else: it answers `srvr` with this banner, and all else as the real server does.
fn disguised(real: u16, banner: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            spawn(move || serve(client, real, banner));
        }
    });
    port
}

fn serve(mut client: TcpStream, real: u16, banner: &str) -> std::io::Result<()> {
    let mut first = [0; 4];
    client.read_exact(&mut first)?;
    if &first == b"srvr" {
        return client.write_all(banner.as_bytes());
    }
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, real))?;
    server.write_all(&first)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    spawn(move || copy(&mut from, &mut to));
    copy(&mut client, &mut server)?;
    Ok(())
}

async fn refusal(banner: &'static str) -> Option<String> {
    if !is_installed(NEWEST) {
        return None;
    }
    let port = disguised(Servers::shared(NEWEST, 1).port(0), banner);
    let error = LockManager::connect(&format!("zookeeper://127.0.0.1:{port}/refused")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    Some(error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn clickhouse_keeper_is_refused_by_its_name() {
    let banner = "ClickHouse Keeper version: v25.8.2.29-lts-b52c1b2b9b2b2e2a1c6c3f1d0a6f1a0b8a4b0c6d\n\
                  Latency min/avg/max: 0/0/0\nReceived: 2\nSent: 2\nConnections: 1\nOutstanding: 0\nZxid: 36\n\
                  Mode: standalone\nNode count: 4\n";
    let Some(told) = refusal(banner).await else { return };
    assert!(told.contains("ClickHouse Keeper"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_version_without_what_the_store_needs_is_refused() {
    let banner = "Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf, built on 03/06/2019 16:18 GMT\n\
                  Latency min/avg/max: 0/0/0\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x0\n\
                  Mode: standalone\nNode count: 4\n";
    let Some(told) = refusal(banner).await else { return };
    assert!(told.contains("ZooKeeper 3.4") && told.contains("3.6 or later"), "{told}");
}
