//! Dashboards and rules as typed values, and their files.

mod alerts;
mod dashboard;
pub(crate) mod names;
mod packaging;
mod pages;
mod panel;
mod recording;
mod rule;
pub(crate) mod settings;

use serde_json::{Value, json};

pub(crate) use dashboard::Dashboard;
pub(crate) use pages::all as dashboards;
#[cfg(test)]
pub(crate) use rule::Rule;
pub(crate) use settings::Settings;

/// Returns every generated file: its path below `dashboards/` and its text.
#[must_use]
pub fn files(settings: &Settings) -> Vec<(String, String)> {
    let plain = written(settings);
    let mut files = packaging::files(&plain);
    files.extend(packaging::mixin(&written(&Settings::as_template())));
    files.push(("grafana/dashboards/.lint".to_owned(), packaging::exclusions(&dashboards())));
    files.extend(plain.into_iter().map(|file| (file.path(), file.text)));
    files
}

/// A dashboard, or a file of rules.
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) is_dashboard: bool,
    pub(crate) text: String,
}

impl Written {
    fn path(&self) -> String {
        if self.is_dashboard { format!("grafana/dashboards/{}", self.name) } else { self.name.clone() }
    }
}

fn written(settings: &Settings) -> Vec<Written> {
    let of_dashboard = |dashboard: Dashboard| Written {
        name: format!("{}.json", dashboard.file),
        is_dashboard: true,
        text: settings.fill(&format!("{:#}\n", dashboard.json())),
    };
    let of_rules = |name: &str, groups: &[rule::Group]| Written {
        name: name.to_owned(),
        is_dashboard: false,
        text: settings.fill(&rule::yaml(groups, settings)),
    };
    let mut all: Vec<_> = dashboards().into_iter().map(of_dashboard).collect();
    all.push(of_rules("alerts.yml", &alerts::groups()));
    all.push(of_rules("recording_rules.yml", &recording::groups()));
    all
}

/// Every rule, with default settings.
#[cfg(test)]
pub(crate) fn rules() -> Vec<Rule> {
    let rules = alerts::groups().into_iter().chain(recording::groups()).flat_map(|group| group.rules);
    rules.map(|rule| rule.filled(&Settings::default())).collect()
}

/// Lists every query of every panel, for a test that runs them.
#[must_use]
pub fn queries() -> Value {
    let settings = Settings::default();
    let mut all = Vec::new();
    for dashboard in dashboards() {
        for panel in dashboard.panels() {
            for query in &panel.queries {
                all.push(json!({
                    "dashboard": dashboard.title,
                    "panel": panel.title,
                    "expr": settings.fill(&query.expr),
                    "unit": panel.unit.id(),
                    "mayBeEmpty": query.may_be_empty,
                }));
            }
        }
    }
    all.into()
}
