//! The rules are written by hand, in `alerts.yml` and `recording_rules.yml`. Here their settings are found and filled.
//!
//! Both files are valid with the default settings. The head of `alerts.yml` says which places are settings; [`marked`] puts a
//! mark such as `<<manyWaiters>>` there.

use std::sync::LazyLock;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::Settings;
use super::settings::TABLE;

/// The name and the text of each file.
pub(super) const FILES: [(&str, &str); 2] = [
    ("alerts.yml", include_str!("../../../alerts.yml")),
    ("recording_rules.yml", include_str!("../../../recording_rules.yml")),
];

/// The link of an alert to its dashboard. It is a comment until an operator gives the address of Grafana.
const LINK: (&str, &str) = ("# dashboard_url: https://grafana.example", "dashboard_url: <<dashboardUrl>>");

/// Replaces every place of a setting with its mark.
pub(super) fn marked(text: &str) -> String {
    let mut all = String::with_capacity(text.len() * 2);
    // The indentation of `expr:`. Deeper lines belong to the query.
    let mut query: Option<usize> = None;
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        query = query.filter(|outer| indent > *outer);
        let is_query = query.is_some() || content.starts_with("expr: ");
        if content.starts_with("expr:") {
            query = Some(indent);
        }
        match content.strip_prefix("severity: ") {
            _ if is_query => all.push_str(&of_query(line)),
            Some(severity) => all.push_str(&format!("{}severity: <<{severity}Severity>>", &line[..indent])),
            None => all.push_str(&line.replace(LINK.0, LINK.1)),
        }
        all.push('\n');
    }
    for name in ["runbookUrl", "liveViewUrl"] {
        let default = TABLE.iter().find(|setting| setting.name == name).map_or("", |setting| setting.default);
        all = all.replace(default, &format!("<<{name}>>"));
    }
    of_texts(&all)
}

/// Replaces the settings of the queries in texts, which are quoted strings of Go's templates.
fn of_texts(text: &str) -> String {
    let mut parts = text.split("%q}");
    let mut marked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let series = marked.rsplit('{').nth(1).unwrap_or_default();
        let name = series.rsplit(|c: char| !c.is_ascii_lowercase() && c != '_' && c != ':').next().unwrap_or_default();
        // A recorded series has only the labels of its rule.
        let also = if name.contains(':') { "" } else { "<<alsoInText>>" };
        marked.extend(["%q", also, "}", part]);
    }
    marked
}

/// Replaces the settings of one line of a query.
fn of_query(line: &str) -> String {
    let (code, comment) = line.split_at(start_of_comment(line));
    let mut marked = String::new();
    let (mut last, mut before_last) = ("", "");
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
        let length = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '{' => rest.find('}').map_or(rest.len(), |end| end + 1),
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        let is_scraped = ["up", "scrape_duration_seconds"].contains(&token) || token.starts_with("distributed_lock_");
        match token {
            "cluster" | "namespace" => marked.push_str(&format!("<<{token}Label>>")),
            "store" if last == "(" && ["by", "on"].contains(&before_last) => marked.push_str("<<storeLabels>>"),
            _ if is_scraped && !after.starts_with('{') => marked.extend([token, "<<selected>>"]),
            _ if first == '{' => marked.extend([token.trim_end_matches('}'), "<<also>>}"]),
            _ => match token.strip_prefix("150s").map(|step| ("twoLooks", step)) {
                Some((window, step)) => marked.push_str(&format!("<<{window}>>{step}")),
                None if token == "240s" => marked.push_str("<<fourLooks>>"),
                None => marked.push_str(token),
            },
        }
        if !token.trim().is_empty() {
            (before_last, last) = (last, token);
        }
        rest = after;
    }
    match TABLE.iter().find(|setting| comment.trim_start_matches(['#', ' ']) == setting.name) {
        Some(setting) => with_mark_for_the_last_number(&marked, setting.name) + comment,
        None => marked + comment,
    }
}

/// Returns where the comment of a line begins, or its end.
fn start_of_comment(line: &str) -> usize {
    let mut quoted = false;
    let begins = |(_, c): &(usize, char)| {
        quoted ^= *c == '"';
        *c == '#' && !quoted
    };
    line.char_indices().find(begins).map_or(line.len(), |(at, _)| at)
}

fn with_mark_for_the_last_number(code: &str, name: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = code.rfind(is_number).map_or(0, |last| last + 1);
    let start = code[..end].rfind(|c| !is_number(c)).map_or(0, |before| before + 1);
    format!("{}<<{name}>>{}", &code[..start], &code[end..])
}

/// Fills the marks of a file with rules.
pub(super) fn filled(marked: &str, settings: &Settings) -> String {
    // Without an address, the link stays a comment.
    let linked = if settings.is_without_links() { marked.replace(LINK.1, LINK.0) } else { marked.to_owned() };
    settings.fill_as(&linked, &str::to_owned)
}

/// Returns the rules as JSON, without comments: jsonnet does not read every text of YAML correctly.
pub(super) fn as_json(text: &str) -> Value {
    let files = YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("the rules are not YAML: {error}"));
    files.first().map(json_of).unwrap_or_default()
}

fn json_of(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Hash(fields) => fields
            .iter()
            .map(|(name, value)| match (name.as_str().unwrap_or_default(), value.as_str()) {
                ("expr", Some(query)) => ("expr".to_owned(), on_one_line(query).into()),
                (name, _) => (name.to_owned(), json_of(value)),
            })
            .collect(),
        Yaml::Array(items) => items.iter().map(json_of).collect(),
        text => text.as_str().into(),
    }
}

/// Returns a query without its comments.
fn on_one_line(query: &str) -> String {
    let parts = query.lines().map(|line| line[..start_of_comment(line)].trim()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")")
}

/// Returns the query of a rule for a dashboard, which then shows exactly what the rule says: series are written `@held`, and
/// recorded series are replaced by what they record. `within` selects the processes, as in [`selected`](super::names::selected).
pub(super) fn on_dashboard(rule: &str, within: &str) -> String {
    static RULES: LazyLock<[Value; 2]> = LazyLock::new(|| FILES.map(|(_, text)| as_json(&marked(text))));
    let mut recorded: Vec<(String, String)> = Vec::new();
    for file in &*RULES {
        let groups = file["groups"].as_array().into_iter().flatten();
        for known in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
            let text = |key: &str| known[key].as_str().unwrap_or_default();
            let mut expr = text("expr").to_owned();
            for (name, of) in &recorded {
                expr = expr.replace(name, &format!("({of})"));
            }
            if text("alert") == rule || text("record") == rule {
                return with_selectors(&expr, within);
            }
            if !text("record").is_empty() {
                recorded.push((text("record").to_owned(), expr));
            }
        }
    }
    panic!("there is no rule {rule}");
}

fn with_selectors(expr: &str, within: &str) -> String {
    let whole = if within.is_empty() { String::new() } else { format!("{{{within}}}") };
    let also = if within.is_empty() { "{".to_owned() } else { format!("{{{within}, ") };
    expr.replace("up<<selected>>", "<<up>>")
        .replace("distributed_lock_", "@")
        .replace("<<selected>>", &whole)
        .replace('{', &also)
        .replace(&format!("{also}{within}}}"), &whole)
        .replace("<<also>>", "")
}

/// Turns minutes into seconds and hours into minutes, for tests.
pub(super) fn fast(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        match line.trim_start().split_once(": ") {
            Some(("interval", _)) => continue,
            Some((name @ ("for" | "keep_firing_for"), time)) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                all.push_str(&format!("{indent}{name}: {}", time.replace('m', "s").replace('h', "m")));
            }
            _ => all.push_str(line),
        }
        all.push('\n');
    }
    all
}
