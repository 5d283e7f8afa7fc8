//! `redlock://`: a quorum of Redis servers from one URL.

use crate::{Quorum, Restarts};
use lock_redis::RedisStore;
use lock_store::contract::backend::AnyBackend;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::parse_duration;
use lock_store::types::url::StoreUrl;

const SUPPORTED: &str = "write redlock://user:password@host:6379,host,host/db?max_ttl=60s&restarts=forget, of which only the \
                         hosts are needed, or redlocks:// for TLS";

impl Quorum {
    /// Names a quorum of Redis servers by its URL. Opens no connection yet.
    ///
    /// `redlock[s]://[user:password@]host[:6379],host,host…[/db][?max_ttl=60s&restarts=forget|remember]`. User,
    /// password and database apply to every member.
    ///
    /// ```
    /// use lock_core::Quorum;
    ///
    /// let quorum = Quorum::new("redlock://10.0.0.1,10.0.0.2,10.0.0.3?max_ttl=30s")?;
    /// assert_eq!(format!("{quorum:?}"), "Quorum(2 of 10.0.0.1:6379, 10.0.0.2:6379, 10.0.0.3:6379)");
    /// # Ok::<(), lock_core::LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured), with what to write. The message never
    /// repeats the URL.
    pub fn new(url: &str) -> Result<Self> {
        Self::read(StoreUrl::read(url))
    }

    /// Names a quorum by its URL, which is already split into parts.
    #[doc(hidden)]
    pub fn read(mut url: StoreUrl) -> Result<Self> {
        let mut quorum = Self::of(take_members(&mut url)?.into_iter().map(AnyBackend::new))?;
        for parameter in url.parameters() {
            quorum = match parameter {
                // A value that cannot be read may be a password, so it is not shown.
                ("max_ttl", value) => match parse_duration(value).ok().map(|max_ttl| quorum.with_max_ttl(max_ttl)) {
                    Some(bounded) => bounded?,
                    None => return refuse("max_ttl is a time of at least 1s, such as 60s"),
                },
                ("restarts", "forget") => quorum.with_restarts(Restarts::Forget),
                ("restarts", "remember") => quorum.with_restarts(Restarts::Remember),
                ("restarts", _) => return refuse("restarts is forget or remember"),
                _ => {
                    return refuse(
                        "the URL of a quorum takes key_prefix, max_ttl, restarts and the files of redlocks://, and no other \
                         parameter",
                    );
                }
            };
        }
        Ok(quorum)
    }
}

fn refuse<T>(text: &str) -> Result<T> {
    Err(LockError::misconfigured(format!("{text}; {SUPPORTED}")))
}

/// Takes the common parts out of a quorum's URL, and makes its members. Opens no connection.
#[doc(hidden)]
pub fn take_members(url: &mut StoreUrl) -> Result<Vec<RedisStore>> {
    // A namespace belongs to the manager.
    url.take_key_prefix()?;
    let scheme = match url.scheme() {
        "redlock" if url.is_quorum() => "redis",
        "redlocks" if url.is_quorum() => "rediss",
        _ => return refuse("this is not the URL of a quorum"),
    };
    // Each member gets the certificates.
    let member = url.split(scheme, &["ca", "cert", "cert_key"])?;
    let address = &url.address;
    if address.contains("://") {
        return refuse(
            "the URL of the quorum names its members by their hosts, and one scheme for all; members of other kinds \
                       go into Quorum::of",
        );
    }
    let (authority, database) = match address.split_once('/') {
        Some((authority, database)) => (authority, format!("/{database}")),
        None => (&**address, String::new()),
    };
    if database.contains('@') {
        return refuse("the URL of the quorum has an @ after its hosts; percent-encode the password");
    }
    if database.contains(',') {
        return refuse(
            "the URL of the quorum has hosts after its database; the database comes last, and is the same for all \
             members",
        );
    }
    let (login, hosts) = match authority.split_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    if hosts.contains('@') {
        return refuse(
            "the URL of the quorum has more than one @: it names one user for all members, before the first host, \
             with special characters percent-encoded; members with users of their own go into Quorum::of",
        );
    }
    let store = |host: &str| match host.trim() {
        "" => refuse("the URL of the quorum has an empty host"),
        // A member that loses locks does not count until they have ended, so nobody is warned of its failover.
        host => RedisStore::read(member.at(format!("{login}{host}{database}")).with("acks=0")),
    };
    hosts.split(',').map(store).collect()
}

#[cfg(test)]
mod tests {
    use lock_testing::limit;

    use crate::Quorum;
    use lock_store::types::error::LockErrorKind;

    #[test]
    #[limit]
    fn a_url_names_every_member() {
        for (url, says) in [
            ("redlock://a,b,c", "Quorum(2 of a:6379, b:6379, c:6379)"),
            ("redlock://u:s3cret@a:1,b:2,c:3,d:4,e:5/2?max_ttl=10s", "Quorum(3 of a:1/2, b:2/2, c:3/2, d:4/2, e:5/2)"),
            (
                "redlock://[::1]:7001,[::1]:7002,[::1]:7003?restarts=remember",
                "Quorum(2 of [::1]:7001, [::1]:7002, [::1]:7003)",
            ),
        ] {
            assert_eq!(format!("{:?}", Quorum::new(url).unwrap()), says);
        }
    }

    #[test]
    #[limit]
    fn a_bad_url_says_what_to_write_and_repeats_nothing() {
        for (url, says) in [
            ("redlock://", "empty host"),
            ("redlock://a,,b", "empty host"),
            ("redlock://a", "at least three"),
            ("redlock://a,b", "at least three"),
            ("redlock://a,b,a", "named a:6379"),
            ("redlock://a,b,a:6379", "named a:6379"),
            ("redlock://u:s3cret@a,u:s3cret@b,c", "one user for all members"),
            ("redlock://:s3/cret@a,b,c", "percent-encode"),
            ("redlock://a,b,c?max_ttl=1", "such as 60s"),
            ("redlock://a,b,c?max_ttl=10ms", "between 1s and 30 days"),
            ("redlock://a,b,c?max_ttl=31d", "between 1s and 30 days"),
            ("redlock://a,b,c?restarts=maybe", "forget or remember"),
            ("redlock://a,b,c?s3cret=1s", "no other parameter"),
            ("redlock://a:port,b,c", "cannot be read"),
            ("redlock://a/1,b/1,c/1", "the database comes last, and is the same"),
            ("redlock://redis://a,redis://:s3cret@b,redis://c", "one scheme for all"),
            ("redis://a,b,c", "not the URL of a quorum"),
        ] {
            let error = Quorum::new(url).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!error.to_string().contains("s3"), "{error}");
        }
    }
}
