//! Examines the servers.

use std::sync::Arc;
use std::time::Duration;

use lock_store::text::human;
use lock_store::types::system::clock::wall_clock;
use lock_store::{Doctor, Finding, LockError};

use crate::session::{Session, versions};
use crate::shared::{Shared, since};
use crate::store::{CALL, ZooKeeper};

/// A difference between clocks that people notice in what `lockctl` shows.
const CLOCK: Duration = Duration::from_secs(2);

impl Doctor for ZooKeeper {
    async fn examine(&self) -> Vec<Finding> {
        let examine = |shared: Arc<Shared>, until| async move {
            let mut findings = servers(&shared).await;
            match shared.session(until).await {
                Ok(session) => findings.extend(of_session(&shared, &session).await),
                Err(error) => findings.push(without(&error)),
            }
            Ok(findings)
        };
        self.thread.ask_within(CALL, examine).await.unwrap_or_else(|error| vec![without(&error)])
    }
}

/// Reports why no session was opened. Servers that are not reached may still grant locks to other processes.
fn without(error: &LockError) -> Finding {
    let says = error.to_string();
    if error.is_transient() { Finding::unknown("session", says) } else { Finding::refused("session", says) }
}

async fn servers(shared: &Shared) -> Vec<Finding> {
    let answers = versions(&shared.settings).await;
    let mut findings: Vec<Finding> = Vec::new();
    for (host, answer) in shared.settings.hosts.split(',').zip(&answers) {
        findings.push(match answer {
            Some(answer) => {
                let first = answer.lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
                Finding::works("server", format!("{host} answers: {first}"))
            }
            None => {
                let says = format!("{host} does not say its version; it is down, or srvr is forbidden there");
                Finding::unknown("server", says).with_remedy("start it, or add srvr to its 4lw.commands.whitelist")
            }
        });
    }
    if answers.iter().flatten().any(|answer| answer.contains("Mode: standalone")) {
        let says = "it is one server alone, so no lock can be taken or renewed while it is down";
        findings.push(Finding::warning("servers", says).with_remedy("run three servers"));
    }
    findings
}

async fn of_session(shared: &Shared, session: &Session) -> Vec<Finding> {
    let (asked, given, lease) = (shared.settings.session, session.lasts, session.lease());
    let says = format!(
        "a session lasts {}, so a holder counts on its lock for {} after a write, and the lock of a dead process is free after {}",
        human(given),
        human(lease),
        human(given)
    );
    let mut findings = vec![if given == asked {
        Finding::works("session", says)
    } else {
        let remedy = "set minSessionTimeout and maxSessionTimeout of the servers, or session= in the URL";
        Finding::warning("session", format!("{says}; the URL asks for {}", human(asked))).with_remedy(remedy)
    }];
    let sent = shared.now();
    match shared.write(session).await {
        Ok(stat) => {
            let took = shared.now().since(sent);
            findings.push(Finding::works("write", format!("a write is answered after {}", human(took))));
            findings.push(clock(stat.mtime, took));
        }
        Err(error) => findings.push(Finding::refused("write", format!("a write is not answered: {error}"))),
    }
    findings.push(if shared.settings.login.is_some() {
        Finding::works(
            "user",
            "only the user of the URL may read and write the nodes of the locks, except base, which everybody may read",
        )
    } else {
        let says = "the URL names no user, so every client that reaches the servers may remove locks";
        Finding::warning("user", says).with_remedy("write zookeeper://user:password@…, the same for every process")
    });
    findings
}

fn clock(millis: i64, took: Duration) -> Finding {
    let (Some(theirs), ours) = (since(millis), wall_clock()) else {
        return Finding::unknown("clock", "the server tells no time");
    };
    let apart = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs)).unwrap_or_default();
    if apart > CLOCK + took {
        let says = format!(
            "the leader's clock and this machine's are {} apart; what is kept for a time ends by the leader's",
            human(apart)
        );
        return Finding::warning("clock", says).with_remedy("let both follow NTP");
    }
    Finding::works("clock", "the leader's clock and this machine's agree")
}
