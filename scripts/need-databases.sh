#!/bin/sh
# Installs PostgreSQL and MariaDB if they are missing, for the tests of docs/fencing.md. Starts nothing: the tests start their own.
set -eu

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v mariadb-install-db >/dev/null 2>&1 || missing="$missing mariadb-server"
[ -n "$missing" ] || exit 0

echo "missing:$missing; installing with the system's package manager"
if command -v apt-get >/dev/null 2>&1; then
    as_root apt-get update -qq
    # The packages would start services of their own, which nobody needs here.
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing
elif command -v brew >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    brew install $(echo "$missing" | sed 's/mariadb-server/mariadb/')
else
    echo "no known package manager; install$missing, then run this again" >&2
    exit 1
fi
