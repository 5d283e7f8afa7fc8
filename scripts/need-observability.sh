#!/bin/sh
# Installs missing programs for the end-to-end test of the metrics: redis-server, prometheus (with promtool),
# prometheus-alertmanager, a headless Chromium, jsonnet, python3. Starts nothing and stops nothing.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

sh scripts/need-redis.sh

missing=""
command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v prometheus-alertmanager >/dev/null 2>&1 || command -v alertmanager >/dev/null 2>&1 ||
    missing="$missing prometheus-alertmanager"
command -v jsonnet >/dev/null 2>&1 || missing="$missing jsonnet"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
browser=missing
for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then browser=""; fi
done
if [ -n "$browser" ]; then
    # The headless browser, if there is a package for it: 100 MB instead of 124.
    browser=chromium
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then browser=chromium-headless-shell; fi
    missing="$missing $browser"
fi
[ -z "$missing" ] ||
    install "${missing# }" "apt-get=$missing" "brew=$(echo "$missing" | sed 's/prometheus-alertmanager/alertmanager/')"
