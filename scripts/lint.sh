#!/bin/sh
# Checks formatting, lints and documentation. Needs nothing but cargo.
#
#   sh scripts/lint.sh
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

step "lints without default features"
cargo clippy --locked -p lock-core --no-default-features -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features
