//! A quorum: its beginning, and what its members say.

use lock_core::LockManager;
use lock_testing::{RedisServer, limit};

use crate::program::lockctl_at;

#[tokio::test]
#[limit]
async fn a_quorum_is_begun_and_its_members_are_asked() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let url =
        format!("redlock://{}", servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port())).join(","));
    let ended = lockctl_at(&url, &["quorum", "init"]);
    ended.assert_code(0);
    assert!(ended.stdout.starts_with("every member counts from now on: Quorum(2 of 127.0.0.1:"), "{ended:?}");
    let locks = LockManager::connect(&url).await.unwrap();
    let ended = lockctl_at(&url, &["sync", "lock:job"]);
    ended.assert_code(1);
    assert!(ended.stdout.contains("held by nobody that 2 of 3 nodes agree on; 0 gave no answer"), "{ended:?}");

    let guard = locks.lock("lock:job").with_site("shop::report").await.unwrap();
    let json = lockctl_at(&url, &["sync", "lock:job", "--json"]).json();
    assert_eq!((&json["held"], &json["in_sync"]), (&true.into(), &true.into()), "{json}");
    let ended = lockctl_at(&url, &["sync", "lock:job"]);
    ended.assert_code(0);
    assert_eq!(ended.stdout.matches("shop::report").count(), 3, "{ended:?}");
    // A client that got one member only.
    servers[0].command(&["SET", "lock:part", "nonce"]);
    servers[2].kill();
    let ended = lockctl_at(&url, &["sync", "lock:part"]);
    ended.assert_code(1);
    let rows: Vec<&str> = ended.stdout.lines().collect();
    assert!(rows[1].contains("foreign") && rows[2].contains("free"), "{ended:?}");
    assert!(rows[3].contains("cannot connect") || rows[3].contains("did not answer"), "{ended:?}");
    assert!(ended.stdout.contains("1 gave no answer"), "{ended:?}");
    drop(servers);
    lockctl_at(&url, &["sync", "lock:job"]).assert_code(3);
    drop(guard);

    for (arguments, url, says) in [
        (&["quorum", "init"][..], "redis://127.0.0.1", "not the URL of a quorum"),
        (&["sync", "k"], "redlock://a,b", "name at least three independent stores"),
        (&["why", "k"], "redlock://a,b", "name at least three independent stores"),
        (&["topology"], "redlock://a,b", "name at least three independent stores"),
        (&["topology"], "redlok://a,b,c", "supported are"),
    ] {
        let ended = lockctl_at(url, arguments);
        ended.assert_code(2);
        assert!(ended.stderr.contains(says), "{ended:?}");
    }
}
