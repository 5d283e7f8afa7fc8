"""What a person is told: the checked-in configuration in a real Alertmanager, with the alerts that Prometheus would send it.

One stuck lock is one message, whatever it sets off in however many services; a store that is away is one message, and its locks
are none; what happens in another store is news.
"""

import json
import re
import time
import urllib.request

from observability import check, free_ports, play, receive, say, start_alertmanager, wait_for

WARNING, CRITICAL = "warning", "critical"
messages = []


def run(options):
    port, webhook = free_ports(2)
    with open(f"{options.dashboards}/alertmanager.yml", encoding="utf-8") as file:
        # A tenth of each time, so that their order stays.
        seconds = {"10s": "1s", "35s": "3500ms", "1m": "6s"}
        text = re.sub(r"(group_\w+): (\S+)$", lambda found: f"{found[1]}: {seconds[found[2]]}", file.read(), flags=re.MULTILINE)
    hook = f"\n    webhook_configs:\n      - url: http://127.0.0.1:{webhook}/"
    with open(f"{options.work}/notifications.yml", "w", encoding="utf-8") as file:
        file.write(re.sub(r"(  - name: (chat|pager))\n", lambda found: f"{found[1]}{hook}{found[2]}\n", text))
    receive(webhook, lambda path, alerts: messages.append((path, sorted(name_of(alert["labels"]) for alert in alerts))))
    start_alertmanager("notifications", port, options)

    def told():
        return sorted((who, names) for who, names in messages if "Last" not in names)

    def tell(what, expected, *alerts, later=()):
        """Sends alerts, and two seconds later others, and looks at the messages that they lead to: receiver, and the names in it."""
        messages.clear()
        send(port, alerts)
        if later:
            time.sleep(2)
            send(port, later)
        wait_for(f"the messages {expected} of {what}", lambda: all(message in told() for message in expected))
        # Waits as long as the slowest of the earlier alerts, so any other message of theirs arrives before it.
        send(port, [alert("LockStuck", WARNING, last="yes", lock=what)])
        wait_for(f"the last message of {what}", lambda: any("Last" in names for _, names in messages))
        check(told() == expected, f"{what} leads to {expected}: {told()}")

    stuck = {"cluster": "eu", "lock": "order:<id>", "store": "redis:6379"}
    tell("a stuck lock", [("pager", ["LockStuckWithWaiters"])],
         alert("LockStuck", WARNING, job="shop", instance="a:1", site="shop::charge", **stuck),
         alert("LockStuckWithWaiters", CRITICAL, site="shop::charge", store="redis:6379", lock="order:<id>"),
         alert("LockWaitersPilingUp", WARNING, store="redis:6379", lock="order:<id>"),
         *[alert(name, WARNING, job=job, cluster="eu", store="redis:6379", lock="order:<id>")
           for name in ["LockAcquireTimeouts", "LockWaitBudgetBurn"] for job in ["api", "worker", "shop"]])
    # A process sees its own stuck lock one scrape, and one evaluation of the rules, before the inspector sees the waiters.
    late = {"store": "redis:6379", "lock": "invoice:<id>"}
    tell("a stuck lock whose page comes twenty seconds later", [("pager", ["LockStuckWithWaiters"])],
         alert("LockStuck", WARNING, job="shop", instance="a:1", site="shop::charge", **late),
         later=[alert("LockStuckWithWaiters", CRITICAL, site="shop::charge", **late)])
    tell("a stuck lock for which nobody waits", [("chat", ["LockStuck"])],
         alert("LockStuck", WARNING, job="shop", instance="a:1", site="shop::charge", **{**late, "lock": "report"}))
    command = {"store": "redis:6379", "lock": "backup"}
    tell("a stuck command, and a stuck holder that is silent", [("pager", ["LockStuckWithWaiters"])],
         alert("LockStuckWithWaiters", CRITICAL, site="lockctl run backup.sh", **command), alert("LockCommandStuck", WARNING, **command),
         alert("LockHolderSilent", WARNING, job="shop", instance="a:1", **command))
    tell("a holder that was killed, where its key never ends", [("pager", ["LockKeyWithoutTtl"])],
         alert("LockKeyWithoutTtl", CRITICAL, store="redis:6379", lock="ramp"),
         *[alert(name, WARNING, job="depot", instance="a:1", store="redis:6379", lock="ramp") for name in ["LockHolderSilent", "LockOrphanedHold"]])
    tell("a silent holder of another lock", [("chat", ["LockHolderSilent"])],
         alert("LockHolderSilent", WARNING, job="depot", instance="a:1", store="redis:6379", lock="gate"))
    tell("another lock, and another store", [("chat", ["LockAcquireTimeouts"]), ("chat", ["LockStuck"])],
         alert("LockStuck", WARNING, job="shop", instance="a:1", site="shop::charge", **{**stuck, "lock": "cart:<id>"}),
         alert("LockAcquireTimeouts", WARNING, job="shop", cluster="eu", store="redis:6379#staging:", lock="order:<id>"))

    shop = {"cluster": "eu", "namespace": "prod", "job": "shop"}
    away = {"backend": "redis:6379", **shop}
    locks = [f"lock-{number}" for number in range(5)]
    tell("a store that is away", [("pager", ["LockStoreUnreachable"])],
         alert("LockStoreUnreachable", CRITICAL, **away),
         alert("LockStoreRefuses", CRITICAL, **away),
         alert("LockStoreErrors", WARNING, **away),
         *[alert(name, severity, store="redis:6379", lock=lock, **away) for lock in locks
           for name, severity in [("LockLost", CRITICAL), ("LockRenewalsFailing", WARNING), ("LockReleaseAbandoned", WARNING)]])
    # The first group is sent at once. A group with both stores would wait for group_interval.
    tell("two stores that refuse", [("pager", ["LockStoreRefuses"]), ("pager", ["LockStoreRefuses"])],
         *[alert("LockStoreRefuses", CRITICAL, backend=node, cluster="eu", namespace="test", job="api") for node in ["one:1", "two:1"]])
    tell("a loss in a service that reaches its store", [("pager", ["LockLost"])],
         alert("LockLost", CRITICAL, store="redis:6379", lock="lock-0", **{**away, "job": "other"}))
    other = {"backend": "other:6379", **shop}
    tell("what happens to the same service in another store",
         [("chat", ["LockRenewalsFailing"]), ("pager", ["LockLost"]), ("pager", ["LockStoreRefuses"])],
         alert("LockLost", CRITICAL, store="other:6379", lock="lock-0", **other), alert("LockStoreRefuses", CRITICAL, **{**other, "backend": "third:6379"}),
         alert("LockRenewalsFailing", WARNING, store="other:6379", lock="lock-0", **other))

    names = [f"lock-{number}" for number in range(50)]
    tell("twelve locks behind one slow database", [("pager", ["LockManyStuck"])],
         alert("LockManyStuck", CRITICAL, store="slow:6379"),
         *[alert(name, severity, store="slow:6379", lock=lock, site="shop::charge", **shop) for lock in names[:12]
           for name, severity in [("LockStuckWithWaiters", CRITICAL), ("LockStuck", WARNING), ("LockAcquireTimeouts", WARNING)]])
    tell("a server that restarted empty", [("pager", ["LockManyLost"])],
         alert("LockManyLost", CRITICAL, backend="empty:6379"), alert("LockFailover", WARNING, backend="empty:6379", **shop),
         *[alert("LockLost", CRITICAL, store="empty:6379", lock=lock, backend="empty:6379", instance="a:1", reason="failover", **shop)
           for lock in names])
    starved = {"cluster": "eu", "namespace": "starved", "job": "shop"}
    tell("a starved host", [("chat", ["LockWatchdogLate"]), ("pager", ["LockManyLost"])],
         alert("LockWatchdogLate", WARNING, instance="s:1", **starved), alert("LockManyLost", CRITICAL, backend="well:6379"),
         *[alert(name, severity, store="well:6379", lock=lock, backend="well:6379", **starved) for lock in names[:28]
           for name, severity in [("LockLost", CRITICAL), ("LockLeaseNearlyLost", WARNING), ("LockRenewalsFailing", WARNING)]])
    say("one cause that many locks have is one message")
    say("one stuck lock is one message, a store that is away is one, and what happens elsewhere is told")


def name_of(labels):
    return "Last" if "last" in labels else labels["alertname"]


def alert(name, severity, **labels):
    return {"labels": {"alertname": name, "severity": severity, **labels}, "annotations": {"summary": name}}


def send(port, alerts):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v2/alerts", json.dumps(list(alerts)).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5):
        pass


if __name__ == "__main__":
    play(["work", "dashboards"], run)
