#!/bin/sh
# Builds lab/proof/peers/java, a program of Redisson in its newest version, into target/peers/java, and installs node-redisson beside it.
# Maven downloads Redisson from Maven Central, unless ~/.m2/settings.xml or MAVEN_ARGS names a mirror. Without a tool or a download, the
# script says so and continues; the tests beside Redisson then name themselves as not run.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

java=$(pwd)/target/peers/java
node=$(pwd)/target/peers/node-redisson
if command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; then
    [ -d "$node/node_modules/node-redisson" ] ||
        npm install --silent --no-save --no-audit --no-fund --prefix "$node" node-redisson@1.0.4 ioredis@5 ||
        echo "node-redisson cannot be downloaded: the test beside it is not run" >&2
else
    echo "node or npm is missing: the test beside node-redisson is not run" >&2
fi
skip() { echo "$1: the tests beside Redisson are not run" >&2; exit 0; }

for program in javac mvn; do
    command -v "$program" >/dev/null 2>&1 || skip "$program is missing"
done
jars lab/proof/peers/java/pom.xml "$java/lib" || skip "Redisson cannot be downloaded"
javac -cp "$java/lib/*" -d "$java/classes" lab/proof/peers/java/*.java
