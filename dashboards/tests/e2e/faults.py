"""What goes wrong at the end of scripts/real-hour.sh, and what a person must hear of it."""

import re
import signal
import subprocess
import time

from observability import check, number, say, start, wait_for

# Counted from the moment at which a rule may fire: two scrapes of 15 s, an evaluation, and Alertmanager's group_wait of 10 s.
WITHIN = 60
STUCK_AFTER = 10
# For how long a transaction may pin a lock, in seconds.
LONG_PIN = 30
# How long everybody must stay quiet after the last message: longer than Alertmanager's group_interval.
QUIET = 75


def stuck(fleet):
    """A call site keeps a lock; callers wait beside it and in another service."""
    fleet.add("till-0", ["a"], idle=True)
    fleet.add("kiosk-0", ["a"], idle=True)
    fleet.say("till-0", f"hold till:close:<shop> till:close:7 30 {STUCK_AFTER}")
    since = held(fleet, "till:close:7")
    for name, callers in [("till-0", 3), ("kiosk-0", 2)]:
        for _ in range(callers):
            fleet.say(name, "wait till:close:<shop> till:close:7")
    return since + STUCK_AFTER, [fleet.members["till-0"].instance + "/locks", "3 in till", "2 in kiosk", fleet.address("a")]


def stuck_and_silent(fleet):
    """The same, and the metrics of the holder hang before it is stuck."""
    fleet.add("press-0", ["a"], idle=True)
    fleet.add("folder-0", ["a"], idle=True)
    fleet.say("press-0", f"hold press:run:<id> press:run:1 30 {STUCK_AFTER + 10}")
    since = held(fleet, "press:run:1")
    for _ in range(4):
        fleet.say("folder-0", "wait press:run:<id> press:run:1")
    threshold = 'distributed_lock_stuck_after_seconds{lock="press:run:<id>"}'
    wait_for("the threshold of the holder", lambda: number(fleet.server, threshold))
    fleet.scrape("press-0", fleet.black_hole())
    return since + STUCK_AFTER + 10, ["4 in folder", "not scraped", fleet.members["press-0"].instance, fleet.address("a")]


def paused(fleet):
    """A machine stands still for longer than a lease, and goes on."""
    fleet.add("meter-0", ["a"], idle=True)
    fleet.say("meter-0", "hold meter:read:<id> meter:read:5 3 0")
    held(fleet, "meter:read:5")
    scraped(fleet, "meter:read:<id>")
    fleet.members["meter-0"].send_signal(signal.SIGSTOP)
    wait_for("the end of its lease", lambda: fleet.tell_store("a", "EXISTS meter:read:5") == "0")
    fleet.members["meter-0"].send_signal(signal.SIGCONT)
    return time.time(), [fleet.members["meter-0"].instance, "names the key"]


def deleted(fleet):
    """Somebody deletes a key by hand, and writes his own."""
    fleet.add("gate-0", ["a"], idle=True)
    fleet.add("guard-0", ["a"], idle=True)
    fleet.say("gate-0", "hold gate:open:<id> gate:open:2 6 0")
    held(fleet, "gate:open:2")
    fleet.say("guard-0", "wait gate:open:<id> gate:open:2")
    scraped(fleet, "gate:open:<id>")
    fleet.tell_store("a", "SET gate:open:2 mine PX 600000")
    # The next renewal notices the loss, a third of the lease later.
    return time.time() + 2, [fleet.members["gate-0"].instance, "1 in guard", "stolen"]


def persisted(fleet):
    """A process is killed, and a script takes the lease from its key, which no holder gives it back."""
    fleet.add("depot-0", ["a"], idle=True)
    fleet.add("truck-0", ["a"], idle=True)
    fleet.say("depot-0", "hold depot:ramp:<id> depot:ramp:3 30 0")
    held(fleet, "depot:ramp:3")
    fleet.say("truck-0", "wait depot:ramp:<id> depot:ramp:3")
    wait_for("a scrape of the holder", lambda: number(fleet.server, 'sum(distributed_lock_held{job="depot"})'))
    holder = fleet.kill("depot-0")
    fleet.tell_store("a", "PERSIST depot:ramp:3")
    # The inspector of these processes scans every ten seconds.
    return time.time() + 10, [holder, "1 in truck", "lockctl list --prefix"]


def leaderless(fleet):
    """Another program has the key of an election."""
    fleet.tell_store("a", "SET night:watch somebody PX 1200000")
    for number_of in range(2):
        fleet.add(f"night-{number_of}", ["a"], idle=True)
        fleet.say(f"night-{number_of}", "stand night:watch")
    return time.time(), ["2 in night", "lockctl leader NAME", fleet.address("a")]


def killed(fleet):
    """The Redis of a service is gone."""
    fleet.start_store("k")
    node = fleet.address("k")
    for number_of in range(2):
        fleet.add(f"cash-{number_of}", ["k"])
    scraped(fleet, "shop:order:<id>", node)
    fleet.end_store("k")
    return time.time(), [node, "Held there in the last", "lockctl topology"]


def full(fleet):
    """A Redis has no memory left."""
    fleet.start_store("f")
    fleet.add("oven-0", ["f"])
    scraped(fleet, "shop:order:<id>", fleet.address("f"))
    fleet.tell_store("f", "CONFIG SET maxmemory 1")
    return time.time(), [fleet.address("f"), "INFO memory", "a second"]


def unscripted(fleet):
    """Scripts are taken from the user of the locks."""
    fleet.start_store("g")
    fleet.add("tram-0", ["g"])
    scraped(fleet, "shop:order:<id>", fleet.address("g"))
    fleet.tell_store("g", "ACL SETUSER default -eval -evalsha")
    return time.time(), [fleet.address("g"), "ACL LOG", "a second"]


def degraded(fleet):
    """One of three members of a quorum is away."""
    members = ["q1", "q2", "q3"]
    for member in members:
        fleet.start_store(member)
    url = "redlock://" + ",".join(fleet.address(member) for member in members)
    # Otherwise members without data count only after the longest lease has ended.
    subprocess.run([fleet.options.lockctl, "--url", url, "quorum", "init"], check=True, capture_output=True)
    fleet.add("vault-0", members, url=url)
    scraped(fleet, "shop:order:<id>", ".*")
    wait_for("a quorum that counts", lambda: number(fleet.server, 'min(distributed_lock_quorum_members{job="vault", state="counted"})') == 3)
    fleet.end_store("q2")
    return time.time(), [fleet.address("q1"), "lockctl topology", "Only 2 members"]


def forgetful(fleet):
    """A Redis lost the clock of its tokens, which was ahead."""
    fleet.start_store("t")
    fleet.tell_store("t", "XADD distributed-lock:clock 8000000000000-0 from yesterday")
    fleet.add("mint-0", ["t"], idle=True)
    fleet.say("mint-0", "wait mint:coin:<id> mint:coin:1")
    scraped(fleet, "mint:coin:<id>")
    fleet.tell_store("t", "DEL distributed-lock:clock")
    return time.time(), [fleet.address("t"), "lockctl list"]


def emptied(fleet):
    """A Redis is restarted, and has lost its data."""
    fleet.start_store("e")
    fleet.add("bakery-0", ["e"], idle=True)
    for number_of in range(6):
        fleet.say("bakery-0", f"hold bakery:oven-{number_of} bakery:oven-{number_of} 30 0")
    wait_for("six locks", lambda: number(fleet.server, 'sum(distributed_lock_held{job="bakery"})') == 6)
    fleet.end_store("e")
    fleet.start_store("e", fleet.stores["e"].port)
    # The holders notice it at their next renewal, a third of the lease later.
    return time.time() + 10, [fleet.address("e"), "6 locks", fleet.members["bakery-0"].instance, "lockctl list"]


def postgres_away(fleet):
    """The PostgreSQL of a service is gone."""
    fleet.start_postgres("r")
    for number_of in range(2):
        fleet.add(f"bank-{number_of}", ["r"])
    scraped(fleet, "shop:order:<id>", fleet.address("r"))
    fleet.end_store("r")
    return time.time(), [fleet.address("r"), "Held there in the last", "lockctl topology"]


def given_up(fleet):
    """A lock is stuck for good, and its callers time out after five seconds."""
    fleet.start_store("i")
    fleet.add("gym-0", ["i"], idle=True)
    fleet.say("gym-0", f"hold gym:door gym:door 30 {STUCK_AFTER}")
    wait_for("the hold", lambda: fleet.tell_store("i", "EXISTS gym:door") == "1")
    since = time.time()
    for _ in range(3):
        fleet.say("gym-0", "wait gym:door gym:door 5")
    return since + STUCK_AFTER, [fleet.members["gym-0"].instance, "Callers wait", "lockctl why"]


def permits_stuck(fleet):
    """Every permit of a semaphore is kept by a call site that hangs; callers wait."""
    fleet.add("mill-0", ["b"], idle=True)
    for _ in range(3):
        fleet.say("mill-0", f"hold mill:grind mill:grind/3 30 {STUCK_AFTER}")
    wait_for("three permits", lambda: number(fleet.server, 'sum(distributed_lock_permits_held{lock="mill:grind"})') == 3)
    since = time.time()
    for _ in range(4):
        fleet.say("mill-0", "wait mill:grind mill:grind/3")
    return since + STUCK_AFTER, [fleet.members["mill-0"].instance, "4 in mill", "lockctl why"]


def many_stuck(fleet):
    """Four locks are kept behind one slow database; callers wait for each."""
    fleet.start_store("h")
    fleet.add("farm-0", ["h"], idle=True)
    for number_of in range(4):
        fleet.say("farm-0", f"hold farm:field-{number_of} farm:field-{number_of} 30 {STUCK_AFTER}")
    wait_for("four locks", lambda: number(fleet.server, 'sum(distributed_lock_held{job="farm"})') == 4)
    since = time.time()
    for number_of in range(4):
        fleet.say("farm-0", f"wait farm:field-{number_of} farm:field-{number_of}")
    return since + STUCK_AFTER, ["4 locks", fleet.members["farm-0"].instance, "4 in farm", "lockctl why"]


def command_stuck(fleet):
    """A command under lockctl hangs, and replicas of a service wait for its lock."""
    for number_of in range(2):
        fleet.add(f"dock-{number_of}", ["b"], idle=True)
    command = [fleet.options.lockctl, "--url", fleet.stores["b"].url, "run", "dock:load", "--stuck-after", f"{STUCK_AFTER}s", "--", "sleep", "3600"]
    start("lockctl", command, fleet.options)
    wait_for("the command", lambda: fleet.tell_store("b", "EXISTS dock:load") == "1")
    since = time.time()
    for number_of in range(2):
        fleet.say(f"dock-{number_of}", "wait dock:load dock:load")
    # The inspector of these processes scans every ten seconds.
    return since + STUCK_AFTER + 10, ["lockctl run sleep", "2 in dock", "lockctl why"]


def leader_dead(fleet):
    """The leader and its only other candidate are killed. Discovery keeps both, so their scrapes fail."""
    for number_of in range(2):
        fleet.add(f"owl-{number_of}", ["b"], idle=True)
        fleet.say(f"owl-{number_of}", "stand owl:watch")
    wait_for("a leader", lambda: number(fleet.server, 'sum(distributed_lock_leader{lock="owl:watch"})') == 1)
    wait_for("a candidate", lambda: number(fleet.server, 'sum(distributed_lock_candidates{lock="owl:watch"})') == 1)
    for number_of in range(2):
        fleet.kill(f"owl-{number_of}")
    # Its lease may still be right, and an inspector scans every ten seconds.
    return time.time() + 30 + 10, [fleet.address("b"), "lockctl leader NAME"]


def pinned(fleet):
    """A transaction pins a lock and stays open."""
    fleet.add("vine-0", ["p"], idle=True)
    fleet.say("vine-0", "hold vine:cut:<id> vine:cut:4 30 0")
    wait_for("the lock", lambda: fleet.psql("p", "SELECT count(owner) FROM lock_core.lock WHERE key = 'vine:cut:4'") == "1")
    client = start("psql", ["psql", "-XAtq", fleet.stores["p"].url], fleet.options, stdin=subprocess.PIPE)
    client.stdin.write(b"BEGIN; SELECT lock_core.pin(key, token) FROM lock_core.lock WHERE key = 'vine:cut:4';\n")
    client.stdin.flush()
    return time.time() + LONG_PIN + 10, [fleet.address("p"), "pg_terminate_backend", "lockctl why"]


def clock_steps(fleet):
    """The clock of a machine steps ahead by five minutes. Only its metrics say so here."""
    fleet.add("dial-0", ["b"], idle=True)
    fleet.say("dial-0", "hold dial:turn dial:turn 30 0")
    scraped(fleet, "dial:turn")
    fleet.scrape("dial-0", fleet.with_other_clock("dial-0", 300))
    return time.time(), [fleet.members["dial-0"].instance, "clock"]


# The fault, the alert that must fire, the service in its labels or the lock, and who hears of it.
PAGER, CHAT = "pager", "chat"
FAULTS = [
    (pinned, "LockPinnedLong", {"lock": "vine:cut:<id>"}, CHAT),
    (clock_steps, "LockClockSkew", {"job": "dial"}, CHAT),
    (stuck, "LockStuckWithWaiters", {"lock": "till:close:<shop>"}, PAGER),
    (stuck_and_silent, "LockStuckWithWaiters", {"lock": "press:run:<id>"}, PAGER),
    (given_up, "LockStuckWithWaiters", {"lock": "gym:door"}, PAGER),
    (permits_stuck, "LockStuckWithWaiters", {"lock": "mill:grind"}, PAGER),
    (many_stuck, "LockManyStuck", {"store": "h"}, PAGER),
    (command_stuck, "LockStuckWithWaiters", {"lock": "dock:load"}, PAGER),
    (paused, "LockLost", {"lock": "meter:read:<id>"}, PAGER),
    (deleted, "LockLost", {"lock": "gate:open:<id>"}, PAGER),
    (persisted, "LockKeyWithoutTtl", {"lock": "depot:ramp:<id>"}, PAGER),
    (leaderless, "LockNoLeader", {"lock": "night:watch"}, PAGER),
    (leader_dead, "LockNoLeader", {"lock": "owl:watch"}, PAGER),
    (killed, "LockStoreUnreachable", {"job": "cash"}, PAGER),
    (postgres_away, "LockStoreUnreachable", {"job": "bank"}, PAGER),
    (emptied, "LockManyLost", {"backend": "e"}, PAGER),
    (full, "LockStoreRefuses", {"job": "oven"}, PAGER),
    (unscripted, "LockStoreRefuses", {"job": "tram"}, PAGER),
    (degraded, "LockQuorumDegraded", {"job": "vault"}, PAGER),
    (forgetful, "LockFencingRegression", {"lock": "mint:coin:<id>"}, PAGER),
]


def held(fleet, key):
    """Waits until a key is taken in the first store."""
    wait_for(f"{key} is held", lambda: fleet.tell_store("a", f"EXISTS {key}") == "1")
    return time.time()


def scraped(fleet, lock, store=".*"):
    """Waits until Prometheus has seen a lock: counters begin at 0."""
    series = f'count(distributed_lock_held{{lock="{lock}", store=~"{store}"}})'
    wait_for(f"a scrape of {lock}", lambda: number(fleet.server, series))


def inject(fleet):
    """Lets everything go wrong, and hears what people are told of it."""
    expected = []
    for fault, alert, labels, who in FAULTS:
        began = time.time()
        due, words = fault(fleet)
        # A store has its address in labels.
        labels = {name: fleet.address(value) if name in ["backend", "store"] else value for name, value in labels.items()}
        what = " ".join(fault.__doc__.split())
        say(f"{time.time() - fleet.began:6.0f} s: {what}")
        expected.append((what, alert, labels, who, due + delay(fleet, alert), words, began))
    last = max(due for _, _, _, _, due, _, _ in expected) + WITHIN
    say(f"the last message is due in {last - time.time():.0f} s")
    while time.time() < last + QUIET and not all(told_of(fleet, alert, labels) for _, alert, labels, *_ in expected):
        time.sleep(0.2)
    # Any other notification has arrived by now.
    time.sleep(QUIET)
    problems, heard = [], 0
    for what, alert, labels, who, due, words, began in expected:
        told = told_of(fleet, alert, labels)
        if not told:
            problems.append(f"nobody hears of {alert}: {what}")
            continue
        heard, first = heard + 1, told[0]
        late = first["at"] - due
        say(f"{alert:22} {first['at'] - began:5.0f} s after it began, {late:5.1f} s after the rule could fire, {len(told)} message: {what}")
        text = "\n".join(found["annotations"]["summary"] + found["annotations"]["description"] for found in first["alerts"])
        say(f"    {text}")
        wanted = words + list(labels.values())
        problems += [f"{alert} does not say {word!r}: {text}" for word in wanted if word not in text]
        problems += [f"{alert} comes {late:.0f} s after it could: {what}"] if late > WITHIN else []
        problems += [f"{alert} is heard {len(told)} times: {what}"] if len(told) != 1 else []
        problems += [f"{alert} is told to {one['to']}: {what}" for one in told if one["to"] != who]
        problems += [f"{alert} has no runbook"] if not all("/runbooks/" in one["annotations"]["runbook_url"] for one in first["alerts"]) else []
    wanted = [(alert, labels) for _, alert, labels, *_ in expected]
    for message in fleet.messages:
        others = [one for one in message["firing"] if not any(fits(one, alert, labels) for alert, labels in wanted)]
        if message["to"] == PAGER:
            problems += [f"the pager also hears of {one['labels']}" for one in others]
    chat = sorted({(one["labels"]["alertname"], one["labels"].get("lock") or one["labels"].get("job", "")) for message in fleet.messages
                   if message["to"] == CHAT for one in message["firing"]} - {(alert, labels.get("lock") or labels.get("job")) for alert, labels in wanted})
    say("also for the morning: " + ", ".join(f"{alert} ({of})" for alert, of in chat))
    check(not problems, "\n".join(problems))
    say(f"{heard} faults, each heard once, in time and in full")


def fits(one, alert, labels):
    return one["labels"]["alertname"] == alert and all(one["labels"].get(name) == value for name, value in labels.items())


def told_of(fleet, alert, labels):
    """The messages that tell of a fault, each with what it says."""
    found = []
    for message in list(fleet.messages):
        alerts = [one for one in message["firing"] if fits(one, alert, labels)]
        if alerts:
            found.append({"at": message["at"], "to": message["to"], "alerts": alerts})
    return found


def delay(fleet, alert):
    """For how long a rule waits by itself, in seconds."""
    with open(f"{fleet.options.work}/alerts.yml", encoding="utf-8") as file:
        rule = file.read().split(f"- alert: {alert}\n")[1].split("- alert:")[0]
    found = re.search(r"\n        for: (\d+)([sm])\n", rule)
    return int(found[1]) * {"s": 1, "m": 60}[found[2]] if found else 0
