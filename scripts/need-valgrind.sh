#!/bin/sh
# Installs valgrind if it is missing. `lock-bench --instructions` counts instructions with it.
set -eu
. "$(dirname "$0")/lib/install.sh"

if command -v valgrind >/dev/null 2>&1; then
    exit 0
fi
install valgrind apt-get=valgrind dnf=valgrind apk=valgrind pacman=valgrind
command -v valgrind >/dev/null 2>&1 || { echo "valgrind is still missing after the installation" >&2; exit 1; }
