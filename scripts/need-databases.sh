#!/bin/sh
# Installs PostgreSQL, its pooler and MariaDB if they are missing, for the tests of lock-postgres and docs/fencing.md. Starts no
# servers: the tests start their own.
set -eu
. "$(dirname "$0")/lib/install.sh"

missing=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v mariadb-install-db >/dev/null 2>&1 || missing="$missing mariadb-server"
[ -z "$missing" ] || install "${missing# }" "apt-get=$missing" "brew=$(echo "$missing" | sed 's/mariadb-server/mariadb/')"
