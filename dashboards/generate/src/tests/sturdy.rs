//! Rules must survive a real fleet: duplicate series, one bad scrape, and foreign settings.

use lock_testing::limit;

use crate::generate::settings::TABLE;
use crate::generate::{Dashboard, Form, Settings, dashboards, files};
use crate::tests::promql::{Expr, Matching, parse};
use crate::tests::rules::{Rule, alerts_in_full, rules, rules_of};

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
    for alert in alerts_in_full().into_iter().filter(|alert| alert.is_critical) {
        pages += 1;
        let expr = alert.expr;
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
    let plain = |settings: &Settings| -> String {
        let mut text: String = files(Form::Plain, settings).into_iter().map(|(_, text)| text).collect();
        text.extend(files(Form::Kubernetes, settings).into_iter().map(|(_, text)| text));
        text
    };
    let defaults = plain(&Settings::default());
    assert!(!defaults.contains("<<"), "a mark is left");
    for setting in TABLE {
        let mut settings = Settings::default();
        let value = if setting.name == "scrapeSeconds" { "7" } else { "changed" };
        settings.set(&format!("{}={value}", setting.name)).unwrap();
        assert_ne!(plain(&settings), defaults, "{} changes nothing", setting.name);
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
    let mut seen = 0;
    for rule in rules_of(&settings) {
        let expr = rule.expr();
        let series = expr.matches("distributed_lock_").count() - expr.matches(":distributed_lock_").count();
        assert!(expr.matches("env=\"prod\"").count() >= series, "{expr}");
        // A query in a text is a quoted string of a template, so a bare quote would end it.
        if let Rule::Alert(alert) = &rule {
            let in_text = alert.description.matches("env=").count();
            assert_eq!(alert.description.matches(r#"env=\"prod\""#).count(), in_text, "{}", alert.description);
            seen += in_text;
        }
    }
    assert!(seen > 30, "{seen}");
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

/// Removes what a dashboard selects from a query.
fn without_selection(expr: &str) -> String {
    let mut plain = String::new();
    for (number, part) in Settings::default().fill(expr).split('{').enumerate() {
        let Some((matchers, rest)) = part.split_once('}').filter(|_| number > 0) else {
            plain.push_str(part);
            continue;
        };
        let own: Vec<&str> = matchers.split(", ").filter(|matcher| !matcher.contains("\"$")).collect();
        if !own.is_empty() {
            plain.push_str(&format!("{{{}}}", own.join(", ")));
        }
        plain.push_str(rest);
    }
    plain
}

/// A panel that is above 0 in a healthy fleet teaches people to ignore it, and one that is green beside an alert too.
#[test]
#[limit]
fn the_dashboard_says_what_the_alert_says() {
    let says = |title: &str, query: usize, alert: &str| {
        let alert = alerts_in_full().into_iter().find(|known| known.name == alert).unwrap();
        let mut seen = 0;
        for panel in dashboards().iter().flat_map(Dashboard::panels).filter(|panel| panel.title == title) {
            let Some(query) = panel.queries.get(query) else { continue };
            let shown = without_selection(&query.expr);
            assert!(shown.contains(&alert.expr), "{title} says {shown}\nand {} says {}", alert.name, alert.expr);
            seen += 1;
        }
        assert!(seen > 0, "no panel {title}");
    };
    says("Locks without a holder", 0, "LockOrphanedHold");
    says("Held in the store, but by no process that is scraped", 0, "LockOrphanedHold");
    says("Which lock, held by whom, since when", 1, "LockStuck");
    says("Who holds it now", 1, "LockStuck");
    // Of one lock: green is the age of the oldest hold, and red that of a stuck one.
    let oldest = dashboards().into_iter().find(|dashboard| dashboard.one_lock).unwrap();
    let oldest = oldest.panels().find(|panel| panel.title == "Oldest hold").unwrap().clone();
    let stuck = alerts_in_full().into_iter().find(|alert| alert.name == "LockStuck").unwrap();
    assert_eq!(oldest.queries[1].legend, "STUCK");
    assert_eq!(without_selection(&oldest.queries[1].expr), format!("max({})", stuck.expr));
    assert!(oldest.queries[0].expr.contains(&format!("unless on () {} > 0", oldest.queries[1].expr)));
    let json = oldest.json(1, 0, 0);
    let red = &json["fieldConfig"]["overrides"][0];
    assert_eq!(
        (&red["matcher"]["options"], &red["properties"][0]["value"]["fixedColor"]),
        (&"STUCK".into(), &"red".into())
    );
}
