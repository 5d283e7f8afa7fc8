//! Tests the files in `dashboards/`.

use lock_testing::limit;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use yaml_rust2::{Yaml, YamlLoader};

use crate::generate::names::histograms;
use crate::generate::{Form, Settings, dashboards, files};
use crate::tests::lint::every_panel;
use crate::tests::rules::alerts_in_full;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(documents.len(), 1, "{name}");
    documents.remove(0)
}

fn alert_names() -> BTreeSet<String> {
    alerts_in_full().into_iter().map(|alert| alert.name).collect()
}

#[test]
#[limit]
fn what_is_checked_in_is_what_the_code_generates() {
    let generated = files(Form::Plain, &Settings::default());
    for (name, text) in &generated {
        let checked_in = fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(*text == checked_in, "dashboards/{name} is out of date; run `cargo run -p lock-dashboards`");
    }
    let names: BTreeSet<String> = generated.into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(folder().join("grafana/dashboards")).unwrap() {
        let name = format!("grafana/dashboards/{}", entry.unwrap().file_name().to_string_lossy());
        assert!(names.contains(&name), "{name} is not generated any more");
    }
}

#[test]
#[limit]
fn a_copy_for_tests_differs_in_delays_only() {
    let settings = Settings::default().fast(true);
    let is_delay = |line: &&str| {
        ["for:", "keep_firing_for:", "interval:"].iter().any(|delay| line.trim_start().starts_with(delay))
    };
    for ((name, calm), (_, fast)) in files(Form::Plain, &Settings::default()).iter().zip(files(Form::Plain, &settings))
    {
        let rest = |text: &str| text.lines().filter(|line| !is_delay(line)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rest(calm), rest(&fast), "{name}");
        assert!(fast.lines().filter(is_delay).all(|line| line.ends_with('s') || line.ends_with(": 1m")), "{name}");
    }
}

#[test]
#[limit]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let mut written = BTreeSet::new();
    for entry in fs::read_dir(folder().join("runbooks")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = read(&format!("runbooks/{name}"));
        let name = name.strip_suffix(".md").unwrap();
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {name}");
        assert_eq!(
            headings,
            [&title, "## What it means", "## Look here", "## Do this", "## When it is safe to force"],
            "{name}"
        );
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let page = link.split('#').next().unwrap();
            assert!(folder().join("runbooks").join(page).exists(), "{name} links to {link}");
        }
        written.insert(name.to_owned());
    }
    assert_eq!(written, alert_names());
    let embedded: BTreeSet<String> = crate::runbooks::files().map(|(name, _)| name).collect();
    let named = written.iter().map(|alert| format!("runbooks/{alert}.md"));
    assert_eq!(embedded, named.collect(), "the table in generate/src/runbooks.rs");
}

/// Words that say nothing to a person who keeps locks in PostgreSQL.
const OF_REDIS: [&str; 13] = [
    "lockctl topology",
    "redis-cli",
    "Redis",
    "maxmemory",
    "noeviction",
    "entinels",
    "acks",
    "`DEL`",
    "INFO",
    "SLOWLOG",
    "CONFIG",
    "min-replicas",
    "the key by hand",
];

#[test]
#[limit]
fn every_runbook_that_speaks_of_redis_says_what_to_do_with_other_stores() {
    let mut seen = 0;
    for alert in alert_names() {
        let text = read(&format!("runbooks/{alert}.md"));
        assert!(!text.contains("ZooKeeper") || text.contains("Kubernetes"), "{alert} speaks of ZooKeeper alone");
        let Some(word) = OF_REDIS.iter().find(|word| text.contains(**word)) else { continue };
        let says_why_not =
            ["PostgreSQL has no", "PostgreSQL never", "PostgreSQL does not"].iter().any(|why| text.contains(why));
        assert!(text.contains("psql") || says_why_not, "{alert} says {word}, and nothing about PostgreSQL");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

#[test]
#[limit]
fn panels_that_runbooks_name_exist() {
    let mut titles = BTreeSet::new();
    for dashboard in dashboards() {
        let dashboard = dashboard.json();
        let named = every_panel(&dashboard).into_iter().chain([&dashboard]);
        titles.extend(named.filter_map(|part| part["title"].as_str().map(str::to_owned)));
    }
    let mut seen = 0;
    for alert in alert_names() {
        let text = read(&format!("runbooks/{alert}.md")).replace('\n', " ").replace("   ", " ");
        // Text between asterisks is the name of a panel, or a stressed word, which begins with a small letter.
        for name in text.split('*').skip(1).step_by(2).filter(|name| name.starts_with(char::is_uppercase)) {
            let name = name.replace("  ", " ");
            assert!(titles.contains(&name), "{alert} names the panel {name:?}, which no dashboard has");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
#[limit]
fn the_readme_counts_the_alerts() {
    let counted = format!("| `alerts.yml`, `recording_rules.yml` | {} alerts and", alert_names().len());
    assert!(read("README.md").contains(&counted), "{counted}");
}

#[test]
#[limit]
fn each_alert_answers_one_question_of_its_own() {
    let page = read("alerts.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| [")?.split_once("](runbooks/"));
    let (mut alerts, mut questions) = (BTreeSet::new(), BTreeSet::new());
    for (name, rest) in rows {
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        assert_eq!(cells[0], format!("{name}.md)"));
        assert!(alerts.insert(name.to_owned()), "{name} is there twice");
        assert!(cells[1].ends_with('?') && questions.insert(cells[1]), "{name}: {}", cells[1]);
        let is_critical = alerts_in_full().iter().any(|alert| alert.name == name && alert.is_critical);
        assert_eq!(cells[2], if is_critical { "now" } else { "in the morning" }, "{name}");
    }
    assert_eq!(alerts, alert_names());
}

#[test]
#[limit]
fn alerts_that_a_histogram_left_out_silences_are_listed() {
    let mut expected = BTreeSet::new();
    for alert in alerts_in_full() {
        expected.extend(histograms(&alert.expr).iter().map(|name| format!("| `{name}` | {} |", alert.name)));
    }
    let page = read("alerts.md");
    let written: BTreeSet<String> =
        page.lines().filter(|line| line.starts_with("| `distributed_lock_")).map(str::to_owned).collect();
    assert_eq!(written, expected);
    assert!(expected.len() >= 4, "{expected:?}");
}

#[test]
#[limit]
fn every_alert_is_tested_to_fire_and_every_test_to_stay_silent() {
    let mut fires = BTreeSet::new();
    let mut silent = 0;
    let kinds = ["alerts", "alerts_alone", "alerts_fleet", "alerts_cases", "alerts_looks", "alerts_oncall"];
    for file in kinds.map(|kind| format!("{kind}_test.yml")) {
        for test in yaml(&file)["tests"].as_vec().unwrap() {
            assert!(test["name"].as_str().unwrap().len() > 10, "{test:?}");
            for check in test["promql_expr_test"].as_vec().unwrap() {
                let samples = check["exp_samples"].as_vec().unwrap();
                silent += usize::from(samples.is_empty());
                let labels = samples.iter().filter_map(|sample| sample["labels"].as_str());
                let alert = |labels: &str| Some(labels.split("alertname=\"").nth(1)?.split('"').next()?.to_owned());
                fires.extend(labels.filter_map(alert));
            }
        }
    }
    assert_eq!(fires, alert_names());
    assert!(silent > 20, "{silent}");
}

#[test]
#[limit]
fn every_configuration_is_yaml_and_names_files_that_exist() {
    for name in ["alerts.yml", "recording_rules.yml"] {
        assert!(!yaml(name)["groups"].as_vec().unwrap().is_empty(), "{name}");
    }
    for name in yaml("prometheus.yml")["rule_files"].as_vec().unwrap() {
        assert!(folder().join(name.as_str().unwrap()).exists(), "{name:?}");
    }
    assert!(yaml("alertmanager.yml")["route"]["receiver"].as_str().is_some());
    let provisioning = "grafana/provisioning";
    assert!(yaml(&format!("{provisioning}/datasources/prometheus.yml"))["datasources"][0]["url"].as_str().is_some());
    assert!(
        yaml(&format!("{provisioning}/dashboards/locks.yml"))["providers"][0]["options"]["path"].as_str().is_some()
    );
    let names = services_of("compose.yaml");
    assert_eq!(names, ["alertmanager", "demo", "grafana", "prometheus", "redis"]);
}

/// Returns a part of a service, which may be in a merged map.
fn part<'a>(service: &'a Yaml, name: &str) -> &'a Yaml {
    let own = &service[name];
    if own.is_badvalue() { &service["<<"][name] } else { own }
}

/// Checks that a Compose file mounts and builds only what exists, and that its ports listen on this machine only.
/// Returns the names of its services, sorted.
fn services_of(name: &str) -> Vec<String> {
    let (compose, path) = (yaml(name), folder().join(name));
    let folder = path.parent().unwrap();
    let services = compose["services"].as_hash().unwrap();
    for (name, service) in services {
        for volume in service["volumes"].as_vec().into_iter().flatten() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let named =
                compose["volumes"].as_hash().is_some_and(|named| named.contains_key(&Yaml::String(source.into())));
            assert!(named || source.starts_with('.') && folder.join(source).exists(), "{name:?}: {source}");
        }
        for port in service["ports"].as_vec().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name:?} listens to everybody");
        }
        let build = part(service, "build");
        if let Some(context) = build["context"].as_str() {
            let dockerfile = build["dockerfile"].as_str().unwrap_or("Dockerfile");
            assert!(folder.join(context).join(dockerfile).exists(), "{name:?}: {dockerfile}");
        }
        for other in part(service, "depends_on").as_hash().into_iter().flat_map(|others| others.keys()) {
            assert!(services.contains_key(other), "{name:?} depends on {other:?}");
        }
    }
    let mut names: Vec<String> = services.keys().map(|name| name.as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
#[limit]
fn the_whole_service_of_the_examples_is_in_order() {
    let name = "../examples/service/compose.yaml";
    assert_eq!(services_of(name), ["grafana", "one", "prometheus", "redis", "two"]);
    let services = &yaml(name)["services"];
    // The settings that docs/operations.md requires.
    let redis: Vec<&str> = services["redis"]["command"].as_vec().unwrap().iter().filter_map(Yaml::as_str).collect();
    for pair in [["--appendonly", "yes"], ["--maxmemory-policy", "noeviction"]] {
        assert!(redis.windows(2).any(|words| words == pair), "{pair:?}: {redis:?}");
    }
    let targets = yaml("../examples/service/prometheus.yml");
    let targets = targets["scrape_configs"][0]["static_configs"].as_vec().unwrap();
    let targets: Vec<&str> = targets.iter().filter_map(|target| target["targets"][0].as_str()).collect();
    assert_eq!(targets, ["one:8080", "two:8080"]);
    for instance in ["one", "two"] {
        let environment = part(&services[instance], "environment");
        assert_eq!(
            (environment["LOCK_URL"].as_str(), environment["LISTEN"].as_str()),
            (Some("redis://redis:6379"), Some("0.0.0.0:8080"))
        );
    }
    let image = read("../examples/service/Dockerfile");
    let minimum = env!("CARGO_PKG_RUST_VERSION");
    assert!(image.contains(&format!("FROM rust:{minimum} ")) && image.contains("--bin web_service"), "{image}");
}

#[test]
#[limit]
fn alerts_that_alertmanager_holds_back_exist() {
    let text = read("alertmanager.yml");
    let names = alert_names();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        if word.strip_prefix("Lock").is_some_and(|rest| !rest.is_empty()) {
            assert!(names.contains(word), "{word}");
        }
    }
}
