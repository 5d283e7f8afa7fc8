//! URLs that name several servers: their parts, before anything is known of the servers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

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
        let host = match host.parse::<IpAddr>() {
            // A wildcard names no server.
            Ok(ip) if ip.is_unspecified() => return None,
            Ok(ip) => ip.to_string(),
            Err(_) => Some(host).filter(|host| is_host(host) && !host.contains(':'))?.to_owned(),
        };
        (port > 0).then_some(Self { host, port })
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

/// The user and the password of a URL, decoded.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Login {
    /// Reads them as they stand in a URL. An empty text is none.
    pub(crate) fn read(user: &str, password: &str) -> Option<Self> {
        let part = |text: &str| if text.is_empty() { Some(None) } else { decoded(text).map(Some) };
        Some(Self { user: part(user)?, password: part(password)? })
    }
}

/// Decodes a text. A percent sign without a number behind it stands for itself, as it does in other clients.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        bytes.push(code.and_then(|code| u8::from_str_radix(code, 16).ok()).unwrap_or(b'%'));
        bytes.extend_from_slice(&part.as_bytes()[code.map_or(0, str::len)..]);
    }
    String::from_utf8(bytes).ok()
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
    pub(crate) login: Login,
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
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let Some(login) = Login::read(user, password) else { return bad("its user or password is no text") };
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
#[path = "tests/url.rs"]
mod tests;
