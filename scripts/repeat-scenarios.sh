#!/bin/sh
# Runs the eleven scenarios of Sentinel, Cluster, durability and quorum repeatedly, on real servers. Shows the
# shortest and the longest of each measured time beside its bound. Ends with an error if a run fails
# or a bound is broken. The bounds hold on an otherwise idle machine.
#
#   sh scripts/repeat-scenarios.sh        ten runs in a row
#   sh scripts/repeat-scenarios.sh 3      three
#
# The first redis-server of PATH is used. For another one, put its directory in front of PATH.
set -eu
cd "$(dirname "$0")/.."

runs="${1:-10}"
case "$runs" in
    '' | *[!0-9]*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
sh scripts/need-redis.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
figures="$folder/figures"
: > "$figures"

# A node of a cluster writes its file at each change of a slot, and waits for the disk. The figures are not about disks,
# so the servers' files are in memory if possible.
if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ] && [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi

# Runs the tests that the words select, with the given number at a time.
scenarios() {
    threads=$1
    shift
    cargo test --locked -q -p lock-core --all-features --test redis --test topologies --no-fail-fast -- \
        --nocapture --test-threads "$threads" "$@"
}

cargo test --locked -p lock-core --all-features --test redis --test topologies --no-run
failed=0
run=1
while [ "$run" -le "$runs" ]; do
    begun=$(date +%s)
    ended=green
    # Scenarios with tight bounds run alone. Most of the others spend their time waiting.
    scenarios 1 sentinel::failover sentinel::processes cluster::failover cluster::moves::while_a_thousand \
        > "$folder/alone" 2>&1 || ended=red
    scenarios 4 sentinel:: cluster:: quorum::servers quorum::losses tls:: \
        --skip sentinel::failover --skip sentinel::processes --skip cluster::failover --skip cluster::moves::while_a_thousand \
        > "$folder/together" 2>&1 || ended=red
    cat "$folder/alone" "$folder/together" > "$folder/log"
    [ "$ended" = green ] || { failed=$((failed + 1)); grep -A 3 -E 'panicked at|FAILED|^error' "$folder/log" || cat "$folder/log"; }
    grep -o 'figure: .*' "$folder/log" | grep -E ': [0-9.]+(ns|µs|ms|s)?$' >> "$figures" || true
    printf '== run %s of %s: %s, %s s\n' "$run" "$runs" "$ended" "$(($(date +%s) - begun))"
    run=$((run + 1))
done

printf '\n%12s %12s %12s  %s\n' shortest longest bound 'what, times in ms'
broken=0
awk '
    function number(text, plain) {
        plain = text; gsub(/[^0-9.]/, "", plain); plain += 0
        if (text ~ /ns$/) return plain / 1000000
        if (text ~ /µs$/) return plain / 1000
        if (text ~ /ms$/) return plain
        if (text ~ /s$/) return plain * 1000
        return plain
    }
    {
        what = $0
        sub(/^figure: /, "", what); sub(/: [^:]*$/, "", what)
        if (match(what, / \(bound [^)]*\)$/)) {
            limit = substr(what, RSTART + 8, RLENGTH - 9)
            what = substr(what, 1, RSTART - 1)
            bound[what] = number(limit)
        }
        value = number($NF)
        if (!(what in least) || value < least[what]) least[what] = value
        if (!(what in most) || value > most[what]) most[what] = value
    }
    END {
        for (what in least) {
            over = what in bound && most[what] > bound[what]
            broken += over
            limit = what in bound ? sprintf("%12.1f", bound[what]) : sprintf("%12s", "-")
            note = over ? "  BROKEN" : ""
            printf("%12.1f %12.1f %s  %s%s\n", least[what], most[what], limit, what, note) | "sort -k4"
        }
        close("sort -k4")
        exit (broken > 0)
    }
' "$figures" || broken=1

if [ "$failed" -gt 0 ] || [ "$broken" -gt 0 ]; then
    printf '\n%s of %s runs failed; bounds broken: %s\n' "$failed" "$runs" "$([ "$broken" -gt 0 ] && echo yes || echo no)" >&2
    exit 1
fi
