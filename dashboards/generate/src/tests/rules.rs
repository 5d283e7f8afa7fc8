//! The rules as they are filled with default settings.

use std::sync::LazyLock;

use yaml_rust2::{Yaml, YamlLoader};

use crate::generate::{Form, Settings, files};

/// One rule. Its expression has no comments, and is on one line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    Alert(Alert),
    Record { name: String, expr: String },
}

/// One alert.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alert {
    pub(crate) name: String,
    pub(crate) expr: String,
    pub(crate) wait: String,
    pub(crate) is_critical: bool,
    pub(crate) summary: String,
    pub(crate) description: String,
}

impl Rule {
    pub(crate) fn expr(&self) -> &str {
        match self {
            Self::Alert(Alert { expr, .. }) | Self::Record { expr, .. } => expr,
        }
    }
}

/// Every rule, with default settings.
pub(crate) fn rules() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| rules_of(&Settings::default()));
    &RULES
}

/// Every rule with these settings.
pub(crate) fn rules_of(settings: &Settings) -> Vec<Rule> {
    let is_rules = |(name, _): &(String, String)| ["alerts.yml", "recording_rules.yml"].contains(&name.as_str());
    files(Form::Plain, settings).into_iter().filter(is_rules).flat_map(|(_, text)| read(&text)).collect()
}

/// Reads the rules of a file.
pub(crate) fn read(text: &str) -> Vec<Rule> {
    let documents = YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let groups = documents[0]["groups"].as_vec().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_vec().unwrap()).map(rule).collect()
}

/// Every alert, with default settings. Recorded series in its expression are replaced by what they record.
pub(crate) fn alerts_in_full() -> Vec<Alert> {
    let rules = rules();
    let alerts = rules.iter().filter_map(|rule| match rule {
        Rule::Alert(alert) => Some(Alert { expr: in_full(&alert.expr, rules), ..alert.clone() }),
        Rule::Record { .. } => None,
    });
    alerts.collect()
}

fn in_full(expr: &str, rules: &[Rule]) -> String {
    let mut full = expr.to_owned();
    // A recorded series may read others that are recorded before it.
    for rule in rules.iter().rev() {
        if let Rule::Record { name, expr } = rule {
            full = full.replace(name.as_str(), &format!("({expr})"));
        }
    }
    full
}

fn rule(rule: &Yaml) -> Rule {
    let text = |part: &Yaml| part.as_str().unwrap_or_default().to_owned();
    let expr = on_one_line(rule["expr"].as_str().unwrap());
    if let Some(name) = rule["record"].as_str() {
        return Rule::Record { name: name.to_owned(), expr };
    }
    Rule::Alert(Alert {
        name: text(&rule["alert"]),
        expr,
        wait: text(&rule["for"]),
        is_critical: rule["labels"]["severity"].as_str() == Some("critical"),
        summary: text(&rule["annotations"]["summary"]),
        description: text(&rule["annotations"]["description"]),
    })
}

fn on_one_line(expr: &str) -> String {
    let code = expr.lines().map(|line| line.split("# ").next().unwrap_or_default().trim());
    code.filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .replace("( ", "(")
        .replace(" )", ")")
        .trim()
        .to_owned()
}
