//! The same dashboards and rules, in the forms for clusters.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::dashboard::Dashboard;
use super::{Written, rules, settings};

const HEAD: &str = "# Written by `lockctl dashboards`; change its settings, not this file.\n";

/// The label of every object.
const PART: (&str, &str) = ("app.kubernetes.io/part-of", "distributed-lock");

/// A form of the same dashboards and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Files for Prometheus, Alertmanager and Grafana, with the runbooks.
    Plain,
    /// A kustomize base: rules and a `ServiceMonitor` for the Prometheus operator, dashboards for Grafana's sidecar.
    Kubernetes,
    /// The same base, with dashboards for the Grafana operator.
    GrafanaOperator,
    /// A mixin for jsonnet, with the settings as its `_config`.
    Mixin,
}

impl Form {
    /// All forms, each with its name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("plain", Self::Plain),
        ("kubernetes", Self::Kubernetes),
        ("grafana-operator", Self::GrafanaOperator),
        ("mixin", Self::Mixin),
    ];

    /// Returns the form with a name of [`ALL`](Self::ALL).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
    }

    /// Returns what an operator does with the files.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Plain => {
                "Give Prometheus alerts.yml and recording_rules.yml as rule_files, and Grafana the folder grafana/dashboards"
            }
            Self::Kubernetes => "Name the folder as a base in your kustomization.yaml, or give it to kubectl apply -k",
            Self::GrafanaOperator => {
                "Name the folder as a base in your kustomization.yaml, or give it to kubectl apply -k. Give your Grafana the \
                 label dashboards: grafana"
            }
            Self::Mixin => "Import mixin.libsonnet, and set its _config",
        }
    }
}

/// Writes a base for kustomize. `kubectl apply -k` reads it too.
pub(super) fn kustomization(form: Form, all: &[Written]) -> Vec<(String, String)> {
    let files = [
        ("prometheus-rules.yaml", prometheus_rules(all)),
        ("service-monitor.yaml", service_monitor()),
        ("grafana-dashboards.yaml", grafana_dashboards(form, all)),
    ];
    let mut base = format!("{HEAD}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for (name, _) in &files {
        let _ = writeln!(base, "  - {name}");
    }
    let files = files.into_iter().chain([("kustomization.yaml", base)]);
    files.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Writes the head of an object. JSON is YAML too.
fn object(api: &str, kind: &str, name: &str, label: Option<(&str, &str)>) -> String {
    let mut labels = json!({ PART.0: PART.1 });
    if let Some((label, value)) = label {
        labels[label] = value.into();
    }
    let metadata = json!({ "name": format!("distributed-lock{name}"), "labels": labels });
    format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\n")
}

/// Writes objects of the kind `PrometheusRule`. The operator's guide forbids templates in them, so the files go in unchanged.
fn prometheus_rules(all: &[Written]) -> String {
    let mut yaml = HEAD.to_owned();
    for Written { name, text, .. } in all.iter().filter(|file| !file.is_dashboard) {
        let name = format!("-{}", name.trim_end_matches(".yml").replace('_', "-"));
        yaml += &object("monitoring.coreos.com/v1", "PrometheusRule", &name, None);
        yaml.push_str("spec:\n");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let _ = writeln!(yaml, "  {line}");
        }
    }
    yaml
}

/// Scrapes every service with the label for locks, by the name of its port.
fn service_monitor() -> String {
    let spec = json!({
        "namespaceSelector": { "any": true },
        "selector": { "matchLabels": { "distributed-lock/metrics": "true" } },
        "endpoints": [{ "port": "lock-metrics", "path": "/metrics", "interval": "15s", "scrapeTimeout": "10s" }],
    });
    let head = object("monitoring.coreos.com/v1", "ServiceMonitor", "", None);
    format!(
        "{HEAD}# Give your services the label, and a port named lock-metrics that serves lock_metrics' /metrics.\n\
         {head}spec: {spec}\n"
    )
}

/// Writes one object per dashboard. `kubectl apply` copies it into an annotation, so each must be small enough.
fn grafana_dashboards(form: Form, all: &[Written]) -> String {
    let mut yaml = HEAD.to_owned();
    if form == Form::GrafanaOperator {
        yaml.push_str("# Give your Grafana the label dashboards: grafana, or patch the instanceSelector.\n");
    }
    for Written { name, text, .. } in all.iter().filter(|file| file.is_dashboard) {
        let short = format!("-{}", name.trim_end_matches(".json"));
        let json = on_one_line(text);
        yaml += &match form {
            Form::GrafanaOperator => {
                let spec = json!({
                    "instanceSelector": { "matchLabels": { "dashboards": "grafana" } },
                    "allowCrossNamespaceImport": true,
                    "folder": "Locks",
                    "json": json,
                });
                let head = object("grafana.integreatly.org/v1beta1", "GrafanaDashboard", &short, None);
                format!("{head}spec: {spec}\n")
            }
            _ => {
                let head = object("v1", "ConfigMap", &short, Some(("grafana_dashboard", "1")));
                format!("{head}data: {}\n", json!({ name: json }))
            }
        };
    }
    yaml
}

/// A JSON document without line ends and indentation. Marks and strings stay unchanged.
fn on_one_line(json: &str) -> String {
    serde_json::from_str::<Value>(json).map_or_else(|_| json.to_owned(), |json| json.to_string())
}

/// Returns a mixin like kubernetes-mixin: `_config`, `grafanaDashboards`, `prometheusAlerts`, `prometheusRules`; and
/// the templates that it fills with `_config`.
pub(super) fn mixin(templates: &[Written]) -> Vec<(String, String)> {
    let mut text = HEAD.replace('#', "//");
    text.push_str("{\n");
    text.push_str(&settings::libsonnet());
    text.push_str("  // Without an address there is no link.\n  \
                   local linked(rules) = if c.dashboardUrl != '' then rules else rules {\n    \
                   groups: [group { rules: [rule + (if 'alert' in rule then { annotations: { [name]: rule.annotations[name] \
                   for name in std.objectFields(rule.annotations) if name != 'dashboard_url' } } else {}) for rule in group.rules] } \
                   for group in rules.groups],\n  },\n");
    text.push_str("  grafanaDashboards+:: {\n");
    for Written { name, .. } in templates.iter().filter(|file| file.is_dashboard) {
        let _ = writeln!(text, "    '{name}': std.parseJson((import 'templates/{name}.libsonnet')(quoted)),");
    }
    text.push_str("  },\n");
    for Written { name, .. } in templates.iter().filter(|file| !file.is_dashboard) {
        let field = if name == "alerts.yml" { "prometheusAlerts" } else { "prometheusRules" };
        let _ = writeln!(text, "  {field}+:: linked(std.parseJson((import 'templates/{name}.libsonnet')(quoted))),");
    }
    text.push_str("}\n");
    let mut files = vec![("mixin.libsonnet".to_owned(), text)];
    files.extend(templates.iter().map(|file| {
        let text = if file.is_dashboard { on_one_line(&file.text) } else { rules::as_json(&file.text).to_string() };
        (format!("templates/{}.libsonnet", file.name), in_parts(&text))
    }));
    files
}

/// Cuts a text at its marks. Otherwise jsonnet would search for them, which takes minutes.
fn in_parts(text: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut parts = text.split("<<");
    let mut all =
        format!("{}function(of) std.join('', [{}", HEAD.replace('#', "//"), quoted(parts.next().unwrap_or_default()));
    for part in parts {
        let (mark, rest) = part.split_once(">>").unwrap_or((part, ""));
        let _ = write!(all, ",\n  of.{mark}, {}", quoted(rest));
    }
    all + "])\n"
}
/// Lists the panels that Grafana's dashboard-linter need not check for the job and the instance, with the reason.
pub(super) fn exclusions(dashboards: &[Dashboard]) -> String {
    let mut yaml = HEAD.to_owned() + "exclusions:\n";
    for rule in ["target-job-rule", "target-instance-rule"] {
        let _ = write!(
            yaml,
            "  {rule}:\n    reason: >-\n      These panels are about a store, whichever process reports it: the fleet's inspector runs in one\n      \
             elected process of any job, and redis_exporter in none of ours.\n    entries:\n"
        );
        for dashboard in dashboards {
            let about_stores =
                |expr: &str| expr.contains("_inspector_") || expr.contains("redis_") || !every_selector_has_a_job(expr);
            for panel in dashboard.panels().filter(|panel| panel.queries.iter().any(|query| about_stores(&query.expr)))
            {
                let _ = writeln!(yaml, "      - dashboard: {:?}\n        panel: {:?}", dashboard.title, panel.title);
            }
        }
    }
    yaml
}

fn every_selector_has_a_job(expr: &str) -> bool {
    expr.split('{')
        .skip(1)
        .all(|matchers| matchers.split('}').next().is_some_and(|matchers| matchers.contains("job=~")))
}
