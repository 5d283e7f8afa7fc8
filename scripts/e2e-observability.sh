#!/bin/sh
# Tests failing locks end to end, with a real Redis, Prometheus, Alertmanager and Chromium. Alerts must fire while the lock is still
# held, name its holder, reach a webhook, and end. Every query of every dashboard must return something, and a browser must show the
# live view correctly. All other alerts must stay silent.
# Takes about five minutes, and longer on a busy machine: its waits end with a condition and not with a time. Uses free ports and a
# temporary folder, and ends only its own processes.
#
#   sh scripts/e2e-observability.sh
set -eu
cd "$(dirname "$0")/.."

sh scripts/need-observability.sh

step() { printf '\n== %s\n' "$*"; }

# It computes for minutes. Tests beside this script measure times, and come first.
promtool() { nice -n 5 promtool "$@"; }

step "building the demo, lockctl and the generator"
# With the features of the tests, so that their builds are reused.
cargo build --locked -q --workspace --all-features --bin stuck --bin lockctl --bin lock-dashboards --example member
target=${CARGO_TARGET_DIR:-target}

step "rules, judged by promtool"
promtool check rules --lint=all --lint-fatal dashboards/alerts.yml dashboards/recording_rules.yml
promtool check config dashboards/prometheus.yml
promtool test rules dashboards/alerts_test.yml dashboards/alerts_fleet_test.yml dashboards/alerts_cases_test.yml \
    dashboards/alerts_looks_test.yml dashboards/alerts_oncall_test.yml dashboards/alerts_alone_test.yml

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

step "the mixin, read by jsonnet, and its rules with other settings, judged by promtool"
"$target/debug/lock-dashboards" --form mixin --to "$work/mixin"
jsonnet -J "$work/mixin" -S --exec 'local all = import "mixin.libsonnet";
assert std.length(std.objectFieldsAll(all.grafanaDashboards)) == 4;
assert std.length(all.prometheusRules.groups) > 0;
local ours = all { _config+:: { clusterLabel: "k8s_cluster", selector: "env=\"prod\"", runbookUrl: "https://wiki.example/" } };
local first = [rule for rule in ours.prometheusAlerts.groups[0].rules if "alert" in rule][0];
assert std.length(std.findSubstr("env=\"prod\"", first.expr)) > 0;
assert std.startsWith(first.annotations.runbook_url, "https://wiki.example/Lock");
assert std.length(std.findSubstr("k8s_cluster=~", ours.grafanaDashboards["fleet.json"].panels[1].targets[0].expr)) > 0;
std.manifestYamlDoc(ours.prometheusAlerts)' >"$work/mixin.yml"
promtool check rules "$work/mixin.yml"
"$target/debug/lock-dashboards" --to "$work/set" --set 'selector=env="prod"' --set dashboardUrl=https://grafana.example
promtool check rules "$work/set/alerts.yml" "$work/set/recording_rules.yml"

step "the same cases where two servers scrape everything: not one alert more"
for cases in alerts_cases_test.yml alerts_looks_test.yml alerts_oncall_test.yml; do
    python3 dashboards/tests/e2e/doubled.py --cases "dashboards/$cases" --to "$work/doubled-$cases" --rules dashboards
    promtool test rules "$work/doubled-$cases"
done

mkdir "$work/service"
cp examples/service/prometheus.yml dashboards/alerts.yml dashboards/recording_rules.yml "$work/service"
promtool check config "$work/service/prometheus.yml"

step "an hour of deploys, a scale-up, a crash, an outage and a clock that steps: every page is true"
python3 dashboards/tests/e2e/hour.py --rules dashboards --to "$work/hour.yml"
promtool test rules "$work/hour.yml"

step "what a person is told, by a real Alertmanager"
python3 dashboards/tests/e2e/notifications.py --work "$work" --dashboards dashboards

step "from a slow wait to its trace"
python3 dashboards/tests/e2e/exemplars.py --work "$work" --member "$target/debug/examples/member"

step "a real incident"
"$target/debug/lock-dashboards" --to "$work" --fast
"$target/debug/lock-dashboards" --queries >"$work/queries.json"
python3 dashboards/tests/e2e/observability.py --work "$work" --stuck "$target/debug/stuck" --lockctl "$target/debug/lockctl" \
    --dashboards dashboards
