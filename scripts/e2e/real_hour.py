"""The hour of scripts/real-hour.sh: a fleet of real processes goes through what is planned and what is not, and a pager listens.

Called by that script. Shares its servers with observability.py; hour.py plays the same hour to promtool, in seconds.
"""

import json
import re
import shutil
import signal
import struct
import subprocess
import time

import observability as e2e
from observability import check, fetch, say, talk, wait_for

OUTAGE = 70
# What is told in the morning after such an hour, and true.
MORNING = {
    # Redis was started again.
    "LockFailover",
    # The clock of one process is an hour ahead.
    "LockClockSkew",
    # Callers failed and waited during the outage, and what they held was not given back.
    "LockStoreErrors", "LockRenewalsFailing", "LockAcquireTimeouts", "LockWaitBudgetBurn", "LockReleaseAbandoned",
    # The stuck lock, and the killed process.
    "LockStuck", "LockWaitersPilingUp", "LockHolderSilent", "LockOrphanedHold",
}
# So many processes on one machine that does something else too: these say that it is busy, which it is.
ON_A_BUSY_MACHINE = {"LockWatchdogLate", "LockLeaseNearlyLost", "LockRenewalsFailing"}
told = []


class Hour:
    def __init__(self, options):
        self.options = options
        self.ports = iter(e2e.free_ports(40))
        self.redis, self.prometheus, alertmanager, webhook = (next(self.ports) for _ in range(4))
        self.members, self.began = {}, None
        self.configure(alertmanager, webhook)
        self.start_redis()
        e2e.receive(webhook, hear)
        e2e.start_alertmanager("alertmanager", alertmanager, options)
        e2e.start("prometheus", [
            "prometheus", f"--config.file={options.work}/prometheus.yml", f"--storage.tsdb.path={options.work}/prometheus",
            f"--web.listen-address=127.0.0.1:{self.prometheus}", "--log.level=warn",
        ], options)
        self.server = e2e.Prometheus(self.prometheus)
        wait_for("prometheus", lambda: self.server.get("/-/ready", plain=True))

    def configure(self, alertmanager, webhook):
        """The checked-in rules and routes, with nothing changed but where things are and how they are found."""
        work, dashboards = self.options.work, self.options.dashboards
        for name in ["alerts.yml", "recording_rules.yml"]:
            shutil.copy(f"{dashboards}/{name}", work)
        with open(f"{dashboards}/prometheus.yml", encoding="utf-8") as file:
            text = file.read().replace("alertmanager:9093", f"127.0.0.1:{alertmanager}")
        found = f"    file_sd_configs:\n      - files: ['{work}/members/*.json']\n"
        with open(f"{work}/prometheus.yml", "w", encoding="utf-8") as file:
            file.write(re.sub(r"    static_configs:\n      - targets: \[.demo.*", found, text, flags=re.DOTALL))
        with open(f"{dashboards}/alertmanager.yml", encoding="utf-8") as file:
            text = file.read()
        hook = f"\n    webhook_configs:\n      - url: http://127.0.0.1:{webhook}/"
        with open(f"{work}/alertmanager.yml", "w", encoding="utf-8") as file:
            file.write(re.sub(r"(  - name: (chat|pager))\n", lambda found: f"{found[1]}{hook}{found[2]}\n", text))
        subprocess.run(["mkdir", "-p", f"{work}/members", f"{work}/redis"], check=True)

    def start_redis(self):
        command = ["redis-server", "--port", self.redis, "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", f"{self.options.work}/redis"]
        self.store = e2e.start("redis", command, self.options)
        wait_for("redis", lambda: talk(self.redis, "PING") == "PONG")

    def add(self, name, job="shop"):
        """Starts a process, and has it scraped as soon as it answers."""
        port, offset = next(self.ports), f"{self.options.work}/{name}.offset"
        with open(offset, "wb") as file:
            file.write(struct.pack("q", 0))
        member = e2e.start(name, [self.options.member, port, name], self.options, stdin=subprocess.PIPE,
                           LOCK_URL=f"redis://127.0.0.1:{self.redis}", LD_PRELOAD=f"{self.options.work}/clock.so", CLOCK_OFFSET=offset)
        wait_for(name, lambda: fetch(f"http://127.0.0.1:{port}/metrics"))
        self.members[name] = member
        with open(f"{self.options.work}/members/{name}.json", "w", encoding="utf-8") as file:
            json.dump([{"targets": [f"127.0.0.1:{port}"], "labels": {"job": job}}], file)

    def end(self, name, how=signal.SIGTERM):
        """Ends a process as an orchestrator does, which also ends its scrapes."""
        member = self.members.pop(name)
        e2e.children.remove(member)
        member.send_signal(how)
        status = member.wait(20)
        subprocess.run(["rm", "-f", f"{self.options.work}/members/{name}.json"], check=True)
        if how == signal.SIGTERM:
            with open(member.log, encoding="utf-8") as log:
                check(status == 0 and "every lock given back: true" in log.read(), f"{name} gives every lock back at SIGTERM")

    def deploy(self, old, new):
        for number in range(3):
            self.add(f"{new}-{number}")
            time.sleep(5)
            self.end(f"{old}-{number}")

    def until(self, minute, what):
        """Waits for a minute of the hour, and says what happens then."""
        time.sleep(max(0, self.began + minute / 15 * self.options.minutes * 60 - time.time()))
        pages = ", ".join(sorted({f"{name} ({at - self.began:.0f} s)" for receiver, name, at in told if receiver == "pager"}))
        say(f"{(time.time() - self.began) / 60:5.1f} min: {what}; pages so far: {pages or 'none'}")

    def pages(self):
        return {name for receiver, name, _ in told if receiver == "pager"}

    def play(self):
        self.began = time.time()
        for number in range(3):
            self.add(f"v1-{number}")
        for number in range(2):
            self.add(f"worker-{number}", "worker")
        self.until(1, "a deploy")
        self.deploy("v1", "v2")
        self.until(2.2, "a scale-up")
        for number in range(3):
            self.add(f"extra-{number}")
        self.until(3.5, "a crash, and its restart after half a minute")
        self.end("worker-1", signal.SIGKILL)
        time.sleep(30)
        self.add("worker-1", "worker")
        self.until(4.7, "a scale-down")
        for number in range(3):
            self.end(f"extra-{number}")
        self.until(5.2, "another deploy")
        self.deploy("v2", "v3")
        self.until(6.2, f"the store is away for {OUTAGE} s")
        check(not self.pages(), f"deploys, a scale-up and a crash page nobody: {told}")
        e2e.children.remove(self.store)
        self.store.terminate()
        self.store.wait(20)
        time.sleep(OUTAGE)
        self.start_redis()
        self.until(8.5, "the clock of a process steps an hour ahead")
        check(self.pages() == {"LockStoreUnreachable"}, f"an outage pages once, as itself: {told}")
        with open(f"{self.options.work}/worker-0.offset", "r+b") as file:
            file.write(struct.pack("q", 3600))
        self.until(11.5, "a lock is stuck")
        check(self.pages() == {"LockStoreUnreachable"}, f"a clock that steps pages nobody: {told}")
        stuck = self.members["v3-0"]
        stuck.stdin.write(b"stick\n")
        stuck.stdin.flush()
        since = wait_for("the stuck hold", lambda: e2e.number(self.server, e2e.site_hold("shop:summary") + f" < {time.time() - 5}"), 120)
        at = wait_for("its page", lambda: [at for receiver, name, at in told if (receiver, name) == ("pager", "LockStuckWithWaiters")], 240)
        say(f"paged {at[0] - since:.0f} s after the grab, with a threshold of 60 s")
        self.until(15, "the end")
        self.judge()

    def judge(self):
        check(self.pages() == {"LockStoreUnreachable", "LockStuckWithWaiters"}, f"two pages, both true: {told}")
        seen = self.server.query('count by (alertname, severity) (max_over_time(ALERTS{alertstate="firing"}[2h]))')
        fired = {one["metric"]["alertname"] for one in seen}
        check(fired - self.pages() <= MORNING | ON_A_BUSY_MACHINE | {"LockLost"}, f"what else fired is true: {fired}")
        say(f"fired in all: {', '.join(sorted(fired))}")
        say(f"told in the morning: {', '.join(sorted({name for receiver, name, _ in told if receiver == 'chat'}))}")
        say("two pages in the hour, both true; no other")


def hear(receiver, alerts):
    told.extend((receiver, alert["labels"]["alertname"], time.time()) for alert in alerts if alert["status"] == "firing")


if __name__ == "__main__":
    e2e.play(["work", "member", "dashboards"], lambda options: Hour(options).play(), minutes=15.0)
