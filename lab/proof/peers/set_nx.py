"""SET NX and a bare DEL: the lock of countless blog posts. Nobody but its holder ends it."""
import sys
import time

import redis

from lines import serve

client = redis.Redis.from_url(sys.argv[1], socket_timeout=2, socket_connect_timeout=2)


class Peer:
    def acquire(self, key, wait):
        self.key, end = key, time.monotonic() + wait
        while not client.set(key, "1", nx=True):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def held(self):
        return True

    def release(self):
        client.delete(self.key)


serve(f"SET NX + DEL by redis-py {redis.__version__}", Peer)
