#!/bin/sh
# Plants errors in our own code, one after the other, and lets lock-proof run on each: proof/mutants/NAME.patch, whose first line says with
# which words. Prints what each was caught by, and ends with an error if one was not. First come the same words without any error
# planted, which must find nothing.
#
#   sh scripts/mutants.sh             all
#   sh scripts/mutants.sh NAME…       these
#
# LOCK_MUTANT_MINUTES says for how long faults strike each (1.5), LOCK_TEST_SEED with which seed. Works on a copy of what is committed.
set -eu
cd "$(dirname "$0")/.."
sh scripts/need-redis.sh

[ $# -gt 0 ] || set -- $(cd proof/mutants && ls -- *.patch)
tree=target/mutants/tree
mkdir -p target/mutants
rm -rf "$tree"
git worktree prune
git worktree add --quiet --detach "$tree" HEAD
trap 'git worktree remove --force "$tree"' EXIT
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target/mutants/build}"

# Whether lock-proof finds nothing (0) or something (1) as the words say; its output is in target/mutants/NAME.log.
judge() {
    if ! (cd "$tree" && cargo build --locked --quiet -p lock-proof); then
        echo "$1: does not compile" && exit 1
    fi
    ended=0
    (cd "$tree" && eval "\"$CARGO_TARGET_DIR/debug/lock-proof\" $2 --minutes ${LOCK_MUTANT_MINUTES:-1.5} --seed ${LOCK_TEST_SEED:-26}" \
        >"../$1.log" 2>&1) || ended=$?
}
words() { sed -n '1s/^Run: //p' "proof/mutants/${1%.patch}.patch"; }

missed=0
for name; do words "$name"; done | sort -u >target/mutants/controls
count=0
while IFS= read -r run; do
    count=$((count + 1))
    judge "control-$count" "$run" </dev/null
    if [ "$ended" -eq 0 ]; then
        echo "| nothing planted | $run: nothing found |"
    else
        echo "| nothing planted | FOUND (ended with $ended, see target/mutants/control-$count.log) |"
        missed=$((missed + 1))
    fi
done <target/mutants/controls

for name; do
    name=${name%.patch}
    git -C "$tree" apply "$PWD/proof/mutants/$name.patch"
    judge "$name" "$(words "$name")"
    # 1 is a verdict; a program that stops for another reason has judged nothing.
    # Nor does a row in which nothing was ever granted.
    if [ "$ended" -eq 1 ] && grep '^NOT AS EXPECTED' "target/mutants/$name.log" | grep -q '"sections":[1-9]'; then
        grep '^NOT AS EXPECTED' "target/mutants/$name.log" |
            sed "s/^NOT AS EXPECTED: {\"row\":\"\([^\"]*\)\".*\"sections\":[0-9]*,/| $name | \1: /; s/\"[a-z_]*\":0,*//g; s/\"\([a-z_]*\)\":\([0-9]*\)/\2 \1/g; s/,*}\$/ |/; s/,/, /g"
    else
        echo "| $name | NOT CAUGHT (ended with $ended, see target/mutants/$name.log) |"
        missed=$((missed + 1))
    fi
    git -C "$tree" checkout --quiet .
done
[ "$missed" -eq 0 ]
