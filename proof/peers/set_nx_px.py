"""SET NX PX with an owner, and a DEL by the owner only: the lock of Redis' documentation for one server. No renewal."""
import sys
import time
import uuid

import redis

from lines import serve

client = redis.Redis.from_url(sys.argv[1], socket_timeout=2, socket_connect_timeout=2)
ttl = int(sys.argv[2])
delete_own = client.register_script(
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"
)
key = owner = None


def acquire(wanted, wait):
    global key, owner
    key, owner, end = wanted, uuid.uuid4().hex, time.monotonic() + wait
    while not client.set(key, owner, nx=True, px=ttl):
        if time.monotonic() > end:
            return False, None
        time.sleep(0.02)
    return True, None


serve(f"SET NX PX by redis-py {redis.__version__}", acquire, lambda: True, lambda: delete_own([key], [owner]))
