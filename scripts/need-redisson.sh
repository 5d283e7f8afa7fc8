#!/bin/sh
# Builds lab/proof/peers/java, a program of Redisson in its newest version, into target/peers/java. Maven downloads Redisson from Maven
# Central, unless ~/.m2/settings.xml or MAVEN_ARGS names a mirror. Without Java and Maven, or without the download, the script says so and
# continues; the tests beside Redisson then name themselves as not run.
set -eu
cd "$(dirname "$0")/.."

java=$(pwd)/target/peers/java
skip() { echo "$1: the tests beside Redisson are not run" >&2; exit 0; }

for program in javac mvn; do
    command -v "$program" >/dev/null 2>&1 || skip "$program is missing"
done
mkdir -p "$java"
if ! cmp -s lab/proof/peers/java/pom.xml "$java/pom.xml"; then
    rm -rf "$java/lib"
    (cd lab/proof/peers/java && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$java/lib") || skip "Redisson cannot be downloaded"
    cp lab/proof/peers/java/pom.xml "$java/pom.xml"
fi
javac -cp "$java/lib/*" -d "$java/classes" lab/proof/peers/java/*.java
