"""What the system tests stand on: a database and topics of their own, `postrider` as processes, a
receiver that answers as told, and waiting for conditions.

TEST_LOG says which log the tests run on, kafka (the default) or embedded; CMakeLists.txt which
files run on both. A test or class that needs Kafka as such says so and why by @kafka_only.

The servers are those of tests/run, which exports where they are; CMakeLists.txt says where the
binaries are. Every test class has a World; when a test fails, the ends of its logs are shown and
its directory stays, in system-runs beside the binary."""
import base64
import http.client
import http.server
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest" / "scenarios"))
import stage  # noqa: E402

from stage import wait_until  # noqa: E402, F401

# A desired state that was committed is in effect after so long; the slack is for two
# busy cores.
EFFECTIVE_S = 2.0
SLACK_S = 1.0
ARRIVE_S = 60
ALL_ROLES = "api,matcher,worker,indexer"
LOG = os.environ.get("TEST_LOG", "kafka")
# The most that one POST /v1/events takes.
PUBLISHED_AT_ONCE = 1000


def needed(name):
    value = os.environ.get(name)
    if not value:
        raise AssertionError(f"{name} is not set: run the system tests by tests/run --ring system, "
                             "which brings up PostgreSQL and Kafka and says where they are")
    return value


def kafka_only(reason):
    """For a test or a class of them."""
    return unittest.skipIf(LOG == "embedded", reason)


def now():
    return time.monotonic()


class Answer:
    """One answer of the API."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        self.json = None
        if "json" in (headers.get("content-type") or "") and text:
            self.json = json.loads(text)

    def __repr__(self):
        return f"{self.status} {self.text[:500]}"

    def pointers(self):
        return [error.get("pointer") for error in (self.json or {}).get("errors", [])]


class Delivery:
    """One request that the receiver got."""

    def __init__(self, path, headers, body):
        self.at = now()
        self.path, self.headers, self.body = path, headers, body
        self.status = None

    def messages(self):
        value = json.loads(self.body)
        return value if isinstance(value, list) else [value]

    def event_ids(self):
        return [message["event_id"] for message in self.messages()]


class Receiver:
    """Takes webhooks on a loopback port and answers each path by its rule: a status, or a function
    of (handler, delivery) that answers itself."""

    def __init__(self):
        self.lock = threading.Lock()
        self.deliveries = []
        self.rules = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 120

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                outer.take(self, Delivery(self.path, dict(self.headers.items()), body))

            do_GET = do_POST

            def answer(self, status, headers=(), body=b""):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):  # The peer was killed or has had enough.
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, handler, delivery):
        with self.lock:
            self.deliveries.append(delivery)
            rule = self.rules.get(delivery.path.partition("?")[0], 200)
        try:
            if callable(rule):
                rule(handler, delivery)
            else:
                delivery.status = rule
                handler.answer(rule)
        except OSError:
            handler.close_connection = True

    def answer(self, path, rule):
        with self.lock:
            self.rules[path] = rule

    def got(self, path=None):
        with self.lock:
            return [d for d in self.deliveries if path is None or d.path.partition("?")[0] == path]

    def event_ids(self, path):
        """Of all requests to the path, in the order of their coming, repeats too."""
        return [event for d in self.got(path) for event in d.event_ids()]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Service(stage.Role):
    """A `postrider serve` process. It can be stopped, killed and started again."""

    def __init__(self, world, roles, name, options):
        super().__init__(world, roles, name)
        self.world = world
        self.log = world.dir / f"{name}.log"
        self.env = {**world.env, **options}
        self.env.setdefault("POSTRIDER_DATA_DIR", str(world.dir / f"data-{name}"))
        self.log_from = 0
        self.api_port = None

    def start(self):
        self.lives += 1
        self.log_from = self.log.stat().st_size if self.log.exists() else 0
        self.probe = self.api_port = None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.world.postrider_binary, "serve", "--roles", self.role], env=self.env,
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.world.dir)
        return self

    def log_text(self):
        """Of this life."""
        with open(self.log, "rb") as log:
            log.seek(self.log_from)
            return log.read().decode()

    def find_in_log(self, pattern):
        return re.search(pattern, self.log_text())

    def port_of(self, what):
        found = self.find_in_log(rf'msg="?{what} listens?"? port=(\d+)')
        return int(found.group(1)) if found else None

    def wait_probes(self, seconds=60):
        """Until /healthz can be asked."""
        def asked():
            self.check()
            return self.port_of("probes")
        self.probe = wait_until(f"{self.name} listens", seconds, asked, 0.02)
        return self

    def wait_ready(self, seconds=120):
        self.wait_probes(seconds)
        try:
            super().wait_ready(seconds)
        except stage.Failure as failure:
            raise AssertionError(f"{failure}: {self.ask_probe('/readyz')}") from None
        if "api" in self.role:
            self.api_port = wait_until("the API listens", 10, lambda: self.port_of("api"), 0.02)
        return self

    def ready(self):
        self.check()
        return self.ask_probe("/readyz")[0] == 200

    def ask_probe(self, path, timeout=5):
        """(status, text); status 0 when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.probe, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def metric(self, name, **labels):
        """The sum over the samples of `name` that have these labels."""
        status, text = self.ask_probe("/metrics")
        if status != 200:
            raise stage.Failure(f"/metrics of {self.name}: {status} {text}")
        total = 0.0
        for line in text.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if not found or found.group(1) != name:
                continue
            has = dict(re.findall(r'(\w+)="([^"]*)"', found.group(2) or ""))
            if all(has.get(key) == value for key, value in labels.items()):
                total += float(found.group(3))
        return total

    def looks(self):
        return self.metric("postrider_registry_snapshot_looks_total")

    def end(self):
        """At a test's end: whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
            self.process = None


class Customer:
    def __init__(self, world, tenants):
        self.world = world
        made = world.ok("POST", "/v1/customers", {"name": "System test"})
        self.id = made["id"]
        if tenants:
            world.ok("POST", f"/v1/customers/{self.id}/grants", {"tenants": list(tenants)})
        made = world.ok("POST", "/v1/keys", {"scope": "customer", "customer_id": self.id})
        self.key = made["key"]

    def ask(self, method, path, body=None, **how):
        return self.world.ask(method, path, body, key=self.key, **how)

    def ok(self, method, path, body=None):
        return self.world.ok(method, path, body, key=self.key)

    def endpoint(self, path="", event_types=("*",), scope=None, **settings):
        """An endpoint on the receiver with one subscription."""
        made = self.ok("POST", "/v1/endpoints", {
            "mode": "streaming", "url": settings.pop("url", self.world.receiver.url + path),
            **settings})
        self.subscribe(made["id"], event_types, scope)
        return made

    def subscribe(self, endpoint_id, event_types=("*",), scope=None):
        return self.ok("POST", "/v1/subscriptions", {
            "endpoint_id": endpoint_id, "event_types": list(event_types),
            "scope": scope or {"kind": "granted"}})

    def letters(self, endpoint_id=None):
        """All of them, the newest first."""
        query = "?limit=1000" + (f"&endpoint_id={endpoint_id}" if endpoint_id else "")
        rows, cursor = [], ""
        while cursor is not None:
            page = self.ok("GET", f"/v1/dead-letters{query}{cursor and '&cursor=' + cursor}")
            rows += page["data"]
            cursor = page["next_cursor"]
        return rows


class Stream:
    """Writes events to a source topic all the while, by Kafka alone. Those that Kafka acknowledged
    are `acknowledged`, in their order."""

    uncertain = frozenset()  # See ApiStream.

    def __init__(self, world, event_type, tenant, per_second):
        self.acknowledged = []
        self._ids = []
        self._ending = threading.Event()
        self._process = subprocess.Popen(
            [world.tool_binary, "publish", "--brokers", world.brokers, "--topic",
             world.source_prefix + event_type, f"--header=tenant={tenant}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._writer = threading.Thread(target=self._write, args=(1 / per_second,), daemon=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer.start()
        self._reader.start()

    def _write(self, pause):
        run = secrets.token_hex(3)
        try:
            while not self._ending.wait(pause):
                self._ids.append(f"s-{run}-{len(self._ids)}")
                self._process.stdin.write(json.dumps({"id": self._ids[-1]}).encode() + b"\n")
                self._process.stdin.flush()
            self._process.stdin.close()
        except OSError:
            pass  # It ended: see end().

    def _read(self):
        for _ in self._process.stdout:
            self.acknowledged.append(self._ids[len(self.acknowledged)])

    def end(self):
        """Stops, and waits until all is acknowledged."""
        self._ending.set()
        self._writer.join()
        if self._process.wait(ARRIVE_S + 30) != 0:
            raise AssertionError("Kafka did not acknowledge every event")
        self._reader.join()
        return self.acknowledged

    def abandon(self):
        self._ending.set()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


class ApiStream:
    """Like Stream, by the API: for a log that nobody else can write to. `uncertain` are those whose
    answer was lost at first: they may be stored twice."""

    def __init__(self, world, event_type, tenant, per_second):
        self.acknowledged, self.uncertain = [], set()
        self._world = world
        self._event = {"type": event_type, "tenant": tenant, "data": {}}
        self._per_second = per_second
        self._ending, self._abandoned = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def _write(self):
        run, begin, made = secrets.token_hex(3), now(), 0
        while not self._ending.wait(0.01):
            due = min(int((now() - begin) * self._per_second), made + PUBLISHED_AT_ONCE)
            if due > made:
                self._store([f"s-{run}-{n}" for n in range(made, due)])
                made = due

    def _store(self, ids):
        """Again and again until they are stored."""
        events = [{**self._event, "id": one} for one in ids]
        while not self._abandoned.is_set():
            port = self._world.api.api_port
            if port is not None:
                answer = self._world.ask("POST", "/v1/events", events, key=self._world.publisher,
                                         timeout=10)
                if answer.status == 202:
                    self.acknowledged += ids
                    return
                # Who was not reached has stored nothing.
                if "ConnectionRefused" not in answer.text:
                    self.uncertain.update(ids)
            time.sleep(0.02)

    def end(self):
        """Stops, and waits until all is acknowledged."""
        self._ending.set()
        self._writer.join(ARRIVE_S + 30)
        if self._writer.is_alive():
            raise AssertionError("not every event was acknowledged")
        return self.acknowledged

    def abandon(self):
        self._ending.set()
        self._abandoned.set()
        self._writer.join()


class World:
    """A database, topics, keys, a receiver and the processes of one test class."""

    def __init__(self, name, options, log=LOG):
        self.embedded = log == "embedded"
        self.postrider_binary = needed("POSTRIDER_BINARY")
        self.tool_binary = needed("POSTRIDER_LOADTEST_BINARY")
        owner = needed("POSTRIDER_DATABASE__URL")
        # No broker answers there: nothing may ask one.
        self.brokers = "127.0.0.1:1" if self.embedded else needed("POSTRIDER_KAFKA__BROKERS")
        self.stack = stage.Stack(None)
        self.services = []
        self.receiver = Receiver()
        runs = pathlib.Path(self.postrider_binary).parent / "system-runs"
        runs.mkdir(exist_ok=True)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=runs))
        run = time.strftime("%H%M%S") + secrets.token_hex(3)
        self.database = f"system_{run}"
        self.stack.psql(owner, f"create database {self.database}")
        self.owner_url = owner
        self.url = owner.rsplit("/", 1)[0] + "/" + self.database
        key_file = self.dir / "keys"
        with open(os.open(key_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("k1:" + base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
        self.prefix = f"own-{run}."
        self.source_prefix = f"events-{run}."
        keep = {k: v for k, v in os.environ.items() if not k.startswith("POSTRIDER_")}
        self.env = {
            **keep,
            "POSTRIDER_DATABASE__URL": self.url,
            "POSTRIDER_LOG__KIND": log,
            "POSTRIDER_KAFKA__BROKERS": self.brokers,
            "POSTRIDER_KAFKA__PREFIX": self.prefix,
            "POSTRIDER_KAFKA__ALLOW_SINGLE_REPLICA":
                os.environ.get("POSTRIDER_KAFKA__ALLOW_SINGLE_REPLICA", "false"),
            "POSTRIDER_SECRETS__KEY_FILE": str(key_file),
            "POSTRIDER_API__LISTEN": "127.0.0.1:0",
            "POSTRIDER_PROBES__LISTEN": "127.0.0.1:0",
            "POSTRIDER_NETWORK__ALLOW": "127.0.0.0/8",
            "POSTRIDER_SOURCE__TOPICS": "^" + self.source_prefix.replace(".", "\\.") + ".*",
            "POSTRIDER_SOURCE__TOPIC_PREFIX": self.source_prefix,
            "POSTRIDER_MATCHER__TOPIC_REFRESH": "1s",
            "POSTRIDER_WORKER__KEY_GROUPS": "8",
            # What failed is found well again within a test's patience.
            "POSTRIDER_WORKER__PROBE_REST_MAX": "2s",
            **options,
        }
        self.api = None
        self.operator = None
        self.publisher = None

    # --- Processes ---------------------------------------------------------------------------

    def run(self, *arguments, env=None, timeout=120):
        """`postrider ARGUMENTS` to its end."""
        return subprocess.run([self.postrider_binary, *arguments], env={**self.env, **(env or {})},
                              cwd=self.dir, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, check=False)

    def run_ok(self, *arguments, **how):
        done = self.run(*arguments, **how)
        if done.returncode != 0:
            raise AssertionError(f"postrider {' '.join(arguments)}: status {done.returncode}: "
                                 f"{done.stderr}")
        return done.stdout.strip()

    def migrate(self):
        self.run_ok("migrate")
        self.operator = self.run_ok("keys", "create", "--scope", "operator")

    def service(self, roles=ALL_ROLES, name=None, **options):
        """Made, not started; options as POSTRIDER_... without that."""
        made = Service(self, roles, name or f"postrider{len(self.services)}",
                       {f"POSTRIDER_{key.upper()}": value for key, value in options.items()})
        self.services.append(made)
        return made

    def serve(self, event_types=("order.created",), roles=ALL_ROLES, **options):
        """One process, ready, and event types with their topics."""
        self.migrate()
        self.create_topics(event_types)
        self.api = self.service(roles, **options).start().wait_ready()
        self.register_types(event_types)
        return self.api

    def serve_apart(self, event_types=("order.created",)):
        """Each role in a process of its own, ready; by role. The embedded log has all of them in
        one, which is each role's then."""
        if self.embedded:
            return dict.fromkeys(ALL_ROLES.split(","), self.serve(event_types))
        self.migrate()
        self.create_topics(event_types)
        roles = {role: self.service(role, role).start() for role in ALL_ROLES.split(",")}
        for service in roles.values():
            service.wait_ready()
        self.api = roles["api"]
        self.register_types(event_types)
        return roles

    def register_types(self, event_types):
        for name in event_types:
            self.ok("PUT", f"/v1/event-types/{name}", {})
        self.publisher = self.ok("POST", "/v1/keys", {
            "scope": "publisher", "event_types": ["*"], "tenants": ["*"]})["key"]

    def create_topics(self, event_types):
        """The embedded log makes them as they are published to."""
        if not self.embedded:
            self.make_topics(1, *(self.source_prefix + name for name in event_types))

    def make_topics(self, partitions, *names):
        subprocess.run(
            [sys.executable, str(ROOT / "deploy" / "kafka" / "create_topics.py"), self.brokers,
             str(partitions), *names],
            check=True, capture_output=True, timeout=120)

    def tool(self, *arguments, stdin=None, timeout=120):
        done = subprocess.run([self.tool_binary, *map(str, arguments)], input=stdin,
                              capture_output=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise AssertionError(f"postrider-loadtest {arguments[0]}: {done.stderr.decode()}")
        return done.stdout

    # --- REST --------------------------------------------------------------------------------

    def ask(self, method, path, body=None, key=None, raw=None, headers=None, timeout=30,
            service=None):
        """One call; `raw` instead of `body` is sent as it stands. Status 0: nobody answered."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        send = {"authorization": f"Bearer {self.operator if key is None else key}"}
        if data is not None:
            send["content-type"] = "application/json"
        send.update(headers or {})
        connection = http.client.HTTPConnection(
            "127.0.0.1", (service or self.api).api_port, timeout=timeout)
        try:
            connection.request(method, path, data, send)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, {}, repr(error))
        finally:
            connection.close()

    def ok(self, method, path, body=None, key=None):
        answer = self.ask(method, path, body, key)
        if not 200 <= answer.status < 300:
            raise AssertionError(f"{method} {path}: {answer}")
        return answer.json

    def publish(self, events):
        """By the API; answers with the places in Kafka."""
        return self.ok("POST", "/v1/events", events, key=self.publisher)["data"]

    def stream(self, event_type, tenant, per_second):
        """Events at a steady rate, written past Postrider where that is possible."""
        kind = ApiStream if self.embedded else Stream
        return kind(self, event_type, tenant, per_second)

    def write(self, event_type, tenant, events):
        """Stores events past the API where that is possible; {id: fields beside the id}."""
        if not self.embedded:
            self.publish_to_kafka(event_type, [json.dumps({"id": i, "tenant": tenant, **fields})
                                               .encode() for i, fields in events.items()])
            return
        rows = [{"type": event_type, "tenant": tenant, "id": i, "data": fields}
                for i, fields in events.items()]
        for at in range(0, len(rows), PUBLISHED_AT_ONCE):
            self.publish(rows[at:at + PUBLISHED_AT_ONCE])

    def publish_to_kafka(self, event_type, lines, **headers):
        """By Kafka alone: each line of bytes a record's value."""
        flags = [f"--header={name}={value}" for name, value in headers.items()]
        self.tool("publish", "--brokers", self.brokers, "--topic", self.source_prefix + event_type,
                  *flags, stdin=b"".join(line + b"\n" for line in lines))

    def psql_admin(self, statement):
        """As a superuser, whom row-level security does not bind."""
        url = needed("STACK_PG_ADMIN_URL").rsplit("/", 1)[0] + "/" + self.database
        return self.stack.psql(url, statement)

    def settle(self):
        """Until all that was committed so far is in effect: every process with a snapshot has
        looked at the database twice since, so once from beginning to end."""
        before = [(service, service.looks()) for service in self.services
                  if service.process is not None and
                  ("matcher" in service.role or "worker" in service.role)]
        for service, looks in before:
            wait_until(f"{service.name} looks at the database", 30,
                       lambda s=service, n=looks: s.looks() >= n + 2, 0.05)

    def wait_ids(self, path, ids, seconds=ARRIVE_S):
        """Until each of the event ids has arrived at the path."""
        ids = set(ids)
        try:
            wait_until("webhooks", seconds,
                       lambda: ids <= set(self.receiver.event_ids(path)), 0.02)
        except stage.Failure:
            missing = sorted(ids - set(self.receiver.event_ids(path)))
            raise AssertionError(f"{path}: {len(missing)} of {len(ids)} events did not arrive "
                                 f"within {seconds} s, such as {missing[:5]}") from None

    # --- The end -----------------------------------------------------------------------------

    def logs(self, lines=60):
        text = []
        for log in sorted(self.dir.glob("*.log")):
            last = log.read_text(errors="replace").splitlines()[-lines:]
            text.append(f"--- the end of {log}\n" + "\n".join(last))
        return "\n".join(text)

    def close(self, keep):
        for service in self.services:
            service.end()
        self.receiver.close()
        try:
            self.stack.psql(self.owner_url,
                            f"drop database if exists {self.database} with (force)")
            if not self.embedded:
                self.tool("delete-topics", "--brokers", self.brokers, "--prefix", self.prefix,
                          "--prefix", self.source_prefix)
        except (AssertionError, stage.Failure, subprocess.TimeoutExpired) as error:
            print(f"clean-up: {error}", file=sys.stderr)
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class SystemTest(unittest.TestCase):
    """A class of tests with one World; begin() makes what all of them use."""

    OPTIONS = {}
    LOG = LOG
    failed = False

    @classmethod
    def setUpClass(cls):
        cls.failed = False
        cls.world = World(cls.__name__, cls.OPTIONS, cls.LOG)
        try:
            cls.begin(cls.world)
        except BaseException:
            print(cls.world.logs(), file=sys.stderr)
            cls.world.close(keep=True)
            raise

    @classmethod
    def begin(cls, world):
        world.serve()

    @classmethod
    def tearDownClass(cls):
        cls.world.close(keep=cls.failed)

    def run(self, result=None):
        before = (len(result.failures), len(result.errors)) if result is not None else None
        super().run(result)
        if before is not None and before != (len(result.failures), len(result.errors)):
            type(self).failed = True
            print(f"{self.id()} failed\n{self.world.logs()}", file=sys.stderr)

    counter = 0

    def unique(self, word):
        SystemTest.counter += 1
        return f"{word}-{SystemTest.counter}-{secrets.token_hex(3)}"

    def events(self, count, tenant, event_type="order.created", **more):
        return [{"type": event_type, "tenant": tenant, "id": self.unique("e"),
                 "data": {"n": n}, **more} for n in range(count)]

    def prove(self, path, tenant):
        """One event is taken there: who has never answered well is sent one request per second."""
        self.world.receiver.answer(path, 200)
        first = self.events(1, tenant)
        self.world.publish(first)
        self.world.wait_ids(path, self.ids(first))
        return self.ids(first)

    def ids(self, events):
        return [event["id"] for event in events]
