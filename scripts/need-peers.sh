#!/bin/sh
# Builds the adapters of other libraries for `lock-proof` and `lock-bench --peers`, into target/peers. The ones in Go need Go, and the
# ones in Java need a compiler and Maven; pg_lease is built too. If a tool is missing, the script says so and continues. `lock-proof`
# and `lock-bench` then name the locks that they do not run.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

peers=$(pwd)/target/peers
mkdir -p "$peers"

has() {
    for program in $1; do
        command -v "$program" >/dev/null 2>&1 || { echo "$program is missing: no rows of $2" >&2; return 1; }
    done
}

if has go "redsync, redislock, rueidislock and advisory locks"; then
    (cd lab/proof/peers/go && try go build -o "$peers/" ./redsync ./redislock ./rueidislock ./advisory)
fi

sh scripts/need-redisson.sh

curator=$peers/curator
if has "javac mvn" Curator; then
    try jars lab/proof/peers/curator/pom.xml "$curator/lib"
    javac -cp "$curator/lib/*" -d "$curator/classes" lab/proof/peers/curator/CuratorPeer.java lab/proof/peers/java/Lines.java \
        lab/proof/peers/java/Load.java
fi

(cd lab/proof/peers/pg_lease && try cargo build --locked --quiet --release --target-dir "$peers/build")
ln -sf build/release/pg_lease build/release/pg_lease_race "$peers/"
