//! Where live views are.

use hyper::http::uri::{Authority, PathAndQuery, Uri};

/// Stands for the host of the holder and of each waiter.
const HOSTS: &str = "{host}";

/// Where to find live views: one, or one for each host.
#[derive(Clone, Debug)]
pub(crate) struct Address(String);

impl Address {
    /// Reads `http://HOST:PORT`, with the path of the view if it is not `/locks`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let address = Self(text.trim().to_owned());
        target(&address.at("host")).map(|_| address)
    }

    pub(crate) fn is_for_each_host(&self) -> bool {
        self.0.contains(HOSTS)
    }

    /// Returns the address of one host.
    pub(crate) fn at(&self, host: &str) -> String {
        self.0.replace(HOSTS, host)
    }
}

/// Splits an address into the server and the path of the view as JSON.
pub(crate) fn target(address: &str) -> Result<(Authority, PathAndQuery), String> {
    const SHAPE: &str = "expected http://HOST:PORT, with a path if the view is not at /locks";
    let uri: Uri = address.parse().map_err(|_| SHAPE.to_owned())?;
    if uri.scheme_str() == Some("https") {
        return Err("live views are read over http only; forward the port to this machine".to_owned());
    }
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(SHAPE.to_owned()) };
    if authority.as_str().contains('@') {
        return Err("live views take no user or password; forward the port to this machine".to_owned());
    }
    let path = match uri.path().trim_end_matches('/') {
        "" => "/locks.json".to_owned(),
        path if path.ends_with(".json") => path.to_owned(),
        path => format!("{path}.json"),
    };
    let path = path.parse().map_err(|_| SHAPE.to_owned())?;
    Ok((authority.clone(), path))
}

#[cfg(test)]
mod tests {
    use super::{Address, target};

    #[test]
    fn where_views_are() {
        let path = |address: &str| target(address).map(|(server, path)| format!("{server} {path}"));
        for (address, expected) in [
            ("http://shop-7f:9464", "shop-7f:9464 /locks.json"),
            ("http://shop-7f:9464/", "shop-7f:9464 /locks.json"),
            ("http://[::1]:9464/locks", "[::1]:9464 /locks.json"),
            ("http://shop/internal/locks.json?x=y", "shop /internal/locks.json"),
        ] {
            assert_eq!(path(address).as_deref(), Ok(expected), "{address}");
        }
        for wrong in ["", "shop:9464", "/locks", "http://", "https://shop", "http://a:b@shop", "redis://shop"] {
            assert!(Address::read(wrong).is_err(), "{wrong}");
        }
        let each = Address::read("http://{host}:9464").unwrap();
        assert!(each.is_for_each_host());
        assert_eq!(each.at("shop-7f"), "http://shop-7f:9464");
    }
}
