#!/bin/sh
# Installs what the end-to-end test of the metrics needs, if it is missing: redis-server, prometheus (with promtool),
# prometheus-alertmanager, a headless Chromium, jsonnet, python3. Starts nothing and stops nothing.
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
command -v jsonnet >/dev/null 2>&1 || missing="$missing jsonnet"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
browser=missing
for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then browser=$name; fi
done
[ "$browser" = missing ] || browser=""
if [ -z "$missing$browser" ]; then
    exit 0
fi

# A mirror may be slow or busy; one that is down is an error.
try() {
    for pause in 5 20 fail; do
        if "$@"; then return; fi
        if [ "$pause" = fail ]; then return 1; fi
        echo "failed, trying again: $*" >&2
        sleep "$pause"
    done
}

echo "missing:$missing${browser:+ chromium}; installing with the system's package manager"
if command -v apt-get >/dev/null 2>&1; then
    try as_root apt-get update -qq
    if [ -n "$browser" ]; then
        # The browser without its windows, where it is packaged: 100 MB instead of 124.
        browser=chromium
        if apt-cache show chromium-headless-shell >/dev/null 2>&1; then browser=chromium-headless-shell; fi
    fi
    # shellcheck disable=SC2086 # a list of words
    try as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing $browser
elif command -v brew >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    try brew install $(echo "$missing ${browser:+chromium}" | sed 's/prometheus-alertmanager/alertmanager/')
else
    echo "no known package manager; install$missing${browser:+ chromium}, then run this again" >&2
    exit 1
fi
