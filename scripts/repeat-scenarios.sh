#!/bin/sh
# Runs the scenarios of Sentinel, durability and quorum again and again, on real servers, and shows the longest and the
# shortest of each measured time. Ends with an error if one run fails.
#
#   sh scripts/repeat-scenarios.sh        ten runs in a row
#   sh scripts/repeat-scenarios.sh 3      three
#
# Another server than the first redis-server of PATH: put the directory of its redis-server in front of PATH.
set -eu
cd "$(dirname "$0")/.."

runs="${1:-10}"
case "$runs" in
    '' | *[!0-9]*) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
sh scripts/need-redis.sh

figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
run=1
while [ "$run" -le "$runs" ]; do
    printf '== run %s of %s\n' "$run" "$runs"
    log=$(mktemp)
    if ! cargo test --locked -p lock-core --all-features --test it -- --nocapture --test-threads 4 \
        sentinel:: quorum::servers > "$log" 2>&1; then
        cat "$log"
        rm -f "$log"
        exit 1
    fi
    grep -o 'figure: .*' "$log" | grep -E '[0-9](ns|µs|ms|s)$' >> "$figures"
    rm -f "$log"
    run=$((run + 1))
done

printf '\n%12s %12s  %s\n' shortest longest 'what, in ms'
awk '
    {
        value = $NF; what = $0
        sub(/^figure: /, "", what); sub(/: [^:]*$/, "", what)
        number = value; gsub(/[^0-9.]/, "", number); number += 0
        if (value ~ /ns$/) number /= 1000000
        else if (value ~ /µs$/) number /= 1000
        else if (value !~ /ms$/) number *= 1000
        if (!(what in least) || number < least[what]) least[what] = number
        if (!(what in most) || number > most[what]) most[what] = number
    }
    END { for (what in least) printf "%12.1f %12.1f  %s\n", least[what], most[what], what }
' "$figures" | sort -k3
