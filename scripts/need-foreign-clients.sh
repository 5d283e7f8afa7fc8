#!/bin/sh
# Installs redis-py, the Python client whose locks our tests exclude and are excluded by, into
# target/foreign-clients. Python 3 comes from the system's package manager if it is missing.
set -eu
cd "$(dirname "$0")/.."

venv=target/foreign-clients
redis_py=8.1.0

if "$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'" 2>/dev/null; then
    exit 0
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

if ! python3 -c "import venv, ensurepip" 2>/dev/null; then
    echo "python3 with venv is missing; installing it with the system's package manager"
    if command -v apt-get >/dev/null 2>&1; then
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv
    elif command -v dnf >/dev/null 2>&1; then
        as_root dnf install -y python3 python3-pip
    elif command -v apk >/dev/null 2>&1; then
        as_root apk add python3 py3-pip
    elif command -v pacman >/dev/null 2>&1; then
        as_root pacman -S --noconfirm python
    elif command -v brew >/dev/null 2>&1; then
        brew install python
    else
        echo "no known package manager; install python3 with venv, then run this again" >&2
        exit 1
    fi
fi
mkdir -p target
python3 -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "redis==$redis_py"
"$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'"
