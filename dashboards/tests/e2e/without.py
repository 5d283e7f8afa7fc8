"""Takes parts out of alert rules, one after the other, and plays the cases to promtool: with any part missing, one of them fails.
It takes some minutes, and tells of the cases, not of the rules: run it after a change of either.

    python3 dashboards/tests/e2e/without.py --rules dashboards --cases alerts_looks_test.yml --work DIR
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys

LABELS = r"\([^()]*\)"
# A series, or its value before the last scrape if that scrape failed.
REMEMBERED = re.compile(
    r"\((?P<series>distributed_lock_\w+(?:\{[^}]*\})?) or \((?P<last>last_over_time\((?P=series)\[\w+\]\))"
    rf"(?P<down> and on {LABELS} \(max by {LABELS} \(up\) == 0\))"
    rf"(?P<once> and on {LABELS} \(min by {LABELS} \(count_over_time\(up\[\w+\]\) - sum_over_time\(up\[\w+\]\)\) <= 1\))\)\)")


def without(pattern, replacement=""):
    return lambda rule: re.sub(pattern, replacement, rule)


def remembered(parts):
    """What is left of each series that is remembered."""
    return lambda rule: REMEMBERED.sub(lambda found: parts.format(**found.groupdict()), rule)


GAUGES = ["LockQuorumDegraded", "LockMembersDisagree", "LockKeyWithoutTtl", "LockNoLeader"]
REFUSES = "LockStoreRefuses"
# The recorded series of which an alert only adds the service.
CAUSES = {"LockKeyWithoutTtl": "store_lock:distributed_lock_keys_without_ttl:max", "LockNoLeader": "store_lock:distributed_lock_without_leader:count"}
NOT_NOW, ALL, UP_OR_NOT, OFTEN = "({series})", "({series} or {last})", "({series} or ({last}{once}))", "({series} or ({last}{down}))"

# The part, its rule, and the rule without it.
PARTS = [
    *[("what was told before a scrape that failed", alert, remembered(NOT_NOW)) for alert in [*GAUGES, REFUSES]],
    *[("that only a process is remembered of which one scrape failed", alert, remembered(ALL)) for alert in GAUGES],
    *[("that its target is still there", alert, remembered(UP_OR_NOT)) for alert in GAUGES],
    *[("that it was one scrape", alert, remembered(OFTEN)) for alert in GAUGES],
    *[("that it keeps firing", alert, without(r"\n +keep_firing_for: \w+")) for alert in [*GAUGES, REFUSES]],
    ("what an inspector told that has ended", "LockKeyWithoutTtl", without(r" or \(max by \(store, lock\) \(last_over_time.*distributed_lock_inspector_keys_without_ttl\)\"", '"')),
    ("that two looks have shown that", "LockKeyWithoutTtl", without(r" and on \(store, lock\) max by \(store, lock\) \(changes.*> 0\)(?= unless)")),
    ("that another inspector knows better", "LockKeyWithoutTtl", without(r" unless on \(store\) distributed_lock_inspector_keys_without_ttl")),
    ("that each kind of command counts for itself", REFUSES, without(r", op\b")),
    ("what happened between two looks", REFUSES, without(r"\(quantile by .*? > 0\.5\)(?= or )", "(vector(1) < 0)")),
    ("what comes seldom", REFUSES, without(r"\) or \(\(sum by .*?(?=\) and on \([^()]*\) \(sum by [^)]*\) \(increase)", ")")),
    ("that what comes seldom failed for two whiles", REFUSES, without(r" and on \([^()]*op\) \(sum by \([^()]*\) \(rate\([^()]*offset 240s\)\) / .*?offset 240s\)\) > 0\) > 0\.5\)")),
    ("that it may have gone well since", REFUSES, without(r" unless on \([^()]*op\) \(sum by \([^()]*op\) \(sum by .*?> 0\)(?=\)\) and on)")),
    ("that processes count, whatever they tried again", REFUSES, without(r"quantile by (\([^()]*\)) \(0\.5, ", r"max by \1 (")),
    ("that those that are gone do not", REFUSES, without(r"(irate\([^()]*\)) and \(.*?<= 1\)\)\)", r"\1")),
    ("that a scrape between two may fail", REFUSES, without(r"(irate\([^()]*)240s", r"\g<1>150s")),
    ("that a few commands are no share", REFUSES, without(r" and on \([^()]*op\) \(sum by \([^()]*op\) \(increase\([^()]*\)\) > 4\.5\)")),
]


def on_one_line(block):
    """A query without its comments and line ends."""
    lines = [re.sub(r"(^|\s)# .*", "", line).strip() for line in block.splitlines()]
    return " ".join(filter(None, lines)).replace("( ", "(").replace(" )", ")")


def in_full(rules):
    """The rules with each query on one line, and with recorded series replaced by what they record."""
    recorded = {}

    def query(found):
        expr = on_one_line(found["block"])
        for name, of in recorded.items():
            # A range of a recorded series stays.
            expr = re.sub(re.escape(name) + r"(?!\[)", lambda _, of=of: f"({of})", expr)
        if found["kind"] == "record" and found["name"] not in CAUSES.values():
            recorded[found["name"]] = expr
        return f"- {found['kind']}: {found['name']}\n        expr: {json.dumps(expr)}\n"

    rule = r"- (?P<kind>alert|record): (?P<name>\S+)\n        expr: \|-\n(?P<block>(?: {10}.*\n)+)"
    return re.sub(rule, query, rules)


def main():
    arguments = argparse.ArgumentParser()
    for name in ["rules", "cases", "work"]:
        arguments.add_argument("--" + name, required=True)
    options = arguments.parse_args()
    with open(f"{options.rules}/alerts.yml", encoding="utf-8") as file:
        rules = in_full(file.read())
    with open(f"{options.rules}/{options.cases}", encoding="utf-8") as file:
        cases = file.read()

    def play(number, changed):
        """How many checks fail, and what promtool says."""
        with open(f"{options.work}/without-{number}.yml", "w", encoding="utf-8") as file:
            file.write(changed)
        recording = os.path.abspath(f"{options.rules}/recording_rules.yml")
        with open(f"{options.work}/without-{number}-cases.yml", "w", encoding="utf-8") as file:
            file.write(cases.replace("[alerts.yml, recording_rules.yml]", f"[without-{number}.yml, {recording}]"))
        done = subprocess.run(["promtool", "test", "rules", f"{options.work}/without-{number}-cases.yml"], capture_output=True, check=False)
        said = done.stdout.decode() + done.stderr.decode()
        # Counts the failing cases. A rule that cannot be parsed has none, and so proves nothing.
        return said.count("expr: ") if done.returncode else 0, said

    def look(number, what, alert, change):
        begin = rules.index(f"- record: {CAUSES[alert]}\n" if alert in CAUSES else f"- alert: {alert}\n")
        end = rules.find("- alert:", rules.index(f"- alert: {alert}\n") + 1)
        changed = rules[:begin] + change(rules[begin:end]) + rules[end:]
        if changed == rules:
            return f"{alert} has no such part: {what}", None
        failed, said = play(number, changed)
        return (None if failed else f"{alert} needs no such part: {what}\n{said}"), failed

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda one: look(one[0], *one[1]), enumerate(PARTS)))
    for (what, alert, _), (_, failed) in zip(PARTS, found):
        print(f"{alert} without {what}: {failed or 0} checks fail")
    problems = [problem for problem, _ in found if problem]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
