"""Real servers and processes for scripts/real-hour.sh: stores, services, Prometheus, Alertmanager, and what people are told."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import observability as e2e
from observability import check, fetch, talk, wait_for

SCRAPE = 5
# Names of services, and the stores that they use.
SERVICES = {"shop": ["a"], "billing": ["b"], "worker": ["a", "b"]}
PODS = {"shop": 3, "billing": 2, "worker": 2}


class Fleet:
    """What runs, and what was heard of it."""

    def __init__(self, options):
        self.options, self.began = options, time.time()
        self.ports = iter(e2e.free_ports(80))
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
        subprocess.run([self.options.generator, "--to", self.options.work, "--set", f"scrapeSeconds={SCRAPE}", *more], check=True)

    def shorten_the_rules(self):
        """From here on the rules wait for seconds where they wait for minutes."""
        self.write_rules("--fast")
        self.prometheus_child.send_signal(signal.SIGHUP)
        wait_for("the shorter rules", lambda: "duration: 2\n" in self.loaded() or '"duration":2,' in self.loaded())

    def loaded(self):
        return self.server.get("/api/v1/rules?type=alert", plain=True)

    def configure(self, webhook):
        """The checked-in routes and scrapes, with nothing changed but where things are and how they are found."""
        work, dashboards = self.options.work, self.options.dashboards
        with open(f"{dashboards}/prometheus.yml", encoding="utf-8") as file:
            text = file.read().replace("alertmanager:9093", f"127.0.0.1:{self.alertmanager}")
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

    def start_store(self, name):
        """Starts a Redis. Its address is its name in metrics."""
        port = next(self.ports)
        command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", self.options.work]
        self.stores[name] = e2e.start(f"redis-{name}", command, self.options)
        self.stores[name].port = port
        wait_for(f"redis {name}", lambda: talk(port, "PING") == "PONG")

    def address(self, name):
        return f"127.0.0.1:{self.stores[name].port}"

    def tell_store(self, name, command):
        return talk(self.stores[name].port, command)

    def end_store(self, name):
        store = self.stores[name]
        e2e.children.remove(store)
        store.kill()
        store.wait(20)

    def add(self, name, stores, url=None, idle=False):
        """Starts a process of the service before the hyphen, and has it scraped as soon as it answers."""
        port = next(self.ports)
        urls = url or " ".join(f"redis://{self.address(store)}" for store in stores)
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
        with open(member.log, encoding="utf-8") as log:
            check(status == 0 and "every lock given back: true" in log.read(), f"{name} gives every lock back at SIGTERM")

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
            time.sleep(SCRAPE)
            self.end(f"{service}-{old}-{number}")
