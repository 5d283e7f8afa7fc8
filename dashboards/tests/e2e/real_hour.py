"""The hour of scripts/real-hour.sh: healthy services, and then what goes wrong. hour.py plays an hour with an outage to promtool, in
seconds."""

import time

import faults
import observability as e2e
from fleet import PODS, SERVICES, Fleet
from observability import check, say

# With fewer seconds between two scrapes, rules wait for seconds where they wait for minutes.
SHORT = 10
# The services that are migrated once they are deployed: one on Redis, one on PostgreSQL.
MIGRATED = ["shop", "ledger"]
# For how long a transaction may pin a lock in the faults. By default it is five minutes.
LONG_PIN = ["--set", f"longPinSeconds={faults.LONG_PIN}"]


def play(options):
    fleet = Fleet(options, int(options.scrape))
    for name in ["a", "b"]:
        fleet.start_store(name)
    fleet.start_postgres("p")
    if options.minutes > 0:
        healthy(fleet, options.minutes * 60)
    fleet.change_the_rules(*LONG_PIN, *(["--fast"] if options.scrape < SHORT else []))
    faults.inject(fleet)


def healthy(fleet, seconds):
    """Four services over three stores, a semaphore that is never empty, elections, jobs, and a migration that replicas wait for. Each
    service is deployed, one after the other, and the first is scaled up and down."""
    for service, pods in PODS.items():
        for number in range(pods):
            fleet.add(f"{service}-v0-{number}", SERVICES[service])
    began, version, migrating = time.time(), 0, []
    say(f"{sum(PODS.values())} processes of {len(PODS)} services run")
    # As many as an hour allows, and at least one.
    rounds = max(1, int(seconds // 1200))
    migration = min(600, int(seconds / rounds / 2))
    for turn in range(rounds):
        for step, service in enumerate(PODS):
            until(began, seconds * (turn + (step + 1) / 6) / rounds)
            fleet.deploy(service, f"v{version}", f"v{version + 1}")
            say(f"{time.time() - fleet.began:6.0f} s: {service} is deployed")
            if service in MIGRATED and turn == 0:
                names = [f"{service}-v{version + 1}-{number}" for number in range(PODS[service])]
                for name in names:
                    fleet.say(name, f"migrate {service}:migration 0042 {migration}")
                # Later deploys end these processes.
                migrating += [fleet.members[name] for name in names]
        version += 1
        until(began, seconds * (turn + 5 / 6) / rounds)
        fleet.add("shop-more-0", SERVICES["shop"])
        time.sleep(min(60, seconds / rounds / 10))
        fleet.end("shop-more-0")
    until(began, seconds)
    told, fired = fleet.messages, fleet.fired(fleet.began)
    check(not told and not fired, f"nobody is told anything in {seconds / 60:.0f} healthy minutes: {told} {fired}")
    done = [e2e.printed(member).count("migrated: Ok(Some(") for member in migrating]
    check(sum(done) == len(MIGRATED), f"each migration of {migration} s ran once: {done}")
    empty = fleet.server.query('min_over_time(sum by (store) (distributed_lock_permits_held{lock="shop:image"})[' + f"{seconds * 0.7:.0f}s:{fleet.every}s]) == 0")
    check(not empty, f"the semaphore is never empty: {empty}")
    held = fleet.server.query('count by (store) (count by (store, lock) (increase(distributed_lock_acquisitions_total{outcome="acquired"}[10m]) > 0))')
    say(f"{seconds / 60:.0f} healthy minutes, {rounds * len(PODS)} deploys: no page, no warning; locks in use by store: "
        f"{', '.join(one['metric']['store'] + ' ' + one['value'][1] for one in held)}")


def until(began, seconds):
    time.sleep(max(0, began + seconds - time.time()))


if __name__ == "__main__":
    e2e.play(["work", "member", "lockctl", "generator", "dashboards"], play, minutes=60.0, scrape=15.0)
