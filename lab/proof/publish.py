#!/usr/bin/env python3
"""python3 lab/proof/publish.py target/proof/RUN: keeps a run in lab/proof/published, with as much of its history as the repository has room for.

Whole rows of the history are left out until the rest fits, and run.json names them: first those that would take most of the room
alone, then rows of others in which nothing went wrong, then other rows of others, each time the greatest first. Lines are put in
an order that packs well: a history has none (schema.md), but for writes, which keep theirs."""
import json
import lzma
import pathlib
import shutil
import sys

ROOM = 2 << 20
FILES = ["run.json", "verdicts.json", "table.md", "report.html", "ours.svg", "another.svg", "broken.svg"]
WRONG = ["overlaps", "inversions", "stale_passed", "lost", "left", "unserved"]

def rows(history):
    """Yields the name of each row, and its lines."""
    row = []
    for line in filter(str.strip, history):
        row.append(line)
        if line.startswith('{"type":"done"'):
            yield json.loads(row[0])["row"], row
            row = []

def in_order(row):
    def place(line):
        try:
            record = json.loads(line)
        except ValueError:
            return "", 0, 0
        at = 0 if record["type"] == "write" else record.get("at", 0)
        return record["type"], record.get("process", 0) if at else 0, at
    return "".join(row[:1] + sorted(row[1:-1], key=place) + row[-1:])

def pack(texts):
    return lzma.compress("".join(texts).encode(), preset=9)

def main(run, published):
    room = ROOM - sum((run / name).stat().st_size for name in FILES)
    with open(run / "history.jsonl", encoding="utf-8", errors="replace") as history:
        kept = {name: in_order(row) for name, row in rows(history)}
    sizes = {name: len(pack([text])) for name, text in kept.items()}
    verdicts = {verdict["row"]: verdict for verdict in json.loads((run / "verdicts.json").read_text())["verdicts"]}

    def can_go(name):
        is_other = verdicts[name]["expect"] == "anything"
        nothing_wrong = not any(verdicts[name][kind] for kind in WRONG)
        return sizes[name] > room / 2, is_other and nothing_wrong, is_other, sizes[name]

    left_out = []
    while len(packed := pack(kept.values())) > room:
        left_out.append(max(kept, key=can_go))
        del kept[left_out[-1]]
    for name in FILES:
        shutil.copyfile(run / name, published / name)
    (published / "history.jsonl.xz").write_bytes(packed)
    about = json.loads((run / "run.json").read_text())
    about["without_history"] = left_out
    (published / "run.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    print(f"{len(kept)} rows of history in {len(packed)} bytes; without it: {', '.join(left_out) or 'none'}")
    print("now: lock-proof page lab/proof/published >docs/proof.md")

if len(sys.argv) != 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent / "published")
