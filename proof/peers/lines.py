"""What every adapter in Python does with its standard streams: `peers/README.md`."""
import json
import sys


def serve(name, acquire, held, release):
    """Answers orders until they end. `acquire` returns whether it was granted, and a token or None."""
    def say(**answer):
        print(json.dumps(answer), flush=True)

    say(ready=name)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "acquire" in order:
                granted, token = acquire(order["acquire"], order["wait_ms"] / 1000)
                say(acquired=bool(granted), token=token)
            elif "check" in order:
                say(held=bool(held()))
            else:
                release()
                say(released=True)
        except Exception as error:  # whatever a library throws is an answer
            say(acquired=False, held=False, released=False, why=repr(error))
