#!/usr/bin/python3
"""The second half of deploy/quickstart: starts Postrider and a receiver on the stack whose
environment it is given, does what a first user does over the REST API, and checks what arrives.

    tour.py --log embedded|kafka --build DIR --dir DIR [--once]

Exit status 0 when all three were seen: a verified webhook, a verified batch of at least two
messages in one request, and a dead letter, polled and acknowledged.
"""

import argparse
import base64
import ctypes
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN = float(os.environ.get("PROGRESS_BEGIN", time.time()))
READY_S = 120
ARRIVE_S = 60
STOP_S = 30

EVENT_TYPES = ("order.created", "order.paid")


class Fault(Exception):
    """Ends the tour with exit status 1 and this text."""


def say(text):
    print(f"[{time.time() - BEGIN:4.0f} s] {text}", flush=True)


def show(text):
    print("         " + text.replace("\n", "\n         "), flush=True)


def free_port(wanted=None):
    """`wanted` if it is free, else one below the range of outgoing connections."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as values:
        end = min(32768, int(values.read().split()[0]))
    for port in [wanted] * (wanted is not None) + random.sample(range(end // 2, end), 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Fault("no free port found")


def write_private(path, text):
    """Replaces the file at once; only we may read it."""
    with os.fdopen(
        os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as file:
        file.write(text)
    os.rename(path + ".new", path)


def tail(path, lines=20):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-lines:])


class Process:
    """A child with a session of its own (Ctrl-C is ours alone) that does not outlive us."""

    def __init__(self, name, command, **how):
        libc = ctypes.CDLL(None)

        def die_with_parent():
            libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

        self.name = name
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
            **how,
        )

    def stop(self):
        if self.child.poll() is not None:
            return
        self.child.terminate()
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            say(f"{self.name} did not stop within {STOP_S} s: killed")
            self.child.kill()
            self.child.wait()


class Api:
    def __init__(self, address):
        self.url = f"http://{address}"

    def ask(self, key, method, path, body=None, timeout=30):
        """The answer's JSON (None when it has none); a status from 400 on is a Fault."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("authorization", f"Bearer {key}")
        data = None
        if body is not None:
            request.add_header("content-type", "application/json")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Fault(
                f"{method} {path}: {error.code} {error.read().decode(errors='replace')}"
            ) from None
        except OSError as error:
            raise Fault(f"{method} {path}: {error}") from None
        return json.loads(text) if text else None


class Tour:
    def __init__(self, options):
        self.binary = os.path.join(options.build, "postrider")
        self.loadtest = next(
            (
                path
                for path in (
                    os.path.join(options.build, "loadtest", "postrider-loadtest"),
                    os.path.join(options.build, "postrider-loadtest"),
                )
                if os.access(path, os.X_OK)
            ),
            None,
        )
        self.dir = options.dir
        self.once = options.once
        self.on_kafka = options.log == "kafka"
        self.brokers = os.environ["POSTRIDER_KAFKA__BROKERS"] if self.on_kafka else None
        self.processes = []
        # An own tenant per run: endpoints of earlier runs, whose receiver is gone, get nothing.
        self.tenant = "acme-" + secrets.token_hex(2)
        self.secrets_file = os.path.join(self.dir, "receiver.secrets")
        self.received_log = os.path.join(self.dir, "received.log")
        self.postrider_log = os.path.join(self.dir, "postrider.log")
        self.event_count = 0

    # --- what runs --------------------------------------------------------------------------

    def run(self):
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.migrate()
        self.start_receiver()
        self.start_postrider()
        self.register()
        self.publish_until_it_arrives()
        self.show_batch()
        self.publish_by_command()
        if self.on_kafka:
            self.publish_to_kafka()
        self.show_dead_letter()
        say("all was seen: verified webhooks, a verified batch, a dead letter acknowledged")
        if not self.once:
            self.show_by_hand()
            say("running; new webhooks are shown as they arrive; Ctrl-C ends it")
            self.watch()

    def watch(self):
        while True:
            self.check_processes()
            time.sleep(0.5)

    def stop(self):
        for process in reversed(self.processes):
            process.stop()
        if self.processes:
            say("stopped Postrider and the receiver")

    def config(self):
        """The options file: what it has is all that a small private install needs."""
        key_file = os.path.join(self.dir, "secrets.key")
        if not os.path.exists(key_file):
            say(f"making a key for the secrets in the database: {key_file}")
            write_private(
                key_file, "k1:" + base64.b64encode(secrets.token_bytes(32)).decode() + "\n"
            )
        self.api_address = f"127.0.0.1:{free_port(8080)}"
        self.probes_address = f"127.0.0.1:{free_port(9090)}"
        path = os.path.join(self.dir, "postrider.yaml")
        # A JSON string is a YAML string too.
        write_private(
            path,
            "# Written by deploy/quickstart; the database"
            + (" and the brokers come" if self.on_kafka else " comes")
            + " from the environment.\n"
            f"data_dir: {json.dumps(os.path.join(self.dir, 'data'))}\n"
            "log:\n"
            f"  kind: {'kafka' if self.on_kafka else 'embedded'}\n"
            "secrets:\n"
            f"  key_file: {json.dumps(key_file)}\n"
            "api:\n"
            f"  listen: {self.api_address}\n"
            "probes:\n"
            f"  listen: {self.probes_address}\n"
            "network:\n"
            "  # Receivers on this machine; without this line private addresses are refused.\n"
            "  allow:\n"
            "    - 127.0.0.0/8\n",
        )
        os.makedirs(os.path.join(self.dir, "data"), mode=0o700, exist_ok=True)
        os.environ["POSTRIDER_CONFIG"] = path
        return path

    def postrider(self, *arguments):
        done = subprocess.run(
            [self.binary, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            what = " ".join(("postrider", *arguments))
            raise Fault(f"{what}: exit status {done.returncode}\n{done.stderr.strip()}")
        return done.stdout.strip()

    def migrate(self):
        say(f"options: {self.config()}")
        say("postrider migrate")
        self.postrider("migrate")
        say("postrider keys create --scope operator")
        self.operator = self.postrider("keys", "create", "--scope", "operator")

    def start_receiver(self):
        for path in (self.secrets_file, self.received_log):
            write_private(path, "")
        receiver = Process(
            "the receiver",
            [
                sys.executable,
                os.path.join(HERE, "receiver.py"),
                f"--listen=127.0.0.1:{free_port()}",
                f"--secrets={self.secrets_file}",
                f"--log={self.received_log}",
                "--fail=/broken",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(receiver)
        line = receiver.child.stdout.readline()
        if not line.startswith("listening on "):
            raise Fault("the receiver did not start")
        self.receiver_url = "http://" + line.split()[-1]
        say(f"receiver: {self.receiver_url} (answers 500 on /broken)")
        threading.Thread(target=self.show_lines, args=(receiver.child.stdout,), daemon=True).start()

    @staticmethod
    def show_lines(lines):
        for line in lines:
            print(f"      <- {line}", end="", flush=True)

    def make_source_topics(self):
        say(
            "Kafka: making the source topics " + ", ".join("events." + name for name in EVENT_TYPES)
        )
        subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "kafka", "create_topics.py"),
                self.brokers,
                "1",
                *("events." + name for name in EVENT_TYPES),
            ],
            check=True,
        )

    def start_postrider(self):
        if self.on_kafka:
            self.make_source_topics()
        say(f"postrider serve (all roles), log {self.postrider_log}")
        with open(self.postrider_log, "w", encoding="utf-8") as output:
            self.processes.append(
                Process(
                    "postrider", [self.binary, "serve"], stdout=output, stderr=subprocess.STDOUT
                )
            )

        def ready():
            try:
                with urllib.request.urlopen(f"http://{self.probes_address}/readyz", timeout=5):
                    return True
            except OSError:  # HTTPError too: 503 until all roles are ready.
                return False

        try:
            self.wait_for("postrider to be ready", READY_S, ready)
        except Fault as fault:
            raise Fault(f"{fault}; the end of its log:\n{tail(self.postrider_log)}") from None
        self.api = Api(self.api_address)
        say(f"postrider is ready: API on {self.api.url}, probes on http://{self.probes_address}")

    def wait_for(self, what, seconds, probe, every=0.1):
        """The first true value of probe(); says what it waits for every 5 s."""
        start = said = time.monotonic()
        while True:
            value = probe()
            if value:
                return value
            self.check_processes()
            now = time.monotonic()
            if now - start > seconds:
                raise Fault(f"waited for {what}: not within {seconds} s")
            if now - said >= 5:
                said = now
                show(f"waiting for {what}, {now - start:.0f} s of at most {seconds}")
            time.sleep(every)

    def check_processes(self):
        for process in self.processes:
            if process.child.poll() is not None:
                raise Fault(f"{process.name} ended with exit status {process.child.returncode}")

    # --- what a first user does -------------------------------------------------------------

    def register(self):
        """A customer with a tenant, its keys, three endpoints, and a subscription for each."""
        ask, operator = self.api.ask, self.operator
        customer = ask(operator, "POST", "/v1/customers", {"name": "Quickstart"})
        say(f"customer {customer['id']}, granted the events of the tenant {self.tenant}")
        ask(operator, "POST", f"/v1/customers/{customer['id']}/grants", {"tenants": [self.tenant]})
        key = {"scope": "customer", "customer_id": customer["id"], "name": "quickstart"}
        self.customer = ask(operator, "POST", "/v1/keys", key)["key"]
        key = {"scope": "publisher", "event_types": ["order.*"], "tenants": [self.tenant]}
        self.publisher = ask(operator, "POST", "/v1/keys", key)["key"]
        for name in EVENT_TYPES:
            ask(
                operator,
                "PUT",
                f"/v1/event-types/{name}",
                {"description": "Made by the quickstart"},
            )

        # One event type of every granted tenant; all types below a prefix, of listed tenants; one
        # tenant's listed departments.
        self.add_endpoint("/single", {"mode": "streaming"}, ["order.created"], {"kind": "granted"})
        batch = {"mode": "batch", "batch": {"events_max": 100, "wait_max_ms": 1000}}
        self.add_endpoint(
            "/batch", batch, ["order.*"], {"kind": "tenants", "tenants": [self.tenant]}
        )
        broken = {"mode": "streaming", "retry": {"attempts": 2, "first_delay_ms": 100}}
        departments = {"kind": "departments", "tenant": self.tenant, "departments": ["returns"]}
        self.broken_endpoint = self.add_endpoint("/broken", broken, ["order.created"], departments)

    def add_endpoint(self, path, settings, event_types, scope):
        body = {"url": self.receiver_url + path, "description": "quickstart", **settings}
        endpoint = self.api.ask(self.customer, "POST", "/v1/endpoints", body)
        with open(self.secrets_file, encoding="ascii") as file:
            known = file.read()
        write_private(self.secrets_file, f"{known}{path} {endpoint['secret']}\n")
        subscription = {"endpoint_id": endpoint["id"], "event_types": event_types, "scope": scope}
        subscription = self.api.ask(self.customer, "POST", "/v1/subscriptions", subscription)
        say(f"{path}: {settings['mode']} endpoint {endpoint['id']}, {subscription['id']}")
        return endpoint["id"]

    def event(self, event_type="order.created", department=None):
        self.event_count += 1
        return {
            "type": event_type,
            "tenant": self.tenant,
            "department": department,
            "id": f"{self.tenant}-{self.event_count}",
            "data": {"order": self.event_count, "total": "12.50"},
        }

    def publish(self, events):
        """By the REST API: it answers when they are on the disk, or Kafka has them."""
        # A department is left out, not null, when there is none.
        body = [{k: v for k, v in event.items() if v is not None} for event in events]
        answer = self.api.ask(
            self.publisher, "POST", "/v1/events", body if len(body) > 1 else body[0]
        )
        for event, at in zip(events, answer["data"], strict=True):
            show(
                f"-> {event['type']} {event['id']}: {at['topic']}/{at['partition']}@{at['offset']}"
            )

    def received(self, path, least, ids):
        """A verified request of at least so many messages to the path with one of the event ids."""
        with open(self.received_log, encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line) if line.endswith("\n") else {}
                if not entry.get("verified") or entry["path"] != path:
                    continue
                if len(entry["event_ids"]) >= least and ids.intersection(entry["event_ids"]):
                    return entry
        return None

    def publish_until_it_arrives(self):
        say("publishing an event by POST /v1/events")
        ids = set()
        for _ in range(ARRIVE_S // 5):
            event = self.event()
            ids.add(event["id"])
            self.publish([event])
            try:
                self.wait_for("its webhook", 5, lambda: self.received("/single", 1, ids))
                return
            except Fault:
                self.check_processes()
                # Changes become effective up to 2 s after the API answered.
                say("nothing yet, the subscription may not have been effective: publishing another")
        raise Fault(f"no webhook arrived; the end of the log:\n{tail(self.postrider_log)}")

    def show_batch(self):
        say("publishing six more at once: they arrive one by one, and as a batch within a second")
        events = [self.event(EVENT_TYPES[i % 2]) for i in range(6)]
        self.publish(events)
        ids = {event["id"] for event in events}
        self.wait_for("the batch", ARRIVE_S, lambda: self.received("/batch", 2, ids))
        created = {event["id"] for event in events if event["type"] == "order.created"}
        self.wait_for("the single webhooks", ARRIVE_S, lambda: self.received("/single", 1, created))

    def publish_by_command(self):
        say("publishing two events by `postrider publish --topic order.created`, a line each")
        events = [self.event() for _ in range(2)]
        lines = "".join(
            json.dumps({"tenant": self.tenant, "id": event["id"], "data": event["data"]}) + "\n"
            for event in events
        )
        done = subprocess.run(
            [self.binary, "publish", "--topic", "order.created"],
            input=lines,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "POSTRIDER_API_KEY": self.publisher},
        )
        if done.returncode != 0:
            raise Fault(f"postrider publish: {done.stderr.strip()}")
        for event in events:
            ids = {event["id"]}
            self.wait_for(
                f"the webhook of {event['id']}", ARRIVE_S, partial(self.received, "/single", 1, ids)
            )

    def publish_to_kafka(self):
        if self.loadtest is None:
            say("postrider-loadtest is not built: nothing is published straight to Kafka")
            return
        say("publishing two events straight to the Kafka topic events.order.created")
        events = [self.event() for _ in range(2)]
        # The event's id stands in the value here, its tenant in a header of the record.
        lines = "".join(json.dumps({"id": event["id"], **event["data"]}) + "\n" for event in events)
        command = [self.loadtest, "publish", "--brokers", self.brokers]
        command += ["--topic", "events.order.created", "--header", f"tenant={self.tenant}"]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Fault(f"postrider-loadtest publish: {done.stderr.strip()}")
        for event in events:
            ids = {event["id"]}
            self.wait_for(
                f"the webhook of {event['id']}", ARRIVE_S, partial(self.received, "/single", 1, ids)
            )

    def show_dead_letter(self):
        say("publishing an event of the department returns: its endpoint answers 500, twice")
        event = self.event(department="returns")
        self.publish([event])
        poll = {"endpoint_id": self.broken_endpoint, "limit": 10, "lease_s": 60, "wait_s": 5}

        def polled():
            letters = self.api.ask(self.customer, "POST", "/v1/dead-letters/poll", poll)["data"]
            return next((letter for letter in letters if letter["event_id"] == event["id"]), None)

        letter = self.wait_for("the dead letter", ARRIVE_S, polled)
        say("POST /v1/dead-letters/poll gives it, with a receipt for 60 s")
        show(json.dumps(letter, indent=2))
        self.api.ask(
            self.customer,
            "POST",
            f"/v1/dead-letters/{letter['id']}/ack",
            {"receipt": letter["receipt"]},
        )
        letter = self.api.ask(self.customer, "GET", f"/v1/dead-letters/{letter['id']}")
        say(f"acknowledged: its state is {letter['state']}")

    def show_by_hand(self):
        event = '{"type":"order.created","tenant":"%s","data":{"order":99}}' % self.tenant
        broken = (
            '{"type":"order.created","tenant":"%s","department":"returns","data":{}}' % self.tenant
        )
        say("the same by hand, in another terminal:")
        print(
            f"""
  API={self.api.url}
  OPERATOR={self.operator}
  PUBLISHER={self.publisher}
  CUSTOMER={self.customer}
  json='content-type: application/json'
  post() {{ curl -sS -H "authorization: Bearer $1" -H "$json" -d "$3" "$API$2"; echo; }}
  get() {{ curl -sS -H "authorization: Bearer $1" "$API$2"; echo; }}

  post $PUBLISHER /v1/events '{event}'
  post $PUBLISHER /v1/events '{broken}'
  post $CUSTOMER /v1/dead-letters/poll '{{"limit":10,"wait_s":20}}'
  post $CUSTOMER /v1/dead-letters/ID/ack '{{"receipt":"RECEIPT"}}'
  get $CUSTOMER /v1/endpoints
  get $CUSTOMER /v1/subscriptions
  get $OPERATOR /v1/customers
  curl -sS $API/openapi.json
  curl -sS http://{self.probes_address}/metrics
""",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument(
        "--log", required=True, choices=("embedded", "kafka"), help="what holds the events"
    )
    parser.add_argument("--build", required=True, metavar="DIR", help="where postrider was built")
    parser.add_argument(
        "--dir", required=True, metavar="DIR", help="for options, key, data and logs"
    )
    parser.add_argument("--once", action="store_true", help="end by itself")
    tour = Tour(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seen = False
    try:
        tour.run()
        seen = True
    except Fault as fault:
        say(f"failed: {fault}")
    except KeyboardInterrupt:
        print(flush=True)
        seen = not tour.once
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tour.stop()
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
