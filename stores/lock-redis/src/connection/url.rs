//! URLs that name several servers: their parts, before anything is known of the servers.

use std::fmt;
use std::net::Ipv6Addr;

use lock_store::types::error::{LockError, Result};
use lock_store::types::url::StoreUrl;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `host:port`, and `[::1]:port` for IPv6. Without a port it has the default one.
    fn read(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                if port.is_empty() { (host, None) } else { (host, Some(port.strip_prefix(':')?)) }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Some(default_port), |port| port.parse().ok())?;
        (is_host(host) && port > 0).then(|| Self { host: host.to_owned(), port })
    }
}

/// Returns whether a text can be a host: a name, or an address without brackets. Any other text may be a password, and is
/// never shown.
pub(crate) fn is_host(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    !text.is_empty() && text.chars().all(fits)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Which addresses that servers announce are reached at other addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nat(Vec<(Address, Address)>);

impl Nat {
    /// Reads `announced>reached,…`.
    fn read(text: &str) -> Option<Self> {
        let text = text.replace("%3E", ">").replace("%3e", ">");
        let pair = |pair: &str| {
            let (announced, reached) = pair.split_once('>')?;
            Some((Address::read(announced, 6379)?, Address::read(reached, 6379)?))
        };
        text.split(',').map(pair).collect::<Option<_>>().map(Self)
    }

    /// Returns where a server is reached.
    pub(crate) fn reach(&self, announced: Address) -> Address {
        let found = self.0.iter().find(|(from, _)| *from == announced);
        found.map_or(announced, |(_, to)| to.clone())
    }
}

/// The parts of `scheme://[user:password@]host[:port],…[/path][?name=value&…]`.
#[derive(Clone)]
pub(crate) struct Several<'a> {
    pub(crate) tls: bool,
    /// `user:password@` as it stands in the URL, or nothing.
    pub(crate) login: &'a str,
    /// At least one.
    pub(crate) hosts: Vec<Address>,
    /// The part behind the hosts, without its first slash.
    pub(crate) path: &'a str,
    pub(crate) nat: Nat,
    /// The other parameters.
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Several<'a> {
    /// Takes a URL apart. `parameters` are the names that its query may contain besides `nat`, and `shape` is how such
    /// a URL is written.
    ///
    /// No error repeats a part of the URL: a password that should have been percent-encoded can be in any of them.
    pub(crate) fn read(url: &'a StoreUrl, default_port: u16, parameters: &[&str], shape: &str) -> Result<Self> {
        let bad =
            |why: &str| Err(LockError::misconfigured(format!("the Redis URL cannot be read: {why}; write {shape}")));
        if !url.is_absolute() {
            return bad("it has no scheme");
        }
        if url.has_fragment() {
            return bad("it contains a #, which must be percent-encoded in a password");
        }
        let (authority, path) = url.address.split_once('/').unwrap_or((&url.address, ""));
        if path.contains('@') || url.parameters().any(|(name, value)| name.contains('@') || value.contains('@')) {
            return bad(
                "it has an @ after its hosts, as when a password contains / or ?, which must be percent-encoded",
            );
        }
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts = hosts.split(',').map(|host| Address::read(host, default_port)).collect::<Option<Vec<_>>>();
        let Some(hosts) = hosts else { return bad("a host or a port is missing or makes no sense") };
        let mut read = Self {
            tls: url.scheme().starts_with("rediss+"),
            login,
            hosts,
            path,
            nat: Nat::default(),
            parameters: Vec::new(),
        };
        for (name, value) in url.parameters() {
            if name == "nat" {
                let Some(nat) = Nat::read(value) else {
                    return bad("nat takes pairs of addresses, as in nat=10.0.0.1:6379>127.0.0.1:7001");
                };
                read.nat = nat;
            } else if parameters.contains(&name) && read.parameter(name).is_none() {
                read.parameters.push((name, value));
            } else {
                let known = [&["nat"], parameters].concat().join(", ");
                return bad(&format!("its query takes {known}, each once, and nothing else"));
            }
        }
        Ok(read)
    }

    /// Returns the value of a parameter, as it stands in the URL.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Adds addresses to the hosts of a URL, which may then have none of its own.
///
/// The error repeats no address, since a whole URL may stand in its place.
pub(crate) fn add_addresses(url: &mut StoreUrl, addresses: &[String]) -> Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let default_port = match url.scheme() {
        "redis+sentinel" | "rediss+sentinel" => 26379,
        "redis+cluster" | "rediss+cluster" => 6379,
        _ => {
            return Err(LockError::misconfigured(
                "addresses are of the sentinels or nodes of one service; write redis+sentinel:///service or \
                 redis+cluster:// as the URL, or put the one address into it",
            ));
        }
    };
    let whole = &url.address;
    let end = whole.find('/').unwrap_or(whole.len());
    let hosts = whole[..end].rfind('@').map_or(0, |at| at + 1);
    let read = |text: &str| Address::read(text, default_port);
    let mut all: Vec<Address> = whole[hosts..end].split(',').filter_map(read).collect();
    for (at, text) in addresses.iter().map(|text| text.trim()).enumerate() {
        // As `IpAddr` writes it.
        let bare = text.parse::<Ipv6Addr>().map(|host| format!("[{host}]"));
        let Some(address) = read(bare.as_deref().unwrap_or(text)) else {
            return Err(LockError::misconfigured(format!(
                "address {} of {} makes no sense; write host, host:port or [::1]:port, and everything else in the URL",
                at + 1,
                addresses.len(),
            )));
        };
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let all: Vec<String> = all.iter().map(Address::to_string).collect();
    url.address = format!("{}{}{}", &whole[..hosts], all.join(","), &whole[end..]);
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert_eq!((url.tls, url.login, url.path), (true, "me:s%40@", "name/3"));
        assert_eq!((url.parameter("user"), url.parameter("password")), (Some("u"), Some("p")));
        assert_eq!(read(&StoreUrl::read("redis+sentinel://a")).unwrap().login, "");
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
}
