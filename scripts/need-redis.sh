#!/bin/sh
# Installs redis-server if it is missing. Starts no server: every test starts its own.
set -eu
. "$(dirname "$0")/lib/install.sh"

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi
# If dnf no longer has Redis, its Valkey package also provides the name.
install "redis-server, 6.2 or newer," apt-get=redis-server dnf=redis apk=redis pacman=redis brew=redis ||
    install "redis-server, as Valkey," dnf=valkey-compat-redis
command -v redis-server >/dev/null 2>&1 || { echo "redis-server is still missing after the installation" >&2; exit 1; }
