#!/bin/sh
# Runs every check of the workspace in lab/: formatting, lints, the tests of the proof, the model and the benchmarks, the specification.
# Installs missing programs as scripts/test.sh does. Java and Go are optional: without them a message says what to install.
#
#   sh scripts/lab.sh
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

sh scripts/need-redis.sh
sh scripts/need-foreign-clients.sh
sh scripts/need-databases.sh
sh scripts/need-zookeeper.sh
sh scripts/need-kubernetes.sh

step "the lab: formatting"
cargo fmt --manifest-path lab/Cargo.toml --all --check

step "the lab: lints"
cargo clippy --locked --manifest-path lab/Cargo.toml --workspace --all-targets -- -D warnings

step "the lab: tests"
sh scripts/run-tests.sh --manifest-path lab/Cargo.toml --workspace

step "the lab: the specification"
cargo build --locked -q --manifest-path lab/Cargo.toml -p lock-proof
if sh scripts/need-tlc.sh; then
    "${CARGO_TARGET_DIR:-target}/debug/lock-proof" spec Lock-modes Lock-ends Lock-exclusion Lock-native Lock-left Lock-broken
fi

step "the lab: all passed"
