#!/bin/sh
# Runs a command with a master, two replicas and three sentinels of its own on this machine. LOCK_URL has their URL.
# Stops the servers afterwards, and ends with the status of the command.
#
#   sh scripts/with-sentinel.sh cargo run -p lock-examples -- --processes 4
#   sh scripts/with-sentinel.sh --failover cargo run -p lock-examples -- --processes 4
#   ACKS= sh scripts/with-sentinel.sh --failover cargo run -p lock-examples -- --processes 4
#
# With --failover the master is killed as soon as it is busy. A replica takes over one to three seconds later. By
# default (ACKS=all) a lock counts once every replica has it, so none is lost. With ACKS= the last locks may be lost, and two may hold one.
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
sh "$(dirname "$0")/need-redis.sh"
. "$(dirname "$0")/lib/servers.sh"

first=$(first_port 21000 6)
say "starting a master, two replicas and three sentinels, 127.0.0.1:$first to $((first + 5))"
start "$first" --repl-diskless-sync-delay 0
master=$pid
for replica in 1 2; do
    start $((first + replica)) --replicaof 127.0.0.1 "$first" --repl-diskless-sync-delay 0
done
wait_for "the replicas do not follow their master" "^connected_slaves:2" cli "$first" INFO replication
hosts=
for sentinel in 3 4 5; do
    port=$((first + sentinel))
    cat >"$folder/$port.conf" <<CONF
sentinel monitor mymaster 127.0.0.1 $first 2
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 5000
CONF
    start "$port" "$folder/$port.conf" --sentinel
    # A sentinel without processor time for two seconds would do nothing for half a minute. It would then find every replica too old
    # to promote. Before Redis 7 the limit cannot be changed.
    cli "$port" SENTINEL DEBUG tilt-trigger 60000 >/dev/null || true
    hosts="$hosts${hosts:+,}127.0.0.1:$port"
done
say "waiting until the sentinels know each other and the replicas, up to ten seconds"
for sentinel in 3 4 5; do
    knows() { cli $((first + sentinel)) SENTINEL MASTER mymaster | tr '\n' ' '; }
    wait_for "the sentinels do not find together" "num-slaves 2 num-other-sentinels 2 " knows
done
if [ "$failover" = yes ]; then kill_when_busy "$first" "$master"; fi

acks=${ACKS-all}
LOCK_URL="redis+sentinel://$hosts/mymaster${acks:+?acks=$acks}"
export LOCK_URL
go_on "$@"
