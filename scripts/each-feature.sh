#!/bin/sh
# Checks that a crate builds with each of its features alone, and without features.
#
#   sh scripts/each-feature.sh              lock-core, lock-macros, lock-metrics, stores/lock-postgres
#   sh scripts/each-feature.sh lock-core    this one
set -eu
cd "$(dirname "$0")/.."

[ "$#" -gt 0 ] || set -- lock-core lock-macros lock-metrics stores/lock-postgres
for crate in "$@"; do
    [ -f "$crate/Cargo.toml" ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
    features=$(sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' "$crate/Cargo.toml")
    printf '\n== %s with no feature\n' "$crate"
    cargo check --locked -q -p "${crate##*/}" --no-default-features
    for feature in $features; do
        printf '== %s with %s\n' "$crate" "$feature"
        cargo check --locked -q -p "${crate##*/}" --no-default-features --features "$feature"
    done
done
