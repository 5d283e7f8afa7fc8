"""An hour of a healthy fleet, written for `promtool test rules`: deploys, a scale-up, a crash, one outage of the store, one step of
a clock. What pages in it has to be true.

The series are made by playing the hour: pods take and give back locks, are scraped every 15 s and tell what `lock-metrics`
would tell; an inspector scans the store every 30 s from whichever pod is elected. At the end a lock really is stuck, so that
silence is no proof of rules that cannot fire.

    python3 dashboards/tests/e2e/hour.py --rules dashboards --seed 1 --to hour.yml && promtool test rules hour.yml
"""

import argparse
import json
import os
import random

STEP = 15
MINUTE = 60
END = 62 * MINUTE
TTL = 30
STORE = "redis:6379"
# Seconds of holding and of pause: many short holds, some of a minute, and a job that runs for three.
LOCKS = {"shop:order:<id>": ((0.05, 2), (0.1, 1)), "shop:report": ((40, 80), (60, 200)), "worker:sweep": ((150, 180), (30, 60))}
TAKEN_BY = {"shop": ["shop:order:<id>", "shop:report"], "worker": ["shop:order:<id>", "worker:sweep"]}

OUTAGE = (35 * MINUTE, 35 * MINUTE + 70)
CLOCK_STEP = (45 * MINUTE, 3600)
STUCK_FROM, STUCK_AFTER = 56 * MINUTE, 120
# Warnings that an outage of the store causes besides its page: callers really failed and waited.
CONSEQUENCES = ["LockStoreErrors", "LockRenewalsFailing", "LockAcquireTimeouts", "LockWaitBudgetBurn", "LockReleaseAbandoned"]


class Hold:
    def __init__(self, lock, start, end):
        self.lock, self.start, self.end, self.how = lock, start, end, "released"
        lease = OUTAGE[0] - (OUTAGE[0] - start) % (TTL / 3) + TTL if start < OUTAGE[0] else None
        if OUTAGE[0] <= start < OUTAGE[1]:
            self.how, self.end = "refused", start
        elif lease and OUTAGE[0] < lease < min(end, OUTAGE[1]):
            self.how, self.end = "unreachable", lease
        elif OUTAGE[0] < end < OUTAGE[1] and lease and lease < OUTAGE[1]:
            self.how = "abandoned"


class Pod:
    """One process, from its start to its end. A restart in its place is another one with the same instance."""

    def __init__(self, chance, job, name, start, end=END + MINUTE, steps_its_clock=False, sticks=False, killed=False):
        self.job, self.name, self.start, self.end, self.killed = job, name, start, end, killed
        self.steps_its_clock, self.holds = steps_its_clock, []
        for lock in TAKEN_BY[job]:
            at, (held, pause) = start + chance.uniform(0, 5), LOCKS[lock]
            while at < end:
                hold = Hold(lock, at, at + chance.uniform(*held))
                if sticks and lock == "shop:report" and hold.end > STUCK_FROM:
                    hold = Hold(lock, STUCK_FROM, END * 2)
                # A shutdown frees the held locks; a killed process frees none.
                hold.end = min(hold.end, end)
                self.holds.append(hold)
                at = hold.end + chance.uniform(*pause)
        self.waits = {step: chance.choice([0, 0, 0, 1, 2]) for step in range(0, END, STEP)}

    def clock(self, at):
        step_at, by = CLOCK_STEP
        return by if self.steps_its_clock and at >= step_at else 0

    def held(self, lock, at):
        return [hold for hold in self.holds if hold.lock == lock and hold.start <= at < hold.end]

    def ended(self, lock, how, at):
        return sum(1 for hold in self.holds if (hold.lock, hold.how) == (lock, how) and hold.end <= at)

    def scrape(self, at):
        """Yields name, labels and value of every series, at one moment."""
        def unix(moment):
            return moment + self.clock(at)

        away = OUTAGE[0] <= at < OUTAGE[1]
        yield "build_info", {"version": "1"}, 1
        yield "now_timestamp_seconds", {}, unix(at)
        yield "start_timestamp_seconds", {}, unix(self.start)
        yield "sampler_last_run_timestamp_seconds", {}, unix(at - at % 1)
        yield "backend_connected", {"backend": STORE}, 0 if away else 1
        uptime = at - self.start
        down = max(0, min(at, OUTAGE[1]) - max(self.start, OUTAGE[0]))
        yield "backend_errors_total", {"op": "acquire", "backend": STORE, "kind": "unavailable"}, 3 * int(down)
        yield "backend_command_seconds_count", {"backend": STORE, "op": "acquire"}, 20 * int(uptime)
        for lock in TAKEN_BY[self.job]:
            site = f"{self.job}::run"
            holds = self.held(lock, at)
            oldest = min((hold.start for hold in holds), default=None)
            stuck = sum(1 for hold in holds if at - hold.start >= (STUCK_AFTER if lock == "shop:report" else 600))
            yield "held", {"lock": lock, "store": STORE}, len(holds)
            yield "site_oldest_hold_start_timestamp_seconds", {"lock": lock, "store": STORE, "site": site}, unix(oldest) if holds else 0
            yield "stuck", {"lock": lock, "store": STORE, "site": site}, stuck
            yield "stuck_oldest_start_timestamp_seconds", {"lock": lock, "store": STORE, "site": site}, unix(oldest) if stuck else 0
            yield "stuck_waiters", {"lock": lock, "store": STORE, "site": site}, 3 if stuck else 0
            yield "stuck_after_seconds", {"lock": lock, "store": STORE, "site": site}, STUCK_AFTER if lock == "shop:report" else 600
            waits = 3 if stuck else self.waits[at]
            yield "waiting_on", {"lock": lock, "store": STORE, "holder_site": site}, waits
            since = unix(at - (at - oldest - STUCK_AFTER if stuck else 0.4)) if waits else 0
            yield "waiting_on_oldest_start_timestamp_seconds", {"lock": lock, "store": STORE, "holder_site": site}, since
            for reason in ["expired", "stolen", "unreachable", "revoked", "max_hold"]:
                yield "lost_total", {"lock": lock, "reason": reason}, self.ended(lock, reason, at)
            yield "releases_total", {"lock": lock, "outcome": "abandoned"}, self.ended(lock, "abandoned", at)
            done, refused = self.ended(lock, "released", at), self.ended(lock, "refused", at)
            yield "acquisitions_total", {"lock": lock, "outcome": "acquired"}, done
            yield "acquisitions_total", {"lock": lock, "outcome": "error"}, refused
            yield "wait_seconds_bucket", {"lock": lock, "outcome": "acquired", "le": "0.25"}, done
            yield "wait_seconds_count", {"lock": lock, "outcome": "acquired"}, done
            yield "wait_seconds_count", {"lock": lock, "outcome": "failed"}, refused
            yield "renewals_total", {"lock": lock, "outcome": "ok"}, int((uptime - down) / 10)
            yield "renewals_total", {"lock": lock, "outcome": "error"}, int(down)


def fleet(chance):
    pods = []
    # Two deploys of the shop, pod by pod: the new pod runs before the old one is stopped.
    for number in range(3):
        first, second = 10 * MINUTE + 40 * number, 30 * MINUTE + 40 * number
        pods.append(Pod(chance, "shop", f"shop-v1-{number}", -chance.uniform(100, 3600), first + 20))
        pods.append(Pod(chance, "shop", f"shop-v2-{number}", first, second + 20))
        pods.append(Pod(chance, "shop", f"shop-v3-{number}", second, sticks=number == 0))
    # A scale-up for half an hour.
    for number in range(3):
        pods.append(Pod(chance, "shop", f"shop-extra-{number}", 20 * MINUTE + 5 * number, 50 * MINUTE))
    pods.append(Pod(chance, "worker", "worker-0", -chance.uniform(100, 3600), steps_its_clock=True))
    # Killed while it works, and replaced half a minute later.
    pods.append(Pod(chance, "worker", "worker-1", -chance.uniform(100, 3600), 25 * MINUTE, killed=True))
    pods.append(Pod(chance, "worker", "worker-1", 25 * MINUTE + 30))
    return pods


class Series:
    """Every series of the hour, as promtool writes them."""

    def __init__(self):
        self.values = {}

    def add(self, name, labels, at, value):
        self.values.setdefault((name, tuple(sorted(labels.items()))), {})[at // STEP] = value

    def yaml(self):
        lines = []
        for (name, labels), values in self.values.items():
            pairs = ", ".join(f"{label}={json.dumps(value)}" for label, value in labels)
            words, before = [], None
            for step in range(END // STEP):
                value = values.get(step)
                # A target that is gone leaves one stale marker.
                words.append(f"{value:.3f}" if value is not None else "_" if before is None else "stale")
                before = value
            # promtool reads a marker only if a value follows it.
            lines.append(f"      - series: '{name}{{{pairs}}}'\n        values: '{' '.join(words)}'")
        return "\n".join(lines)


def play(chance):
    pods, series = fleet(chance), Series()
    elected, scan = None, None
    for at in range(0, END, STEP):
        alive = [pod for pod in pods if pod.start <= at < pod.end]
        for pod in alive:
            labels = {"job": pod.job, "instance": f"{pod.name}:9464"}
            series.add("up", labels, at, 1)
            for name, more, value in pod.scrape(at):
                series.add(f"distributed_lock_{name}", {**labels, **more}, at, value)
        for pod in pods:
            if pod.killed and pod.end <= at < pod.end + 30:
                series.add("up", {"job": pod.job, "instance": f"{pod.name}:9464"}, at, 0)
        if OUTAGE[0] <= at < OUTAGE[1]:
            elected, scan = (elected if at < OUTAGE[0] + TTL else None), scan
        elif elected not in alive:
            elected = chance.choice(alive)
        if elected in alive and not OUTAGE[0] <= at < OUTAGE[1] and (scan is None or at - scan[0] >= 30):
            # Values are from a moment before the scrape: a lock that was held then may be free by now, and the other way round.
            then = at - chance.uniform(0, STEP)
            scan = at, then, {lock: in_store(pods, lock, then) for lock in LOCKS}
        if elected in alive and scan:
            inspector(series, elected, at, scan)
    return series


def in_store(pods, lock, at):
    """What Redis has: also what a killed process left, until its lease ends."""
    left = sum(1 for pod in pods if pod.killed for hold in pod.holds if hold.lock == lock and hold.end == pod.end and pod.end <= at < pod.end + TTL)
    return sum(len(pod.held(lock, at)) for pod in pods if pod.start <= at < pod.end) + left


def inspector(series, pod, at, scan):
    labels = {"job": pod.job, "instance": f"{pod.name}:9464", "store": STORE}
    scanned, then, held = scan
    for lock, count in held.items():
        series.add("distributed_lock_inspector_held", {**labels, "lock": lock}, at, count)
        series.add("distributed_lock_inspector_keys_without_ttl", {**labels, "lock": lock}, at, 0)
        since = then - 1 + pod.clock(at) if count else 0
        series.add("distributed_lock_inspector_oldest_hold_start_timestamp_seconds", {**labels, "lock": lock}, at, since)
    series.add("distributed_lock_inspector_last_success_timestamp_seconds", labels, at, scanned + pod.clock(at))
    series.add("distributed_lock_inspector_truncated", labels, at, 0)


def expectations():
    """The questions, each with every alert that may answer it."""
    def fired(during, until, matchers=""):
        return f"count by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\"{matchers}}}[{during}]))", until

    page, others = ', severity="critical"', f', alertname!~"{"|".join(CONSEQUENCES)}"'
    return [
        # Deploys, a scale-up and a crash cause no alert, not even a warning.
        (*fired("34m", "34m30s"), []),
        # The outage causes one page for each service, and none for the locks that were lost in it. The page ends with the outage.
        (*fired("56m", "56m", page), [("LockStoreUnreachable", 2)]),
        (*fired("17m", "56m", page), []),
        # The clock causes a warning about the clock.
        (*fired("56m", "56m", others), [("LockStoreUnreachable", 2), ("LockClockSkew", 1)]),
        # A lock that really is stuck pages.
        (*fired("4m", "61m", page), [("LockStuckWithWaiters", 1)]),
    ]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rules", required=True)
    arguments.add_argument("--to", required=True)
    # Another seed plays another hour, which may find unexpected problems. They need not come from the change under
    # test, so the seed is fixed by default.
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    print(f"the hour of --seed {options.seed}", flush=True)
    rules = [os.path.abspath(f"{options.rules}/{name}") for name in ["alerts.yml", "recording_rules.yml"]]
    checks = []
    for expr, at, expected in expectations():
        samples = "".join(f"\n          - labels: '{{alertname=\"{name}\"}}'\n            value: {count}" for name, count in expected)
        checks.append(f"      - expr: '{expr}'\n        eval_time: {at}\n        exp_samples: {samples or '[]'}")
    with open(options.to, "w", encoding="utf-8") as file:
        file.write(f"rule_files: {json.dumps(rules)}\nevaluation_interval: {STEP}s\ntests:\n  - name: an hour of a healthy fleet\n"
                   f"    interval: {STEP}s\n    input_series:\n{play(random.Random(options.seed)).yaml()}\n    promql_expr_test:\n"
                   + "\n".join(checks) + "\n")


if __name__ == "__main__":
    main()
