#!/bin/sh
# Installs clients of other libraries into target/foreign-clients. Tests check that their locks and those of this library exclude each
# other. Installs redis-py, with Python 3 from the system's package manager if it is missing, and node-redlock if there is Node.js.
# Without Node.js, which only node-redlock needs, the script says so and continues.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

venv=target/foreign-clients
# The newest releases; docs/migrating.md names them.
redis_py=8.1.0
node_redlock=4.2.0
ioredis=6.0.0

if ! "$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'" 2>/dev/null; then
    if ! python3 -c "import venv, ensurepip" 2>/dev/null; then
        install "python3 with venv" "apt-get=python3 python3-venv" "dnf=python3 python3-pip" "apk=python3 py3-pip" pacman=python brew=python
    fi
    mkdir -p target
    python3 -m venv --clear "$venv"
    try "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "redis==$redis_py"
    "$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'"
fi

version() { sed -n 's/^ *"version": *"\(.*\)".*/\1/p' "$venv/node_modules/$1/package.json" 2>/dev/null; }
if [ "$(version redlock)" != "$node_redlock" ] || [ "$(version ioredis)" != "$ioredis" ]; then
    if command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; then
        try npm install --silent --no-save --no-audit --no-fund --prefix "$venv" "redlock@$node_redlock" "ioredis@$ioredis"
    else
        echo "node or npm is missing: the rows of node-redlock in docs/migrating.md are not tested" >&2
    fi
fi
