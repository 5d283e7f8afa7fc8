#!/bin/sh
# Runs all tests of the workspace. A test that fails is run once more, alone. If it fails again, this script ends with an
# error. If it passes alone, its name is printed at the end, for a person to look at.
# More than eight such tests are an error: so many do not fail by chance, also on two slow processors.
#
#   sh scripts/run-tests.sh [arguments of cargo test]
set -eu
cd "$(dirname "$0")/.."

# Most tests wait for servers or for time and not for a processor, so more of them run at once.
RUST_TEST_THREADS="${RUST_TEST_THREADS:-10}"
export RUST_TEST_THREADS

most=8
# The selected packages, without the arguments for the tests.
scope=${*%% -- *}
log=$(mktemp)
beside=""
# A shell does not pass on to its background job what ends it.
trap 'if [ -n "$beside" ]; then pkill -P "$beside" || true; kill "$beside" 2>/dev/null || true; fi; rm -f "$log" "$log".*' EXIT
trap 'exit 130' INT TERM

# Prints the output of the command, adds it to the log, and keeps its exit status, which a pipe alone would hide.
run() {
    { status=0; "$@" 2>&1 || status=$?; echo "$status" > "$log.status"; } | tee -a "$log"
    return "$(cat "$log.status")"
}
tests() { run cargo test --locked --all-features --no-fail-fast "$@"; }

failed=0
if [ "$*" = --workspace ]; then
    # The test programs in two halves, side by side: most of them wait, and one half does not fill two processors.
    # lock-core/tests/house/tidy/limits.rs checks that no program is missing here.
    ours="--lib --bin lockctl --bin flash_sale --test house --test attribute --test engine --test redis --test topologies --test exposed --test clients --test process
        --test interleavings --test first_use --test renamed --test strict --test install_existing_first --test install_existing_later
        --test install_own --test opentelemetry"
    others="--test it --test kills --test counter"
    cargo test --locked --all-features --workspace --no-run
    # shellcheck disable=SC2086 # lists of words
    cargo test --locked --all-features --no-fail-fast --workspace $others >"$log.beside" 2>&1 &
    beside=$!
    # shellcheck disable=SC2086
    tests --workspace $ours || failed=1
    # lock-examples runs the programs in the pages of lock-macros.
    tests --workspace --exclude lock-macros --doc || failed=1
    wait "$beside" || failed=1
    beside=""
    tee -a "$log" <"$log.beside"
else
    tests "$@" || failed=1
fi
[ "$failed" != 0 ] || exit 0

# Each line: a failed test program as cargo names it, a tab, and its failed test, or nothing if the output names none.
awk '
    /^ +Running |^ +Doc-tests / { listing = 0; count = 0; next }
    /^failures:$/ { listing = 1; next }
    listing && /^    / { names[++count] = substr($0, 5); next }
    { listing = 0 }
    /^error: .*to rerun pass `/ {
        split($0, quoted, "`")
        if (count == 0) print quoted[2] "\t"
        for (at = 1; at <= count; at++) print quoted[2] "\t" names[at]
        count = 0
    }
' "$log" > "$log.failed"

failed=$(wc -l < "$log.failed")
if [ "$failed" = 0 ] || [ "$failed" -gt "$most" ]; then
    echo "error: $failed tests failed; from 1 to $most are run again alone" >&2
    exit 1
fi

printf '\n== once more, alone: what failed beside the others\n'
tab=$(printf '\t')
while IFS=$tab read -r program name; do
    # With its package alone, a program would be rebuilt with fewer shared features.
    where=$(echo "$program" | sed 's/^-p [^ ]* //')
    : >"$log"
    if [ -n "$name" ]; then
        # shellcheck disable=SC2086 # What names a program has no blanks of its own.
        run cargo test --locked --all-features $scope $where -- --exact --test-threads 1 "$name" </dev/null
        grep -q '^test result: ok\. 1 passed' "$log" || { echo "error: '$name' was not found again" >&2; exit 1; }
    else
        # shellcheck disable=SC2086
        run cargo test --locked --all-features $program </dev/null
    fi
done < "$log.failed"

printf '\n== failed beside the others and passed alone; please look at them\n'
cat "$log.failed"
