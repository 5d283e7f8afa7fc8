#!/bin/sh
# Puts ZooKeeper 3.9.5 and 3.8.0 into target/servers/zookeeper-VERSION, and checks the SHA-256 of each. Starts no server: the tests of
# lock-zookeeper start their own. Maven downloads from Maven Central, unless ~/.m2/settings.xml or MAVEN_ARGS names a mirror. Without a
# tool or a download, the script says so and continues; the tests then name themselves as not run.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

skip() { echo "$1: the tests on ZooKeeper are not run" >&2; exit 0; }

for program in java mvn; do
    command -v "$program" >/dev/null 2>&1 || skip "$program is missing"
done

# server VERSION SHA-256
server() {
    servers=$PWD/target/servers/zookeeper-$1
    try jars stores/lock-zookeeper/tests/servers/pom.xml "$servers" "-Dzookeeper=$1" || skip "ZooKeeper $1 cannot be downloaded"
    if ! echo "$2  $servers/zookeeper-$1.jar" | sha256sum -c - >/dev/null 2>&1; then
        echo "$servers/zookeeper-$1.jar is not what it must be: its SHA-256 differs" >&2
        rm -rf "$servers"
        exit 1
    fi
}

server 3.9.5 936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0
server 3.8.0 5a6591c242acbd3cb04eb4afc6d218664c9708b5b7174535b1ed68e44346e55c
