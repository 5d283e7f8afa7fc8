#!/bin/sh
# Runs a command with a Redis Cluster of its own, three masters and three replicas on this machine, whose URL is in
# LOCK_URL. Stops them afterwards, and ends as the command did.
#
#   sh scripts/with-cluster.sh cargo run -p lock-examples -- --processes 4
#   sh scripts/with-cluster.sh --failover cargo run -p lock-examples -- --processes 4
#
# With --failover a master is killed as soon as it is busy. Its replica takes over about two seconds later.
set -eu

failover=no
if [ "${1:-}" = --failover ]; then
    failover=yes
    shift
fi
if [ $# -eq 0 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
sh "$(dirname "$0")/need-redis.sh"

work=$(mktemp -d)
stop() {
    for pid in "$work"/*/pid; do
        if [ -s "$pid" ]; then kill -9 "$(cat "$pid")" 2>/dev/null || true; fi
    done
    if [ -s "$work/killer" ]; then kill "$(cat "$work/killer")" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

cli() { redis-cli -h 127.0.0.1 -p "$@"; }

# Starts six nodes from a port on. Each needs another port, 10,000 higher, for the other nodes.
start() {
    nodes=""
    for port in $(seq "$1" $(($1 + 5))); do
        mkdir "$work/$port"
        redis-server --bind 127.0.0.1 --port "$port" --dir "$work/$port" --pidfile "$work/$port/pid" --logfile log \
            --daemonize yes --save "" --cluster-enabled yes --cluster-node-timeout 1000 \
            --repl-diskless-sync-delay 0 >/dev/null
        nodes="$nodes 127.0.0.1:$port"
    done
    for port in $(seq "$1" $(($1 + 5))); do
        tries=0
        until [ "$(cli "$port" PING 2>/dev/null)" = PONG ]; do
            tries=$((tries + 1))
            if [ "$tries" -gt 50 ]; then return 1; fi
            sleep 0.1
        done
    done
}

# Below the ports that the system gives away by itself.
first=$((12000 + $$ % 1500 * 6))
if ! start "$first"; then
    echo "the ports from $first on cannot be used; run this again" >&2
    exit 1
fi
# shellcheck disable=SC2086 # a list of words
redis-cli --cluster create $nodes --cluster-replicas 1 --cluster-yes >"$work/created"
for port in $(seq "$first" $((first + 5))); do
    tries=0
    until cli "$port" CLUSTER INFO | grep -q cluster_state:ok && ! cli "$port" INFO replication | grep -q link_status:down &&
        [ "$(cli "$port" CLUSTER NODES | grep -c slave)" = 3 ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ]; then
            echo "the cluster does not come up" >&2
            exit 1
        fi
        sleep 0.1
    done
done

if [ "$failover" = yes ]; then
    (
        trap - EXIT
        busy() { cli "$first" INFO commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }
        until [ "$(busy || true)" -ge 50 ] 2>/dev/null; do sleep 0.05; done
        kill -9 "$(cat "$work/$first/pid")"
        echo "the master 127.0.0.1:$first was killed" >&2
    ) &
    echo $! >"$work/killer"
fi

LOCK_URL="redis+cluster://$(echo $nodes | tr ' ' ',')"
export LOCK_URL
"$@"
