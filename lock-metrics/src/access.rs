//! Who may see keys through the listener.
//!
//! A page of the open web can make a browser send requests to this machine, and by pointing a name
//! of its own at 127.0.0.1 (DNS rebinding) it can read the answers too. Such a request carries that
//! name as its `Host`.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::{Authority, Uri};

/// What a listener answers to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The address it is bound to.
    pub(crate) bound: SocketAddr,
    /// Whether other machines may see the live view.
    pub(crate) keys_for_all: bool,
}

impl Access {
    /// Returns whether metrics may be given. They contain no keys: where the listener was bound to a
    /// network on purpose, they are for whoever reaches it, under whatever name.
    pub(crate) fn allows_metrics(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        !self.bound.ip().to_canonical().is_loopback() || self.is_own_name(uri, headers)
    }

    /// Returns whether keys may be given to a caller at this address of the network.
    pub(crate) fn allows_keys(&self, uri: &Uri, headers: &HeaderMap, caller: IpAddr) -> bool {
        let near = caller.to_canonical().is_loopback() || caller == self.bound.ip();
        (near || self.keys_for_all) && self.is_own_name(uri, headers)
    }

    /// Returns whether the request was meant for this machine, by a name that nobody else can give
    /// to it.
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
            // Of all addresses we are bound to, none can be faked: a browser that was told an
            // address asks no name server.
            Ok(address) => address.is_loopback() || self.bound.ip().is_unspecified() || address == self.bound.ip(),
            Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use hyper::header::{HOST, HeaderMap, HeaderValue};
    use hyper::http::uri::Uri;

    use super::Access;

    fn access(bound: &str) -> Access {
        Access { bound: bound.parse::<SocketAddr>().unwrap(), keys_for_all: false }
    }

    fn headers(hosts: &[&str]) -> HeaderMap {
        hosts.iter().map(|host| (HOST, HeaderValue::from_str(host).unwrap())).collect()
    }

    fn sees_keys(access: Access, hosts: &[&str], caller: &str) -> bool {
        access.allows_keys(&Uri::from_static("/locks"), &headers(hosts), caller.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn names_that_nobody_else_can_point_here() {
        let loopback = access("127.0.0.1:9464");
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
        assert!(!loopback.allows_keys(&Uri::from_static("http://evil.example/locks"), &own, caller));
        assert!(loopback.allows_keys(&Uri::from_static("http://localhost/locks"), &own, caller));
    }

    #[test]
    fn metrics_of_a_network_listener_are_for_all_and_keys_are_not() {
        let (open, foreign) = (access("0.0.0.0:9464"), headers(&["web-1:9464"]));
        let path = Uri::from_static("/metrics");
        assert!(open.allows_metrics(&path, &foreign));
        assert!(!access("127.0.0.1:9464").allows_metrics(&path, &foreign));
        assert!(!sees_keys(open, &["10.0.0.5"], "10.0.0.9"));
        assert!(sees_keys(open, &["localhost"], "::ffff:127.0.0.1"));
        assert!(sees_keys(access("10.0.0.5:1"), &["10.0.0.5:1"], "10.0.0.5"));
        let all = Access { keys_for_all: true, ..open };
        assert!(sees_keys(all, &["10.0.0.5"], "10.0.0.9"));
        assert!(!sees_keys(all, &["evil.example"], "10.0.0.9"), "a browser may still be tricked");
    }
}
