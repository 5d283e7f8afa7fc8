"""redis-py's own Lock, as its documentation shows it. It looks with `owned()`, which asks the server."""
import sys

import redis

from lines import serve

client = redis.Redis.from_url(sys.argv[1], socket_timeout=2, socket_connect_timeout=2)


class Peer:
    def acquire(self, key, wait):
        self.lock = client.lock(key, timeout=int(sys.argv[2]) / 1000, sleep=0.02, thread_local=False)
        return self.lock.acquire(blocking=True, blocking_timeout=wait)

    def held(self):
        return self.lock.owned()

    def release(self):
        self.lock.release()


serve(f"Lock of redis-py {redis.__version__}", Peer)
