#!/bin/sh
# Installs valgrind if it is missing, which counts instructions for `lock-bench --instructions`.
set -eu

if command -v valgrind >/dev/null 2>&1; then
    exit 0
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

echo "valgrind is missing; installing it with the system's package manager"
if command -v apt-get >/dev/null 2>&1; then
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind
elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y valgrind
elif command -v apk >/dev/null 2>&1; then
    as_root apk add valgrind
elif command -v pacman >/dev/null 2>&1; then
    as_root pacman -S --noconfirm valgrind
else
    echo "no known package manager; install valgrind, then run this again" >&2
    exit 1
fi
command -v valgrind >/dev/null 2>&1 || { echo "valgrind is still missing after the installation" >&2; exit 1; }
