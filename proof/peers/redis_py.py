"""redis-py's own Lock, as its documentation shows it. It looks with `owned()`, which asks the server."""
import sys

import redis

from lines import serve

client = redis.Redis.from_url(sys.argv[1], socket_timeout=2, socket_connect_timeout=2)
lock = None


def acquire(key, wait):
    global lock
    lock = client.lock(key, timeout=int(sys.argv[2]) / 1000, sleep=0.02, thread_local=False)
    return lock.acquire(blocking=True, blocking_timeout=wait), None


serve(f"Lock of redis-py {redis.__version__}", acquire, lambda: lock.owned(), lambda: lock.release())
