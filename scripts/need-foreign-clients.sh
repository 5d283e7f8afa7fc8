#!/bin/sh
# Installs redis-py, the Python client whose locks our tests exclude and are excluded by, into
# target/foreign-clients. Python 3 comes from the system's package manager if it is missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

venv=target/foreign-clients
redis_py=8.1.0

if "$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'" 2>/dev/null; then
    exit 0
fi
if ! python3 -c "import venv, ensurepip" 2>/dev/null; then
    install "python3 with venv" "apt-get=python3 python3-venv" "dnf=python3 python3-pip" "apk=python3 py3-pip" pacman=python brew=python
fi
mkdir -p target
python3 -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "redis==$redis_py"
"$venv/bin/python" -c "import redis; assert redis.__version__ == '$redis_py'"
