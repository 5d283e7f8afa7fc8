//! Examines the API server, the credentials and the permissions. Changes nothing.

use std::sync::Arc;
use std::time::Duration;

use lock_store::text::human;
use lock_store::types::system::clock::wall_clock;
use lock_store::{Doctor, Finding, LockError, Result, Timestamp};
use serde_json::json;

use crate::data::between;
use crate::shared::{Shared, day};
use crate::store::{CALL, Kubernetes};

/// A difference between clocks that people notice in what `lockctl` shows.
const CLOCK: Duration = Duration::from_secs(2);

/// How slow an answer may be. A renewal has a sixth of the ttl.
const SLOW: Duration = Duration::from_secs(1);

/// The name of a Lease that does not exist.
const NO_LEASE: &str = "lock-core-doctor";

/// The verbs that the store needs, and what is lost without each. Without the first three, no lock can be taken.
const VERBS: [(&str, &str); 5] = [
    ("get", "no lock can be taken"),
    ("create", "no lock can be taken that has no Lease yet"),
    ("update", "no lock can be taken, renewed or released"),
    ("watch", "waiters poll, so a release is noticed late and each waiter costs a request"),
    ("list", "lockctl cannot list locks"),
];

impl Doctor for Kubernetes {
    async fn examine(&self) -> Vec<Finding> {
        self.thread.ask_within(CALL, examine).await.unwrap_or_else(|error| vec![failed("server", &error)])
    }
}

/// Reports why something could not be examined. A server that is not reached may still grant locks to other processes.
fn failed(subject: &'static str, error: &LockError) -> Finding {
    let says = error.to_string();
    if error.is_transient() { Finding::unknown(subject, says) } else { Finding::refused(subject, says) }
}

async fn examine(shared: Arc<Shared>, until: Timestamp) -> Result<Vec<Finding>> {
    let connection = shared.api.connection(until).await?;
    let (version, namespace) = (&connection.version, &connection.namespace);
    let mut findings = vec![match shared.api.check_version(&connection) {
        Ok(()) if connection.gives_tokens() => {
            Finding::works("server", format!("it is {version}, and the locks are in the namespace {namespace:?}"))
        }
        Ok(()) => {
            Finding::warning("server", format!("it is {version}, which does not promise that fencing tokens grow"))
                .with_remedy("upgrade it to 1.35, or let no resource check tokens")
        }
        Err(error) => Finding::refused("server", error.to_string()).with_remedy("upgrade it to 1.35 or later"),
    }];
    match shared.api.ping(until).await {
        Ok(()) => findings.push(Finding::works("credentials", "the API server accepts them")),
        Err(error) => {
            findings.push(failed("credentials", &error));
            return Ok(findings);
        }
    }
    for (verb, lost) in VERBS {
        findings.push(permission(&shared, namespace, verb, lost, until).await);
    }
    let sent = shared.now();
    let read = shared.api.get(NO_LEASE, until).await;
    let took = shared.now().since(sent);
    findings.push(match read {
        Ok(_) if took > SLOW => Finding::warning("latency", format!("a read was answered only after {}", human(took)))
            .with_remedy("use a longer ttl, and see what loads the API server"),
        Ok(_) => Finding::works("latency", format!("a read is answered after {}", human(took))),
        Err(error) => failed("latency", &error),
    });
    findings.push(clock(&shared, took));
    Ok(findings)
}

/// Asks whether a verb is permitted.
async fn permission(shared: &Shared, namespace: &str, verb: &'static str, lost: &str, until: Timestamp) -> Finding {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases",
        } },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = match shared.api.ask(path, review.to_string().into_bytes(), until).await {
        Ok(review) => review,
        Err(error) => {
            return Finding::unknown(verb, format!("whether it is permitted to {verb} Leases is unknown: {error}"));
        }
    };
    if review["status"]["allowed"].as_bool() == Some(true) {
        return Finding::works(verb, format!("it is permitted to {verb} every Lease in the namespace {namespace:?}"));
    }
    let says = format!(
        "it is not permitted to {verb} every Lease in the namespace {namespace:?}, so {lost}; a Role with resourceNames permits those alone"
    );
    let remedy =
        format!("add the verb {verb} for leases of coordination.k8s.io to a Role there, and bind it to this user");
    let finding = match verb {
        "watch" | "list" => Finding::warning(verb, says),
        _ => Finding::refused(verb, says),
    };
    finding.with_remedy(remedy)
}

fn clock(shared: &Shared, took: Duration) -> Finding {
    let now = shared.now();
    let (least, most) = (shared.time().least(now), shared.time().most(now));
    let (Some(theirs), ours) = (day(least), wall_clock()) else {
        return Finding::unknown("clock", "the API server tells no time");
    };
    let apart = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs)).unwrap_or_default();
    if apart > CLOCK + took + between(least, most) {
        let says = format!(
            "the clock of the API server and this machine's are {} apart; what is kept for a time ends by the server's",
            human(apart)
        );
        return Finding::warning("clock", says).with_remedy("let both follow NTP");
    }
    Finding::works("clock", "the clock of the API server and this machine's agree")
}
