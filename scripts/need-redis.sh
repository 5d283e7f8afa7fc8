#!/bin/sh
# Installs redis-server if it is missing. Starts nothing: every test starts its own.
set -eu

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

echo "redis-server is missing; installing it with the system's package manager"
if command -v apt-get >/dev/null 2>&1; then
    # The package would start a service of its own, which nobody needs here.
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server
elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y redis || as_root dnf install -y valkey-compat-redis
elif command -v apk >/dev/null 2>&1; then
    as_root apk add redis
elif command -v pacman >/dev/null 2>&1; then
    as_root pacman -S --noconfirm redis
elif command -v brew >/dev/null 2>&1; then
    brew install redis
else
    echo "no known package manager; install redis-server 6.2 or newer, then run this again" >&2
    exit 1
fi
command -v redis-server >/dev/null 2>&1 || { echo "redis-server is still missing after the installation" >&2; exit 1; }
