#!/bin/sh
# Plants errors in our own code, one after the other, and lets lock-proof run on each: proof/mutants/NAME.patch, whose first line says with
# which words. Prints what each was caught by, and ends with an error if one was not.
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

missed=0
for name; do
    name=${name%.patch}
    patch=proof/mutants/$name.patch
    git -C "$tree" apply "$PWD/$patch"
    if ! (cd "$tree" && cargo build --locked --quiet -p lock-proof); then
        echo "$name: does not compile" && exit 1
    fi
    words=$(sed -n '1s/^Run: //p' "$patch")
    ended=0
    (cd "$tree" && eval "\"$CARGO_TARGET_DIR/debug/lock-proof\" $words --minutes ${LOCK_MUTANT_MINUTES:-1.5} --seed ${LOCK_TEST_SEED:-26}" \
        >"../$name.log" 2>&1) || ended=$?
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
