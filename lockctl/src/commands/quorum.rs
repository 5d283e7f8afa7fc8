//! The commands for a quorum: what its members say about a key, and its beginning.

use lock_core::{LockKey, LockManager, LockManagerBuilder, NodeReport, Quorum, SyncReport};
use serde_json::{Value, json};

use crate::args::QuorumAction;
use crate::end::{End, Failure};
use crate::output::{Output, Table};
use crate::{record, values};
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
    let answered = report.nodes.iter().filter(|node| node.answer.is_ok()).count();
    Ok(match report.holder() {
        Some(_) => End::Ok,
        None if answered < report.majority => End::Unavailable,
        None => End::NotFound,
    })
}

fn document(key: &LockKey, report: &SyncReport) -> Value {
    let node = |node: &NodeReport| match &node.answer {
        Ok(Some(holder)) => json!({
            "node": *node.node,
            "state": "held",
            "site": holder.site(),
            "owner": holder.owner.map(|owner| record::owner(owner, false)),
            "ttl_left_ms": holder.ttl_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        }),
        Ok(None) => json!({ "node": *node.node, "state": "free" }),
        Err(error) => json!({ "node": *node.node, "state": "unknown", "error": error.to_string() }),
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
        let (owner, left, holder) = match &node.answer {
            Ok(Some(holder)) => (
                holder.owner.map_or_else(none, |owner| record::owner(owner, false)),
                holder.ttl_left.map_or_else(none, |left| format!("{left:.1?}")),
                holder.info.as_ref().map_or_else(|| "foreign".to_owned(), ToString::to_string),
            ),
            Ok(None) => (none(), none(), "free".to_owned()),
            Err(error) => (none(), none(), error.to_string()),
        };
        table.row([node.node.to_string(), owner, left, holder]);
    }
    table.render()
}

fn summary(key: &LockKey, report: &SyncReport) -> String {
    let (nodes, majority) = (report.nodes.len(), report.majority);
    let says = |what: &dyn Fn(&NodeReport) -> bool| report.nodes.iter().filter(|node| what(node)).count();
    let name = visible(key.as_str());
    match report.holder() {
        Some(holder) => {
            let same = says(&|node| matches!(&node.answer, Ok(Some(other)) if other.owner == holder.owner));
            let repair = if report.is_in_sync() { "" } else { "; its renewals give it to the others again" };
            format!("{name} is held at {same} of {nodes} nodes, of which {majority} must agree{repair}")
        }
        None => {
            let unknown = says(&|node| node.answer.is_err());
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
