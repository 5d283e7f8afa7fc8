#!/bin/sh
# Checks that a crate and its tests build alone, and that it builds with each of its features alone and without features.
#
#   sh scripts/each-feature.sh              every crate of the workspace
#   sh scripts/each-feature.sh lock-core    this one
set -eu
cd "$(dirname "$0")/.."
# Without its default features, lock-kubernetes leaves the choice of a version to the program.
export K8S_OPENAPI_ENABLED_VERSION=1.35

# shellcheck disable=SC2046 # Each member is a word.
[ "$#" -gt 0 ] || set -- $(sed -n '/^members = \[/,/^\]/p' Cargo.toml | tr -d '",[]' | sed 's/^members =//')
for crate in "$@"; do
    [ -f "$crate/Cargo.toml" ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
    features=$(sed -n '/^\[features\]/,/^\[/s/^\([a-z-]*\) = .*/\1/p' "$crate/Cargo.toml")
    printf '\n== %s, with its tests\n' "$crate"
    (cd "$crate" && cargo check --locked -q --tests)
    [ -n "$features" ] || continue
    printf '== %s with no feature\n' "$crate"
    (cd "$crate" && cargo check --locked -q --no-default-features)
    for feature in $features; do
        printf '== %s with %s\n' "$crate" "$feature"
        (cd "$crate" && cargo check --locked -q --no-default-features --features "$feature")
    done
done
