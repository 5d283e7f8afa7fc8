"""A process of `examples/python/queue_lock.py` for the tests. Says a line for each thing that happened, takes orders on its
standard input, and appends to the history as `testing::Recorder` does.

    worker.py CLIENT_DIRECTORY URL HISTORY TTL_MS
"""

import json
import os
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
from queue_lock import Client, nanos  # noqa: E402

history = open(sys.argv[3], "ab", buffering=0)
process, attempts = os.getpid(), 0


def record(kind, **fields):
    history.write(f"\n{json.dumps({'type': kind, 'process': process, **fields})}\n".encode())


def acquire(client, key):
    global attempts
    attempts += 1
    record("start", attempt=attempts, at=nanos())
    lock = client.acquire(key, ttl=int(sys.argv[4]), wait=600.0)
    record("grant", attempt=attempts, at=nanos(), key=key, token=lock.token, deadline=lock.deadline)
    return lock


def release(lock):
    if lock.lost.is_set():
        record("lost", attempt=attempts, at=nanos())
    record("renew", attempt=attempts, deadline=lock.deadline)
    record("release", at=nanos(), key=lock.key, token=lock.token)
    freed = lock.release()
    record("end", attempt=attempts, at=nanos(), how="released")
    return freed


def compete(client, key, over):
    served = 0
    while not over.is_set():
        lock = acquire(client, key)
        time.sleep(0.002)
        release(lock)
        served += 1
    say("served", served)


def say(*words):
    print(*words, flush=True)


def main():
    client, lock, over = Client(sys.argv[2]), None, threading.Event()
    client.listens.wait()
    say("ready")
    for order in sys.stdin:
        match order.split():
            case ["acquire", key]:
                lock = acquire(client, key)
                say("held", lock.token)
            case ["release"]:
                say("released" if release(lock) else "not held")
            case ["check"]:
                say("lost" if lock.lost.is_set() else "held")
            case ["compete", key]:
                threading.Thread(target=compete, args=(client, key, over)).start()
            case ["stop"]:
                over.set()


main()
