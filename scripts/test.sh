#!/bin/sh
# Runs all tests and the demo. `sh scripts/lint.sh` checks formatting, lints and documentation, and
# `sh scripts/lab.sh` the proof, the model, the specification and the benchmarks.
# Installs missing programs with the system's package manager and says so: redis-server, PostgreSQL, pgbouncer,
# MariaDB, and Python. Installs redis-py into target/, to test against another client. Installs Redisson and ZooKeeper if there is Java.
#
#   sh scripts/test.sh
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

sh scripts/need-redis.sh
sh scripts/need-foreign-clients.sh
sh scripts/need-databases.sh
sh scripts/need-redisson.sh
sh scripts/need-zookeeper.sh

step "tests"
sh scripts/run-tests.sh --workspace

# The tests have built it. `cargo run` would build it again, with the features of one package.
step "the demo, embedded store"
"${CARGO_TARGET_DIR:-target}/debug/flash_sale"

step "all passed"
