"""What every adapter in Python does with its standard streams: `peers/README.md`."""
import json
import struct
import sys
import threading
import time


def serve(name, create):
    """Answers orders until they end. What `create` returns is one lock at a time, with `acquire(key, wait)`, which returns whether it
    was granted, `held()` and `release()`; those that it returns share their connections."""
    def say(**answer):
        print(json.dumps(answer), flush=True)

    say(ready=name)
    lock = create()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "load" in order:
                say(**load(create, **order["load"]))
            elif "acquire" in order:
                say(acquired=bool(lock.acquire(order["acquire"], order["wait_ms"] / 1000)))
            elif "check" in order:
                say(held=bool(lock.held()))
            else:
                lock.release()
                say(released=True)
        except Exception as error:  # whatever a library throws is an answer
            say(acquired=False, held=False, released=False, why=repr(error))


def load(create, tasks, first, keys_per_task, hold_us, to, file, **times):
    """The loop of a benchmark: acquire, hold, release, again, in many threads. Answers with what was open or went wrong; the records
    are in the file."""
    now = time.monotonic_ns
    records, since, failed = [[] for _ in range(tasks)], [0] * tasks, []

    def work(at):
        lock, turn, index = create(), 0, first + at
        while now() < to:
            key = index * keys_per_task + turn % keys_per_task if keys_per_task else 0
            turn, start = turn + 1, now()
            since[at] = start
            try:
                if not lock.acquire(f"bench:{key}", 3600):
                    continue
                enter, since[at] = now(), 0
                if hold_us:
                    time.sleep(hold_us / 1e6)
                records[at].append((start, enter, now(), 0, key, index, 1))
                lock.release()
            except Exception as error:
                failed.append(repr(error))

    for at in range(tasks):
        threading.Thread(target=work, args=(at,), daemon=True).start()
    time.sleep(max(0, times["from"] - now()) / 1e9)
    cpu = time.process_time_ns()
    time.sleep(max(0, to - now()) / 1e9)
    cpu = time.process_time_ns() - cpu
    waiting = [to - start for start in since if 0 < start < to]
    # Holders get time to release. Waiters wait until this process is ended.
    time.sleep(0.1 + hold_us / 1e6)
    done = [record for each in records for record in list(each)]
    with open(file, "wb") as out:
        for record in done:
            out.write(struct.pack("<4Q3I", *record))
    return {"loaded": len(done), "cpu": cpu, "open": waiting, "errors": len(failed), "why": (failed or [""])[0]}
