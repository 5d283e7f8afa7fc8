//! The servers that follow this one, and what a failover loses.

use lock_store::Finding;

use crate::doctor::facts::Facts;
use crate::url::Settings;

const NAME: &str = "synchronous_standby_names";

pub(super) fn standbys(settings: &Settings, facts: &Facts) -> Finding {
    let (all, waited_for) = facts.standbys;
    let are = match all {
        1 => "1 standby follows".to_owned(),
        _ => format!("{all} standbys follow"),
    };
    let Some(names) = facts.setting(NAME) else {
        return Finding::unknown(NAME, "the server does not tell for whom a commit waits");
    };
    if names.is_empty() {
        return match (settings.commit, all) {
            ("remote_apply", _) => {
                let says = "commit=remote_apply waits for nobody: no standby is named";
                Finding::warning(NAME, says).with_remedy("synchronous_standby_names = 'ANY 1 (*)'")
            }
            (_, 0) => {
                Finding::works(NAME, "none, and nobody follows this server: locks survive what its disk survives")
            }
            _ => {
                let says = format!(
                    "{are}, and no commit waits: one that is promoted may lack the last grants, and the last of your data"
                );
                Finding::warning(NAME, says).with_remedy("synchronous_standby_names = 'ANY 1 (*)'")
            }
        };
    }
    let needed = needed(names);
    match waited_for {
        _ if settings.commit == "off" => {
            let says = "commit=off in the URL waits for nobody: a standby that is promoted may lack the last grants";
            Finding::warning(NAME, says).with_remedy("leave commit= out of the URL")
        }
        Some(found) if found >= needed => {
            Finding::works(NAME, format!("{are}; a grant counts when each that a commit waits for has it"))
        }
        None if all > 0 => {
            let says = format!("{are}; whether a commit waits for one of them, this user may not see");
            Finding::unknown(NAME, says).with_remedy(format!("GRANT pg_read_all_stats TO {}", facts.user))
        }
        found => {
            let found = found.unwrap_or(0);
            let says = format!(
                "a commit waits for {needed} of these, and {found} of them are there: every grant waits as well"
            );
            Finding::refused(NAME, says).with_remedy("start them, or name fewer")
        }
    }
}

/// For how many a commit waits: `FIRST 2 (a, b)`, `ANY 2 (a, b)`, `2 (a, b)`, and one if nothing is said.
fn needed(names: &str) -> i64 {
    let Some((before, _)) = names.split_once('(') else { return 1 };
    before.split_whitespace().next_back().and_then(|number| number.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::needed;

    #[test]
    fn a_commit_waits_for_as_many_as_are_named() {
        let names = ["a", "a, b", "FIRST 2 (a, b)", "any 3 (*)", "2 (a, b, c)", "ANY 1 (\"x (2)\")"];
        assert_eq!(names.map(needed), [1, 1, 2, 3, 2, 1]);
    }
}
