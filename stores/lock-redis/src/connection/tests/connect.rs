use super::Target;
use crate::connection::connect::Settings;
use lock_store::types::error::{LockErrorKind, Result};

fn parse(url: &str) -> Result<Target> {
    Target::parse(url, Settings::default())
}

#[test]
fn nodes_carry_no_credentials() {
    for (url, node) in [
        ("redis://localhost", "localhost:6379"),
        ("redis://user:s3cret@10.0.0.1:7000/3", "10.0.0.1:7000/3"),
        ("redis://:s3cret%2F@h", "h:6379"),
        ("redis://[::1]:7000", "[::1]:7000"),
        ("redis+unix:///run/redis.sock?db=2&pass=s3cret", "/run/redis.sock/2"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("valkey://user:s3cret@h/1", "h:6379/1"),
    ] {
        let target = parse(url).unwrap();
        assert_eq!(target.node(), node, "{url}");
        assert!(!format!("{target:?}").contains("s3cret"), "{target:?}");
    }
}

#[test]
fn another_server_is_reached_in_the_same_way() {
    let [tls, settings] = ["rediss://user:s3cret@h:7000", "redis://user:s3cret@h:7000/3"];
    for (url, node) in [(settings, "10.0.0.2:7001/3"), (tls, "10.0.0.2:7001")] {
        let Ok(target) = parse(url) else { continue };
        let other = target.sibling("10.0.0.2", 7001).unwrap();
        assert_eq!((other.node(), other.host(), target.host()), (node, "10.0.0.2", "h"));
        let [one, two] = [&target, &other].map(|target| target.client.get_connection_info());
        let [ours, theirs] = [one, two].map(redis::ConnectionInfo::redis_settings);
        assert_eq!((ours.username(), ours.password(), ours.db()), (theirs.username(), theirs.password(), theirs.db()));
        assert_eq!(theirs.password(), Some("s3cret"));
        assert_eq!(
            matches!(one.addr(), redis::ConnectionAddr::TcpTls { .. }),
            matches!(two.addr(), redis::ConnectionAddr::TcpTls { .. })
        );
    }
    let socket = parse("unix:///run/redis.sock?pass=s3cret").unwrap();
    assert_eq!(socket.sibling(socket.host(), 7001).unwrap().node(), "localhost:7001");
}

#[test]
fn bad_urls_say_what_to_write_and_repeat_nothing() {
    for (url, says) in [
        ("", "redis://host:port/db"),
        ("localhost:6379", "redis://host:port/db"),
        ("memory://", "by their own process only"),
        ("http://s3cret@h", "URLs of this scheme"),
        ("s3cret://h", "URLs of this scheme"),
        ("redis://", "cannot be read"),
        ("redis://:s3/cret@h", "percent-encode"),
        ("redis://s3cret?@h", "percent-encode"),
        ("redis://:s3cret@h:port", "its port is no number"),
        ("redis://:s3cret@[::1]:66000/1", "its port is no number"),
        ("redis://:s3cret@h/nine", "the database at its end is no number"),
        ("redis://0.0.0.0", "cannot be read"),
        ("redis://:s3cret@h/#insecure", "always does"),
        ("redis://:s3,cret@h,i", "redis+cluster://host,host"),
        ("redis://h?db=3", "redis://host:6379/1"),
        ("redis://h?keyprefix=s3cret", "key_prefix"),
        ("unix:///run/redis.sock?s3=1", "db, user and pass"),
        ("redis://s3cret!", "cannot be one"),
        ("unix:///run/redis.sock&pass=s3cret", "? before parameters"),
        ("redis://h/-1", "count from 0"),
    ] {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}");
        assert!(error.to_string().contains(says), "{url}: {error}");
        assert!(!format!("{error:?}").contains("s3"), "{error:?}");
    }
}

#[test]
fn tls_is_a_feature() {
    let target = parse("rediss://:s3cret@h");
    if cfg!(feature = "tls") {
        assert_eq!(target.unwrap().node(), "h:6379");
    } else {
        assert!(target.unwrap_err().to_string().contains("feature `tls`"));
    }
}
