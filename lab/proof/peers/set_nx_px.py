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


class Peer:
    def acquire(self, key, wait):
        self.key, self.owner, end = key, uuid.uuid4().hex, time.monotonic() + wait
        while not client.set(key, self.owner, nx=True, px=ttl):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def held(self):
        return True

    def release(self):
        delete_own([self.key], [self.owner])


serve(f"SET NX PX by redis-py {redis.__version__}", Peer)
