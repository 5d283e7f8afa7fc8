#!/bin/sh
# What happens to a fleet in an hour, on real servers: deploys, a scale-up, a crash, an outage of the store, a clock that steps, and
# at last a lock that really is stuck, with the checked-in rules, a real Redis, Prometheus and Alertmanager. Whoever is on call
# must be told of the outage and of the stuck lock, and of nothing else.
# Takes a quarter of an hour, since the delays of the rules are the real ones; LOCK_HOUR_MINUTES stretches it up to the whole hour.
#
#   sh scripts/real-hour.sh
set -eu
cd "$(dirname "$0")/.."

sh scripts/need-observability.sh
cargo build --locked -q --workspace --all-features --example member

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# Moves the clock of one process, as the tests of the server's clock do.
cc -shared -fPIC -o "$work/clock.so" lock-core/tests/it/server_clock/shim.c
python3 scripts/e2e/real_hour.py --work "$work" --member "${CARGO_TARGET_DIR:-target}/debug/examples/member" \
    --dashboards dashboards --minutes "${LOCK_HOUR_MINUTES:-15}"
