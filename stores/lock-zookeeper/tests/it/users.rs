//! What users do with the servers besides: they write under a pin, and close the nodes to others.

use lock_core::{LockErrorKind, LockManager};
use lock_testing::limit;
use lock_zookeeper::ZooKeeper;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError};

use crate::servers::{NEWEST, Servers, is_installed};
use crate::support::locks;

async fn write(client: &Client, pin: &str, value: &[u8]) -> Result<(), MultiWriteError> {
    let mut step = client.new_multi_writer();
    step.add_check_version(pin, -1)?;
    step.add_set_data("/account", value, None)?;
    step.commit().await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_write_under_a_pin_is_refused_after_the_lock_was_lost() {
    if !is_installed(NEWEST) {
        return;
    }
    let servers = Servers::shared(NEWEST, 1);
    let store = ZooKeeper::new(&servers.url("/pin")).unwrap();
    let locks = LockManager::builder(store.clone()).build().unwrap();
    let client = Client::connect(&format!("127.0.0.1:{}", servers.port(0))).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/account", b"0", &options).await.unwrap();
    let guard = locks.lock("account").await.unwrap();
    let pin = store.pin(&guard).unwrap();
    write(&client, &pin, b"1").await.unwrap();
    // Somebody removes the node of the holder, which has not noticed yet.
    client.delete(&pin, None).await.unwrap();
    let next = locks.lock("account").await.unwrap();
    let refused = write(&client, &pin, b"2").await.unwrap_err();
    assert!(matches!(refused, MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }), "{refused:?}");
    assert_eq!(client.get_data("/account").await.unwrap().0, b"1");
    write(&client, &store.pin(&next).unwrap(), b"3").await.unwrap();
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn nodes_of_one_user_are_closed_to_others() {
    if !is_installed(NEWEST) {
        return;
    }
    let port = Servers::shared(NEWEST, 1).port(0);
    let url = |login: &str| format!("zookeeper://{login}127.0.0.1:{port}/closed");
    let owner = locks(&url("ana:open-sesame@"));
    let guard = owner.lock("k").await.unwrap();
    for login in ["", "bob:open-sesame@", "ana:another@"] {
        let error = LockManager::connect(&url(login)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{login}: {error}");
        assert!(error.to_string().contains("user and password") && !error.to_string().contains("sesame"), "{error}");
    }
    let same = locks(&url("ana:open-sesame@"));
    assert!(same.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    drop(same.lock("k").await.unwrap());
}
