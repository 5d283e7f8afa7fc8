//! The settings of an operator, in one table: `--set` of the generator, and `_config` of the mixin.
//!
//! Rules and dashboards contain marks such as `<<runbookUrl>>` for settings. The generator fills them with the values
//! of one run. The mixin gets the text unchanged, and jsonnet fills it.

use std::fmt::Write as _;

/// A setting for operators. [`Settings::TABLE`] has all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The name of the setting.
    pub name: &'static str,
    /// The default value.
    pub default: &'static str,
    /// The purpose of the setting.
    pub about: &'static str,
}

const fn setting(name: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { name, default, about }
}

pub(crate) const TABLE: &[Setting] = &[
    setting("selector", "", "matchers for every series of the rules, such as `env=\"prod\"`"),
    setting("clusterLabel", "cluster", "the label that tells clusters apart, where there is one"),
    setting("namespaceLabel", "namespace", "the label that tells namespaces apart, where there is one"),
    setting(
        "storeLabels",
        "store",
        "the labels that identify a store; add `cluster` and `namespace` if two servers have one address and no \
         store name",
    ),
    setting("scrapeSeconds", "60", "the longest time between two scrapes of a process"),
    setting("criticalSeverity", "critical", "the value of `severity` for alerts that wake a person"),
    setting("warningSeverity", "warning", "the value of `severity` for alerts that can wait until the morning"),
    setting(
        "runbookUrl",
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/dashboards/runbooks/"),
        "the address in front of the name of a runbook",
    ),
    setting("dashboardUrl", "", "the address of Grafana, for a link from each alert to its dashboard"),
    setting(
        "liveViewUrl",
        "http://{{ $labels.instance }}/locks",
        "the address of the live view of the alert's process",
    ),
    setting("manyWaiters", "10", "how many callers may wait for one lock for five minutes"),
    setting("longPinSeconds", "300", "for how long an open transaction may pin a lock"),
    setting(
        "manyLocks",
        "3",
        "from how many locks of one store at once, stuck or lost, one message replaces the others",
    ),
    setting("longWaitSeconds", "600", "for how long one caller may wait"),
    setting("errorShare", "0.05", "the share of commands that may fail, for five minutes"),
    setting(
        "errorSharePage",
        "0.5",
        "the share of failing commands of one kind that wakes a person, after two minutes",
    ),
    setting("slowStoreSeconds", "0.5", "the time within which nine of ten commands must be answered"),
    setting("leaderChanges", "4", "how often an election may change its leader in 15 minutes"),
    setting("slowWaits", "0.01", "the share of the waits of a month that may take more than 250 ms"),
];

fn names() -> String {
    TABLE.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", ")
}

/// Marks that follow from settings: the name, and the jsonnet code for it.
const DERIVED: &[(&str, &str)] = &[
    // After the name of a series, and after its matchers.
    ("selected", "if c.selector == '' then '' else '{' + c.selector + '}'"),
    ("also", "if c.selector == '' then '' else ', ' + c.selector"),
    // The same inside a quoted string of a template.
    ("alsoInText", r#"std.strReplace(self.also, '"', '\\"')"#),
    // A window that always has two scrapes.
    ("twoLooks", "'%ds' % (std.parseInt(c.scrapeSeconds) * 5 / 2)"),
    // A window that has two scrapes even if one in between fails, and that is long enough for an event once a minute.
    ("fourLooks", "'%ds' % std.max(60, std.parseInt(c.scrapeSeconds) * 4)"),
];

/// The settings of one run of the generator.
///
/// ```
/// let mut settings = lock_dashboards::Settings::default();
/// settings.set("runbookUrl=https://wiki.example/locks/").unwrap();
/// assert!(settings.set("runbook=x").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    values: Vec<(&'static str, String)>,
    /// Whether to use seconds instead of the minutes that keep alerts calm, for tests.
    pub(super) fast: bool,
    /// Whether marks stay, for the mixin.
    template: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let values = TABLE.iter().map(|setting| (setting.name, setting.default.to_owned())).collect();
        Self { values, fast: false, template: false }
    }
}

impl Settings {
    /// All settings.
    pub const TABLE: &'static [Setting] = TABLE;

    /// Returns all settings as text: name, default and purpose of each.
    #[must_use]
    pub fn list() -> String {
        let line = |setting: &Setting| format!("{}={}\n    {}\n", setting.name, setting.default, setting.about);
        TABLE.iter().map(line).collect()
    }

    /// Returns the settings with seconds instead of the minutes that keep alerts calm.
    #[must_use]
    pub fn fast(self, fast: bool) -> Self {
        Self { fast, ..self }
    }

    /// Sets one value, written `name=value`.
    ///
    /// # Errors
    ///
    /// A sentence if the setting does not exist, or if the value is invalid.
    pub fn set(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair} is not written NAME=VALUE"))?;
        let known = self.values.iter_mut().find(|(known, _)| *known == name);
        let (_, known) = known.ok_or_else(|| format!("there is no setting {name}; there are {}", names()))?;
        value.clone_into(known);
        match self.scrape_seconds() {
            Some(_) => Ok(()),
            None => Err("scrapeSeconds is a number of seconds, at least 1".to_owned()),
        }
    }

    /// Returns the settings for the mixin, where jsonnet sets the values.
    pub(crate) fn as_template() -> Self {
        Self { template: true, ..Self::default() }
    }

    /// Replaces marks in a text that is quoted as JSON.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.fill_as(text, &in_json)
    }

    fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    fn scrape_seconds(&self) -> Option<u32> {
        self.value("scrapeSeconds").parse().ok().filter(|seconds| (1..=3600).contains(seconds))
    }

    /// Whether alerts have no link to a dashboard. The mixin decides itself.
    pub(super) fn is_without_links(&self) -> bool {
        !self.template && self.value("dashboardUrl").is_empty()
    }

    /// Replaces marks with values. `quoted` makes a value fit into the text.
    pub(super) fn fill_as(&self, text: &str, quoted: &dyn Fn(&str) -> String) -> String {
        if self.template {
            return text.to_owned();
        }
        let selector = self.value("selector");
        let (selected, also) = match selector {
            "" => (String::new(), String::new()),
            selector => (format!("{{{selector}}}"), format!(", {selector}")),
        };
        let scrape = self.scrape_seconds().unwrap_or(60);
        let seconds = |seconds: u32| format!("{seconds}s");
        let derived = [
            ("selected", selected),
            ("alsoInText", also.replace('"', "\\\"")),
            ("also", also),
            ("twoLooks", seconds(scrape * 5 / 2)),
            ("fourLooks", seconds((scrape * 4).max(60))),
        ];
        let mut filled = text.to_owned();
        for (name, value) in derived.iter().chain(&self.values) {
            filled = filled.replace(&format!("<<{name}>>"), &quoted(value));
        }
        filled
    }
}

/// Writes `_config` of the mixin, and what fills a text with it.
pub(crate) fn libsonnet() -> String {
    let mut text = String::from("  _config+:: {\n");
    for setting in TABLE {
        let value = serde_json::Value::from(setting.default);
        let _ = writeln!(text, "    // {}\n    {}: {value},", capital(setting.about), setting.name);
    }
    text.push_str("  },\n  local c = $._config,\n  local marks = {\n");
    for (name, made) in DERIVED {
        let _ = writeln!(text, "    {name}: {made},");
    }
    text.push_str(
        "  } + c,\n  \
         // Values go into quoted strings.\n  \
         local inside(value) = local json = std.escapeStringJson(value); std.substr(json, 1, std.length(json) - 2),\n  \
         local quoted = { [name]: inside(marks[name]) for name in std.objectFieldsAll(marks) },\n",
    );
    text
}

/// Quotes a value for the inside of a JSON string.
fn in_json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
