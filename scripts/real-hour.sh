#!/bin/sh
# Checks for false and missing pages, with real services, Redis, PostgreSQL, Prometheus and Alertmanager. First come four healthy
# services over three stores for an hour, with elections, jobs, readers, a semaphore that is never empty, a migration of ten minutes,
# deploys and a scale-up. There must be no page and no warning. Then come the faults of dashboards/tests/e2e/faults.py, one after the other. A
# person must hear of each once, in time, with the facts that they need. Prometheus scrapes every 15 s.
#
#   sh scripts/real-hour.sh                          # the hour, then the faults with the real delays of the rules
#   LOCK_HOUR_MINUTES=1 sh scripts/real-hour.sh      # a minute, then the faults with delays of seconds, scraped every 5 s
#   LOCK_HOUR_MINUTES=0 sh scripts/real-hour.sh      # the faults alone
#
# If the script fails, its folder is kept.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need-observability.sh
sh scripts/need-databases.sh
cargo build --locked -q --workspace --all-features --bin lock-dashboards --bin lockctl --example member

work=$(mktemp -d)
end() {
    status=$?
    if [ "$status" -eq 0 ]; then
        rm -rf "$work"
    else
        echo "kept: $work, with the logs, the rules, and what Prometheus saw: prometheus --config.file=$work/prometheus.yml" \
            "--storage.tsdb.path=$work/prometheus" >&2
    fi
    exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM
target=${CARGO_TARGET_DIR:-target}
minutes=${LOCK_HOUR_MINUTES:-60}
scrape=15
[ "$minutes" -ge 10 ] || scrape=5
python3 dashboards/tests/e2e/real_hour.py --work "$work" --member "$target/debug/examples/member" --lockctl "$target/debug/lockctl" \
    --generator "$target/debug/lock-dashboards" --dashboards dashboards --minutes "$minutes" --scrape "${LOCK_HOUR_SCRAPE:-$scrape}"
