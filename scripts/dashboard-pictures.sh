#!/bin/sh
# Makes dashboards/pictures/ from a real incident. Redis, the `stuck` demo and Prometheus run for a minute and a half. Headless
# Chromium then draws each panel, with Grafana's own panel components from npm and without a Grafana server. Needs node with npm
# in addition to the packages of scripts/e2e-observability.sh. Downloads about 400 MB of packages.
#
#   sh scripts/dashboard-pictures.sh
set -eu
cd "$(dirname "$0")/.."

sh scripts/need-observability.sh
browser=""
for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null 2>&1; then browser=$name; fi
done
if ! command -v npm >/dev/null 2>&1; then
    echo "install node and npm, then run this again" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

cargo build --locked -q --workspace --all-features --bin stuck --bin lock-dashboards
target=${CARGO_TARGET_DIR:-target}
"$target/debug/lock-dashboards" --to "$work" --fast
python3 dashboards/tests/e2e/pictures.py --work "$work" --stuck "$target/debug/stuck" --dashboards dashboards

cp scripts/pictures/* "$work"
(
    cd "$work"
    # PICTURES_NODE_MODULES may name a working copy, so that a second run downloads nothing.
    if [ -n "${PICTURES_NODE_MODULES:-}" ]; then
        ln -s "$PICTURES_NODE_MODULES" node_modules
    else
        npm install --no-audit --no-fund --legacy-peer-deps --loglevel=error
    fi
    ./node_modules/.bin/esbuild host.jsx --bundle --minify --outfile=host.js --log-level=error \
        --define:process.env.NODE_ENV='"production"' --alias:react-custom-scrollbars-2=./scrollbars.js \
        --loader:.svg=dataurl --loader:.ttf=dataurl --loader:.woff=dataurl --loader:.woff2=dataurl
)

mkdir -p dashboards/pictures
for name in on-call one-lock fleet; do
    height=$(python3 "$work/page.py" "$work/$name.data.json" "$work/$name.html")
    timeout 90 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
        --user-data-dir="$work/browser" --window-size="1600,$height" --virtual-time-budget=8000 \
        --screenshot="dashboards/pictures/$name.png" "file://$work/$name.html" 2>"$work/browser.log" ||
        { cat "$work/browser.log" >&2; exit 1; }
done
cp "$work/live-view.png" dashboards/pictures/
ls -l dashboards/pictures
