#!/usr/bin/env python3
"""python3 check.py history.jsonl[.xz]: what is right and wrong in a history of locks, written from schema.md alone.

Prints one JSON object for each row. Ends with 1 if a row is not as it is expected, with 2 if the file is no history."""
import collections
import json
import lzma
import sys

KNOWN = "run start over grant end write add set job killed forgot renamed fault served left done".split()

def no_history(why):
    print(why, file=sys.stderr)
    raise SystemExit(2)

def rows(lines):
    """Yields each row: its `run`, and its records by type, of which `None` are those that cannot be read."""
    head, records = None, None
    for number, line in enumerate(lines, 1):
        if not line.strip("\n"):
            continue
        try:
            record = json.loads(line)
            kind = record["type"] if record["type"] in KNOWN else None
        except (ValueError, KeyError, TypeError):
            record, kind = None, None
        if kind == "run" and head is None:
            head, records = record, collections.defaultdict(list)
        elif head is None or kind == "run":
            no_history(f"line {number} stands outside of a row, or in one that has not ended")
        elif kind == "done":
            yield head, records
            head = None
        else:
            records[kind].append(record)
    if head is not None:
        no_history(f"the history is cut in the middle of the row {head['row']!r}")

def holds_of(records):
    """Returns the holds by key, and how many nobody ended."""
    killed = {record["process"]: record["at"] for record in records["killed"]}
    ends = {(record["process"], record["hold"]): record for record in records["end"]}
    keys, unended = collections.defaultdict(list), 0
    for hold in records["grant"]:
        end = ends.get((hold["process"], hold["hold"]))
        over = [end["at"]] if end else [killed.get(hold["process"]), hold["deadline"]]
        unended += not end and hold["process"] not in killed
        until = hold["at"] if not end and over[0] is None else min(time for time in over if time is not None)
        hold["until"], hold["shared"] = max(until, hold["at"]), hold["mode"] != "write"
        hold["downgraded"] = bool(end and end["downgraded"])
        keys[hold["key"]].append(hold)
    return keys, unended

def by(field):
    return lambda hold: (hold[field], hold["process"], hold["hold"])

def inside(windows, at):
    return any(window["from"] <= at <= window["until"] for window in windows)

def overlaps(holds, forgot):
    found, excused, lasting = 0, 0, []
    for hold in sorted(holds, key=by("at")):
        lasting = [other for other in lasting if other["until"] > hold["at"]]
        taken = sum(other["units"] for other in lasting if other["mode"] == "permit")
        too_many = hold["mode"] == "permit" and taken + hold["units"] > hold["limit"]
        if too_many or any(not (other["shared"] and hold["shared"]) for other in lasting):
            found, excused = found + 1, excused + inside(forgot, hold["at"])
        lasting.append(hold)
    return found, excused

def inversions(holds, forgot, renamed):
    found, excused, newest = 0, 0, {"phase": None, "alone": None}
    holds = [hold for hold in holds if hold["token"] is not None]
    granted = collections.deque(sorted(holds, key=by("at")))
    for hold in sorted(holds, key=by("asked")):
        while granted and granted[0]["at"] < hold["asked"]:
            before = granted.popleft()
            kind = "phase" if before["shared"] or before["downgraded"] else "alone"
            if newest[kind] is None or newest[kind]["token"] <= before["token"]:
                newest[kind] = before
        for kind, before in newest.items():
            same = hold["shared"] and kind == "phase"
            if before is None or hold["token"] > before["token"] or same and hold["token"] == before["token"]:
                continue
            at, earlier, both = hold["at"], before["at"], hold["shared"] and before["shared"]
            name = both and any(inside([window], at) and inside([window], earlier) for window in renamed)
            found, excused = found + 1, excused + (inside(forgot, at) or inside(forgot, earlier) or name)
            break
    return found, excused

def stale(writes, keys):
    granted = {(hold["process"], hold["hold"]): hold["at"] for holds in keys.values() for hold in holds}
    latest, arrived, passed = {}, 0, 0
    for write in sorted(writes, key=lambda write: write["at"]):
        order = write["token"] if write["token"] is not None else granted.get((write["process"], write["hold"]), 0)
        if order < latest.get(write["key"], 0):
            arrived, passed = arrived + 1, passed + write["accepted"]
        latest[write["key"]] = max(order, latest.get(write["key"], 0))
    return arrived, passed

def lost(adds, sets):
    last = {read["key"]: (read["at"], set(read["elements"])) for read in sorted(sets, key=lambda read: read["at"])}
    return sum(not (add["at"] < last.get(add["key"], (0,))[0] and add["element"] in last[add["key"]][1]) for add in adds)

def jobs(records, forgot):
    names, wrong = collections.defaultdict(list), []
    for record in records:
        names[record["name"]].append(record)
    for of_name in names.values():
        begun = sorted((job for job in of_name if job["what"] == "began"), key=lambda job: (job["at"], job["asked"]))
        told = [job["at"] for job in of_name if job["what"] == "told"]
        for before, run in zip(begun, begun[1:]):
            if run["within"] is not None and run["at"] - before["asked"] < run["within"]:
                wrong.append((before["asked"], run["at"]))
        late = [run for run in begun if told and run["asked"] > min(told)]
        wrong += [(min(other["asked"] for other in begun), run["at"]) for run in late]
    excused = sum(any(f["from"] <= until and start <= f["until"] for f in forgot) for start, until in wrong)
    return sum(record["what"] == "began" for record in records), len(wrong), excused

def endings(records):
    counts = collections.Counter({(record["process"], record["attempt"]): 0 for record in records["start"]})
    counts.update((record["process"], record["attempt"]) for record in records["over"])
    killed = {record["process"] for record in records["killed"]}
    return sum(not (count == 1 or count == 0 and process in killed) for (process, _), count in counts.items())

def verdict(head, records):
    forgot, (keys, unended) = records["forgot"], holds_of(records)
    over = [overlaps(holds, forgot) for holds in keys.values()]
    inverted = [inversions(holds, forgot, records["renamed"]) for holds in keys.values()]
    (arrived, passed), (runs, again, again_excused) = stale(records["write"], keys), jobs(records["job"], forgot)
    counters, unserved, killed = sum(bool(record.get("counter")) for record in records["left"]), sum(record["took"] is None or record["took"] > record["bound"] for record in records["served"]), len({record["process"] for record in records["killed"]})
    return {"row": head["row"], "expect": head["expect"], "sections": len(records["grant"]),
            "overlaps": sum(all for all, _ in over), "overlaps_excused": sum(some for _, some in over),
            "inversions": sum(all for all, _ in inverted), "inversions_excused": sum(some for _, some in inverted),
            "writes": len(records["write"]), "stale_arrived": arrived, "stale_passed": passed,
            "added": len(records["add"]), "lost": lost(records["add"], records["set"]),
            "runs": runs, "again": again, "again_excused": again_excused, "endings": endings(records),
            "unended": unended, "unreadable": max(0, len(records[None]) - killed), "left": len(records["left"]) - counters, "unserved": unserved, "counters": counters}

def is_as_expected(row):
    kinds = ["overlaps", "inversions", "again", "stale_passed", "lost", "endings", "unended", "unreadable", "left", "unserved"]
    wrong, served, stale = sum(row[kind] - row.get(kind + "_excused", 0) for kind in kinds), not row["unserved"], row["stale_passed"]
    return {"nothing": not wrong, "overlaps": row["overlaps"] and not stale and served, "stale": stale and served, "lost": row["lost"] and served, "anything": 1}[row["expect"]]

if len(sys.argv) != 2:
    no_history(__doc__)
with (lzma.open if sys.argv[1].endswith(".xz") else open)(sys.argv[1], "rt", encoding="utf-8", errors="replace") as history:
    verdicts = [verdict(*row) for row in rows(history)] or no_history("the history is empty")
print(*(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in verdicts), sep="\n")
sys.exit(not all(is_as_expected(row) for row in verdicts))
