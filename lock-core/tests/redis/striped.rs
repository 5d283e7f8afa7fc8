//! One name over several locks, on a real server.

use lock_testing::{RedisServer, limit};

use crate::support::{SECOND, exists, locked_keys, locks};

/// The keys are plain locks: every other client that spells them is excluded.
#[tokio::test]
#[limit]
async fn stripes_are_plain_keys_on_a_server() {
    let server = RedisServer::start();
    let (here, there) = (locks(&server), locks(&server));
    let (mine, theirs) = (here.striped("stock:42", 4), there.striped("stock:42", 4));
    server.command(&["SET", "stock:42#2", "somebody"]);
    let mut guards = Vec::new();
    for striped in [&mine, &theirs, &mine] {
        guards.push(striped.any().without_waiting().await.unwrap());
    }
    // That a client of another library has a key is remembered for a while, beside the key.
    let remembered = "{stock:42#2}@waiters";
    let mut keys = locked_keys(&server);
    keys.retain(|key| key != remembered);
    keys.sort();
    assert_eq!(keys, ["stock:42#0", "stock:42#1", "stock:42#2", "stock:42#3"]);
    assert!(theirs.any().try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { theirs.any().with_wait(30 * SECOND).await });
    for guard in guards {
        guard.release().await.unwrap();
    }
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(exists(&server, "stock:42#2"));
    let mut keys = locked_keys(&server);
    keys.retain(|key| key != remembered);
    assert_eq!(keys, ["stock:42#2"]);
}
