//! TLS: which servers are used, which are not, and what the errors say.

use lock_core::{LockBackend as _, LockError, LockErrorKind, LockManager, distributed_lock};
use lock_store::{Doctor as _, FindingGrade};
use lock_testing::{Stopwatch, limit};
use lock_zookeeper::ZooKeeper;

use crate::servers::{More, Servers};
use crate::support::{SECOND, locks};

#[path = "../../../../lock-core/tests/support/authority.rs"]
mod authority;

use authority::Authority;

const HERE: &str = "127.0.0.1";

const LINES: &str = "secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1\n\
                     serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                     ssl.keyStore.location={folder}/server.pem\nssl.keyStore.type=PEM\n\
                     ssl.trustStore.location={folder}/ca.pem\nssl.trustStore.type=PEM\n";

/// A server with a port of TLS, whose certificate is for [`HERE`]. A certificate of a client lies beside that of its authority.
fn start(asks_for: &str) -> Option<Servers> {
    let (ours, other) = (Authority::new(), Authority::new());
    let [(server, server_key), (client, client_key)] = [HERE, "client"].map(|name| ours.issue(name));
    let files = vec![
        ("ca.pem", ours.pem()),
        ("other-ca.pem", other.pem()),
        ("server.pem", format!("{server_key}{server}")),
        ("client.pem", client),
        ("client.key", client_key),
        ("other.key", other.issue("client").1),
    ];
    let lines = format!("{LINES}ssl.clientAuth={asks_for}\n");
    Servers::one_with(&More { lines, files, ..More::default() })
}

/// Returns a URL of the port of TLS. `{}` in the query is the folder of the certificates.
fn url(servers: &Servers, login: &str, query: &str) -> String {
    let (folder, port) = servers.secure();
    format!("zookeepers://{login}{HERE}:{port}/tls?{}", query.replace("{}", folder.to_str().unwrap()))
}

/// Returns why a server is refused. A server that has just started may be too slow at first to be asked.
async fn refusal(url: &str) -> String {
    let store = ZooKeeper::new(url).unwrap();
    for _ in 0..5 {
        let watch = Stopwatch::start();
        let error = store.ping().await.unwrap_err();
        watch.assert_within(8 * SECOND, "a refusal");
        if error.kind() == LockErrorKind::Misconfigured {
            return error.to_string();
        }
        println!("not yet: {error}");
    }
    panic!("{url} is not refused")
}

#[distributed_lock(key = "order:<id>", ttl = "10s")]
async fn doubled(id: u64) -> Result<u64, LockError> {
    Ok(2 * id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn the_attribute_works_over_tls() {
    let Some(servers) = start("none") else { return };
    let url = url(&servers, "ana:open-sesame@", "ca={}/ca.pem");
    LockManager::connect(&url).await.unwrap().install().unwrap();
    assert_eq!(doubled(21).await.unwrap(), 42);
    let [one, two] = [locks(&url), locks(&url)];
    let guard = one.lock("k").await.unwrap();
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    let (next, released) = tokio::join!(two.lock("k").acquire(), guard.release());
    assert!(next.is_ok() && released.is_ok());
    let connections = servers.ask(0, "cons").unwrap();
    assert!(!connections.contains("sid=0x"), "nothing came to the port without TLS: {connections}");
    let found = ZooKeeper::new(&url).unwrap().examine().await;
    assert!(found.iter().all(|one| matches!(one.grade, FindingGrade::Works | FindingGrade::Warning)), "{found:#?}");
    assert!(found.iter().any(|one| one.says.contains("answers: Zookeeper version: 3.9.5")), "{found:#?}");
    // The nodes belong to the user of the URL.
    let said = refusal(&url.replace("sesame", "barley")).await;
    assert!(said.contains("user and password"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_server_that_does_not_prove_its_name_is_refused_in_a_sentence() {
    let Some(servers) = start("none") else { return };
    for (query, says) in [
        ("ca={}/other-ca.pem", "invalid peer certificate"),
        // No authority of this machine has signed it.
        ("", "by ?ca=FILE"),
        ("ca={}/nowhere.pem", "name a PEM file by ?ca=FILE"),
        ("ca={}/client.key", "name a PEM file by ?ca=FILE"),
        ("ca={}/ca.pem&cert={}/client.pem&cert_key={}/other.key", "name a PEM file by ?cert=FILE"),
    ] {
        let said = refusal(&url(&servers, "", query)).await;
        assert!(said.contains(says), "{query}: {said}");
    }
    let said = refusal(&url(&servers, "", "ca={}/ca.pem").replace(HERE, "localhost")).await;
    assert!(said.contains("the host name that its certificate is for"), "{said}");
    let said = refusal(&url(&servers, "", "ca={}/ca.pem").replace(HERE, "[fe80::1%eth0]")).await;
    assert!(said.contains("a host that no certificate can be for"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_server_that_asks_for_a_certificate_of_the_client_gets_it() {
    let Some(servers) = start("need") else { return };
    let said = refusal(&url(&servers, "", "ca={}/ca.pem")).await;
    assert!(said.contains("?cert=FILE&cert_key=FILE"), "{said}");
    let locks = locks(&url(&servers, "", "ca={}/ca.pem&cert={}/client.pem&cert_key={}/client.key"));
    locks.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn tls_on_one_side_only_ends_in_time_and_is_named() {
    let Some(servers) = start("none") else { return };
    let (encrypted, (_, secure)) = (url(&servers, "", "ca={}/ca.pem"), servers.secure());
    for (url, says) in [
        (format!("zookeeper://{HERE}:{secure}/tls"), "TLS"),
        (encrypted.replace(&format!(":{secure}/"), &format!(":{}/", servers.port(0))), "secureClientPort"),
    ] {
        let watch = Stopwatch::start();
        let error = LockManager::connect(&url).await.unwrap_err();
        watch.assert_within(8 * SECOND, "a connect to the wrong port");
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}
