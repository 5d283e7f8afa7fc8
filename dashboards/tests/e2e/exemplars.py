"""From a slow wait to its trace: a real Prometheus scrapes OpenMetrics, keeps the exemplars, and returns them for the panel's query."""

import json
import re
import urllib.parse

from observability import Prometheus, check, fetch, free_ports, number, play, say, start, talk, wait_for


def run(options):
    redis, prometheus, member = free_ports(3)
    start("exemplars-redis", ["redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--dir", options.work], options)
    wait_for("redis", lambda: talk(redis, "PING") == "PONG")
    start("member", [options.member, member, "one"], options, LOCK_URL=f"redis://127.0.0.1:{redis}")
    wait_for("the process", lambda: fetch(f"http://127.0.0.1:{member}/metrics"))
    with open(f"{options.work}/exemplars.yml", "w", encoding="utf-8") as file:
        file.write("global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: locks\n    static_configs:\n"
                   f"      - targets: ['127.0.0.1:{member}']\n")
    start("exemplars-prometheus", [
        "prometheus", f"--config.file={options.work}/exemplars.yml", f"--storage.tsdb.path={options.work}/exemplars",
        f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn", "--enable-feature=exemplar-storage",
    ], options)
    server = Prometheus(prometheus)
    wait_for("prometheus", lambda: server.get("/-/ready", plain=True))

    live = wait_for("a hold with a trace", lambda: held(member))
    check(live["trace_link"] == f"https://traces.example/{live['trace_id']}", f"the live view links to it: {live}")

    def exemplars():
        query = {"query": 'histogram_quantile(0.99, sum by (le, lock) (rate(distributed_lock_wait_seconds_bucket{lock=~".+"}[1m])))',
                 "start": 0, "end": 1e11}
        return server.get("/api/v1/query_exemplars?" + urllib.parse.urlencode(query))

    def leads_there():
        return [series for series in exemplars() for one in series["exemplars"] if one["labels"]["trace_id"] == live["trace_id"]]

    found = wait_for("the exemplar of that acquire", leads_there)
    check(found[0]["seriesLabels"]["lock"] == live["lock"], f"at its lock: {found[0]}")
    ids = {one["labels"]["trace_id"] for series in exemplars() for one in series["exemplars"]}
    check(all(re.fullmatch("[0-9a-f]{32}", one) for one in ids), f"ids are as tracing systems write them: {ids}")
    wait_for("a scrape of OpenMetrics", lambda: number(server, "min(up)") == 1 and number(server, "sum(distributed_lock_acquisitions_total)") > 0)
    say(f"{len(ids)} waits lead to their traces in Prometheus; the live view links to that of {live['key']}")


def held(member):
    rows = json.loads(fetch(f"http://127.0.0.1:{member}/locks.json"))["locks"]
    # The long hold: while it lasts, no other acquire of its lock takes its place.
    return next((row for row in rows if row["lock"] == "shop:report:<member>" and row["state"] == "held"), None)


if __name__ == "__main__":
    play(["work", "member"], run)
