//! URLs whose scheme is that of another kind of server than the one that answers.

use lock_core::testing::{RedisCluster, RedisSentinels, RedisServer, limit};
use lock_core::{LockErrorKind, LockManager};

/// Writes a URL that names these servers.
fn url(scheme: &str, servers: &[RedisServer], path: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("{scheme}://{}{path}", hosts.join(","))
}

#[tokio::test]
#[limit]
async fn the_scheme_of_another_kind_of_server_is_refused_when_connecting_with_the_one_to_write() {
    let sentinels = RedisSentinels::builder().with_replicas(0).start();
    let (cluster, single) = (RedisCluster::start(3), [RedisServer::start()]);
    let of_sentinels = sentinels.sentinels();
    for (url, says) in [
        (url("redis", &of_sentinels[..1], ""), "write redis+sentinel://"),
        (url("redis+cluster", of_sentinels, ""), "write redis+sentinel://"),
        (url("redlock", of_sentinels, ""), "write redis+sentinel://"),
        (url("redis+cluster", &single, ""), "write redis://"),
        (url("redis+sentinel", &single, "/mymaster"), "no sentinel"),
        (url("redis+sentinel", cluster.masters(), "/mymaster"), "no sentinel"),
        (url("redlock", cluster.masters(), ""), "use the cluster alone by redis+cluster://"),
    ] {
        let error = LockManager::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}
