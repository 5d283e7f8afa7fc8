use super::{Address, Several, add_addresses};
use lock_store::types::url::StoreUrl;

fn read(url: &StoreUrl) -> Result<Several<'_>, String> {
    Several::read(url, 26379, &["user", "password"], "scheme://host/name").map_err(|error| error.to_string())
}

#[test]
fn hosts_have_ports_and_brackets() {
    let url = StoreUrl::read("rediss+sentinel://me:s%40@a,b:1,[::1],[fe80::2]:7/name/3?user=u&password=p");
    let url = read(&url).unwrap();
    let hosts: Vec<String> = url.hosts.iter().map(Address::to_string).collect();
    assert_eq!(hosts, ["a:26379", "b:1", "[::1]:26379", "[fe80::2]:7"]);
    assert_eq!((url.tls, url.path), (true, "name/3"));
    assert_eq!((url.login.user.as_deref(), url.login.password.as_deref()), (Some("me"), Some("s@")));
    assert_eq!((url.parameter("user"), url.parameter("password")), (Some("u"), Some("p")));
    let login = read(&StoreUrl::read("redis+sentinel://a")).unwrap().login;
    assert_eq!((login.user, login.password), (None, None));
}

#[test]
fn announced_addresses_are_reached_elsewhere() {
    let url = StoreUrl::read("redis+sentinel://a/name?nat=10.0.0.1:6379>127.0.0.1:7001,[::1]:1%3Eb");
    let url = read(&url).unwrap();
    let at = |host: &str, port| Address { host: host.to_owned(), port };
    assert_eq!(url.nat.reach(at("10.0.0.1", 6379)), at("127.0.0.1", 7001));
    assert_eq!(url.nat.reach(at("::1", 1)), at("b", 6379));
    assert_eq!(url.nat.reach(at("10.0.0.1", 6380)), at("10.0.0.1", 6380));
}

#[test]
fn addresses_join_the_hosts_of_a_url() {
    let joined = |url: &str, addresses: &[&str]| {
        let addresses: Vec<String> = addresses.iter().map(|text| (*text).to_owned()).collect();
        let mut url = StoreUrl::read(url);
        add_addresses(&mut url, &addresses).map(|()| url.to_text()).map_err(|error| error.to_string())
    };
    for (url, addresses, whole) in [
        ("redis+sentinel:///name", &["a", "b:7"][..], "redis+sentinel://a:26379,b:7/name"),
        (
            "rediss+sentinel://me:s%40@a/name/3?nat=x>y",
            &["b", "a", "::1"],
            "rediss+sentinel://me:s%40@a:26379,b:26379,[::1]:26379/name/3?nat=x>y",
        ),
        ("redis+cluster://", &[" a ", "[::1]:7"], "redis+cluster://a:6379,[::1]:7"),
        ("redis+cluster://:pw@?nat=a>b", &["a:1", "a:1"], "redis+cluster://:pw@a:1?nat=a>b"),
        ("anything", &[], "anything"),
    ] {
        assert_eq!(joined(url, addresses).as_deref(), Ok(whole), "{url}");
    }
    for (url, addresses, says) in [
        ("redis://", "a", "redis+sentinel:///service"),
        ("s3cret", "a", "redis+sentinel:///service"),
        ("redis+cluster://", "", "address 1 of 1"),
        ("redis+cluster://", "redis://:s3cret@a", "address 1 of 1"),
        ("redis+cluster://", "a,s3cret", "address 1 of 1"),
        ("redis+cluster://", "a:s3", "host:port"),
    ] {
        let error = joined(url, &[addresses]).unwrap_err();
        assert!(error.contains(says) && !error.contains("s3"), "{url} {addresses}: {error}");
    }
}

#[test]
fn bad_urls_say_what_to_write_and_repeat_nothing() {
    for (url, says) in [
        ("s3cret", "no scheme"),
        ("x://", "host or a port"),
        ("x://:s3cret@", "host or a port"),
        ("x://a,,b", "host or a port"),
        ("x://a:s3cret", "host or a port"),
        ("x://a:0", "host or a port"),
        ("x://[::1", "host or a port"),
        ("x://[::1]7", "host or a port"),
        ("x://a::1", "host or a port"),
        ("x://:s3/cret@a/name", "percent-encoded"),
        ("x://me:1/s3cret@a/name", "percent-encoded"),
        ("x://me:1?s3cret@a/name", "percent-encoded"),
        ("x://a/name#s3cret", "percent-encoded"),
        ("x://a?nat=s3cret", "nat=10"),
        ("x://a?s3cret=1", "nat, user, password"),
        ("x://a?user=1&user=2", "each once"),
    ] {
        let error = read(&StoreUrl::read(url)).err().unwrap_or_else(|| panic!("{url} was read"));
        assert!(error.contains(says) && error.contains("scheme://host/name"), "{url}: {error}");
        assert!(!error.contains("s3"), "{error}");
    }
}

/// The same credentials and the same host mean the same, whether a URL names one server or several.
#[test]
fn one_server_of_several_is_read_as_a_server_by_itself() {
    for text in [
        "h",
        "me@h",
        ":pw@h:7",
        "me:@h",
        "me:a%40b%3Ac@[0:0:0:0:0:0:0:1]:7",
        "me:100%@h",
        "me:%zz%4@h",
        "me:a:b@h",
        "%C3%BC:ü@h-1.x_y",
        "me:a@b@127.0.0.1",
        "me:%ff@h",
        "0.0.0.0:7",
        "[::]:7",
    ] {
        let alone: Result<redis::ConnectionInfo, _> = format!("redis://{text}").parse();
        let url = StoreUrl::read(&format!("redis+cluster://{text}"));
        let several = Several::read(&url, 6379, &[], "");
        let alone = alone.ok().map(|alone| {
            let login = alone.redis_settings().clone();
            (login.username().map(str::to_owned), login.password().map(str::to_owned), alone.addr().clone())
        });
        let several = several.ok().map(|read| {
            let Address { host, port } = read.hosts[0].clone();
            (read.login.user, read.login.password, redis::ConnectionAddr::Tcp(host, port))
        });
        assert_eq!(alone, several, "{text}");
    }
}
