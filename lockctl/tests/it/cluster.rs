//! The fleet of a Redis Cluster, seen through one of its nodes.

use lock_testing::{RedisCluster, Reply, limit};

use crate::program::{lockctl, watch};
use crate::{shown_owner, take};

#[tokio::test]
#[limit]
async fn every_command_works_through_any_node() {
    let mut cluster = RedisCluster::start(3);
    let mut keys = Vec::new();
    let mut taken = Vec::new();
    for at in 0..3 {
        keys.push(cluster.key_on(at, "lock:user:"));
        taken.push(take(&cluster.masters()[at], &keys[at]).await);
    }
    let names: Vec<String> = cluster.masters().iter().map(|master| format!("127.0.0.1:{}", master.port())).collect();
    let (first, last) = (&cluster.masters()[0], &cluster.masters()[2]);

    let ended = lockctl(first, &["list"]);
    ended.assert_code(0);
    assert!(keys.iter().all(|key| ended.stdout.contains(&format!("{key} "))), "{ended:?}");
    assert!(ended.stdout.contains(&format!("3 locks on 3 masters of the cluster of {}", names[0])), "{ended:?}");
    let json = lockctl(first, &["list", "--json"]).json();
    assert_eq!((json["locks"].as_array().unwrap().len(), &json["truncated"]), (3, &false.into()));
    let mut servers: Vec<&str> =
        json["servers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    servers.sort_by_key(|name| names.iter().position(|known| known == name));
    assert_eq!(servers, names);
    assert_eq!(lockctl(first, &["list", "--max-keys", "200", "--json"]).json()["truncated"], true);

    let ended = lockctl(first, &["show", &keys[2]]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("shop::charge"), "{ended:?}");
    let ended = lockctl(first, &["waiters", &keys[2]]);
    ended.assert_code(0);
    assert!(ended.stdout.contains("no waiter is"), "{ended:?}");
    let mut program = watch(first, &["watch"]);
    program.wait_for(&keys[2]);
    program.wait_for("3 locks on 3 masters");
    program.interrupt().assert_code(0);

    let owner = shown_owner(first, &keys[2]);
    let ended = lockctl(first, &["release", &keys[2], "--expect-owner", &owner, "--reason", "x"]);
    ended.assert_code(0);
    assert_eq!(last.command(&["EXISTS", &keys[2]]), Reply::Int(0));
    // The audit log says on which node.
    assert!(ended.stderr.contains(&format!("node={:?}", names[2])), "{ended:?}");

    cluster.kill(2);
    for command in [&["list"][..], &["show", &keys[2]]] {
        let ended = lockctl(&cluster.masters()[0], command);
        ended.assert_code(3);
        assert!(ended.stderr.contains(&names[2]), "{ended:?}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
#[limit]
async fn every_master_is_reached_by_tls_and_under_the_name_it_announces() {
    use crate::program::{lockctl_at, lockctl_trusting};
    let file =
        |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../lock-core/tests/support/tls").join(name);
    let authority = file("authority.pem");
    // One master, so that its certificate need not cover the cluster bus too.
    let settings = lock_testing::RedisServer::builder()
        .with_tls(&file("server.pem"), &file("server.key"))
        .with("tls-ca-cert-file", &authority.display().to_string())
        .with("tls-cluster", "yes")
        .with("cluster-announce-hostname", "LOCALHOST")
        .with("cluster-preferred-endpoint-type", "hostname");
    let cluster = RedisCluster::with(settings, 1);
    let master = &cluster.masters()[0];
    let _taken = take(master, "lock:user:1").await;
    let url = master.tls_url("localhost");
    let json = lockctl_trusting(&authority, &url, &["list", "--json"]).json();
    assert_eq!(json["locks"][0]["key"], "lock:user:1");
    let name = url.strip_prefix("rediss://").unwrap();
    assert_eq!((&json["server"], &json["servers"][0]), (&name.into(), &name.replace("localhost", "LOCALHOST").into()));
    // The authority as an option, for every command.
    let (ca, with_ca) = (authority.to_str().unwrap(), |arguments: &[&str]| lockctl_at(&url, arguments));
    for command in [&["list"][..], &["show", "lock:user:1"], &["topology"], &["run", "lock:run", "--", "true"]] {
        with_ca(&[&["--ca", ca], command].concat()).assert_code(0);
    }
    assert_eq!(with_ca(&["--ca", file("other-authority.pem").to_str().unwrap(), "list"]).code, Some(4));
    for (wrong, says) in [
        (&["--ca", "/no/such&file.pem"][..], "the file that ca names cannot be read"),
        (&["--cert", ca], "name both files"),
    ] {
        let ended = with_ca(&[wrong, &["list"]].concat());
        ended.assert_code(2);
        assert!(ended.stderr.contains(says), "{ended:?}");
    }
    // The certificate is not valid for an address.
    master.command(&["CONFIG", "SET", "cluster-announce-ip", "127.0.0.1"]);
    master.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "ip"]);
    let ended = lockctl_trusting(&authority, &url, &["list"]);
    ended.assert_code(4);
    assert!(ended.stderr.contains("use the host name that the certificate is for"), "{ended:?}");
}
