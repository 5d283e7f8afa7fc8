"""The incident of scripts/e2e-observability.sh: starts the servers, lets locks go wrong, and compares what is shown with what is.

Needs nothing but the standard library. Every child is ended by its own process handle.
"""

import argparse
import http.server
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import live_view

STUCK_AFTER = 5
# A limit for slow machines. Each wait has a cause that comes sooner; a pass never depends on the limit.
PATIENCE = 120
# The lock that "One lock" is opened for. The stuck lock has no ended hold yet.
CONTENDED = "demo:contended:stock:<run>"
# Locks in the store without a process: the lock of a killed process, and one that never expires.
ORPHANS = {"demo:orphaned:export:<run>", "demo:eternal:migration:<run>"}
# Alerts that this demo fires when delays are seconds instead of minutes. All others must stay silent.
EXPECTED = {"LockStuck", "LockStuckWithWaiters", "LockLost", "LockOrphanedHold", "LockKeyWithoutTtl", "LockDeadlock", "LockOrderInverted"}
# Waits of three seconds in vain and slow grants are part of the demo.
ALLOWED = EXPECTED | {"LockAcquireTimeouts", "LockWaitersPilingUp", "LockWaitBudgetBurn"}
# A machine that is busy with other tests really is late, so with such short delays these alerts may fire.
ON_A_BUSY_MACHINE = {"LockStoreErrors", "LockStoreSlow", "LockRenewalsFailing", "LockWatchdogLate", "LockLeaseNearlyLost", "LockReleaseAbandoned"}
# With a scrape each second, a late scrape fails, and its process counts as silent.
WHERE_SCRAPES_FAILED = {"LockHolderSilent"}

children = []
notified = []


def main():
    # Ends this script if anything hangs, long after every other limit.
    watchdog = threading.Timer(1800, lambda: (say("took too long"), end_children(), os._exit(1)))
    watchdog.daemon = True
    watchdog.start()
    play(["work", "stuck", "lockctl", "dashboards"], run)


def play(names, run, **defaults):
    """Calls `run` with the options of the command line, and ends every child, whatever happens."""
    arguments = argparse.ArgumentParser()
    for name in names:
        arguments.add_argument("--" + name, required=True)
    for name, default in defaults.items():
        arguments.add_argument("--" + name, type=type(default), default=default)
    options = arguments.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        run(options)
    finally:
        end_children()


def run(options):
    redis, prometheus, alertmanager, webhook, demo = free_ports(5)
    configure(options, prometheus, alertmanager, webhook, demo)
    receive(webhook, lambda _, alerts: notified.extend(dict(alert, at=time.time()) for alert in alerts))
    start("redis", ["redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--dir", options.work], options)
    wait_for("redis", lambda: talk(redis, "PING") == "PONG")
    start_alertmanager("alertmanager", alertmanager, options)
    start("prometheus", [
        "prometheus", f"--config.file={options.work}/prometheus.yml", f"--storage.tsdb.path={options.work}/prometheus",
        f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn",
    ], options)
    server = Prometheus(prometheus)
    wait_for("prometheus", lambda: server.get("/-/ready", plain=True))

    # Prometheus scrapes before there is something, so that it sees counters begin at 0.
    story = start("stuck", [
        options.stuck, "--port", demo, "--stuck-after", f"{STUCK_AFTER}s", "--until-told",
        "--rest", "1h", "--lose-every", "8s", "--inspect-every", "1s", "--run-for", "1h",
    ], options, stdin=subprocess.PIPE, LOCK_URL=f"redis://127.0.0.1:{redis}")
    lock, key = "demo:stuck:books:<run>", f"demo:stuck:books:{story.pid}"
    held_since = wait_for("the stuck hold", lambda: number(server, site_hold(lock)))

    fired = wait_for("LockStuck", lambda: server.firing("LockStuck"))
    after = time.time() - held_since
    check(talk(redis, f"EXISTS {key}") == "1" and number(server, site_hold(lock)), "LockStuck fires while the lock is held")
    check([alert["labels"]["lock"] for alert in fired] == [lock], f"only the stuck lock is called stuck: {fired}")
    site = fired[0]["labels"]["site"]
    check("scenes.rs:" in site, f"the alert names the call site: {site}")
    # promtool checks how long this may take, on a virtual clock.
    say(f"LockStuck fired {after:.1f} s after the grant, {after - STUCK_AFTER:.1f} s after the threshold, lock still held")

    told = wait_for("the webhook", lambda: [alert for alert in notified if alert["labels"]["alertname"] == "LockStuckWithWaiters"])
    say(f"the webhook was told {told[0]['at'] - held_since:.1f} s after the grant")
    text = json.dumps(told[0])
    for part in [lock, site, "runbooks/LockStuckWithWaiters.md", f"127.0.0.1:{demo}/locks"]:
        check(part in text, f"the notification says {part}: {text}")
    wait_for("LockLost", lambda: server.firing("LockLost"))
    wait_for("LockOrphanedHold", lambda: locks_of(server.firing("LockOrphanedHold")) == ORPHANS)
    wait_for("LockKeyWithoutTtl", lambda: locks_of(server.firing("LockKeyWithoutTtl")) == {"demo:eternal:migration:<run>"})

    live_view.check(f"http://127.0.0.1:{demo}/locks", options.work, key, site,
                    f"demo:typed:<img src=x onerror=\"document.title='pwned'\">:{story.pid}", check)
    live_view.check_on_screens(f"http://127.0.0.1:{demo}/locks", options.work, check)
    check_lockctl(options, redis, demo, key, site)
    say("the live view in a browser has the stuck lock on top with its holder, and a key that contains HTML as text; a phone, a laptop and a monitor show all of it")

    wait_for("scrapes for rates over ten seconds", lambda: (number(server, 'min(count_over_time(up{job="locks"}[1h]))') or 0) > 12)
    check_queries(options, server, lock, site)
    check(number(server, site_hold(lock)) == held_since, "all this was seen during one hold")
    say(f"all of it seen {time.time() - held_since:.0f} s after the grant, before the release")

    story.stdin.write(b"that will do\n")
    story.stdin.flush()
    released = wait_for("the release", lambda: number(server, site_hold(lock)) == 0 and time.time())
    for alert in ["LockStuck", "LockStuckWithWaiters"]:
        wait_for(f"the end of {alert}", lambda: not server.firing(alert))
    say(f"both alerts ended within {time.time() - released:.1f} s after the release was seen")
    wait_for("the all-clear", lambda: [alert for alert in notified
             if alert["labels"]["alertname"] == "LockStuckWithWaiters" and alert["status"] == "resolved"])
    check_silence(server)

    force_as_the_runbook_says(options, server, redis, f"demo:typed:<img src=x onerror=\"document.title='pwned'\">:{story.pid}")
    hang(server, story)
    story.send_signal(signal.SIGINT)
    check(story.wait(PATIENCE) == 0, "the demo ends well at Ctrl-C")
    with open(f"{options.work}/stuck.log", encoding="utf-8") as log:
        check("every lock given back: true" in log.read(), "the demo gives every lock back")
    check(talk(redis, f"EXISTS {key}") == "0", "no lock is left")
    say("all as it should be")


def check_lockctl(options, redis, demo, key, site):
    """One command names the holder of the stuck lock and who waits for it."""
    def look(*words):
        command = [options.lockctl, "--url", f"redis://127.0.0.1:{redis}", *words, "--json"]
        done = subprocess.run(command, capture_output=True, check=False)
        # If the server is slow, lockctl may fail with an error. Then it is called again.
        return json.loads(done.stdout) if done.returncode == 0 else say(f"{words[0]}: {done.stderr.decode().strip()}")

    # Waiters give up and return.
    seen = wait_for("waiters in the store's queue", lambda: (found := look("waiters", key)) and found["waiters"] and found)
    check(seen["holder"]["site"] == site, f"lockctl names the holder: {seen}")
    check("scenes.rs:" in seen["waiters"][0]["site"] != site, f"lockctl names who waits: {seen}")

    # The clocks are compared by two readings, and a busy machine may pause between them.
    def why():
        found = look("why", key, "--live-view", f"http://127.0.0.1:{demo}")
        return found and found.get("process") and found["process"]["clock_ahead_seconds"] == 0 and found

    seen = wait_for("lockctl to say whose process it is, and that its clock is right", why)
    check(seen["process"]["life"] == "alive" and seen["process"]["stuck_for_seconds"] > 0, f"why the lock is held: {seen}")
    check(seen["force"]["command"], f"and whether to force it: {seen}")


def force_as_the_runbook_says(options, server, redis, key):
    """Takes a lock from its holder with lockctl: that is told as what it is, and as no theft."""
    def lockctl(*arguments):
        return subprocess.run([options.lockctl, "--url", f"redis://127.0.0.1:{redis}", *arguments], capture_output=True, check=False)

    def force():
        shown = lockctl("show", key, "--json")
        owner = shown.returncode == 0 and json.loads(shown.stdout).get("owner")
        return owner and lockctl("release", key, "--expect-owner", owner, "--reason", "end to end").returncode == 0

    stolen = 'sum(distributed_lock_lost_total{lock="demo:typed:<text>", reason="stolen"})'
    before = number(server, stolen)
    # Its holder releases it every five seconds, perhaps between the two commands.
    wait_for("the lock that is forced", force)
    fired = wait_for("LockTakenAway", lambda: server.firing("LockTakenAway"))
    check([(one["labels"]["lock"], one["labels"]["reason"]) for one in fired] == [("demo:typed:<text>", "revoked")], f"a forced lock is told as such: {fired}")
    check(number(server, stolen) == before, "and as no theft")
    say("a lock forced as the runbook says is LockTakenAway, revoked, and no LockLost")


def hang(server, story):
    """A process that hangs while it holds: its own metrics cannot say so."""
    story.send_signal(signal.SIGSTOP)
    try:
        fired = wait_for("LockHolderSilent", lambda: server.firing("LockHolderSilent"))
        check({one["labels"]["job"] for one in fired} == {"locks"}, f"the process is named: {fired}")
    finally:
        story.send_signal(signal.SIGCONT)
    wait_for("the end of LockHolderSilent", lambda: not server.firing("LockHolderSilent"))
    say("a process that hangs while it holds is LockHolderSilent, until it goes on")


def site_hold(lock):
    # The value of the last scrape: a failed scrape is not a release.
    return f'max(last_over_time(distributed_lock_site_oldest_hold_start_timestamp_seconds{{lock="{lock}"}}[5m]))'


# Metrics that a single server without replicas and redis_exporter lacks, stuck commands, late jobs and pins of PostgreSQL. Their panels
# must be empty.
NOT_HERE = ("confirm_seconds", "quorum_", "redirections", "slots_open", "job_overdue", "commands_stuck", "oldest_pin",
            "redis_")
# Panels of which one query is empty: the contended lock is not stuck.
HALF_EMPTY = [("One lock", "Oldest hold")]


def check_queries(options, server, lock, site):
    """Runs every query of every panel and looks at what a person would see."""
    with open(f"{options.work}/queries.json", encoding="utf-8") as file:
        queries = json.load(file)
    asked, empty = {}, []
    for query in queries:
        expr = query["expr"].replace("$__rate_interval", "10s").replace('lock="$lock"', f'lock="{CONTENDED}"').replace("$lock", ".*")
        expr = expr.replace("$job", ".+").replace("$instance", ".+").replace("$cluster", ".*").replace("$namespace", ".*").replace("$store", ".*")
        where = f"{query['dashboard']} / {query['panel']}: {expr}"
        may_be_empty = any(name in expr for name in NOT_HERE) or (query["dashboard"], query["panel"]) in HALF_EMPTY
        # A contended lock is free now and then, at the moment of one scrape.
        until = time.time() + (0 if may_be_empty else PATIENCE)
        while True:
            result = server.query(expr)
            values = [float(series["value"][1]) for series in result]
            finite = [value for value in values if math.isfinite(value)]
            if finite or empty or time.time() > until:
                break
            time.sleep(0.7)
        if not finite and not may_be_empty:
            empty.append(where)
        # Leases too: the rest of a lease is measured by the clock of its process, so it is never negative.
        least, most = {"percentunit": (0, 1), "s": (-0.1, 4000), "ops": (0, 1e5), "short": (0, 1e5)}[query["unit"]]
        check(all(least <= value <= most for value in finite), f"plausible: {where}: {values}")
        asked[query["dashboard"], query["panel"]] = expr
    check(not empty, "nothing to show: " + "; ".join(empty))

    def on_call(panel):
        return asked["Locks: on call", panel]

    def shows(what, expr, is_so):
        """What a panel shows by now: a single look may fall between two waits, or on a scrape that failed."""
        wait_for(what, lambda: is_so(server.query(expr)))

    def above(least, result):
        """The locks of which a row says more: of one there may be several, each for another call site."""
        return {one["metric"]["lock"] for one in result if float(one["value"][1]) > least}

    shows("one lock is stuck", on_call("Stuck now"), lambda found: found and value(found) == 1)
    wait_for("two wait at least", lambda: (number(server, "sum(distributed_lock_waiters)") or 0) >= 2)
    longest = ("max(distributed_lock_now_timestamp_seconds - ignoring (lock, store) group_right () "
               "(distributed_lock_oldest_wait_start_timestamp_seconds > 0))")
    wait_for("somebody has been waiting for a while", lambda: (number(server, longest) or 0) > 0.5)
    shows("a lock was lost", on_call("Lost, 1 h"), lambda found: found and value(found) >= 1)
    ages = "sum by (lock, site) (time() - (distributed_lock_site_oldest_hold_start_timestamp_seconds > 0))"
    def oldest():
        """The oldest holds: the demo's leader may have been elected in the same moment."""
        found = server.query(ages)
        most = max((float(one["value"][1]) for one in found), default=0)
        return {(one["metric"]["lock"], one["metric"]["site"]) for one in found if float(one["value"][1]) > most - 0.1}

    # A previous leader's hold may be older until the next leader is elected.
    wait_for("the table names the holder first", lambda: (lock, site) in oldest())
    shows("the contended lock is contended", on_call("Contended share"), lambda found: CONTENDED in above(0.3, found))
    # The stuck lock and the contended one, each as a share of the time.
    shows("those who make others wait are named", on_call("Who makes them wait"),
          lambda found: {lock, CONTENDED} <= above(0.5, found))
    fleet = {panel: expr for (dashboard, panel), expr in asked.items() if dashboard == "Locks: fleet"}
    shows("one key has no lease", fleet["Keys without a lease"], lambda found: found and value(found) == 1)
    # A lock that changes hands between the scan and the scrape looks like one of them for a moment.
    wait_for("the fleet counts what nobody holds", lambda: number(server, fleet["Locks without a holder"]) == len(ORPHANS))
    named = on_call("Held in the store, but by no process that is scraped")
    wait_for("and names it", lambda: {one["metric"]["lock"] for one in server.query(named)} == ORPHANS)
    say(f"all {len(queries)} queries have something plausible to show")


def locks_of(alerts):
    return {alert["labels"]["lock"] for alert in alerts}


def check_silence(server):
    seen = {one["metric"]["alertname"] for one in server.query('count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))')}
    check(EXPECTED <= seen, f"every expected alert fired: {seen}")
    failed = server.query("min_over_time(up[1h]) == 0")
    allowed = ALLOWED | ON_A_BUSY_MACHINE | (WHERE_SCRAPES_FAILED if failed else set())
    check(seen <= allowed, f"every other alert stayed silent: {seen}; scrapes failed: {bool(failed)}")
    say(f"fired: {', '.join(sorted(seen))}; every other alert stayed silent")


def configure(options, prometheus, alertmanager, webhook, demo):
    """Writes the checked-in configuration, with the addresses of this run and delays of seconds."""
    with open(f"{options.dashboards}/prometheus.yml", encoding="utf-8") as file:
        text = re.sub(r"(demo|127\.0\.0\.1):9464", f"127.0.0.1:{demo}", file.read()).replace("alertmanager:9093", f"127.0.0.1:{alertmanager}")
    with open(f"{options.work}/prometheus.yml", "w", encoding="utf-8") as file:
        file.write(re.sub(r"_interval: 5s", "_interval: 1s", text))
    with open(f"{options.dashboards}/alertmanager.yml", encoding="utf-8") as file:
        text = re.sub(r"group_wait: \S+", "group_wait: 1s", file.read())
        text = re.sub(r"group_interval: \S+", "group_interval: 2s", text)
    hook = f"\n    webhook_configs:\n      - url: http://127.0.0.1:{webhook}/\n"
    with open(f"{options.work}/alertmanager.yml", "w", encoding="utf-8") as file:
        file.write(re.sub(r"(  - name: (?:chat|pager))\n", lambda found: found[1] + hook, text))


def start_alertmanager(name, port, options):
    """Starts an Alertmanager with the configuration of this name, and waits until it is ready."""
    start(name, [
        shutil.which("prometheus-alertmanager") or "alertmanager", f"--config.file={options.work}/{name}.yml",
        f"--storage.path={options.work}/{name}", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=", "--log.level=warn",
    ], options)
    wait_for(name, lambda: fetch(f"http://127.0.0.1:{port}/-/ready"))


def receive(port, hear):
    """Hears what people are told: `hear` gets the path and the alerts of each message."""

    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hear(self.path.strip("/"), body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Prometheus:
    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path, plain=False):
        text = fetch(self.address + path)
        return text if plain else json.loads(text)["data"]

    def query(self, expr):
        return self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expr}))["result"]

    def firing(self, name):
        alerts = self.get("/api/v1/alerts")["alerts"]
        return [alert for alert in alerts if alert["labels"]["alertname"] == name and alert["state"] == "firing"]


def number(server, expr):
    result = server.query(expr)
    return float(result[0]["value"][1]) if result else None


def value(result):
    return float(result[0]["value"][1])


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def talk(port, command):
    """Sends one inline command to Redis."""
    with socket.create_connection(("127.0.0.1", int(port)), 30) as connection:
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(1024).decode().strip().lstrip("+:")


def free_ports(count):
    """Ports for servers that start later. Below those that the system gives to whoever connects: one of these may be somebody's by then."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first_of_system = int(file.read().split()[0])
    except OSError:
        # The default of most other systems.
        first_of_system = 32_768
    ports, candidates = [], list(range(min(10_000, first_of_system // 2), first_of_system))
    random.shuffle(candidates)
    for port in candidates:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(str(port))
        if len(ports) == count:
            return ports
    raise RuntimeError(f"no {count} free ports below {first_of_system}")


def start(name, command, options, stdin=None, cwd=None, user=None, group=None, **environment):
    with open(f"{options.work}/{name}.log", "ab") as log:
        child = subprocess.Popen(command, stdin=stdin, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, user=user, group=group,
                                 env={**os.environ, **environment})
    child.log = f"{options.work}/{name}.log"
    children.append(child)
    return child


def end_children():
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()


def wait_for(what, look, patience=PATIENCE):
    until = time.time() + patience
    while time.time() < until:
        for child in children:
            if child.poll() is not None:
                break_off(f"{child.args[0]} ended while waiting for {what}")
        try:
            found = look()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    break_off(f"{what} did not come in {patience} s")


def check(holds, what):
    if not holds:
        break_off("not so: " + what)


def printed(child):
    """What a process has printed, also if it has ended."""
    with open(child.log, encoding="utf-8", errors="replace") as log:
        return log.read()


def break_off(why):
    for child in children:
        print(f"--- {child.log}\n{printed(child)[-2000:]}", file=sys.stderr)
    sys.exit(why)


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    main()
