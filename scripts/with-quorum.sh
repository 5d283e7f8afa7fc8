#!/bin/sh
# Runs a command with a quorum of its own on this machine, with three servers by default. LOCK_URL has its URL.
# Stops the servers afterwards, and ends with the status of the command.
#
#   sh scripts/with-quorum.sh cargo run -p lock-examples -- --processes 4
#   sh scripts/with-quorum.sh --members 5 cargo run -p lock-examples -- --processes 4
set -eu

members=3
if [ "${1:-}" = --members ]; then
    members=${2:-}
    shift $(($# < 2 ? $# : 2))
fi
case $members in [1-9]) ;; *) set -- ;; esac
if [ $# -eq 0 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
sh "$root/scripts/need-redis.sh"
. "$root/scripts/lib/servers.sh"

first=$(first_port 17000 9)
hosts=
say "starting $members servers, 127.0.0.1:$first to $((first + members - 1))"
for port in $(seq "$first" $((first + members - 1))); do
    start "$port"
    hosts="$hosts${hosts:+,}127.0.0.1:$port"
done

LOCK_URL="redlock://$hosts"
export LOCK_URL
say "building lockctl, the first time for some minutes, which then has every member count"
cargo run --manifest-path "$root/Cargo.toml" -p lockctl -- quorum init >&2
go_on "$@"
