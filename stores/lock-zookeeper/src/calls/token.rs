//! The token of a grant.

use lock_store::{FencingToken, LockError, Result};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error, Permission};

use crate::error::of_request;
use crate::places::Known;
use crate::session::{Session, acls};
use crate::shared::{Numbers, Shared};

/// Makes the token of a claim from the number of a transaction: that of the grant, of the end of the holder before, or a later one.
///
/// If the token does not exceed the floor of the caller, the base is raised first, for all locks.
pub(super) async fn token(
    shared: &Shared,
    session: &Session,
    place: &Known,
    (zxid, mut known): Numbers,
) -> Result<FencingToken> {
    let path = &shared.paths.base;
    let steps = u64::try_from(zxid).ok().and_then(|zxid| zxid.checked_mul(FencingToken::PER_GRANT));
    let fits = |token: &u64| token.checked_add(FencingToken::PER_GRANT).is_some_and(|end| i64::try_from(end).is_ok());
    let no_room =
        || LockError::misconfigured("the tokens of ZooKeeper have no room left in 64 bits; remove its node base");
    loop {
        let read = match known.take() {
            Some(read) => read,
            None => {
                let read = session.learn_base(path).await?;
                // If the claim was taken away meanwhile, others may have had the lock under smaller tokens.
                if session.client.check_stat(&place.path).await.map_err(of_request)?.is_none() {
                    return Err(LockError::not_executed("the claim was taken away while it was granted"));
                }
                read
            }
        };
        let (base, version) = match read {
            Some((data, stat)) => (number(&data, path)?, Some(stat.version)),
            None => (FencingToken::PLAIN.get(), None),
        };
        let token = steps.and_then(|steps| base.checked_add(steps)).filter(fits).ok_or_else(no_room)?;
        if token > place.floor.get() {
            return Ok(FencingToken::new(token));
        }
        let raised = (base + (place.floor.get() - token) + FencingToken::PER_GRANT).to_string();
        let written = match version {
            Some(version) => session.client.set_data(path, raised.as_bytes(), Some(version)).await.map(drop),
            None => {
                // A server does not tell a client of changes of a node that the client may not read.
                let acl = [&*acls(&shared.settings), &[Acl::new(Permission::READ, AuthId::anyone())]].concat();
                let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
                session.client.create(path, raised.as_bytes(), &options).await.map(drop)
            }
        };
        match written {
            // Another process may have raised it further.
            Ok(()) | Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => {}
            Err(error) => return Err(of_request(error)),
        }
    }
}

fn number(data: &[u8], path: &str) -> Result<u64> {
    let read = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    read.ok_or_else(|| {
        LockError::misconfigured(format!("the node {path} does not have a number; remove it, or restore it"))
    })
}

#[cfg(test)]
mod tests {
    use lock_store::FencingToken;

    use super::number;

    #[test]
    fn nonsense_is_no_base() {
        assert_eq!(number(b"4611686018427387904", "/base"), Ok(FencingToken::PLAIN.get()));
        assert!(number(b"", "/base").is_err() && number(b"\xff", "/base").is_err());
    }
}
