//! Tests the forms for clusters, without a cluster.

use std::collections::{BTreeMap, BTreeSet};

use lock_testing::limit;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::generate::{Form, Settings, files};
use crate::tests::rules::{read, rules};

fn of(form: Form) -> BTreeMap<String, String> {
    files(form, &Settings::default()).into_iter().collect()
}

fn documents(text: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks a value against a part of `schemas.yml`.
fn check(value: &Yaml, schema: &Yaml, at: &str) {
    if let Some(kind) = schema.as_str() {
        let text = value.as_str().unwrap_or_default();
        let is_right = match kind {
            "flag" => value.as_bool().is_some(),
            "map" => value.as_hash().unwrap().values().all(|value| value.as_str().is_some()),
            "duration" => {
                text.ends_with(['s', 'm', 'h', 'd']) && text[..text.len() - 1].chars().all(|c| c.is_ascii_digit())
            }
            _ => !text.is_empty(),
        };
        assert!(is_right, "{at} is not a {kind}: {value:?}");
    } else if !schema["items"].is_badvalue() {
        value.as_vec().unwrap().iter().for_each(|item| check(item, &schema["items"], &format!("{at}[]")));
    } else {
        for name in schema["required"].as_vec().into_iter().flatten() {
            assert!(!value[name.as_str().unwrap()].is_badvalue(), "{at} has no {name:?}");
        }
        for (name, field) in value.as_hash().unwrap() {
            let name = name.as_str().unwrap();
            assert!(!schema["fields"][name].is_badvalue(), "{at} has no field {name}");
            check(field, &schema["fields"][name], &format!("{at}.{name}"));
        }
    }
}

/// A base names all of its files, and each of its objects is one that the cluster accepts.
#[test]
#[limit]
fn what_clusters_get_fits_their_schemas() {
    let schemas = documents(include_str!("schemas.yml")).remove(0);
    for form in [Form::Kubernetes, Form::GrafanaOperator] {
        let files = of(form);
        let base = documents(&files["kustomization.yaml"]).remove(0);
        let named: BTreeSet<&str> = base["resources"].as_vec().unwrap().iter().filter_map(Yaml::as_str).collect();
        let written = files.keys().map(String::as_str).filter(|name| *name != "kustomization.yaml");
        assert_eq!(named, written.collect(), "{form:?}");
        let (mut kinds, mut names) = (BTreeSet::new(), BTreeSet::new());
        for object in files.values().flat_map(|text| documents(text)) {
            let kind = object["kind"].as_str().unwrap();
            let schema = &schemas[kind];
            assert_eq!(object["apiVersion"], schema["apiVersion"], "{kind}");
            for (part, content) in object.as_hash().unwrap() {
                match part.as_str().unwrap() {
                    "apiVersion" | "kind" => {}
                    "metadata" => {
                        let name = content["name"].as_str().unwrap();
                        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                        assert!(name.chars().all(fits) && name.len() < 64, "{name}");
                        assert!(names.insert((kind.to_owned(), name.to_owned())), "{kind} {name} is there twice");
                        check(&content["labels"], &Yaml::String("map".to_owned()), "metadata.labels");
                    }
                    part => check(content, &schema[part], &format!("{kind}.{part}")),
                }
            }
            kinds.insert(kind.to_owned());
        }
        let dashboards = if form == Form::Kubernetes { "ConfigMap" } else { "GrafanaDashboard" };
        assert!(kinds.contains(dashboards) && kinds.contains("ServiceMonitor") && kinds.len() == 4, "{kinds:?}");
    }
}

#[test]
#[limit]
fn what_clusters_get_is_what_the_plain_files_say() {
    let plain = of(Form::Plain);
    for form in [Form::Kubernetes, Form::GrafanaOperator] {
        let files = of(form);
        let rules = documents(&files["prometheus-rules.yaml"]);
        assert_eq!(rules.len(), 2);
        for (rule, file) in rules.iter().zip(["alerts.yml", "recording_rules.yml"]) {
            assert_eq!(rule["spec"]["groups"], documents(&plain[file])[0]["groups"], "{file}");
        }
        let dashboards = documents(&files["grafana-dashboards.yaml"]);
        assert_eq!(dashboards.len(), 4);
        for object in &dashboards {
            let name = object["metadata"]["name"].as_str().unwrap().trim_start_matches("distributed-lock-");
            let file = format!("{name}.json");
            let text = match form {
                Form::Kubernetes => {
                    // Grafana's sidecar looks for this label.
                    assert_eq!(object["metadata"]["labels"]["grafana_dashboard"].as_str(), Some("1"));
                    object["data"][file.as_str()].as_str().unwrap()
                }
                _ => object["spec"]["json"].as_str().unwrap(),
            };
            let given: Value = serde_json::from_str(text).unwrap();
            let expected: Value = serde_json::from_str(&plain[&format!("grafana/dashboards/{file}")]).unwrap();
            assert_eq!(given, expected, "{file}");
        }
        // kubectl copies each object into an annotation, which has a size limit of 256 KiB.
        for (name, text) in &files {
            for object in text.split("\n---\n") {
                assert!(object.len() < 200_000, "{name} has an object of {} bytes", object.len());
            }
        }
    }
}

#[test]
#[limit]
fn the_mixin_has_every_file_that_it_imports_and_every_mark_that_they_use() {
    let files = of(Form::Mixin);
    let mixin = &files["mixin.libsonnet"];
    let imported: BTreeSet<&str> = mixin.split('\'').filter(|part| part.starts_with("templates/")).collect();
    let templates = files.keys().map(String::as_str).filter(|name| name.starts_with("templates/"));
    assert_eq!(imported, templates.collect());
    for (name, text) in files.iter().filter(|(name, _)| name.starts_with("templates/")) {
        let marks = text.lines().filter_map(|line| line.trim_start().strip_prefix("of.")?.split(',').next());
        let marks: BTreeSet<&str> = marks.collect();
        assert!(marks.len() > 1, "{name}: {marks:?}");
        for mark in marks {
            assert!(mixin.contains(&format!("    {mark}: ")), "{name} uses {mark}, which the mixin does not set");
        }
    }
}

/// Puts the parts of a template of the mixin together, with default settings.
fn whole(template: &str) -> String {
    let (_, parts) = template.split_once("std.join('', [").unwrap();
    let mut text = String::new();
    for part in parts.trim_end().trim_end_matches("])").split(",\n  of.") {
        let quoted = match part.split_once(", \"") {
            Some((mark, rest)) if !part.starts_with('"') => {
                text.push_str(&format!("<<{mark}>>"));
                format!("\"{rest}")
            }
            _ => part.to_owned(),
        };
        text.push_str(&serde_json::from_str::<String>(&quoted).unwrap());
    }
    Settings::default().fill(&text)
}

#[test]
#[limit]
fn the_mixin_has_the_rules_of_the_plain_files() {
    let files = of(Form::Mixin);
    let given =
        ["alerts", "recording_rules"].map(|name| read(&whole(&files[&format!("templates/{name}.yml.libsonnet")])));
    let given = given.concat();
    assert_eq!(given.len(), rules().len());
    for (given, expected) in given.iter().zip(rules()) {
        assert_eq!(given, expected);
    }
}
