"""The hour of scripts/real-hour.sh: healthy services, and then what goes wrong. hour.py plays an hour with an outage to promtool, in
seconds."""

import time

import faults
import observability as e2e
from fleet import PODS, SERVICES, Fleet
from observability import check, say

# A shorter run has no time for delays of minutes.
SHORT = 10


def play(options):
    fleet = Fleet(options)
    for name in ["a", "b"]:
        fleet.start_store(name)
    if options.minutes > 0:
        healthy(fleet, options.minutes * 60)
    if options.minutes < SHORT:
        fleet.shorten_the_rules()
    faults.inject(fleet)


def healthy(fleet, seconds):
    """Three services over two stores; each is deployed, one after the other, and the first is scaled up and down."""
    for service, pods in PODS.items():
        for number in range(pods):
            fleet.add(f"{service}-v0-{number}", SERVICES[service])
    began, version = time.time(), 0
    say(f"{sum(PODS.values())} processes of {len(PODS)} services run")
    # As many as an hour allows, and at least one.
    rounds = max(1, int(seconds // 900))
    for turn in range(rounds):
        for step, service in enumerate(PODS):
            until(began, seconds * (turn + (step + 1) / 5) / rounds)
            fleet.deploy(service, f"v{version}", f"v{version + 1}")
            say(f"{time.time() - fleet.began:6.0f} s: {service} is deployed")
        version += 1
        until(began, seconds * (turn + 4 / 5) / rounds)
        fleet.add("shop-more-0", SERVICES["shop"])
        time.sleep(min(60, seconds / rounds / 10))
        fleet.end("shop-more-0")
    until(began, seconds)
    told, fired = fleet.messages, fleet.fired(fleet.began)
    check(not told and not fired, f"nobody is told anything in {seconds / 60:.0f} healthy minutes: {told} {fired}")
    held = fleet.server.query('count by (store) (count by (store, lock) (increase(distributed_lock_acquisitions_total{outcome="acquired"}[10m]) > 0))')
    say(f"{seconds / 60:.0f} healthy minutes, {rounds * len(PODS)} deploys: no page, no warning; locks in use by store: "
        f"{', '.join(one['metric']['store'] + ' ' + one['value'][1] for one in held)}")


def until(began, seconds):
    time.sleep(max(0, began + seconds - time.time()))


if __name__ == "__main__":
    e2e.play(["work", "member", "lockctl", "generator", "dashboards"], play, minutes=60.0)
