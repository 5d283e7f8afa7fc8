#!/bin/sh
# Installs what the end-to-end test of the metrics needs, if it is missing: redis-server, prometheus (with promtool),
# prometheus-alertmanager, python3. Starts nothing and stops nothing.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need-redis.sh

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing=""
command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v prometheus-alertmanager >/dev/null 2>&1 || command -v alertmanager >/dev/null 2>&1 ||
    missing="$missing prometheus-alertmanager"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
if [ -z "$missing" ]; then
    exit 0
fi

echo "missing:$missing; installing with the system's package manager"
if command -v apt-get >/dev/null 2>&1; then
    as_root apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing
elif command -v brew >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    brew install $(echo "$missing" | sed 's/prometheus-alertmanager/alertmanager/')
else
    echo "no known package manager; install$missing, then run this again" >&2
    exit 1
fi
