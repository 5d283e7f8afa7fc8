#!/bin/sh
# Runs a command with a master, two replicas and three sentinels of its own on this machine, whose URL is in LOCK_URL.
# Stops them afterwards, and ends as the command did.
#
#   sh scripts/with-sentinel.sh cargo run -p lock-examples -- --processes 4
#   sh scripts/with-sentinel.sh --failover cargo run -p lock-examples -- --processes 4
#   ACKS= sh scripts/with-sentinel.sh --failover cargo run -p lock-examples -- --processes 4
#
# With --failover the master is killed as soon as it is busy. A replica takes over one to three seconds later. A lock counts
# when every replica has it (ACKS=all): then none is lost. Without (ACKS=) the last ones may be, and two may hold one lock.
set -eu

failover=no
if [ "${1:-}" = --failover ]; then
    failover=yes
    shift
fi
if [ $# -eq 0 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
sh "$(dirname "$0")/need-redis.sh" >&2

work=$(mktemp -d)
pids=
killer=
stop() {
    if [ -n "$killer" ]; then kill "$killer" 2>/dev/null || true; fi
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cli() { redis-cli -h 127.0.0.1 -p "$@" 2>/dev/null; }

# Waits until a command answers something.
wait_for() {
    what=$1 expected=$2
    shift 2
    tries=0
    until "$@" | tr -d '\r' | grep -q "$expected"; do
        tries=$((tries + 1))
        if [ "$tries" -ge 300 ]; then
            echo "$what" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# Starts a server on a port, with further words of its command line.
start() {
    port=$1
    shift
    redis-server "$@" --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$work" >"$work/$port.log" 2>&1 &
    pids="$pids $!"
    # Another server on this port would have answered too.
    wait_for "redis-server does not start on port $port; run this again" "^process_id:$!\$" cli "$port" INFO server
}

# Below the ports that the system gives away by itself.
first=$((21000 + $$ % 1500 * 6))
start "$first" --repl-diskless-sync-delay 0
master=${pids# }
for replica in 1 2; do
    start $((first + replica)) --replicaof 127.0.0.1 "$first" --repl-diskless-sync-delay 0
done
wait_for "the replicas do not follow their master" "^connected_slaves:2" cli "$first" INFO replication
hosts=
for sentinel in 3 4 5; do
    port=$((first + sentinel))
    cat >"$work/$port.conf" <<CONF
sentinel monitor mymaster 127.0.0.1 $first 2
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 5000
CONF
    start "$port" "$work/$port.conf" --sentinel
    hosts="$hosts${hosts:+,}127.0.0.1:$port"
done
for sentinel in 3 4 5; do
    knows() { cli $((first + sentinel)) SENTINEL MASTER mymaster | tr '\n' ' '; }
    wait_for "the sentinels do not find together" "num-slaves 2 num-other-sentinels 2 " knows
done

if [ "$failover" = yes ]; then
    (
        trap - EXIT INT TERM
        busy() { cli "$first" INFO commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }
        until [ "$(busy || true)" -ge 50 ] 2>/dev/null; do sleep 0.05; done
        kill -9 "$master"
        echo "the master 127.0.0.1:$first was killed" >&2
    ) &
    killer=$!
fi

acks=${ACKS-all}
LOCK_URL="redis+sentinel://$hosts/mymaster${acks:+?acks=$acks}"
export LOCK_URL
"$@"
