//! Dashboards and rules as typed values, and their files.

mod alerts;
mod dashboard;
mod fleet;
pub(crate) mod names;
mod on_call;
mod one_lock;
mod packaging;
mod panel;
mod recording;
mod roles;
mod rule;

use serde_json::{Value, json};

pub(crate) use dashboard::Dashboard;
#[cfg(test)]
pub(crate) use rule::Rule;

/// The settings of one run of the generator.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The address before the name of a runbook in an alert.
    pub(crate) runbooks: String,
    /// The address of the dashboards, for a link in each alert.
    pub(crate) dashboards: Option<String>,
    /// The address of the live view of the alert's process.
    pub(crate) live_view: String,
    /// Whether to use seconds instead of the minutes that keep alerts calm, for tests.
    pub(crate) fast: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runbooks: "dashboards/runbooks/".to_owned(),
            dashboards: None,
            live_view: "http://{{ $labels.instance }}/locks".to_owned(),
            fast: false,
        }
    }
}

/// Returns every generated file: its path below `dashboards/` and its text.
pub(crate) fn files(settings: &Settings) -> Vec<(String, String)> {
    let mut files: Vec<_> = dashboards()
        .into_iter()
        .map(|dashboard| (format!("grafana/dashboards/{}.json", dashboard.file), format!("{:#}\n", dashboard.json())))
        .collect();
    let alerts = rule::yaml(&alerts::groups(), settings);
    let recorded = rule::yaml(&recording::groups(), settings);
    files.extend(packaging::files(&dashboards(), &[("alerts.yml", &alerts), ("recording_rules.yml", &recorded)]));
    files.push(("alerts.yml".to_owned(), alerts));
    files.push(("recording_rules.yml".to_owned(), recorded));
    files
}

pub(crate) fn dashboards() -> Vec<Dashboard> {
    vec![on_call::dashboard(), one_lock::dashboard(), fleet::dashboard()]
}

#[cfg(test)]
pub(crate) fn rules() -> Vec<Rule> {
    alerts::groups().into_iter().chain(recording::groups()).flat_map(|group| group.rules).collect()
}

/// Lists every query of every panel, for a test that runs them.
pub(crate) fn queries() -> Value {
    let mut all = Vec::new();
    for dashboard in dashboards() {
        for panel in dashboard.panels() {
            for query in &panel.queries {
                all.push(json!({
                    "dashboard": dashboard.title,
                    "panel": panel.title,
                    "expr": query.expr,
                    "unit": panel.unit.id(),
                    "mayBeEmpty": query.may_be_empty,
                }));
            }
        }
    }
    all.into()
}
