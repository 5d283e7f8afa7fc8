//! The files for Grafana and Prometheus.

use std::fs;
use std::path::PathBuf;

use lock_testing::limit;

use crate::program::{Ended, lockctl_at};

/// A folder that is not there yet.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lockctl-dashboards-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn write(&self, more: &[&str]) -> Ended {
        lockctl_at("", &[&["dashboards", "--to", self.0.to_str().unwrap()], more].concat())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[limit]
fn dashboards_are_those_of_the_repository_with_a_runbook_for_each_alert() {
    let folder = Folder::new("whole");
    let ended = folder.write(&[]);
    ended.assert_code(0);
    let checked_in = |name: &str| {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../dashboards").join(name);
        fs::read_to_string(file).unwrap()
    };
    for name in
        ["alerts.yml", "recording_rules.yml", "alertmanager.yml", "prometheus.yml", "grafana/dashboards/on-call.json"]
    {
        assert_eq!(folder.read(name), checked_in(name), "{name}");
        assert!(ended.stdout.contains(&format!("wrote {name}\n")), "{ended:?}");
    }
    let alerts = folder.read("alerts.yml");
    let named = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut count = 0;
    for alert in named {
        let page = folder.read(&format!("runbooks/{alert}.md"));
        assert!(page.starts_with(&format!("# {alert}\n")) && !page.contains("](../../"), "{page}");
        count += 1;
    }
    assert!(count > 30, "{count}");
    assert!(ended.stdout.contains(concat!("of version ", env!("CARGO_PKG_VERSION"))), "{ended:?}");
}

#[test]
#[limit]
fn what_somebody_changed_is_overwritten_by_force_only() {
    let folder = Folder::new("changed");
    folder.write(&[]).assert_code(0);
    let again = folder.write(&["--json"]);
    again.assert_code(0);
    assert!(again.json()["files"].as_array().unwrap().iter().all(|file| file["before"] == "same"), "{again:?}");

    // With other settings it is nobody's change.
    let set = ["--set", "runbookUrl=https://wiki.example/locks/"];
    folder.write(&set).assert_code(0);
    assert!(folder.read("alerts.yml").contains("https://wiki.example/locks/LockStuck.md"));

    let file = folder.0.join("recording_rules.yml");
    fs::write(&file, "groups: []\n").unwrap();
    let dashboard = folder.read("grafana/dashboards/fleet.json");
    fs::remove_file(folder.0.join("grafana/dashboards/fleet.json")).unwrap();
    for more in [&[][..], &["--json"]] {
        let refused = folder.write(more);
        refused.assert_code(4);
        assert!(
            refused.stderr.contains("nothing was written")
                && refused.stderr.contains("undo a change in recording_rules.yml;")
        );
        assert!(more.is_empty() || refused.json()["exit_code"] == 4, "{refused:?}");
    }
    assert_eq!(folder.read("recording_rules.yml"), "groups: []\n");
    assert!(!folder.0.join("grafana/dashboards/fleet.json").exists(), "nothing was written");

    let forced = folder.write(&["--force"]);
    forced.assert_code(0);
    assert!(forced.stdout.contains("in place of a changed one, recording_rules.yml"), "{forced:?}");
    assert_eq!(folder.read("grafana/dashboards/fleet.json"), dashboard);
}

/// Without the record of what was written, nobody knows whose a file is.
#[test]
#[limit]
fn a_file_that_is_not_ours_is_not_overwritten() {
    let folder = Folder::new("foreign");
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("alerts.yml"), "groups: []\n").unwrap();
    for record in ["", "garbage", "{\"files\": 7}"] {
        fs::write(folder.0.join("lock-dashboards.json"), record).unwrap();
        let refused = folder.write(&[]);
        refused.assert_code(4);
        assert!(refused.stderr.contains("undo a change in alerts.yml;"), "{refused:?}");
    }
    fs::remove_file(folder.0.join("alerts.yml")).unwrap();
    fs::create_dir(folder.0.join("alerts.yml")).unwrap();
    let unread = folder.write(&["--force"]);
    unread.assert_code(3);
    assert!(unread.stderr.contains("alerts.yml: "), "{unread:?}");
}

#[test]
#[limit]
fn what_a_version_wrote_that_this_one_does_not_is_named() {
    let folder = Folder::new("left");
    folder.write(&[]).assert_code(0);
    fs::write(folder.0.join("runbooks/LockOld.md"), "old").unwrap();
    let record = folder.read("lock-dashboards.json");
    fs::write(
        folder.0.join("lock-dashboards.json"),
        record.replacen("\"files\": {", "\"files\": { \"runbooks/LockOld.md\": \"\",", 1),
    )
    .unwrap();
    for _ in 0..2 {
        let ended = folder.write(&[]);
        assert!(ended.stdout.contains("left runbooks/LockOld.md"), "{ended:?}");
    }
}

#[test]
#[limit]
fn settings_are_listed_and_an_unknown_one_is_refused() {
    let listed = lockctl_at("", &["dashboards", "--settings"]);
    listed.assert_code(0);
    assert!(listed.stdout.contains("scrapeSeconds=60\n"), "{listed:?}");
    let folder = Folder::new("unknown");
    for (set, says) in
        [("scrape=1", "there is no setting scrape; there are selector, "), ("scrapeSeconds=0", "at least 1")]
    {
        let refused = folder.write(&["--set", set]);
        refused.assert_code(2);
        assert!(refused.stderr.contains(says), "{refused:?}");
    }
    assert!(!folder.0.exists());
    assert_eq!(lockctl_at("", &["dashboards"]).code, Some(2));
}

#[test]
#[limit]
fn each_form_is_written_and_says_what_to_do_with_it() {
    for (form, file, says) in [
        ("kubernetes", "kustomization.yaml", "kubectl apply -k"),
        ("grafana-operator", "grafana-dashboards.yaml", "the label dashboards: grafana"),
        ("mixin", "mixin.libsonnet", "Import mixin.libsonnet"),
    ] {
        let folder = Folder::new(form);
        let ended = folder.write(&["--form", form, "--set", "manyWaiters=25"]);
        ended.assert_code(0);
        assert!(ended.stdout.contains(&format!("wrote {file}\n")) && ended.stdout.contains(says), "{ended:?}");
        assert!(folder.write(&["--form", form, "--set", "manyWaiters=25"]).stdout.contains("were there already"));
        // The mixin takes its settings from jsonnet.
        if form != "mixin" {
            assert!(folder.read("prometheus-rules.yaml").contains("> 25  # manyWaiters"), "{form}");
        }
    }
    let folder = Folder::new("no-form");
    folder.write(&["--form", "helm"]).assert_code(2);
}
