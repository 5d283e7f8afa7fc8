//! The rules of grafana/dashboard-linter, rewritten from their descriptions. The linter's own code needs a Go toolchain
//! and is not meant to be built from source. The rules here are stricter where that costs nothing: every kind of panel
//! is checked, and only two rules have an exception.

use lock_testing::limit;
use serde_json::Value;

use crate::generate::dashboards;
use crate::tests::expressions::filled;
use crate::tests::promql::{Expr, parse};

/// The units of Grafana in these dashboards.
const UNITS: [&str; 4] = ["short", "s", "percentunit", "ops"];

/// Runs a check on every dashboard.
#[track_caller]
fn each_dashboard(check: impl Fn(&Value)) {
    let all = dashboards();
    assert_eq!(all.len(), 4);
    all.iter().for_each(|dashboard| check(&dashboard.json()));
}

/// Returns every panel, including those inside collapsed rows.
pub(crate) fn every_panel(dashboard: &Value) -> Vec<&Value> {
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        all.push(panel);
        all.extend(panel["panels"].as_array().into_iter().flatten());
    }
    all
}

/// Runs a check on every panel; a row is not a panel.
fn each_panel(check: impl Fn(&Value)) {
    each_dashboard(|dashboard| {
        let panels = every_panel(dashboard);
        assert!(panels.len() > 5);
        panels.into_iter().filter(|panel| panel["type"] != "row").for_each(&check);
    });
}

/// Runs a check on every query.
fn each_target(check: impl Fn(&Value, &str)) {
    each_panel(|panel| {
        for target in panel["targets"].as_array().unwrap() {
            check(panel, target["expr"].as_str().unwrap());
        }
    });
}

fn each_selector(check: impl Fn(&str, &str, &[(String, String)], Option<&str>)) {
    each_target(|_, expr| {
        // Kept separate from other ranges.
        let marked = expr.replace("$__rate_interval", "7777s");
        parse(&filled(&marked)).unwrap().visit("", &mut |part, inside| {
            if let Expr::Selector { name, matchers, range } = part {
                check(name, inside, matchers, range.as_deref());
            }
        });
    });
}

fn variable(dashboard: &Value, name: &str) -> Value {
    let list = dashboard["templating"]["list"].as_array().unwrap();
    list.iter().find(|variable| variable["name"] == name).unwrap_or_else(|| panic!("no variable {name}")).clone()
}

/// The check that `template-job-rule` and `template-instance-rule` share.
fn chooses_targets(name: &str, label: &str) {
    each_dashboard(|dashboard| {
        let variable = variable(dashboard, name);
        assert_eq!(variable["type"], "query");
        assert_eq!(variable["datasource"]["uid"], "${datasource}");
        assert_eq!(variable["label"], label);
        assert_eq!(variable["multi"], true);
        let may_be_missing = ["cluster", "namespace", "store"].contains(&name);
        assert_eq!(variable["allValue"], if may_be_missing { ".*" } else { ".+" });
    });
}

#[test]
#[limit]
fn template_datasource() {
    each_dashboard(|dashboard| {
        let source = variable(dashboard, "datasource");
        assert_eq!(source["type"], "datasource");
        assert_eq!(source["query"], "prometheus");
        assert_eq!(source["label"], "Data source");
    });
}

#[test]
#[limit]
fn template_job() {
    chooses_targets("job", "Job");
}

#[test]
#[limit]
fn template_instance() {
    chooses_targets("instance", "Instance");
}

/// An addition to the linter: where these labels do not exist, All must also match series without them.
#[test]
#[limit]
fn template_cluster_and_namespace() {
    chooses_targets("cluster", "Cluster");
    chooses_targets("namespace", "Namespace");
}

#[test]
#[limit]
fn template_label_promql() {
    each_dashboard(|dashboard| {
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if variable["type"] != "query" {
                continue;
            }
            let query = filled(variable["query"].as_str().unwrap());
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
            let (selector, label) = inner.rsplit_once(", ").unwrap();
            let labels = crate::tests::labels::of(&parse(&filled(selector)).unwrap()).unwrap();
            assert!(labels.contains(label), "{query}");
        }
    });
}

#[test]
#[limit]
fn template_on_time_change_reload() {
    each_dashboard(|dashboard| {
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            assert!(variable["type"] != "query" || variable["refresh"] == 2, "{variable}");
        }
    });
}

#[test]
#[limit]
fn panel_datasource() {
    each_panel(|panel| {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    });
}

#[test]
#[limit]
fn panel_title_description() {
    each_panel(|panel| {
        for text in ["title", "description"] {
            assert!(!panel[text].as_str().unwrap().trim().is_empty(), "{panel}");
        }
    });
}

#[test]
#[limit]
fn panel_units() {
    each_panel(|panel| {
        let defaults = &panel["fieldConfig"]["defaults"];
        let unit = defaults["unit"].as_str().unwrap();
        assert!(UNITS.contains(&unit) || defaults["mappings"].is_array(), "{}: {unit}", panel["title"]);
    });
}

#[test]
#[limit]
fn panel_no_targets() {
    each_panel(|panel| assert!(!panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]));
}

/// `target-logql` and `target-logql-auto` are about Loki.
#[test]
#[limit]
fn target_logql_and_logql_auto_have_nothing_to_check() {
    each_panel(|panel| {
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["type"], "prometheus");
        }
        assert_eq!(panel["datasource"]["type"], "prometheus");
    });
}

#[test]
#[limit]
fn target_promql() {
    each_target(|panel, expr| {
        parse(&filled(expr)).unwrap_or_else(|error| panic!("{}: {error}", panel["title"]));
    });
}

#[test]
#[limit]
fn target_rate_interval() {
    each_selector(|name, inside, _, range| {
        assert!(!["rate", "irate"].contains(&inside) || range == Some("7777s"), "{name} over {range:?}");
    });
}

/// An exception: the inspector runs in any service and reports the whole store, so series that are compared with it
/// cover all services.
fn is_of_the_fleet(name: &str, matchers: &[(String, String)]) -> bool {
    // An alert need not have the labels that are chosen.
    if name.starts_with("ALERTS") {
        return matchers.contains(&("cluster".to_owned(), "$cluster|".to_owned()));
    }
    let everywhere = matchers.contains(&("cluster".to_owned(), "$cluster".to_owned()));
    let compared = ["held", "waiting_on", "now_timestamp_seconds"].map(|name| format!("distributed_lock_{name}"));
    everywhere
        && (name.starts_with("distributed_lock_inspector_")
            || name.starts_with("redis_")
            || compared.iter().any(|one| one == name))
}

#[test]
#[limit]
fn target_job() {
    each_selector(|name, _, matchers, _| {
        let selected = matchers.contains(&("job".to_owned(), "$job".to_owned()));
        assert!(selected || is_of_the_fleet(name, matchers), "{name}");
    });
}

#[test]
#[limit]
fn target_instance() {
    each_selector(|name, _, matchers, _| {
        let selected = matchers.contains(&("instance".to_owned(), "$instance".to_owned()));
        assert!(selected || is_of_the_fleet(name, matchers), "{name}");
    });
}

#[test]
#[limit]
fn target_counter_agg() {
    each_target(|_, expr| {
        // An exception that the linter lacks: growth before the first scrape of a process was never seen at 0.
        let is_young = expr.contains(" - distributed_lock_start_timestamp_seconds");
        parse(&filled(&expr.replace("$__rate_interval", "7777s"))).unwrap().visit("", &mut |part, inside| {
            let Expr::Selector { name, .. } = part else { return };
            let is_rate = ["rate", "irate", "increase"].contains(&inside);
            assert!(!name.ends_with("_total") || is_rate || is_young, "{name} in {inside:?}");
        });
    });
}

#[test]
#[limit]
fn uneditable() {
    each_dashboard(|dashboard| assert_eq!(dashboard["editable"], false));
}

/// An addition to the linter: panels do not overlap, and each id is used once.
#[test]
#[limit]
fn panels_do_not_overlap() {
    each_dashboard(|dashboard| {
        let mut taken = std::collections::HashSet::new();
        let mut ids = std::collections::HashSet::new();
        for panel in every_panel(dashboard) {
            let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{panel}");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
                }
            }
        }
    });
}

/// An axis that begins elsewhere makes noise look like an incident, and empties the shortest bar.
#[test]
#[limit]
fn every_axis_begins_at_zero() {
    each_panel(|panel| {
        if panel["type"] == "timeseries" || panel["type"] == "bargauge" {
            assert_eq!(panel["fieldConfig"]["defaults"]["min"], 0, "{}", panel["title"]);
        }
    });
}

/// An addition to the linter: panels fill each row of the grid, and a table is not higher than its lines need.
#[test]
#[limit]
fn the_grid_has_no_holes_and_tables_are_low() {
    each_dashboard(|dashboard| {
        let mut sections: Vec<Vec<&Value>> = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            if panel["type"] == "row" {
                sections.push(panel["panels"].as_array().unwrap().iter().collect());
            } else {
                sections.last_mut().unwrap().push(panel);
            }
        }
        for section in sections {
            let side = |panel: &Value, side: &str| panel["gridPos"][side].as_u64().unwrap();
            let top = section.iter().map(|panel| side(panel, "y")).min().unwrap();
            let end = section.iter().map(|panel| side(panel, "y") + side(panel, "h")).max().unwrap();
            let filled: u64 = section.iter().map(|panel| side(panel, "w") * side(panel, "h")).sum();
            assert_eq!(filled, 24 * (end - top), "a hole beside or below {}", section[0]["title"]);
            for panel in section.iter().filter(|panel| panel["type"] == "table") {
                // These two list many locks.
                let is_long = ["Which lock, held by whom, since when", "Every lock name"].map(Value::from);
                let most = if is_long.contains(&panel["title"]) { 7 } else { 5 };
                assert!(side(panel, "h") <= most, "{} is {} high", panel["title"], side(panel, "h"));
            }
        }
    });
}

/// The width of a screen on which the last column of each table must be visible, without the margins of Grafana.
const SCREEN: u64 = 1_600 - 2 * 16 - 2 * 8 - 20;

/// An addition to the linter: Grafana gives a column without a width at least 150 pixels.
#[test]
#[limit]
fn every_column_is_visible_on_a_screen_of_1600_pixels() {
    each_dashboard(|dashboard| {
        for panel in every_panel(dashboard).into_iter().filter(|panel| panel["type"] == "table") {
            let organize = &panel["transformations"][1]["options"];
            let widths = panel["fieldConfig"]["overrides"].as_array().unwrap();
            let width = |column: &Value| {
                let of_column = widths.iter().filter(|part| part["matcher"]["options"] == *column);
                let mut properties = of_column.flat_map(|part| part["properties"].as_array().unwrap());
                let set = properties.find(|property| property["id"] == "custom.width");
                set.map_or(150, |property| property["value"].as_u64().unwrap())
            };
            let columns = organize["renameByName"].as_object().unwrap();
            let sum: u64 = columns.values().map(width).sum();
            let place = SCREEN * panel["gridPos"]["w"].as_u64().unwrap() / 24;
            assert!(sum <= place, "{} needs {sum} pixels and has {place}", panel["title"]);
        }
    });
}

#[test]
#[limit]
fn every_dashboard_can_be_limited_to_one_lock() {
    each_dashboard(|dashboard| {
        let lock = variable(dashboard, "lock");
        let is_single = lock["multi"] == false;
        assert!(is_single || lock["allValue"] == ".*", "{}", dashboard["title"]);
        let mut seen = 0;
        for panel in every_panel(dashboard).into_iter().filter(|panel| panel["type"] != "row") {
            for target in panel["targets"].as_array().unwrap() {
                parse(&filled(target["expr"].as_str().unwrap())).unwrap().visit("", &mut |part, _| {
                    let Expr::Selector { name, matchers, .. } = part else { return };
                    let has_lock = crate::tests::labels::series(name).unwrap().labels.contains("lock");
                    let limited = matchers.iter().any(|(label, _)| label == "lock");
                    assert_eq!(has_lock, limited, "{name} in {}", panel["title"]);
                    seen += usize::from(limited);
                });
            }
        }
        assert!(seen > 3, "{}: {seen}", dashboard["title"]);
    });
}

#[test]
#[limit]
fn the_first_page_begins_with_what_fires() {
    let dashboard = dashboards().into_iter().find(|dashboard| dashboard.file == "on-call").unwrap();
    let firing = dashboard.panels().find(|panel| panel.title == "Alerts that fire").unwrap();
    assert!(firing.queries[0].expr.contains("ALERTS{alertstate=\"firing\", alertname=~\"Lock.+\""));
    assert!(dashboard.rows[0].1.iter().any(|panel| panel.title == firing.title), "its row is open");
}
