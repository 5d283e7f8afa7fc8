# shellcheck shell=sh
# Redis servers on loopback, in a folder of their own, stopped when the script ends. To be sourced.

folder=$(mktemp -d)
pids=
stop() {
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    # The servers may write into the folder until they have ended.
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
# A closed terminal ends this script but not the servers, so the trap must stop them.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# say WORDS…: prints progress on the error output.
say() { echo "${0##*/}: $*" >&2; }

# go_on COMMAND…: prints where the servers are, and the command that follows.
go_on() {
    say "ready: LOCK_URL=$LOCK_URL"
    case $1 in
        cargo) say "now $* (cargo first builds what is not built yet, which takes minutes)" ;;
        *) say "now $*" ;;
    esac
    "$@"
}

cli() { redis-cli -h 127.0.0.1 -p "$@" 2>/dev/null; }

# wait_for SENTENCE EXPRESSION COMMAND…: waits until the command prints a matching line. The sentence is the error if it never does.
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

# first_port BASE COUNT: the first of some ports in a row. It differs between runs, and is below the system's ephemeral ports.
first_port() { echo $(($1 + $$ % 1500 * $2)); }

# start PORT WORDS…: starts a server with more arguments. Sets `pid` to its process id.
start() {
    port=$1
    shift
    redis-server "$@" --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$folder" >"$folder/$port.log" 2>&1 &
    pid=$!
    pids="$pids $pid"
    # Compares the process id, since another server on this port would answer too.
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
