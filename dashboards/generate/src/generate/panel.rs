//! Panels of a dashboard.

use serde_json::{Value, json};

use super::names::{histograms, selected};

/// One panel.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) queries: Vec<Query>,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The values at which the panel turns orange, and red.
    pub(crate) thresholds: (Option<f64>, Option<f64>),
}

/// The visualization of a panel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Stat,
    TimeSeries,
    BarGauge,
    Heatmap,
    StateTimeline,
    /// One row for each set of labels. Has the headings of the values, one for each query, and the labels shown before them.
    Table {
        labels: &'static [(&'static str, &'static str)],
    },
}

/// The unit of the values of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Seconds,
    Share,
    PerSecond,
    UpDown,
}

/// One query of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) expr: String,
    pub(crate) legend: &'static str,
    /// The query may return nothing, and that is good news.
    pub(crate) may_be_empty: bool,
}

impl Query {
    /// `legend` is the heading of the column in a table.
    pub(crate) fn new(legend: &'static str, template: &str) -> Self {
        Self { expr: selected(template), legend, may_be_empty: false }
    }

    pub(crate) fn may_be_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }
}

impl Unit {
    /// Returns Grafana's name of the unit.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Count | Self::UpDown => "short",
            Self::Seconds => "s",
            Self::Share => "percentunit",
            Self::PerSecond => "ops",
        }
    }
}

impl Panel {
    pub(crate) fn new(title: &'static str, description: &'static str, kind: Kind, unit: Unit) -> Self {
        let (width, height) = match &kind {
            Kind::Stat => (4, 4),
            Kind::Table { .. } => (24, 5),
            _ => (8, 8),
        };
        Self { title, description, kind, unit, queries: Vec::new(), width, height, thresholds: (None, None) }
    }

    pub(crate) fn query(mut self, legend: &'static str, template: &str) -> Self {
        self.queries.push(Query::new(legend, template));
        self
    }

    /// Adds a query that shows its ten greatest series. A legend with every lock of a fleet would be unreadable.
    pub(crate) fn worst(mut self, legend: &'static str, template: &str) -> Self {
        self.queries.push(Query::new(legend, &format!("topk(10, {template})")).may_be_empty());
        self
    }

    /// Adds a query that may return nothing.
    pub(crate) fn rare(mut self, legend: &'static str, template: &str) -> Self {
        self.queries.push(Query::new(legend, template).may_be_empty());
        self
    }

    pub(crate) fn wide(mut self, width: u32) -> Self {
        self.width = width;
        self
    }

    pub(crate) fn high(mut self, height: u32) -> Self {
        self.height = height;
        self
    }

    pub(crate) fn orange(mut self, from: f64) -> Self {
        self.thresholds.0 = Some(from);
        self
    }

    pub(crate) fn red(mut self, from: f64) -> Self {
        self.thresholds.1 = Some(from);
        self
    }

    pub(crate) fn json(&self, id: usize, x: u32, y: u32) -> Value {
        let mut steps = vec![json!({ "color": "green", "value": null })];
        for (color, from) in [("orange", self.thresholds.0), ("red", self.thresholds.1)] {
            steps.extend(from.map(|from| json!({ "color": color, "value": from })));
        }
        let mut defaults = json!({
            "unit": self.unit.id(),
            "thresholds": { "mode": "absolute", "steps": steps },
            "color": { "mode": if self.kind == Kind::TimeSeries { "palette-classic" } else { "thresholds" } },
            "custom": self.custom(),
        });
        // Otherwise the axis begins at the smallest value.
        if matches!(self.kind, Kind::TimeSeries | Kind::BarGauge) {
            defaults["min"] = 0.into();
        }
        if self.unit == Unit::UpDown {
            defaults["mappings"] = json!([{ "type": "value", "options": {
                "0": { "text": "down", "color": "red", "index": 0 },
                "1": { "text": "up", "color": "green", "index": 1 },
            }}]);
        }
        let mut panel = json!({
            "id": id,
            "type": self.type_name(),
            "title": self.title,
            "description": self.described(),
            "datasource": source(),
            "gridPos": { "h": self.height, "w": self.width, "x": x, "y": y },
            "fieldConfig": { "defaults": defaults, "overrides": self.overrides() },
            "options": self.options(),
            "targets": self.targets(),
        });
        if let Kind::Table { labels } = &self.kind {
            panel["transformations"] = self.transformations(labels);
        }
        panel
    }

    /// Lists the histograms that the panel needs, since a process may leave them out.
    fn described(&self) -> String {
        let mut needed: Vec<&str> = self.queries.iter().flat_map(|query| histograms(&query.expr)).collect();
        needed.dedup();
        let needed: Vec<String> = needed.iter().map(|name| format!(" Needs {name}.")).collect();
        self.description.to_owned() + &needed.concat()
    }

    fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Stat => "stat",
            Kind::TimeSeries => "timeseries",
            Kind::BarGauge => "bargauge",
            Kind::Heatmap => "heatmap",
            Kind::StateTimeline => "state-timeline",
            Kind::Table { .. } => "table",
        }
    }

    fn custom(&self) -> Value {
        match self.kind {
            Kind::TimeSeries => json!({ "lineWidth": 2, "fillOpacity": 8, "showPoints": "never" }),
            Kind::Table { .. } => json!({ "align": "auto", "filterable": true }),
            _ => json!({}),
        }
    }

    fn options(&self) -> Value {
        let last = json!({ "calcs": ["lastNotNull"], "fields": "", "values": false });
        match self.kind {
            Kind::Stat => json!({ "reduceOptions": last, "colorMode": "background", "graphMode": "none" }),
            Kind::TimeSeries => json!({
                // The worst value comes first, in case a long list is cut.
                "legend": {
                    "displayMode": "table", "placement": "bottom", "showLegend": true,
                    "calcs": ["max"], "sortBy": "Max", "sortDesc": true,
                },
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
            Kind::BarGauge => {
                json!({
                    "reduceOptions": last, "orientation": "horizontal", "displayMode": "basic", "showUnfilled": true,
                    // A call site is too long to fit beside the bar.
                    "namePlacement": "top",
                })
            }
            Kind::Heatmap => json!({
                "calculate": false,
                "yAxis": { "unit": self.unit.id() },
                "color": { "mode": "scheme", "scheme": "Oranges", "steps": 64 },
                "cellGap": 1,
                "tooltip": { "mode": "single", "yHistogram": false },
            }),
            Kind::StateTimeline => json!({ "showValue": "auto", "rowHeight": 0.8, "mergeValues": true }),
            Kind::Table { .. } => json!({ "showHeader": true, "cellHeight": "sm" }),
        }
    }

    fn targets(&self) -> Vec<Value> {
        let is_table = matches!(self.kind, Kind::Table { .. });
        let at_once = is_table || matches!(self.kind, Kind::Stat | Kind::BarGauge);
        let format = match self.kind {
            Kind::Table { .. } => "table",
            Kind::Heatmap => "heatmap",
            _ => "time_series",
        };
        let target = |(number, query): (usize, &Query)| {
            let mut target = json!({
                "refId": letter(number),
                "datasource": source(),
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "format": format,
                "instant": at_once,
                "range": !at_once,
            });
            if !at_once && query.expr.contains("wait_seconds_bucket") {
                // Exemplars link waits to their traces.
                target["exemplar"] = true.into();
            }
            target
        };
        self.queries.iter().enumerate().map(target).collect()
    }

    /// Defines the columns of a table, and the colour of a value that means trouble.
    fn overrides(&self) -> Vec<Value> {
        let Kind::Table { labels } = &self.kind else {
            let stuck = self.queries.iter().filter(|query| query.legend == STUCK);
            return stuck.map(|_| column(STUCK, &[fixed_red()])).collect();
        };
        let mut overrides = Vec::new();
        for query in &self.queries {
            let is_count = COUNTS.contains(&query.legend);
            overrides.push(column(
                query.legend,
                &[
                    json!({ "id": "unit", "value": if is_count { "short" } else { "s" } }),
                    json!({ "id": "custom.width", "value": VALUE }),
                ],
            ));
            overrides.extend(meaning(query.legend).map(|properties| column(query.legend, &properties)));
        }
        // Together the columns fit on a screen of 1,600 pixels.
        let place = 1500 * self.width / 24 - VALUE * u32::try_from(self.queries.len()).unwrap_or(0);
        let parts: u32 = labels.iter().map(|(label, _)| weight(label)).sum();
        for (label, heading) in *labels {
            let mut properties = vec![json!({ "id": "custom.width", "value": place * weight(label) / parts })];
            properties.extend(link(label).map(|link| json!({ "id": "links", "value": [link] })));
            overrides.push(column(heading, &properties));
        }
        overrides
    }

    /// Shows one row for each set of labels. The columns follow the questions: which, where, how long.
    fn transformations(&self, labels: &[(&str, &str)]) -> Value {
        let mut order = json!({});
        let mut names = json!({});
        let hidden = json!({ "Time": true, "job": !labels.iter().any(|(label, _)| *label == "job") });
        for (place, (label, heading)) in labels.iter().enumerate() {
            order[*label] = place.into();
            names[*label] = (*heading).into();
        }
        for (number, query) in self.queries.iter().enumerate() {
            let value = if self.queries.len() == 1 { "Value".to_owned() } else { format!("Value #{}", letter(number)) };
            order[&value] = (labels.len() + number).into();
            names[&value] = query.legend.into();
        }
        let sorted = json!([{ "field": self.queries[0].legend, "desc": true }]);
        json!([
            { "id": "merge", "options": {} },
            { "id": "organize", "options": { "excludeByName": hidden, "indexByName": order, "renameByName": names } },
            { "id": "sortBy", "options": { "fields": {}, "sort": sorted } },
        ])
    }
}

/// The legend of a value that is red: the age of a hold that is stuck.
pub(crate) const STUCK: &str = "STUCK";

/// The columns of tables that count. All others are times.
const COUNTS: [&str; 9] =
    ["Alerts", "State", "Waiters", "Held", "Keys without a lease", "Processes", "Role", "Candidates", "Commands stuck"];

/// The width of a column with a value, in pixels.
const VALUE: u32 = 105;

/// How wide a column is beside others. Names of locks and call sites are long and must be readable.
fn weight(label: &str) -> u32 {
    match label {
        "site" | "function" => 6,
        "lock" | "held" | "wanted" | "alertname" => 5,
        "severity" | "version" | "topology" => 2,
        _ => 3,
    }
}

fn column(heading: &str, properties: &[Value]) -> Value {
    json!({ "matcher": { "id": "byName", "options": heading }, "properties": properties })
}

fn fixed_red() -> Value {
    json!({ "id": "color", "value": { "mode": "fixed", "fixedColor": "red" } })
}

/// The words and colours for the values of a column.
fn meaning(heading: &str) -> Option<Vec<Value>> {
    let from_one = |text: Option<&str>, color: Option<&str>| {
        let mut result = json!({ "index": 1 });
        if let Some(text) = text {
            result["text"] = text.into();
        }
        if let Some(color) = color {
            result["color"] = color.into();
        }
        json!({ "type": "range", "options": { "from": 1, "to": null, "result": result } })
    };
    let whole_row = json!({ "id": "custom.cellOptions", "value": { "type": "color-background", "applyToRow": true } });
    let mapped = |zero: Value, more: Value| json!({ "id": "mappings", "value": [{ "type": "value", "options": { "0": zero } }, more] });
    let nothing = |text: &str| json!({ "text": text, "color": "transparent", "index": 0 });
    Some(match heading {
        "State" => vec![whole_row, mapped(nothing("held"), from_one(Some(STUCK), Some("red")))],
        "Keys without a lease" => vec![whole_row, mapped(nothing("0"), from_one(None, Some("red")))],
        "Role" => vec![mapped(json!({ "text": "stands", "index": 0 }), from_one(Some("leads"), None))],
        _ => return None,
    })
}

/// The link of a label to the place that knows more.
fn link(label: &str) -> Option<Value> {
    let (title, url, blank) = match label {
        "lock" => (
            "Everything about this lock",
            "/d/distributed-lock-one-lock?var-lock=${__value.raw:percentencode}&${cluster:queryparam}&${namespace:queryparam}&${store:queryparam}",
            false,
        ),
        "instance" => ("Every hold and wait of this process, with its keys", "http://${__value.raw}/locks", true),
        _ => return None,
    };
    Some(json!({ "title": title, "url": url, "targetBlank": blank }))
}

fn letter(number: usize) -> char {
    char::from(b'A' + u8::try_from(number).unwrap_or(25))
}

/// Returns the data source that the dashboard's variable names.
pub(crate) fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}
