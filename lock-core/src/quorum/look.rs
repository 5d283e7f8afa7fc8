//! Looking at the members, without taking anything.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BoxFuture, NodeReport, SyncReport};
use crate::error::{LockError, Result};
use crate::key::LockKey;
use crate::quorum::ask::Asked;
use crate::quorum::shared::Shared;

/// Checks that a majority answers, and that no member refuses us.
pub(super) async fn ping(shared: &Arc<Shared>) -> Result<()> {
    let mut asked = Asked::of(shared.members.iter().map(|member| {
        let (backend, shared) = (member.backend(), Arc::clone(shared));
        let name = Arc::clone(&member.name);
        Some(Box::pin(async move {
            backend.ping_dyn().await?;
            let member = shared.members.iter().find(|member| member.name == name);
            match member {
                Some(member) => member.join(&shared.list).await,
                None => Ok(()),
            }
        }) as BoxFuture<'static, Result<()>>)
    }));
    let (mut up, mut errors) = (0, Vec::new());
    while let Some((member, answer)) = asked.next().await {
        match answer {
            Ok(()) => up += 1,
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => errors.push(format!("{}: {error}", shared.members[member].name)),
        }
    }
    let (all, majority) = (shared.members.len(), shared.list.majority);
    if up >= majority {
        return Ok(());
    }
    Err(LockError::not_executed(format!(
        "only {up} of {all} members answer, and {majority} must; bring them back, or correct their addresses ({})",
        errors.join("; "),
    )))
}

/// Asks every member who holds a key.
pub(super) async fn sync(shared: &Arc<Shared>, key: &LockKey) -> SyncReport {
    let unknown = || Err(LockError::unavailable("it did not answer in time"));
    let mut nodes: Vec<NodeReport> =
        shared.members.iter().map(|member| NodeReport::new(&*member.name, unknown())).collect();
    let mut asked = Asked::of(shared.members.iter().map(|member| Some(member.backend().holder_dyn(key.clone()))));
    let clock = shared.clock();
    let mut limit = pin!(clock.sleep_until(clock.now().after(Duration::from_secs(1))));
    loop {
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some((member, holder)) => nodes[member].holder = holder,
                None => break,
            },
            () = &mut limit => break,
        }
    }
    SyncReport::new(nodes, shared.list.majority)
}
