"""Real servers and processes for scripts/real-hour.sh: stores, services, Prometheus, Alertmanager, and what people are told."""

import glob
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import observability as e2e
from observability import check, fetch, talk, wait_for

# Names of services, and the stores that they use: two Redis and a PostgreSQL.
SERVICES = {"shop": ["a"], "billing": ["b"], "worker": ["a", "b"], "ledger": ["p"]}
PODS = {"shop": 3, "ledger": 2, "billing": 2, "worker": 2}
# PostgreSQL refuses to run as root. This is the user that no file belongs to.
NOBODY = 65534


class Fleet:
    """What runs, and what was heard of it."""

    def __init__(self, options, scrape):
        self.options, self.began, self.every = options, time.time(), scrape
        self.ports = iter(e2e.free_ports(90))
        self.prometheus, self.alertmanager, webhook = (next(self.ports) for _ in range(3))
        self.stores, self.members, self.messages, self.holes = {}, {}, [], []
        subprocess.run(["mkdir", "-p", f"{options.work}/members"], check=True)
        self.write_rules()
        self.configure(webhook)
        e2e.receive(webhook, self.hear)
        e2e.start_alertmanager("alertmanager", self.alertmanager, options)
        self.prometheus_child = e2e.start("prometheus", [
            "prometheus", f"--config.file={options.work}/prometheus.yml", f"--storage.tsdb.path={options.work}/prometheus",
            f"--web.listen-address=127.0.0.1:{self.prometheus}", "--log.level=warn",
        ], options)
        self.server = e2e.Prometheus(self.prometheus)
        wait_for("prometheus", lambda: self.server.get("/-/ready", plain=True))

    def write_rules(self, *more):
        """The rules as they are checked in, for scrapes as often as these are."""
        subprocess.run([self.options.generator, "--to", self.options.work, "--set", f"scrapeSeconds={self.every}", *more], check=True)

    def change_the_rules(self, *more):
        """From here on the rules have other settings. With `--fast` they wait for seconds where they wait for minutes."""
        self.write_rules(*more)
        before = self.loaded()
        self.prometheus_child.send_signal(signal.SIGHUP)
        wait_for("the other rules", lambda: self.loaded() != before)

    def loaded(self):
        groups = self.server.get("/api/v1/rules?type=alert")["groups"]
        return [(rule["query"], rule["duration"]) for group in groups for rule in group["rules"]]

    def configure(self, webhook):
        """The checked-in routes and scrapes, with nothing changed but where things are and how they are found."""
        work, dashboards = self.options.work, self.options.dashboards
        with open(f"{dashboards}/prometheus.yml", encoding="utf-8") as file:
            text = file.read().replace("alertmanager:9093", f"127.0.0.1:{self.alertmanager}")
        text = text.replace("_interval: 5s", f"_interval: {self.every}s")
        found = f"    file_sd_configs:\n      - files: ['{work}/members/*.json']\n"
        with open(f"{work}/prometheus.yml", "w", encoding="utf-8") as file:
            file.write(re.sub(r"    static_configs:\n      - targets: \[.demo.*", found, text, flags=re.DOTALL))
        with open(f"{dashboards}/alertmanager.yml", encoding="utf-8") as file:
            text = file.read()
        hook = f"\n    webhook_configs:\n      - url: http://127.0.0.1:{webhook}/"
        with open(f"{work}/alertmanager.yml", "w", encoding="utf-8") as file:
            file.write(re.sub(r"(  - name: (chat|pager))\n", lambda found: f"{found[1]}{hook}{found[2]}\n", text))

    def hear(self, receiver, alerts):
        """One message to a person. An alert that has ended is no news of a fault."""
        firing = [alert for alert in alerts if alert["status"] == "firing"]
        self.messages.append({"to": receiver, "at": time.time(), "firing": firing})

    def fired(self, since):
        """The alerts that have fired since then, whether or not anybody was told."""
        window = max(1, round(time.time() - since))
        seen = self.server.query(f'count by (alertname, store, lock, job, instance) (max_over_time(ALERTS{{alertstate="firing"}}[{window}s]))')
        return [one["metric"] for one in seen]

    def start_store(self, name, port=None):
        """Starts a Redis. Its address is its name in metrics."""
        port = port or next(self.ports)
        command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", self.options.work]
        self.stores[name] = e2e.start(f"redis-{name}", command, self.options)
        self.stores[name].port, self.stores[name].url = port, f"redis://127.0.0.1:{port}"
        wait_for(f"redis {name}", lambda: talk(port, "PING") == "PONG")

    def start_postgres(self, name):
        """Starts a PostgreSQL, whose superuser is `test`."""
        port, folder = next(self.ports), f"{self.options.work}/postgres-{name}"
        os.mkdir(folder)
        user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        if user:
            os.chmod(self.options.work, 0o755)
            os.chown(folder, NOBODY, NOBODY)
        subprocess.run([postgres("initdb"), "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", f"{folder}/data"],
                       check=True, capture_output=True, cwd=folder, **user)
        command = [postgres("postgres"), "-D", f"{folder}/data", "-k", folder, "-h", "127.0.0.1", "-p", port, "-c", "fsync=off"]
        store = self.stores[name] = e2e.start(f"postgres-{name}", command, self.options, cwd=folder, **user)
        # At SIGTERM it would wait for its clients.
        store.terminate = lambda: store.send_signal(signal.SIGINT)
        store.port, store.url = port, f"postgres://test@127.0.0.1:{port}/postgres"
        wait_for(f"postgres {name}", lambda: self.psql(name, "SELECT 1") == "1")

    def psql(self, name, statement):
        done = subprocess.run(["psql", "-XAtqc", statement, self.stores[name].url], capture_output=True, check=False)
        return done.stdout.decode().strip()

    def address(self, name):
        """The name of a store in metrics."""
        return self.stores[name].url.split("//")[1].split("@")[-1]

    def tell_store(self, name, command):
        return talk(self.stores[name].port, command)

    def end_store(self, name):
        """Ends a store at once."""
        store = self.stores[name]
        e2e.children.remove(store)
        # PostgreSQL ends its sessions itself at this signal. Redis dies of it.
        store.send_signal(signal.SIGQUIT if "postgres" in store.url else signal.SIGKILL)
        store.wait(20)

    def add(self, name, stores, url=None, idle=False):
        """Starts a process of the service before the hyphen, and has it scraped as soon as it answers."""
        port = next(self.ports)
        urls = url or " ".join(self.stores[store].url for store in stores)
        environment = {"LOCK_IDLE": "1"} if idle else {}
        member = e2e.start(name, [self.options.member, port, name], self.options, stdin=subprocess.PIPE, LOCK_URL=urls, **environment)
        member.port, member.instance = port, f"127.0.0.1:{port}"
        # A process is ready when it has reached its stores. A scrape before that would report a missing store.
        connected = r"(?m)^distributed_lock_backend_connected\{.*\} 1(?:\.0)?$"
        wait_for(name, lambda: len(re.findall(connected, fetch(f"http://127.0.0.1:{port}/metrics"))) >= len(stores))
        self.members[name] = member
        self.scrape(name, member.instance)
        return member

    def scrape(self, name, address):
        """Has a process scraped at an address; its name in metrics stays the same."""
        path = f"{self.options.work}/members/{name}"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump([{"targets": [address], "labels": {"job": name.split("-")[0], "instance": self.members[name].instance}}], file)
        os.rename(f"{path}.new", f"{path}.json")

    def black_hole(self):
        """An address that takes connections and never answers."""
        hole = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.holes.append(hole)
        return f"127.0.0.1:{hole.getsockname()[1]}"

    def with_other_clock(self, name, ahead):
        """An address at which the times in the metrics of a process are those of a clock that is ahead."""
        source = self.members[name].instance

        class Shifted(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                later = lambda found: f"{found[1]} {float(found[2]) + (ahead if float(found[2]) else 0)}"
                text = re.sub(r"(?m)^(distributed_lock_\w+_timestamp_seconds\S*(?:\{.*\})?) (\S+)$", later, fetch(f"http://{source}/metrics"))
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shifted)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{server.server_port}"

    def say(self, name, line):
        """Tells a process to do something."""
        self.members[name].stdin.write(f"{line}\n".encode())
        self.members[name].stdin.flush()

    def end(self, name):
        """Ends a process as an orchestrator does, which also ends its scrapes."""
        member = self.members.pop(name)
        e2e.children.remove(member)
        member.send_signal(signal.SIGTERM)
        status = member.wait(60)
        os.remove(f"{self.options.work}/members/{name}.json")
        said = e2e.printed(member)
        check(status == 0 and "every lock given back: true" in said, f"{name} gives every lock back at SIGTERM: {status} {said[-500:]}")

    def printed(self, name):
        return e2e.printed(self.members[name])

    def kill(self, name):
        """Kills a process. Its scrapes fail from now on."""
        member = self.members.pop(name)
        e2e.children.remove(member)
        member.kill()
        member.wait(20)
        return member.instance

    def deploy(self, service, old, new):
        """The new process runs before the old one is told to stop."""
        for number in range(PODS[service]):
            self.add(f"{service}-{new}-{number}", SERVICES[service])
            time.sleep(self.every)
            self.end(f"{service}-{old}-{number}")


def postgres(program):
    """A program of PostgreSQL, which many systems do not have in PATH."""
    found = shutil.which(program) or max(glob.glob(f"/usr/lib/postgresql/*/bin/{program}"), default=None)
    check(found, f"{program} is installed: sh scripts/need-databases.sh")
    return found
