//! Decides which callers may see keys through the listener.
//!
//! A page of the open web can make a browser send requests to this machine. If the page points its own host name to
//! 127.0.0.1 (DNS rebinding), it can also read the answers. Such a request has that name as its `Host`.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderMap};
use hyper::http::Version;
use hyper::http::uri::{Authority, Uri};

/// The rules of a listener: what it answers, and to which callers.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The address that the listener is bound to.
    pub(crate) bound: SocketAddr,
    pub(crate) allowed: Allowed,
}

/// The callers that may see the live view, besides this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// Every caller that reaches the listener.
    pub(crate) all: bool,
    /// Networks: an address in each, and how many of its leading bits count.
    pub(crate) networks: Vec<(IpAddr, u8)>,
    /// Host names, in lower case, by which requests may address the listener.
    pub(crate) names: Vec<String>,
}

impl Allowed {
    fn allows(&self, caller: IpAddr) -> bool {
        self.all || self.networks.iter().any(|(network, bits)| is_in(caller, network.to_canonical(), *bits))
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = u32::from(address) ^ u32::from(network);
            bits == 0 || differ.checked_shr(32_u32.saturating_sub(bits.into())).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differ = u128::from(address) ^ u128::from(network);
            bits == 0 || differ.checked_shr(128_u32.saturating_sub(bits.into())).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Returns whether a request shows that a proxy has passed it on. Signs are the headers that proxies add, and HTTP/1.0,
/// which nginx speaks by default.
pub(crate) fn is_forwarded(version: Version, headers: &HeaderMap) -> bool {
    let is_added = |name: &str| {
        matches!(name, "forwarded" | "via" | "x-real-ip" | "x-client-ip") || name.starts_with("x-forwarded")
    };
    version < Version::HTTP_11 || headers.keys().any(|name| is_added(name.as_str()))
}

impl Access {
    /// Returns whether metrics may be served. They contain no keys. If the listener was deliberately bound to a
    /// network, every caller that reaches it may have them, under any host name.
    pub(crate) fn allows_metrics(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        !self.bound.ip().to_canonical().is_loopback() || self.is_own_name(uri, headers)
    }

    /// Returns whether keys may be served to the address `caller`, which connected to the local address `reached`. If
    /// both are the same, the caller is on this machine. `reached` is `None` if a proxy on this machine sent the
    /// request for another caller.
    pub(crate) fn allows_keys(&self, uri: &Uri, headers: &HeaderMap, caller: IpAddr, reached: Option<IpAddr>) -> bool {
        let caller = caller.to_canonical();
        let is_near =
            |reached: IpAddr| caller.is_loopback() || caller == reached.to_canonical() || caller == self.bound.ip();
        (reached.is_some_and(is_near) || self.allowed.allows(caller)) && self.is_own_name(uri, headers)
    }

    /// Returns whether the request addresses this machine by a name that an attacker cannot point to it.
    fn is_own_name(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        named.is_some_and(|authority| !host.as_bytes().contains(&b'@') && self.is_own_host(authority.host()))
            && uri.host().is_none_or(|host| self.is_own_host(host))
    }

    fn is_own_host(&self, host: &str) -> bool {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
            // An address that the listener is bound to cannot be faked: a browser that is given an address asks no name
            // server.
            Ok(address) => address.is_loopback() || self.bound.ip().is_unspecified() || address == self.bound.ip(),
            Err(_) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || self.allowed.names.contains(&name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
    use hyper::http::Version;
    use hyper::http::uri::Uri;

    use super::{Access, Allowed, is_forwarded};

    fn access(bound: &str) -> Access {
        Access { bound: bound.parse::<SocketAddr>().unwrap(), allowed: Allowed::default() }
    }

    fn headers(hosts: &[&str]) -> HeaderMap {
        hosts.iter().map(|host| (HOST, HeaderValue::from_str(host).unwrap())).collect()
    }

    fn sees_keys(access: &Access, hosts: &[&str], caller: &str) -> bool {
        sees_keys_at(access, hosts, caller, "10.0.0.5")
    }

    fn sees_keys_at(access: &Access, hosts: &[&str], caller: &str, reached: &str) -> bool {
        let [caller, reached] = [caller, reached].map(|address| address.parse::<IpAddr>().unwrap());
        access.allows_keys(&Uri::from_static("/locks"), &headers(hosts), caller, Some(reached))
    }

    #[test]
    fn names_that_nobody_else_can_point_here() {
        let loopback = &access("127.0.0.1:9464");
        for good in ["localhost", "LOCALHOST:9464", "localhost.:80", "127.0.0.1:9464", "127.9.9.9", "[::1]:9464"] {
            assert!(sees_keys(loopback, &[good], "127.0.0.1"), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "evil-localhost",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
            "2130706433",
            "local host",
        ] {
            assert!(!sees_keys(loopback, &[bad], "127.0.0.1"), "{bad}");
        }
        assert!(!sees_keys(loopback, &[], "127.0.0.1"), "a request without a host");
        assert!(!sees_keys(loopback, &["localhost", "evil.example"], "127.0.0.1"), "two hosts");
    }

    #[test]
    fn a_name_in_the_target_counts_too() {
        let (loopback, own) = (access("127.0.0.1:1"), headers(&["localhost"]));
        let caller = IpAddr::from([127, 0, 0, 1]);
        assert!(!loopback.allows_keys(&Uri::from_static("http://evil.example/locks"), &own, caller, Some(caller)));
        assert!(loopback.allows_keys(&Uri::from_static("http://localhost/locks"), &own, caller, Some(caller)));
    }

    #[test]
    fn metrics_of_a_network_listener_are_for_all_and_keys_are_not() {
        let (open, foreign) = (&access("0.0.0.0:9464"), headers(&["web-1:9464"]));
        let path = Uri::from_static("/metrics");
        assert!(open.allows_metrics(&path, &foreign));
        assert!(!access("127.0.0.1:9464").allows_metrics(&path, &foreign));
        assert!(!sees_keys(open, &["10.0.0.5"], "10.0.0.9"));
        assert!(sees_keys(open, &["localhost"], "::ffff:127.0.0.1"));
        assert!(sees_keys(&access("10.0.0.5:1"), &["10.0.0.5:1"], "10.0.0.5"));
        let all = &Access { allowed: Allowed { all: true, ..Allowed::default() }, ..open.clone() };
        assert!(sees_keys(all, &["10.0.0.5"], "10.0.0.9"));
        assert!(!sees_keys(all, &["evil.example"], "10.0.0.9"), "a browser may still be tricked");
    }

    #[test]
    fn a_proxy_on_this_machine_is_not_the_caller() {
        let header =
            |name: &'static str| HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("x"))]);
        for name in ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"] {
            assert!(is_forwarded(Version::HTTP_11, &header(name)), "{name}");
        }
        assert!(is_forwarded(Version::HTTP_10, &headers(&["localhost"])));
        assert!(!is_forwarded(Version::HTTP_11, &headers(&["localhost"])));
        let (path, own, caller) = (Uri::from_static("/locks"), headers(&["localhost"]), IpAddr::from([127, 0, 0, 1]));
        assert!(!access("127.0.0.1:1").allows_keys(&path, &own, caller, None));
        // The exception: this machine was allowed by its address.
        let allowed = Allowed { networks: vec![(caller, 8)], ..Allowed::default() };
        assert!(Access { allowed, ..access("127.0.0.1:1") }.allows_keys(&path, &own, caller, None));
    }

    #[test]
    fn this_machine_may_ask_by_its_own_address() {
        let open = &access("0.0.0.0:9464");
        assert!(sees_keys_at(open, &["10.0.0.5:9464"], "10.0.0.5", "10.0.0.5"));
        assert!(sees_keys_at(open, &["10.0.0.5:9464"], "::ffff:10.0.0.5", "10.0.0.5"));
        assert!(!sees_keys_at(open, &["10.0.0.5:9464"], "10.0.0.6", "10.0.0.5"));
        assert!(!sees_keys_at(open, &["evil.example"], "10.0.0.5", "10.0.0.5"), "a browser on this machine");
    }

    #[test]
    fn networks_and_names_that_are_allowed() {
        let networks = vec![("10.1.0.0".parse().unwrap(), 16), ("fd00::".parse().unwrap(), 8)];
        let allowed = Allowed { all: false, networks, names: vec!["web-1.internal".to_owned()] };
        let some = &Access { allowed, ..access("0.0.0.0:9464") };
        for caller in ["10.1.0.1", "10.1.255.255", "::ffff:10.1.2.3", "fdff::1"] {
            assert!(sees_keys(some, &["10.0.0.5"], caller), "{caller}");
            assert!(sees_keys(some, &["Web-1.internal.:9464"], caller), "{caller}");
            assert!(!sees_keys(some, &["evil.example"], caller), "{caller}");
        }
        for caller in ["10.2.0.1", "11.1.0.1", "fc00::1", "fe80::1"] {
            assert!(!sees_keys(some, &["10.0.0.5"], caller), "{caller}");
        }
        for (bits, inside) in [(0, true), (32, false), (33, false), (255, false)] {
            let allowed = Allowed { networks: vec![("10.0.0.1".parse().unwrap(), bits)], ..Allowed::default() };
            let one = &Access { allowed, ..access("0.0.0.0:9464") };
            assert_eq!(sees_keys(one, &["10.0.0.5"], "11.0.0.0"), inside, "/{bits}");
            assert!(sees_keys(one, &["10.0.0.5"], "10.0.0.1"), "/{bits}");
        }
    }
}
