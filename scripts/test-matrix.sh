#!/bin/sh
# Runs the tests that depend on the server on each server that is installed here, and prints lab/servers.md. Its table has
# features and servers, and how many tests passed of how many; below it are the failed tests.
#
#   sh scripts/test-matrix.sh >lab/servers.md                 redis-server of this machine, and those of need-servers.sh
#   sh scripts/test-matrix.sh redis-6.2 valkey-9.1            these; `here` is the redis-server of this machine
#
# A failed test runs once more, alone. If it then passes, the machine was too busy, and the test is named. Ends with an error if a test failed twice.
# The servers of need-servers.sh have no TLS, and 6.2 lacks the features of 7.0; the tests of these are not run there.
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
: >"$folder/alone"
suites=$(cargo test --locked -p lock-core --all-features --test redis --test topologies --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
[ "$(echo "$suites" | wc -l)" -eq 2 ] || { echo "the tests do not compile" >&2; exit 2; }
tests() { echo "$suites" | while read -r suite; do PATH="$bin:$PATH" "$suite" "$@" </dev/null || true; done; }

for server; do
    bin=$PWD/target/servers/$server
    if [ "$server" = here ]; then bin=$(dirname "$(command -v redis-server)"); fi
    if ! "$bin/redis-server" --version >"$folder/$server.version" 2>/dev/null; then
        echo "not to be had" >"$folder/$server.version"
        : >"$folder/$server.log"
        continue
    fi
    case $server in
        here) skip="" ;;
        redis-6*) skip="--skip tls --skip since_redis_7" ;;
        *) skip="--skip tls" ;;
    esac
    # shellcheck disable=SC2046,SC2086 # lists of words
    tests $skip $(echo "$features" | sed 's/.*|//') >"$folder/$server.all" 2>&1
    sed -n 's/^test \([^ ]*\) \.\.\. \(ok\|FAILED\)$/\1 \2/p' "$folder/$server.all" | sort >"$folder/$server.log"
    [ "$(grep -c '^test result' "$folder/$server.all")" -eq 2 ] || { echo "$server: the tests did not end, see $folder/$server.all" >&2; exit 2; }
    failed=$(sed -n 's/ FAILED$//p' "$folder/$server.log")
    for test in $failed; do
        echo "$server: $test failed, and runs again" >&2
        if tests --exact "$test" 2>&1 | grep -q "^test .* ok$"; then
            sed -i.bak "s/^$test FAILED$/$test ok/" "$folder/$server.log"
            echo "- $server: \`$test\`" >>"$folder/alone"
        fi
    done
done

echo "# Servers

Printed by \`sh scripts/test-matrix.sh\`: how many tests of a feature passed on each server, and of how many if one failed. A test that failed beside others ran once more alone,
and that result counts. Only Redis 7.0 here has TLS, so the TLS tests run on it alone. On 6.2, tests whose names end in \`since_redis_7\` do not run: tracked keys,
sharded channels, ACL words, and missing replicas. For the differences between versions, see
[Operations](../docs/operations.md#redis-settings).
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
if [ -s "$folder/alone" ]; then
    printf '\nFailed beside others and passed by themselves:\n\n'
    cat "$folder/alone"
fi
exit "$ended"
