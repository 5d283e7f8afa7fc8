//! Rules must survive a real fleet: duplicate series, one bad scrape, and foreign settings.

use lock_testing::limit;

use crate::generate::settings::TABLE;
use crate::generate::{Rule, Settings, dashboards, files, rules};
use crate::tests::promql::{Expr, Matching, parse};

const SETS: [&str; 3] = ["and", "or", "unless"];

/// Whether series that differ only in other labels are merged.
fn is_unique(expr: &Expr) -> bool {
    match expr {
        Expr::Number | Expr::Text(_) => true,
        // A recorded series is unique by its rule.
        Expr::Selector { name, .. } => name.contains(':'),
        Expr::Subquery(inner) => is_unique(inner),
        Expr::Aggregate { picks, .. } => !picks,
        Expr::Call { function, arguments } => function == "time" || arguments.iter().all(is_unique),
        Expr::Binary { operator, left, right, group, matching } => match operator.as_str() {
            "and" | "unless" => is_unique(left),
            // A one-to-one match on labels keeps these labels. A duplicate would be an error.
            _ if group.is_none() && matches!(matching, Matching::On(_)) && operator != "or" => true,
            _ => is_unique(left) && is_unique(right),
        },
    }
}

/// Whether the expression reads only a recorded series, which is unique by its rule.
fn is_recorded(expr: &Expr) -> bool {
    let mut all = true;
    expr.visit("", &mut |part, _| {
        if let Expr::Selector { name, .. } = part {
            all &= name.contains(':');
        }
    });
    all
}

#[test]
#[limit]
fn no_rule_dies_of_series_that_are_there_twice_or_fires_twice_for_them() {
    for rule in rules() {
        let parsed = parse(rule.expr()).unwrap();
        assert!(is_unique(&parsed) || is_recorded(&parsed), "one alert for each copy: {}", rule.expr());
        parsed.visit("", &mut |part, _| {
            let Expr::Binary { operator, left, right, matching: Matching::On(_), .. } = part else { return };
            if SETS.contains(&operator.as_str()) {
                return;
            }
            for side in [left, right] {
                assert!(
                    is_unique(side) || is_recorded(side),
                    "{operator} on {side:?} dies of duplicates: {}",
                    rule.expr()
                );
            }
        });
    }
}

#[test]
#[limit]
fn a_page_needs_two_looks() {
    let mut pages = 0;
    for rule in rules() {
        let Rule::Alert(alert) = rule else { continue };
        if format!("{:?}", alert.severity) != "Critical" {
            continue;
        }
        pages += 1;
        let recorded = |rule: Rule| match rule {
            Rule::Record { name, expr } if alert.expr.contains(&name) => Some(expr),
            _ => None,
        };
        let expr = alert.expr.clone() + &rules().into_iter().filter_map(recorded).collect::<String>();
        // A total records an event that has happened, so one scrape is enough.
        let is_total = expr.contains("_total");
        let minutes: u32 = alert.wait.strip_suffix('m').and_then(|minutes| minutes.parse().ok()).unwrap_or(0);
        let counts_looks = expr.contains("[150s:5s]");
        assert!(is_total || minutes >= 2 || counts_looks, "{} pages after one scrape", alert.name);
    }
    assert!(pages >= 8, "{pages}");
}

#[test]
#[limit]
fn no_mark_of_a_setting_is_left_and_each_setting_changes_something() {
    let defaults = files(&Settings::default());
    let plain = |files: &[(String, String)]| -> String {
        files.iter().filter(|(name, _)| !name.starts_with("mixin/")).map(|(_, text)| text.as_str()).collect()
    };
    assert!(!plain(&defaults).contains("<<"), "a mark is left");
    for setting in TABLE {
        let mut settings = Settings::default();
        let value = if setting.name == "scrapeSeconds" { "7" } else { "changed" };
        settings.set(&format!("{}={value}", setting.name)).unwrap();
        assert_ne!(plain(&files(&settings)), plain(&defaults), "{} changes nothing", setting.name);
    }
    for bad in ["unknown=1", "runbookUrl", "scrapeSeconds=0", "scrapeSeconds=often"] {
        assert!(Settings::default().set(bad).is_err(), "{bad}");
    }
}

#[test]
#[limit]
fn a_selector_stands_in_every_series_and_its_quotes_survive() {
    let mut settings = Settings::default();
    settings.set("selector=env=\"prod\"").unwrap();
    let (_, text) = files(&settings).into_iter().find(|(name, _)| name == "alerts.yml").unwrap();
    for line in text.lines().filter(|line| line.trim_start().starts_with("expr:")) {
        let expr: String = serde_json::from_str(line.trim_start().trim_start_matches("expr:").trim()).unwrap();
        let series = expr.matches("distributed_lock_").count() - expr.matches(":distributed_lock_").count();
        assert!(expr.matches("env=\"prod\"").count() >= series, "{expr}");
    }
}

#[test]
#[limit]
fn nothing_about_a_lock_is_joined_without_its_store() {
    let mut joins = 0;
    for rule in rules() {
        let check = |labels: &[String]| {
            let has = |name: &str| labels.iter().any(|label| label == name);
            assert!(!has("lock") || has("store"), "by {labels:?} in {}", rule.expr());
        };
        parse(rule.expr()).unwrap().visit("", &mut |part, _| match part {
            Expr::Aggregate { by, .. } => check(by),
            Expr::Binary { matching: Matching::On(on), .. } => {
                joins += 1;
                check(on);
            }
            _ => {}
        });
    }
    assert!(joins > 50, "{joins}");
}

/// A panel that is above 0 in a healthy fleet teaches people to ignore it.
#[test]
#[limit]
fn the_dashboard_smooths_orphans_as_the_alert_does() {
    let smoothed = |text: &str| {
        let text = text.split(" unless on (store) (max").next().unwrap_or_default();
        let windows = ["inspector_held", "inspector_commands", "held"].map(|series| {
            let at = text
                .find(&format!("distributed_lock_{series}{{"))
                .or_else(|| text.find(&format!("distributed_lock_{series}[")));
            let before = &text[..at.unwrap_or_else(|| panic!("{series} in {text}"))];
            before.rsplit(['(', ' ']).nth(1).unwrap_or_default().to_owned()
        });
        assert_eq!(windows, ["min_over_time", "max_over_time", "max_over_time"], "{text}");
    };
    let orphans = rules().into_iter().find_map(|rule| match rule {
        Rule::Alert(alert) if alert.name == "LockOrphanedHold" => Some(alert.expr),
        _ => None,
    });
    smoothed(&orphans.unwrap());
    for dashboard in dashboards() {
        for panel in dashboard.panels() {
            if panel.title == "Locks without a holder" {
                smoothed(&Settings::default().fill(&panel.queries[0].expr));
            }
        }
    }
}
