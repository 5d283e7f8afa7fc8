//! Checks every query and every text against the catalogue, in both directions.

use lock_testing::limit;
use std::collections::BTreeSet;

use lock_metrics::catalog;
use serde_json::Value;

use crate::generate::{Settings, dashboards};
use crate::tests::labels::{self, Labels};
use crate::tests::promql::{Expr, parse};
use crate::tests::rules::{Rule, rules};

/// Replaces Grafana's variables with values that Prometheus can read.
pub(crate) fn filled(expr: &str) -> String {
    Settings::default().fill(expr).replace("$__rate_interval", "5m").replace("$__interval", "1m")
}

/// Every query of dashboards, annotations included, and of rules.
fn all() -> Vec<String> {
    let mut all: Vec<String> = rules().iter().map(|rule| rule.expr().to_owned()).collect();
    for dashboard in dashboards() {
        all.extend(dashboard.panels().flat_map(|panel| &panel.queries).map(|query| query.expr.clone()));
        let json = dashboard.json();
        let annotations = json["annotations"]["list"].as_array().unwrap();
        all.extend(annotations.iter().map(|annotation| annotation["expr"].as_str().unwrap().to_owned()));
    }
    all.iter().map(|expr| filled(expr)).collect()
}

#[test]
#[limit]
fn every_query_parses_and_every_metric_and_label_in_it_exists() {
    assert!(all().len() > 100, "{}", all().len());
    for expr in all() {
        let parsed = parse(&expr).unwrap_or_else(|error| panic!("{expr}: {error}"));
        labels::of(&parsed).unwrap_or_else(|error| panic!("{expr}: {error}"));
    }
}

#[test]
#[limit]
fn totals_are_only_looked_at_as_rates_and_only_they_are() {
    for expr in all() {
        parse(&expr).unwrap().visit("", &mut |part, inside| {
            let Expr::Selector { name, range, .. } = part else { return };
            let is_rate = ["rate", "irate", "increase"].contains(&inside);
            // A total alone means something only if the age of its process is compared too.
            let is_young = expr.contains(" - distributed_lock_start_timestamp_seconds");
            // Or if the query checks that the total still grows.
            let is_told = expr.contains(&format!("irate({name}[240s]) and ({name} or "));
            assert!(labels::series(name).unwrap().is_total == is_rate || is_young || is_told, "{name} in {expr}");
            let wants_range = is_rate || inside == "deriv" || inside.ends_with("_over_time");
            assert_eq!(range.is_some(), wants_range, "{name} in {expr}");
        });
    }
}

#[test]
#[limit]
fn bucket_bounds_exist_and_are_no_integers() {
    let mut seen = 0;
    for expr in all() {
        parse(&expr).unwrap().visit("", &mut |part, _| {
            let Expr::Selector { name, matchers, .. } = part else { return };
            for (_, bound) in matchers.iter().filter(|(label, _)| label == "le") {
                let bound: f64 = bound.parse().unwrap();
                assert!(labels::series(name).unwrap().buckets.contains(&bound), "{name} has no bucket {bound}");
                assert!(bound.fract() != 0.0, "Prometheus 3 rewrites {bound} in {expr}");
                seen += 1;
            }
        });
    }
    assert!(seen > 0);
}

/// `promql/regexp` of pint requires this.
#[test]
#[limit]
fn a_pattern_in_a_rule_is_more_than_a_word() {
    let mut seen = 0;
    for rule in rules() {
        for matcher in filled(rule.expr()).split("~\"").skip(1) {
            let (pattern, _) = matcher.split_once('"').unwrap();
            assert!(
                pattern.contains(|mark: char| "|.*+?[".contains(mark)),
                "{pattern:?} is a plain word: write = or !="
            );
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
#[limit]
fn every_metric_is_looked_at_somewhere() {
    let mut used = BTreeSet::new();
    for expr in all() {
        parse(&expr).unwrap().visit("", &mut |part, _| {
            if let Expr::Selector { name, .. } = part {
                used.insert(labels::series(name).unwrap().metric);
            }
        });
    }
    for name in catalog().map(lock_metrics::Metric::name) {
        assert!(used.contains(name), "{name} is on no dashboard and in no rule");
    }
}

#[test]
#[limit]
fn legends_name_labels_that_the_query_gives() {
    for dashboard in dashboards() {
        for panel in dashboard.panels() {
            for query in &panel.queries {
                let given = labels::of(&parse(&filled(&query.expr)).unwrap()).unwrap();
                for label in placeholders(query.legend, "{{") {
                    assert!(given.contains(label), "{}: {label} is not in {given:?}", panel.title);
                }
            }
        }
        let json = dashboard.json();
        for panel in json["panels"].as_array().unwrap() {
            columns_exist(panel);
            panel["panels"].as_array().into_iter().flatten().for_each(columns_exist);
        }
    }
}

/// A table may move, rename or hide only columns of its queries.
fn columns_exist(panel: &Value) {
    let Some(organize) = panel["transformations"].as_array().map(|all| &all[1]["options"]) else { return };
    let mut given = Labels::from(["Time".to_owned(), "Value".to_owned(), "job".to_owned()]);
    for target in panel["targets"].as_array().unwrap() {
        given.extend(labels::of(&parse(&filled(target["expr"].as_str().unwrap())).unwrap()).unwrap());
        given.insert(format!("Value #{}", target["refId"].as_str().unwrap()));
    }
    for column in organize["renameByName"].as_object().unwrap().keys() {
        assert!(given.contains(column), "{}: no column {column}", panel["title"]);
    }
}

#[test]
#[limit]
fn alerts_name_labels_that_they_have_and_metrics_that_exist() {
    for rule in rules() {
        let Rule::Alert(alert) = rule else { continue };
        let given = labels::of(&parse(&alert.expr).unwrap()).unwrap();
        // The live view of each holder, within a loop over them.
        let text =
            format!("{} {}", alert.summary, alert.description).replace("http://{{ $labels.instance }}/locks", "");
        for label in placeholders(&text, "$labels.") {
            assert!(given.contains(label), "{}: {label} is not in {given:?}", alert.name);
        }
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':') {
            if word.starts_with("distributed_lock_") || word.contains(":distributed_lock_") {
                labels::series(word).unwrap();
            }
        }
        let about_a_lock = given.contains("lock");
        assert_eq!(about_a_lock, text.contains("$labels.lock"), "{} does not name its lock", alert.name);
        assert!(text.contains("$labels.site") || text.contains("call site") || !about_a_lock || text.contains("site"));
        assert!(alert.description.len() > alert.summary.len(), "{}", alert.name);
        assert!(alert.expr.contains(['>', '<', '=']), "{} fires always", alert.name);
    }
}

/// A fault of a whole store may belong to several services: the alert has no label for them, and its text names them.
#[test]
#[limit]
fn a_page_carries_the_labels_that_teams_route_by() {
    let mut of_a_store = Vec::new();
    for rule in rules() {
        let Rule::Alert(alert) = rule else { continue };
        let given = labels::of(&parse(&alert.expr).unwrap()).unwrap();
        if alert.is_critical && !["cluster", "namespace", "job"].iter().all(|label| given.contains(*label)) {
            assert!(alert.description.contains(".Labels.job"), "{} names no service", alert.name);
            of_a_store.push(alert.name.as_str());
        }
    }
    assert_eq!(of_a_store, ["LockManyStuck", "LockManyLost"]);
}

/// Returns the names that follow a mark.
fn placeholders<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).map(|rest| {
        let rest = rest.trim_start();
        &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())]
    })
}
