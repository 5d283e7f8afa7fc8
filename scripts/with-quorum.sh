#!/bin/sh
# Runs a command with a quorum of Redis servers on loopback, which LOCK_URL names, and stops them afterwards.
#
#   scripts/with-quorum.sh [MEMBERS] command…
#   scripts/with-quorum.sh 5 cargo run -p lock-examples -- --processes 4
set -eu

members=3
case ${1-} in
    [1-9] | [1-9][0-9]) members=$1; shift ;;
esac
if [ $# -eq 0 ]; then
    echo "usage: with-quorum.sh [MEMBERS] command…" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
sh "$root/scripts/need-redis.sh"

folder=$(mktemp -d)
pids=
stop() {
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

hosts=
port=${LOCK_QUORUM_PORT:-7301}
for _ in $(seq "$members"); do
    redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" >"$folder/$port.log" 2>&1 &
    pid=$!
    pids="$pids $pid"
    tries=0
    until redis-cli -p "$port" INFO server 2>/dev/null | tr -d '\r' | grep -qx "process_id:$pid"; do
        tries=$((tries + 1))
        if [ "$tries" -ge 100 ] || ! kill -0 "$pid" 2>/dev/null; then
            echo "redis-server does not start on port $port; choose another with LOCK_QUORUM_PORT" >&2
            exit 1
        fi
        sleep 0.1
    done
    hosts="$hosts${hosts:+,}127.0.0.1:$port"
    port=$((port + 1))
done

LOCK_URL="redlock://$hosts"
export LOCK_URL
cargo run --quiet --manifest-path "$root/Cargo.toml" -p lock-metrics --features cli --bin lockctl -- quorum init >&2
"$@"
