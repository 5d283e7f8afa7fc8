//! Dashboards as typed values, rules as written by hand, and their files in each form.

mod dashboard;
pub(crate) mod names;
mod packaging;
mod pages;
mod panel;
mod rules;
pub(crate) mod settings;

use serde_json::{Value, json};

pub(crate) use dashboard::Dashboard;
pub use packaging::Form;
pub(crate) use pages::all as dashboards;
pub(crate) use settings::Settings;

/// Returns every generated file of a form: its path and its text.
#[must_use]
pub fn files(form: Form, settings: &Settings) -> Vec<(String, String)> {
    match form {
        Form::Plain => {
            let mut files: Vec<_> = written(settings).into_iter().map(|file| (file.path(), file.text)).collect();
            files.push(("grafana/dashboards/.lint".to_owned(), packaging::exclusions(&dashboards())));
            files
        }
        Form::Kubernetes | Form::GrafanaOperator => packaging::kustomization(form, &written(settings)),
        Form::Mixin => packaging::mixin(&written(&Settings::as_template())),
    }
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
    let of_rules = |(name, text): (&str, &str)| {
        let text = if settings.fast { rules::fast(text) } else { text.to_owned() };
        Written { name: name.to_owned(), is_dashboard: false, text: rules::filled(&rules::marked(&text), settings) }
    };
    dashboards().into_iter().map(of_dashboard).chain(rules::FILES.map(of_rules)).collect()
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
