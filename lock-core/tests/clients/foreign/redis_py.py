"""Takes and releases one lock of redis-py on command: one word a line, from standard input."""

import sys

import redis

port, key = int(sys.argv[1]), bytes.fromhex(sys.argv[2]).decode()
lock = redis.Redis(port=port, socket_timeout=10).lock(key, timeout=60, blocking=False)
for line in sys.stdin:
    word = line.strip()
    if word == "take":
        print("taken" if lock.acquire() else "busy", flush=True)
    elif word == "free":
        lock.release()
        print("freed", flush=True)
    else:
        sys.exit(f"unknown word: {word}")
