//! The commands for a quorum: what its members say about a key, its beginning, and steps at all of its members.

use lock_core::inspect::FleetReader;
use lock_core::store::Freed;
use lock_core::{LockError, LockKey, LockManager, LockManagerBuilder, NodeReport, Quorum, SyncReport};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::args::{Action, Expected, QuorumAction};
use crate::commands::why::Store;
use crate::commands::{jobs, leader, watch, why};
use crate::end::{End, Failure, complain};
use crate::members::{Members, Question};
use crate::output::{Output, Table};
use crate::{audit, members, record, values};
use lock_core::store::text::visible;

/// Shows what each node says of a key.
pub(crate) async fn sync(url: &str, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let locks = LockManager::builder_for(url).and_then(LockManagerBuilder::build).map_err(Failure::Url)?;
    let report = locks.sync(values::without(locks.key_prefix(), key)).await?;
    if out.is_json() {
        out.document(&document(key, &report))?;
    } else {
        out.line(&table(&report))?;
        out.line(&summary(key, &report))?;
    }
    let answered = report.nodes.iter().filter(|node| node.holder.is_ok()).count();
    Ok(match report.holder() {
        Some(_) => End::Ok,
        None if answered < report.majority => End::Unavailable,
        None => End::NotFound,
    })
}

fn document(key: &LockKey, report: &SyncReport) -> Value {
    let node = |node: &NodeReport| match &node.holder {
        Ok(Some(holder)) => json!({
            "node": node.node,
            "state": "held",
            "site": holder.site(),
            "owner": holder.owner.map(|owner| record::owner(owner, false)),
            "ttl_left_ms": holder.ttl_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        }),
        Ok(None) => json!({ "node": node.node, "state": "free" }),
        Err(error) => json!({ "node": node.node, "state": "unknown", "error": error.to_string() }),
    };
    let nodes: Vec<Value> = report.nodes.iter().map(node).collect();
    json!({
        "key": key.as_str(),
        "majority": report.majority,
        "in_sync": report.is_in_sync(),
        "held": report.holder().is_some(),
        "nodes": nodes,
    })
}

fn table(report: &SyncReport) -> String {
    let mut table = Table::new(&["NODE", "OWNER", "LEASE LEFT", "HOLDER"]);
    for node in &report.nodes {
        let none = || "-".to_owned();
        let (owner, left, holder) = match &node.holder {
            Ok(Some(holder)) => (
                holder.owner.map_or_else(none, |owner| record::owner(owner, false)),
                holder.ttl_left.map_or_else(none, |left| format!("{left:.1?}")),
                holder.info.as_ref().map_or_else(|| "foreign".to_owned(), ToString::to_string),
            ),
            Ok(None) => (none(), none(), "free".to_owned()),
            Err(error) => (none(), none(), error.to_string()),
        };
        table.row([node.node.clone(), owner, left, holder]);
    }
    table.render()
}

fn summary(key: &LockKey, report: &SyncReport) -> String {
    let (nodes, majority) = (report.nodes.len(), report.majority);
    let says = |what: &dyn Fn(&NodeReport) -> bool| report.nodes.iter().filter(|node| what(node)).count();
    let name = visible(key.as_str());
    match report.holder() {
        Some(holder) => {
            let same = says(&|node| matches!(&node.holder, Ok(Some(other)) if other.owner == holder.owner));
            let repair = if report.is_in_sync() { "" } else { "; its renewals give it to the others again" };
            format!("{name} is held at {same} of {nodes} nodes, of which {majority} must agree{repair}")
        }
        None => {
            let unknown = says(&|node| node.holder.is_err());
            format!("{name} is held by nobody that {majority} of {nodes} nodes agree on; {unknown} gave no answer")
        }
    }
}

/// Does something with a quorum.
pub(crate) async fn act(url: &str, action: &QuorumAction, out: &mut Output) -> Result<End, Failure> {
    let QuorumAction::Init = action;
    let quorum = Quorum::new(url).map_err(Failure::Url)?;
    quorum.init().await?;
    out.line(&format!("every member counts from now on: {quorum:?}"))?;
    Ok(End::Ok)
}

/// Does at all members what one store does alone.
pub(crate) async fn act_at_members(
    url: &str,
    members: Vec<FleetReader>,
    action: Action,
    out: &mut Output,
) -> Result<End, Failure> {
    let prefix = members[0].key_prefix().to_owned();
    let named = |key: &LockKey| values::within(&prefix, key);
    if let Action::Release { key, expected, reason, .. } = action {
        return release(members, &named(&key)?, &expected, &reason.unwrap_or_default(), out).await;
    }
    let members = Members::of(members);
    match action {
        Action::List(wanted) => members::once(&members, &Question::Every(wanted), out).await,
        Action::Show { key } => members::once(&members, &Question::One { key: named(&key)?, owners: true }, out).await,
        Action::Waiters { key } => waiters(&members, &named(&key)?, out).await,
        Action::Jobs(scope) => jobs::jobs_of_quorum(&members, &scope, out).await,
        Action::Leader { name } => leader::leader_of_quorum(&members, &named(&name)?, out).await,
        Action::Why { key, views } => {
            why::why(&Store::Quorum { members: &members, url }, &named(&key)?, &views, out).await
        }
        Action::Watch { key, wanted } => {
            let question = match key {
                Some(key) => Question::One { key: named(&key)?, owners: wanted.owners },
                None => Question::Every(wanted),
            };
            let as_json = out.is_json();
            watch::again_and_again(async || Ok(members.look(&question, as_json).await.0), out).await
        }
        _ => unreachable!("done without the members"),
    }
}

/// Shows who has a lock, and says where those are who wait for it.
async fn waiters(members: &Members, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let view = members.ask(&Question::One { key: key.clone(), owners: false }).await;
    let joint = view.joint();
    let end = view.end_of(joint.as_ref());
    if out.is_json() {
        let held = joint.as_ref().filter(|_| end == End::Ok).map(|joint| record::json(&joint.whole(), false));
        let mut document = json!({ "key": key.as_str(), "holder": held, "holders": [], "waiters": null });
        view.identify(&mut document, key, joint.as_ref(), false);
        out.document(&document)?;
        return Ok(end);
    }
    out.line(&view.show(key, joint.as_ref(), false))?;
    for stray in view.strays() {
        out.line(&stray)?;
    }
    out.line(members::NO_QUEUE)?;
    Ok(end)
}

/// Takes a lock away at every member at once: one that kept it would count for the holder.
async fn release(
    members: Vec<FleetReader>,
    key: &LockKey,
    expected: &Expected,
    reason: &str,
    out: &mut Output,
) -> Result<End, Failure> {
    let (all, actor) = (members.len(), audit::actor());
    let mut asking = JoinSet::new();
    for (at, member) in members.into_iter().enumerate() {
        let (key, actor, reason) = (key.clone(), actor.clone(), reason.to_owned());
        let (owner, value) = (expected.owner, expected.value.clone());
        asking.spawn(async move {
            let freed = match (owner, &value) {
                (Some(owner), _) => member.release(&key, owner, &actor, &reason).await,
                (None, Some(value)) => member.release_foreign(&key, &value.0, &actor, &reason).await,
                (None, None) => unreachable!("the command line demands one of them"),
            };
            (at, member.node().to_owned(), freed)
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(at, ..)| *at);
    let count = |what: &dyn Fn(&Result<Freed, LockError>) -> bool| answers.iter().filter(|(.., it)| what(it)).count();
    let (released, unknown) = (count(&|freed| *freed == Ok(Freed::Released)), count(&|freed| freed.is_err()));
    // As long as no majority can be left.
    let (end, outcome) = match () {
        () if unknown > all / 2 => (End::Unavailable, "unknown"),
        () if released > 0 => (End::Ok, "released"),
        () => (End::NotFound, "not_held"),
    };
    if out.is_json() {
        let said = |(_, node, freed): &(usize, String, Result<Freed, LockError>)| match freed {
            Ok(Freed::Released) => json!({ "node": node, "outcome": "released" }),
            Ok(_) => json!({ "node": node, "outcome": "not_held" }),
            Err(error) => json!({ "node": node, "outcome": "unknown", "error": error.to_string() }),
        };
        let nodes: Vec<Value> = answers.iter().map(said).collect();
        out.document(&json!({ "key": key.as_str(), "outcome": outcome, "nodes": nodes }))?;
    } else if released > 0 {
        out.line(&format!("released {} at {released} of {all} members", visible(key.as_str())))?;
    }
    for (_, node, freed) in &answers {
        if let Err(error) = freed {
            complain(&format!("{node} may still have it: {error}"));
        }
    }
    match end {
        End::NotFound => complain(&format!("nothing was released: no member has {key} of that owner")),
        End::Unavailable => complain("so many members gave no answer that the lock may still be held; try again"),
        _ => {}
    }
    Ok(end)
}
