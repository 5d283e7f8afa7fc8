# shellcheck shell=sh
# Redis servers on loopback, in a folder of their own, stopped when the script ends. To be sourced.

folder=$(mktemp -d)
pids=
stop() {
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    # Until they have ended, they may still write into it.
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
# A terminal that is closed ends this script, but no server.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# say WORDS…: to whoever waits meanwhile.
say() { echo "${0##*/}: $*" >&2; }

# go_on COMMAND…: says where the servers are, and what comes now.
go_on() {
    say "ready: LOCK_URL=$LOCK_URL"
    case $1 in
        cargo) say "now $* (cargo first builds what is not built yet, which takes minutes)" ;;
        *) say "now $*" ;;
    esac
    "$@"
}

cli() { redis-cli -h 127.0.0.1 -p "$@" 2>/dev/null; }

# wait_for SENTENCE EXPRESSION COMMAND…: until the command prints a line like the expression. The sentence says that it never did.
wait_for() {
    sentence=$1 expression=$2
    shift 2
    tries=0
    until "$@" | tr -d '\r' | grep -q "$expression"; do
        tries=$((tries + 1))
        if [ "$tries" -ge 300 ]; then
            echo "$sentence" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# first_port BASE COUNT: where a row of ports begins, another one for each run, below those that the system gives away by itself.
first_port() { echo $(($1 + $$ % 1500 * $2)); }

# start PORT WORDS…: a server with further words of its command line. Its process id is in `pid` then.
start() {
    port=$1
    shift
    redis-server "$@" --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$folder" >"$folder/$port.log" 2>&1 &
    pid=$!
    pids="$pids $pid"
    # Another server on this port would have answered too.
    wait_for "redis-server does not start on port $port; run this again" "^process_id:$pid\$" cli "$port" INFO server
}

# kill_when_busy PORT PID: kills a master in the middle of its work.
kill_when_busy() {
    (
        trap - EXIT HUP INT TERM
        calls() { cli "$1" INFO commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }
        until [ "$(calls "$1" || true)" -ge 50 ] 2>/dev/null; do sleep 0.05; done
        kill -9 "$2"
        echo "the master 127.0.0.1:$1 was killed" >&2
    ) &
    pids="$pids $!"
}
