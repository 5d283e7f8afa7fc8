#!/bin/sh
# Builds the adapters of locks of other languages for `lock-proof`, into target/peers: those in Go, where there is Go. Where it is
# missing this says so, and `lock-proof` names the locks that it does not run.
set -eu
cd "$(dirname "$0")/.."

if ! command -v go >/dev/null 2>&1; then
    echo "go is missing: lock-proof runs without redsync and redislock" >&2
    exit 0
fi
mkdir -p target/peers
out=$(pwd)/target/peers
cd proof/peers/go
go build -o "$out/" ./redsync ./redislock
