#!/bin/sh
# Runs a command with a Redis Cluster of its own, three masters and three replicas on this machine. LOCK_URL has its
# URL. Stops the servers afterwards, and ends with the status of the command.
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
. "$(dirname "$0")/lib/servers.sh"

# Each node needs a second port, 10,000 higher, for the other nodes.
first=$(first_port 12000 6)
last=$((first + 5))
nodes=
say "starting three masters and three replicas, 127.0.0.1:$first to $last"
for port in $(seq "$first" "$last"); do
    start "$port" --cluster-enabled yes --cluster-config-file "$port.nodes" --cluster-node-timeout 1000 \
        --repl-diskless-sync-delay 0
    nodes="$nodes${nodes:+ }127.0.0.1:$port"
done
master=${pids# }
master=${master%% *}
say "waiting until they are a cluster and every replica follows, about five seconds"
# shellcheck disable=SC2086 # a list of words
redis-cli --cluster create $nodes --cluster-replicas 1 --cluster-yes >"$folder/created"
for port in $(seq "$first" "$last"); do
    knows() { echo "$(cli "$port" CLUSTER INFO; cli "$port" INFO replication)" "slaves:$(cli "$port" CLUSTER NODES | grep -c slave)" | tr -d '\r' | tr '\n' ' '; }
    ready() { knows | grep -v link_status:down; }
    wait_for "the cluster does not come up" "cluster_state:ok.*slaves:3" ready
done
if [ "$failover" = yes ]; then kill_when_busy "$first" "$master"; fi

LOCK_URL="redis+cluster://$(echo "$nodes" | tr ' ' ',')"
export LOCK_URL
go_on "$@"
