//! A dashboard: variables, rows of panels, annotations.

use serde_json::{Value, json};

use super::names::selected;
use super::panel::{Panel, source};

/// One dashboard.
#[derive(Clone, Debug)]
pub(crate) struct Dashboard {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// The metric that knows which jobs and instances there are.
    pub(crate) present_in: &'static str,
    /// Whether it is about one lock, chosen on top.
    pub(crate) one_lock: bool,
    pub(crate) rows: Vec<(&'static str, Vec<Panel>)>,
}

impl Dashboard {
    pub(crate) fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|(_, panels)| panels)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "uid": format!("distributed-lock-{}", self.file),
            "title": self.title,
            "description": self.description,
            "tags": ["distributed-lock"],
            "schemaVersion": 39,
            "version": 1,
            // What is edited by hand in Grafana would be lost with the next version of the file.
            "editable": false,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": { "from": "now-1h", "to": "now" },
            "timezone": "browser",
            "annotations": { "list": self.annotations() },
            "links": [{
                "type": "dashboards", "title": "Locks", "tags": ["distributed-lock"],
                "asDropdown": false, "includeVars": true, "keepTime": true,
            }],
            "templating": { "list": self.variables() },
            "panels": self.grid(),
        })
    }

    /// Puts panels beside each other until a row of 24 columns is full.
    fn grid(&self) -> Vec<Value> {
        let mut placed = Vec::new();
        let mut y = 0;
        for (title, panels) in &self.rows {
            let row = json!({
                "id": placed.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
                "gridPos": { "h": 1, "w": 24, "x": 0, "y": y },
            });
            placed.push(row);
            y += 1;
            let (mut x, mut height) = (0, 0);
            for panel in panels {
                if x + panel.width > 24 {
                    (x, y, height) = (0, y + height, 0);
                }
                placed.push(panel.json(placed.len() + 1, x, y));
                x += panel.width;
                height = height.max(panel.height);
            }
            y += height;
        }
        placed
    }

    fn variables(&self) -> Vec<Value> {
        let metric = super::names::series(self.present_in);
        let mut variables = vec![
            json!({
                "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                "current": {}, "hide": 0, "refresh": 1, "regex": "", "multi": false, "includeAll": false, "options": [],
            }),
            variable("job", "Job", &format!("label_values({metric}, job)"), true),
            variable("instance", "Instance", &format!("label_values({metric}{{job=~\"$job\"}}, instance)"), true),
        ];
        if self.one_lock {
            let query = format!("label_values({metric}{{job=~\"$job\", instance=~\"$instance\"}}, lock)");
            variables.push(variable("lock", "Lock", &query, false));
        }
        variables
    }

    fn annotations(&self) -> Vec<Value> {
        if self.present_in.starts_with("inspector") {
            return Vec::new();
        }
        let annotation = |name: &str, color: &str, title: &str, template: &str| {
            json!({
                "name": name, "enable": true, "hide": false, "iconColor": color, "datasource": source(),
                "expr": selected(template), "titleFormat": title, "step": "30s", "useValueForTime": false,
            })
        };
        vec![
            annotation(
                "Lost locks",
                "red",
                "{{lock}} was lost: {{reason}}",
                "sum by (lock, reason) (increase(@lost_total[$__rate_interval])) > 0",
            ),
            annotation(
                "New versions",
                "blue",
                "{{instance}} runs {{version}}",
                "@build_info unless on (instance, version) @build_info offset 5m",
            ),
        ]
    }
}

fn variable(name: &str, label: &str, query: &str, many: bool) -> Value {
    let mut variable = json!({
        "name": name, "label": label, "type": "query", "datasource": source(), "query": query,
        // On every change of the time range: what ran an hour ago has other instances.
        "refresh": 2, "sort": 1, "hide": 0, "regex": "", "options": [],
        "multi": many, "includeAll": many, "current": {},
    });
    if many {
        variable["allValue"] = ".+".into();
        variable["current"] = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
    }
    variable
}
