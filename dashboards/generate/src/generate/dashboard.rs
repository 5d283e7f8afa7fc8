//! A dashboard: variables, rows of panels, annotations.

use serde_json::{Value, json};

use super::names::selected;
use super::panel::{Panel, source};

/// The tag of the dashboards that show all locks.
const TAG: &str = "distributed-lock";

/// One dashboard.
#[derive(Clone, Debug)]
pub(crate) struct Dashboard {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Whether it shows the locks in the store, whatever services run.
    pub(crate) of_store: bool,
    /// Whether it is about one lock, chosen at the top.
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
            "tags": [if self.one_lock { "distributed-lock-one" } else { TAG }],
            "schemaVersion": 39,
            "version": 1,
            // An edit in Grafana would be lost with the next version of the file.
            "editable": false,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": { "from": "now-1h", "to": "now" },
            "timezone": "browser",
            "annotations": { "list": self.annotations() },
            "links": [
                {
                    "type": "dashboards", "title": "Locks", "tags": [TAG],
                    "asDropdown": false, "includeVars": true, "keepTime": true,
                },
                // Without the chosen locks: that dashboard shows one.
                {
                    "type": "link", "title": "One lock", "includeVars": false, "keepTime": true,
                    "url": "/d/distributed-lock-one-lock?${cluster:queryparam}&${namespace:queryparam}&${store:queryparam}",
                },
            ],
            "templating": { "list": self.variables() },
            "panels": self.grid(),
        })
    }

    /// Places panels side by side until a line of 24 columns is full. The panels of a line share what is left over, and are as
    /// high as the highest.
    fn grid(&self) -> Vec<Value> {
        let mut placed = Vec::new();
        let mut y = 0;
        let mut id = 0;
        for (number, (title, panels)) in self.rows.iter().enumerate() {
            id += 1;
            let row_id = id;
            let row_y = y;
            y += 1;
            let mut inside = Vec::new();
            for line in lines(panels) {
                let height = line.iter().map(|panel| panel.height).max().unwrap_or(0);
                let (mut x, mut left) = (0, 24 - line.iter().map(|panel| panel.width).sum::<u32>());
                for (place, panel) in line.iter().copied().enumerate() {
                    let share = left / u32::try_from(line.len() - place).unwrap_or(1);
                    left -= share;
                    id += 1;
                    let mut panel = Panel::clone(panel);
                    panel.width += share;
                    panel.height = height;
                    inside.push(panel.json(id, x, y));
                    x += panel.width;
                }
                y += height;
            }
            // Only the first row is open: it answers the most urgent question.
            let collapsed = number > 0;
            let (below, within) = if collapsed { (Vec::new(), inside) } else { (inside, Vec::new()) };
            placed.push(json!({
                "id": row_id, "type": "row", "title": title, "collapsed": collapsed, "panels": within,
                "gridPos": { "h": 1, "w": 24, "x": 0, "y": row_y },
            }));
            placed.extend(below);
        }
        placed
    }

    fn variables(&self) -> Vec<Value> {
        let metric = super::names::series("build_info");
        let (cluster, namespace) = ("<<clusterLabel>>", "<<namespaceLabel>>");
        let of_cluster = format!("{cluster}=~\"$cluster\"");
        let of_namespace = format!("{of_cluster}, {namespace}=~\"$namespace\"");
        let mut variables = vec![
            json!({
                "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                "current": {}, "hide": 0, "refresh": 1, "regex": "", "multi": false, "includeAll": false, "options": [],
            }),
            variable("cluster", "Cluster", &format!("label_values({metric}, {cluster})"), Some(".*")),
            variable(
                "namespace",
                "Namespace",
                &format!("label_values({metric}{{{of_cluster}}}, {namespace})"),
                Some(".*"),
            ),
            variable("job", "Job", &format!("label_values({metric}{{{of_namespace}}}, job)"), Some(".+")),
            variable(
                "instance",
                "Instance",
                &format!("label_values({metric}{{{of_namespace}, job=~\"$job\"}}, instance)"),
                Some(".+"),
            ),
        ];
        // A store that only the inspector knows has no series of processes.
        let of_stores = if self.of_store { "inspector_last_success_timestamp_seconds" } else { "held" };
        let stores = format!("label_values({}{{{of_cluster}}}, store)", super::names::series(of_stores));
        variables.push(variable("store", "Store", &stores, Some(".*")));
        let of_locks = format!("{of_cluster}, store=~\"$store\"");
        let locks = if self.of_store { "inspector_held" } else { "ttl_seconds" };
        let locks = format!("label_values({}{{{of_locks}}}, lock)", super::names::series(locks));
        variables.push(variable("lock", "Lock", &locks, if self.one_lock { None } else { Some(".*") }));
        variables
    }

    fn annotations(&self) -> Vec<Value> {
        if self.of_store {
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
                "@build_info unless on (<<clusterLabel>>, <<namespaceLabel>>, job, instance, version) @build_info offset 5m",
            ),
        ]
    }
}

/// Divides panels into lines of at most 24 columns.
fn lines(panels: &[Panel]) -> Vec<Vec<&Panel>> {
    let mut lines: Vec<Vec<&Panel>> = Vec::new();
    for panel in panels {
        let fits = |line: &&mut Vec<&Panel>| line.iter().map(|panel| panel.width).sum::<u32>() + panel.width <= 24;
        match lines.last_mut().filter(fits) {
            Some(line) => line.push(panel),
            None => lines.push(vec![panel]),
        }
    }
    lines
}

/// `all` is the value for choosing all of many values. A label that may be missing also matches an empty value.
fn variable(name: &str, label: &str, query: &str, all: Option<&str>) -> Value {
    let many = all.is_some();
    let mut variable = json!({
        "name": name, "label": label, "type": "query", "datasource": source(), "query": query,
        // Refreshed when the time range changes, because the processes of an hour ago were other instances.
        "refresh": 2, "sort": 1, "hide": 0, "regex": "", "options": [],
        "multi": many, "includeAll": many, "current": {},
    });
    if let Some(all) = all {
        variable["allValue"] = all.into();
        variable["current"] = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
    }
    variable
}
