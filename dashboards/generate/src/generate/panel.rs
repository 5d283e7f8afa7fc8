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
            Kind::Table { .. } => (24, 8),
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
            Kind::TimeSeries => json!({ "lineWidth": 2, "fillOpacity": 8, "showPoints": "never", "axisSoftMin": 0 }),
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

    /// Defines the columns of a table: colours for the first value, and a link to the process.
    fn overrides(&self) -> Vec<Value> {
        let Kind::Table { labels } = &self.kind else { return Vec::new() };
        let mut overrides = Vec::new();
        for query in &self.queries {
            let counts = [
                "State",
                "Waiters",
                "Held",
                "Keys without a lease",
                "Processes",
                "Role",
                "Candidates",
                "Commands stuck",
            ];
            let unit = if counts.contains(&query.legend) { "short" } else { "s" };
            overrides.push(json!({
                "matcher": { "id": "byName", "options": query.legend },
                "properties": [{ "id": "unit", "value": unit }],
            }));
        }
        if self.queries.iter().any(|query| query.legend == "State") {
            overrides.push(json!({
                "matcher": { "id": "byName", "options": "State" },
                "properties": [
                    { "id": "custom.cellOptions", "value": { "type": "color-background", "applyToRow": true } },
                    { "id": "custom.width", "value": 110 },
                    { "id": "mappings", "value": [
                        { "type": "value", "options": { "0": { "text": "held", "color": "transparent", "index": 0 } } },
                        { "type": "range", "options": {
                            "from": 1, "to": null, "result": { "text": "STUCK", "color": "red", "index": 1 },
                        } },
                    ] },
                ],
            }));
        }
        if self.queries.iter().any(|query| query.legend == "Role") {
            overrides.push(json!({
                "matcher": { "id": "byName", "options": "Role" },
                "properties": [{ "id": "mappings", "value": [
                    { "type": "value", "options": { "0": { "text": "stands", "index": 0 } } },
                    { "type": "range", "options": { "from": 1, "to": null, "result": { "text": "leads", "index": 1 } } },
                ] }],
            }));
        }
        if self.queries.iter().any(|query| query.legend == "Keys without a lease") {
            overrides.push(json!({
                "matcher": { "id": "byName", "options": "Keys without a lease" },
                "properties": [
                    { "id": "custom.cellOptions", "value": { "type": "color-background", "applyToRow": true } },
                    { "id": "mappings", "value": [
                        { "type": "value", "options": { "0": { "text": "0", "color": "transparent", "index": 0 } } },
                        { "type": "range", "options": {
                            "from": 1, "to": null, "result": { "color": "red", "index": 1 },
                        } },
                    ] },
                ],
            }));
        }
        if labels.iter().any(|(label, _)| *label == "lock") {
            let link = json!({
                "title": "Everything about this lock",
                "url": "/d/distributed-lock-one-lock?var-lock=${__value.raw:percentencode}&${cluster:queryparam}&${namespace:queryparam}&${store:queryparam}",
                "targetBlank": false,
            });
            overrides.push(json!({
                "matcher": { "id": "byName", "options": "Lock" },
                "properties": [{ "id": "links", "value": [link] }],
            }));
        }
        // Names of locks and call sites are long and must be readable, so only a wide table sets their width.
        for (label, heading) in labels.iter().filter(|_| self.width == 24) {
            let width = match *label {
                "store" => 180,
                "lock" => 260,
                "site" => 290,
                _ => continue,
            };
            overrides.push(json!({
                "matcher": { "id": "byName", "options": heading },
                "properties": [{ "id": "custom.width", "value": width }],
            }));
        }
        if let Some((_, heading)) = labels.iter().find(|(label, _)| *label == "instance") {
            let link = json!({
                "title": "Every hold and wait of this process, with its keys",
                "url": "http://${__value.raw}/locks",
                "targetBlank": true,
            });
            overrides.push(json!({
                "matcher": { "id": "byName", "options": heading },
                "properties": [{ "id": "links", "value": [link] }],
            }));
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

fn letter(number: usize) -> char {
    char::from(b'A' + u8::try_from(number).unwrap_or(25))
}

/// Returns the data source that the dashboard's variable names.
pub(crate) fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}
