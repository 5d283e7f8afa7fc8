#!/bin/sh
# Runs the tests that depend on the server on each server that can be had here, and prints docs/operations/servers.md: features and servers,
# in each cell how many tests passed of how many, and below who failed.
#
#   sh scripts/test-matrix.sh >docs/operations/servers.md     redis-server of this machine, and those of need-servers.sh
#   sh scripts/test-matrix.sh redis-6.2 valkey-9.1            these; `here` is the redis-server of this machine
#
# What failed runs once more, by itself: a test that then passes had too little of the machine. Ends with an error if a test failed twice,
# as on 6.2 those of what came with 7.0 do.
set -eu
cd "$(dirname "$0")/.."
sh scripts/need-redis.sh
sh scripts/need-servers.sh >&2
[ $# -gt 0 ] || set -- redis-6.2 here redis-8.2 valkey-8.1 valkey-9.1

features='locks, queues, jobs: the conformance suite|conformance::redis::
commands, errors, connections, hand-offs|redis_store:: handoff::
readers, writers, permits|modes_on_redis::
a loss is noticed at once|push::
replicas and disks confirm (acks, fsync)|sentinel::durability::
Sentinel|sentinel::failover:: sentinel::finding:: sentinel::partition::
cluster|cluster::
quorum: the conformance suite|conformance::quorum_of_servers::'

folder=target/matrix
mkdir -p "$folder"
suite=$(cargo test --locked -p lock-core --all-features --test it --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
[ -n "$suite" ] || { echo "the tests do not compile" >&2; exit 2; }
tests() { PATH="$bin:$PATH" "$suite" "$@" || true; }

for server; do
    bin=$PWD/target/servers/$server
    if [ "$server" = here ]; then bin=$(dirname "$(command -v redis-server)"); fi
    if ! "$bin/redis-server" --version >"$folder/$server.version" 2>/dev/null; then
        echo "not to be had" >"$folder/$server.version"
        : >"$folder/$server.log"
        continue
    fi
    # shellcheck disable=SC2046 # a list of words
    tests $(echo "$features" | sed 's/.*|//') >"$folder/$server.all" 2>&1
    sed -n 's/^test \(it::\)\{0,1\}\([^ ]*\) \.\.\. \(ok\|FAILED\)$/\2 \3/p' "$folder/$server.all" | sort >"$folder/$server.log"
    grep -q '^test result' "$folder/$server.all" || { echo "$server: the tests did not end, see $folder/$server.all" >&2; exit 2; }
    failed=$(sed -n 's/ FAILED$//p' "$folder/$server.log")
    for test in $failed; do
        echo "$server: $test failed, and runs again" >&2
        if tests --exact "$test" 2>&1 | grep -q "^test .* ok$"; then
            sed -i.bak "s/^$test FAILED$/$test ok/" "$folder/$server.log"
        fi
    done
done

echo "# Servers

Printed by \`sh scripts/test-matrix.sh\`: in each cell how many of the tests of a feature passed on that server, of how many. What failed ran once more, by itself, and
then counts. What differs from version to version: [Operations](../operations.md#redis-settings). A build without TLS fails the tests of TLS.
"
head='|' rule='|---|'
for server; do
    version=$(sed -n 's/^\([A-Z][a-z]*\) server v=\([0-9.]*\).*/\1 \2/p' "$folder/$server.version")
    head="$head | ${version:-$server}" rule="$rule---|"
done
printf '%s |\n%s\n' "$head" "$rule"
echo "$features" | while IFS='|' read -r feature filters; do
    row="| $feature"
    pattern="^($(echo "$filters" | tr ' ' '|'))"
    for server; do
        all=$(grep -cE "$pattern" "$folder/$server.log" || true)
        passed=$(grep -E "$pattern" "$folder/$server.log" | grep -c ' ok$' || true)
        if [ "$all" -eq 0 ]; then row="$row | not run"; elif [ "$all" -eq "$passed" ]; then row="$row | $all"; else row="$row | **$passed of $all**"; fi
    done
    echo "$row |"
done
ended=0
for server; do
    failed=$(sed -n 's/ FAILED$//p' "$folder/$server.log")
    for test in $failed; do
        [ "$ended" -ne 0 ] || printf '\nFailed, also by themselves:\n\n'
        echo "- $server: \`$test\`"
        ended=1
    done
done
exit "$ended"
