"""The data of dashboard pictures: starts a real incident, and asks Prometheus what each panel would ask.

Called by scripts/dashboard-pictures.sh. Shares its servers with observability.py.
"""

import json
import re
import shutil
import subprocess
import time
import urllib.parse

import live_view
import observability as e2e

# The length of the incident in a picture, and its resolution.
SECONDS, STEP = 90, 1
CHOSEN = {"one-lock": {"lock": "demo:stuck:books:<run>"}}


def incident(options):
    redis, prometheus, alertmanager, webhook, demo = e2e.free_ports(5)
    e2e.configure(options, prometheus, alertmanager, webhook, demo)
    e2e.start("redis", ["redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--dir", options.work], options)
    e2e.wait_for("redis", lambda: e2e.talk(redis, "PING") == "PONG")
    e2e.start("prometheus", [
        "prometheus", f"--config.file={options.work}/prometheus.yml", f"--storage.tsdb.path={options.work}/prometheus",
        f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=error",
    ], options)
    server = e2e.Prometheus(prometheus)
    e2e.wait_for("prometheus", lambda: server.get("/-/ready", plain=True))
    e2e.start("stuck", [
        options.stuck, "--port", demo, "--stuck-after", "15s", "--stuck-for", "5m", "--lose-every", "25s", "--inspect-every", "2s",
        "--run-for", "5m",
    ], options, LOCK_URL=f"redis://127.0.0.1:{redis}")
    print(f"letting locks go wrong for {SECONDS} s", flush=True)
    time.sleep(SECONDS)
    browser = next(filter(None, map(shutil.which, live_view.BROWSERS)))
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={options.work}/view",
                    "--window-size=1280,640", f"--screenshot={options.work}/live-view.png", f"http://127.0.0.1:{demo}/locks"],
                   check=True, capture_output=True, timeout=90)
    return server


def write(options, server):
    end = time.time()
    for file in ["on-call", "one-lock", "fleet"]:
        with open(f"{options.dashboards}/grafana/dashboards/{file}.json", encoding="utf-8") as text:
            dashboard = json.load(text)
        # All rows are open.
        dashboard["panels"] = [one for panel in dashboard["panels"] for one in [panel, *panel.pop("panels", [])]]
        # Every lock, store and process, except on a page about one lock.
        chosen = {variable["name"]: ".*" for variable in dashboard["templating"]["list"]} | CHOSEN.get(file, {})
        for panel in dashboard["panels"]:
            panel["data"] = [ask(server, target, chosen, end) for target in panel.get("targets", [])]
        shown = [any(panel["data"]) for panel in dashboard["panels"] if panel.get("targets")]
        assert sum(shown) > len(shown) / 2, f"{file}: only {sum(shown)} of {len(shown)} panels have data"
        with open(f"{options.work}/{file}.data.json", "w", encoding="utf-8") as text:
            json.dump(dashboard, text)


def ask(server, target, chosen, end):
    expr = target["expr"].replace("$__rate_interval", "10s")
    # The longest name comes first, since a name may be the start of another.
    for name in sorted(chosen, key=len, reverse=True):
        expr = expr.replace(f"${name}", chosen[name])
    assert not re.search(r"\$[a-z_]", expr), f"a variable without a value in {expr}"
    if target["instant"]:
        return server.query(expr)
    query = {"query": expr, "start": end - SECONDS + 5, "end": end, "step": STEP}
    return server.get("/api/v1/query_range?" + urllib.parse.urlencode(query))["result"]


if __name__ == "__main__":
    e2e.play(["work", "stuck", "dashboards"], lambda options: write(options, incident(options)))
