#!/bin/sh
# Runs every check of the project: formatting, lints, documentation, all tests, the demo.
# `sh scripts/lab.sh` runs those of the proof, the model, the specification and the benchmarks.
# Installs missing programs with the system's package manager and says so: redis-server, PostgreSQL, pgbouncer,
# MariaDB, and Python. Installs redis-py into target/, to test against another client, and Redisson if there is Java.
#
#   sh scripts/test.sh            everything
#   sh scripts/test.sh --fast     the tests only
set -eu
cd "$(dirname "$0")/.."

fast=no
case "${1:-}" in
    "") ;;
    --fast) fast=yes ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

step() { printf '\n== %s\n' "$*"; }

sh scripts/need-redis.sh
sh scripts/need-foreign-clients.sh
sh scripts/need-databases.sh
sh scripts/need-redisson.sh

if [ "$fast" = no ]; then
    step "formatting"
    cargo fmt --all --check

    step "lints"
    cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

    step "lints without default features"
    cargo clippy --locked -p lock-core --no-default-features -- -D warnings

    step "documentation"
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features
fi

step "tests"
sh scripts/run-tests.sh --workspace

if [ "$fast" = no ]; then
    # `cargo run -p` would rebuild everything with the features of one package.
    cargo build --locked -q --workspace --all-features --bins
    target=${CARGO_TARGET_DIR:-target}/debug

    step "the demo, embedded store"
    "$target/flash_sale"
fi

step "all passed"
