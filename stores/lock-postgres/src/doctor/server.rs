//! The server itself: its version, whether it takes writes, its connections, encoding and clock.

use lock_store::Finding;

use crate::doctor::facts::Facts;

/// The first that the store works on.
pub(super) const OLDEST: i32 = 140_000;

/// How many connections a process takes: eight for calls, two to renew, one to listen.
const PROCESS: i64 = 11;

/// By how much a clock may differ without a word, and without a warning, us.
const SAME: i128 = 1_000_000;
const NEAR: i128 = 60_000_000;

pub(super) fn version(facts: &Facts) -> Finding {
    let name = facts.setting("server_version").unwrap_or("of a version that it does not tell");
    if facts.version < OLDEST {
        let says = format!("PostgreSQL {name} is older than 14, the first that the lock store works on");
        return Finding::refused("server", says).with_remedy("upgrade the server");
    }
    Finding::works("server", format!("PostgreSQL {name}"))
}

pub(super) fn role(facts: &Facts) -> Finding {
    if facts.follows {
        let says = "no host of the URL takes writes: this one is a standby, which grants no locks";
        return Finding::refused("primary", says)
            .with_remedy("name the primary in the URL too: postgres://host-1,host-2/database");
    }
    if facts.setting("default_transaction_read_only") == Some("on") {
        let says = "transactions of this user only read, so that no lock is granted";
        return Finding::refused("primary", says).with_remedy(facts.set("default_transaction_read_only", "off"));
    }
    Finding::works("primary", "it takes writes")
}

pub(super) fn connections(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![all(facts)];
    let [user, database] = facts.limits;
    let of = [
        (user, "CONNECTION LIMIT of the user", "ROLE", &facts.user),
        (database, "CONNECTION LIMIT of the database", "DATABASE", &facts.database),
    ];
    for (limit, subject, kind, name) in of {
        let Some((most, used)) = limit else { continue };
        found.push(room(
            subject,
            most,
            most - used,
            format!("ALTER {kind} {name} CONNECTION LIMIT {}", (2 * most).max(20 * PROCESS)),
        ));
    }
    found
}

/// Judges the connections that the whole server takes.
fn all(facts: &Facts) -> Finding {
    let Some(all) = facts.number("max_connections") else {
        return Finding::unknown("max_connections", "the server does not tell how many it takes");
    };
    let kept = ["superuser_reserved_connections", "reserved_connections"].map(|name| facts.number(name).unwrap_or(0));
    let free = all - kept.iter().sum::<i64>() - facts.sessions;
    let remedy = format!("max_connections = {}, or a pooler before the server, with listen= in the URL", all * 2);
    room("max_connections", all, free, remedy)
}

fn room(subject: &'static str, all: i64, free: i64, remedy: String) -> Finding {
    if free < 2 * PROCESS {
        let says = format!(
            "{} of {all} connections are free, and a process takes {PROCESS}; one that finds none is refused its locks",
            free.max(0)
        );
        return Finding::warning(subject, says).with_remedy(remedy);
    }
    let says = format!("{all}, of which a process takes {PROCESS}; {} or more are free", 2 * PROCESS);
    Finding::works(subject, says)
}

pub(super) fn encoding(facts: &Facts) -> Finding {
    match facts.setting("server_encoding") {
        Some("UTF8") => Finding::works("encoding", "UTF8, which has every name"),
        Some(other) => {
            let says = format!("{other}: locks whose names have other characters are refused");
            Finding::warning("encoding", says).with_remedy("a database with ENCODING 'UTF8'")
        }
        None => Finding::unknown("encoding", "the server does not tell it"),
    }
}

/// No lease depends on ours: the server's alone counts. Tokens are of its milliseconds.
pub(super) fn clock(facts: &Facts) -> Finding {
    let uncertain = i128::try_from(facts.asked_for.as_micros() / 2).unwrap_or(i128::MAX);
    let apart = facts.ahead.abs() - uncertain.min(facts.ahead.abs());
    if apart < SAME {
        return Finding::works("clock", "within a second of this machine's");
    }
    let side = if facts.ahead > 0 { "ahead of" } else { "behind" };
    let says = format!("{} s {side} this machine's", apart / 1_000_000);
    if apart < NEAR {
        return Finding::works("clock", format!("{says}, which no lease depends on"));
    }
    let says = format!(
        "{says}: no lease depends on that, but tokens are of its time, and a lock that moves to another store may get smaller ones there"
    );
    Finding::warning("clock", says).with_remedy("let both machines follow one time, as by NTP")
}

#[cfg(test)]
mod tests {
    use lock_store::FindingGrade;

    use super::{clock, version};
    use crate::doctor::facts::Facts;

    #[test]
    fn only_an_old_server_is_refused() {
        let grade = |version: i32| super::version(&Facts { version, ..Facts::example() }).grade;
        assert_eq!([130_022, 140_000].map(grade), [FindingGrade::Refused, FindingGrade::Works]);
        assert!(version(&Facts { version: 90_600, ..Facts::example() }).remedy.is_some());
    }

    #[test]
    fn a_clock_counts_as_apart_by_what_the_way_to_it_does_not_explain() {
        for (ahead, asked_for, grade, says) in [
            (900_000, 10, FindingGrade::Works, "within a second"),
            (-1_500_000, 10, FindingGrade::Works, "1 s behind"),
            (1_500_000, 2_000, FindingGrade::Works, "within a second"),
            (59_000_000, 10, FindingGrade::Works, "58 s ahead of"),
            (3_600_000_000, 10, FindingGrade::Warning, "3599 s ahead of this machine's: no lease"),
            (-3_600_000_000, 10, FindingGrade::Warning, "3599 s behind this machine's: no lease"),
        ] {
            let asked_for = std::time::Duration::from_millis(asked_for);
            let finding = clock(&Facts { ahead, asked_for, ..Facts::example() });
            assert!(finding.grade == grade && finding.says.contains(says), "{ahead}: {finding:?}");
        }
    }
}
