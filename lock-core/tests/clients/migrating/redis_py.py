"""Runs Python beside a client of redis-py that is called `redis`: one line from standard input, and a line of what comes of it."""

import sys

import redis as library

names = {"redis": library.Redis(port=int(sys.argv[1]), socket_timeout=60)}
for line in sys.stdin:
    try:
        # An assignment is no expression, and neither is `with`.
        run = exec if " = " in line.split("(")[0] or line.startswith("with ") else eval
        print(repr(run(line, names)), flush=True)
    except library.exceptions.LockError as error:
        print(type(error).__name__, flush=True)
