//! The command that examines what is behind a store.

use lock_core::inspect::FleetReader;
use lock_core::store::text::visible;
use lock_core::store::{Finding, FindingGrade};
use serde_json::{Value, json};

use crate::end::{End, Failure};
use crate::output::{Output, Table};

/// Examines the store that the URL names. In a quorum, each member is examined.
pub(crate) async fn doctor(url: &str, out: &mut Output) -> Result<End, Failure> {
    let store = FleetReader::new(url).map_err(Failure::Url)?;
    let mut found = store.examine().await;
    if found.is_empty() {
        // A store that says nothing is not known to work.
        found.push(Finding::unknown("store", "it says nothing"));
    }
    let end = worst(&found);
    let mut nodes = Vec::new();
    for found in found.chunk_by(|one, next| one.node == next.node) {
        let node = found[0].node.as_deref().unwrap_or(store.node());
        if out.is_json() {
            nodes.push(json!({ "node": node, "findings": found.iter().map(document).collect::<Vec<_>>() }));
        } else {
            out.line(&table(found))?;
            out.line(&summary(node, found))?;
        }
    }
    if out.is_json() {
        out.document(&json!({ "nodes": nodes }))?;
    }
    Ok(end)
}

fn document(finding: &Finding) -> Value {
    json!({
        "subject": finding.subject,
        "grade": finding.grade.as_str(),
        "says": finding.says,
        "remedy": finding.remedy,
    })
}

fn table(found: &[Finding]) -> String {
    let mut table = Table::new(&["STATE", "WHAT", "FINDING"]);
    for finding in found {
        table.row([finding.grade.as_str().to_owned(), finding.subject.to_string(), finding.says.clone()]);
        if let Some(remedy) = &finding.remedy {
            table.row([String::new(), String::new(), format!("-> {remedy}")]);
        }
    }
    table.render()
}

fn count(found: &[Finding], grade: FindingGrade) -> usize {
    found.iter().filter(|finding| finding.grade == grade).count()
}

fn summary(node: &str, found: &[Finding]) -> String {
    let [refused, unknown, warnings] =
        [FindingGrade::Refused, FindingGrade::Unknown, FindingGrade::Warning].map(|grade| count(found, grade));
    let whether = match (refused, unknown) {
        (0, 0) => "locks can be taken",
        (0, _) => "whether locks can be taken is not known",
        _ => "no lock can be taken",
    };
    let noun = if warnings == 1 { "warning" } else { "warnings" };
    format!("{}: {whether}; {warnings} {noun}, {unknown} unknown", visible(node))
}

/// The codes of this command, from good to bad: 0, 1 with warnings, 3 if something is unknown, 2 if no lock can be taken. A
/// refusal is worse than an unknown condition, because it is certain.
const ENDS: [(FindingGrade, End); 4] = [
    (FindingGrade::Works, End::Ok),
    (FindingGrade::Warning, End::NotFound),
    (FindingGrade::Unknown, End::Unavailable),
    (FindingGrade::Refused, End::Usage),
];

fn worst(found: &[Finding]) -> End {
    let found = ENDS.iter().rev().find(|(grade, _)| count(found, *grade) > 0);
    found.map_or(End::Ok, |(_, end)| *end)
}
