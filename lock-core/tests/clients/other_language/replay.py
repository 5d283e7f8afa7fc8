"""Replays `docs/protocol-vectors.json` with the scripts of `examples/python/queue_lock.py`, as far as it does what they are
about. Prints how many it has replayed, or what differs.

    replay.py CLIENT_DIRECTORY PORT VECTORS
"""

import json
import re
import sys

import redis

sys.path.insert(0, sys.argv[1])
from queue_lock import ACQUIRE, RELEASE, RENEW, keys_of  # noqa: E402

server = redis.Redis(port=int(sys.argv[2]), decode_responses=True)


class Symbols:
    """Names to numbers and back, as `symbols.rs` says."""

    def __init__(self, now):
        self.now, self.names, self.tokens, self.written = now, {}, 0, 0

    def numbers(self, text):
        return re.sub("<([^>]+)>", lambda found: self.number(found[1]), text)

    def number(self, name):
        if name.startswith("token"):
            self.tokens = max(self.tokens, int(name[6:]))
            number = f"{self.now // 1000 - 1000 + int(name[6:])}-0"
        else:
            number = self.now + int(name[2:-1] or 0) * 1_000_000
            if name.startswith("us"):
                self.written += 1
                number += self.written
            else:
                number //= 1000
        self.names[str(number)] = f"<{name}>"
        return str(number)

    def symbols(self, text):
        return re.sub(r"(?<!\d)(\d{13}-\d+|\d{13}|\d{16})(?!\d)", lambda found: self.name(found[0]), text)

    def name(self, number):
        if number not in self.names:
            if "-" in number:
                self.tokens += 1
                name = f"token {self.tokens}"
            else:
                second = 1000 if len(number) == 13 else 1_000_000
                after = (int(number) - self.now // (1_000_000 // second)) // (10 * second) * 10
                name = ("ms" if second == 1000 else "us") + (f"{after:+}s" if after else "")
            self.names[number] = f"<{name}>"
        return self.names[number]


def each(value, change):
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each(part, change) for part in value]
    return {name: each(part, change) for name, part in value.items()} if isinstance(value, dict) else value


def time():
    seconds, micros = server.time()
    return seconds * 1_000_000 + micros


def install(keys, now):
    expiries = {}
    for key, content in keys.items():
        if "string" in content:
            server.set(key, content["string"])
        for owner, score in content.get("zset", []):
            server.zadd(key, {owner: score})
        if "hash" in content:
            server.hset(key, mapping=content["hash"])
        expiries[now // 1000 + content["pttl"]] = content["pttl"]
        server.pexpireat(key, now // 1000 + content["pttl"])
    return expiries


def read(now, expiries):
    keys = {}
    for key in server.keys():
        if key.startswith("distributed-lock:"):
            continue
        kind = server.type(key)
        if kind == "string":
            content = server.get(key)
        elif kind == "zset":
            words = server.execute_command("EVAL", "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", 1, key)
            content = [words[at : at + 2] for at in range(0, len(words), 2)]
        else:
            content = server.hgetall(key)
        left = "local t = redis.call('TIME') return math.floor((t[1] * 1000000 + t[2]) / 1000) + redis.call('PTTL', KEYS[1])"
        at = server.eval(left, 1, key)
        known = [left for known, left in expiries.items() if abs(known - at) <= 3]
        keys[key] = {kind: content, "pttl": known[0] if known else (at - now // 1000 + 3) // 10_000 * 10_000}
    return keys


def execute(call):
    keys, owner = keys_of(call["key"]), call["owner"]
    if call["step"] == "release":
        return "released" if server.eval(RELEASE, 4, *keys, owner) == 1 else "not held"
    if call["step"] == "renew":
        return "renewed" if server.eval(RENEW, 1, keys[0], owner, call["ttl"]) == 1 else "lost"
    ticket = call.get("ticket", {"stamp": 0, "grant_ttl": 0, "inbox": ""})
    ticket = [ticket["stamp"], ticket["grant_ttl"], ticket["inbox"]]
    answer = server.eval(ACQUIRE, 4, *keys, owner, call["ttl"], time() + 60_000_000, call["tail"], *ticket, call["floor"])
    kind = {"floor": "refused"}.get(answer[1], answer[1])
    return {"granted": answer[2]} if kind == "granted" else kind


def run(vector):
    server.flushall()
    now = time()
    symbols = Symbols(now)
    expiries = install(each(vector["before"], symbols.numbers), now)
    call = each(vector["call"], symbols.numbers)
    with server.pubsub() as channels:
        channels.subscribe("end", *vector["listens"])
        server.ping()
        while sum(server.pubsub_numsub("end", *vector["listens"])[at][1] for at in range(1 + len(vector["listens"]))) <= len(vector["listens"]):
            pass
        answer, messages = execute(call), []
        server.publish("end", "")
        for message in channels.listen():
            if message["type"] == "message" and message["channel"] == "end":
                break
            if message["type"] == "message":
                messages.append([message["channel"], message["data"]])
    return [each(part, symbols.symbols) for part in (answer, messages, read(now, expiries))]


def is_for_us(vector):
    """Whether it is about exclusive locks, and about nothing that the client leaves out."""
    call = vector["call"]
    is_plain = call["step"] != "downgrade" and not {"mode", "keep", "ended"} & set(call)
    return is_plain and '"shared0' not in json.dumps([vector["before"], vector["after"]])


replayed = 0
for vector in filter(is_for_us, json.load(open(sys.argv[3]))):
    found, wanted = run(vector), [vector["answer"], vector["messages"], vector["after"]]
    if found != wanted:
        sys.exit(f"{vector['about']}\n{found}\ninstead of\n{wanted}")
    replayed += 1
print("replayed", replayed)
