"""What every scenario stands on: the stack, the role processes and their cost, the tools, the
accounting and the report. A scenario is a module with run(stage)."""
import base64
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
KEEP_FROM_SUBSCRIPTIONS = 5000
BROAD_ENDPOINTS = 3  # the first ones, so many of each large customer
ROLES = ["api", "matcher", "worker", "indexer"]
# How threads of a process that has all roles are called, up to the first of these.
THREAD_PARTS = re.compile(r"[-:]")
# The figures that every scenario gives, always with these keys; null where it has none.
KEYS = ["messages", "messages_per_s", "lost", "duplicated", "signatures_bad", "p50_ms", "p99_ms",
        "cpu_us_per_message", "rss_mb", "rounds", "repeats", "repeats_allowed", "gap_ms"]


class Failure(Exception):
    """The scenario could not be run to its end."""


def say(text):
    print(f"[{time.monotonic() - say.start:6.1f} s] {text}", file=sys.stderr, flush=True)


say.start = time.monotonic()


def free_port():
    """A port below the kernel's range for outgoing connections, so that none of the thousands of
    these takes it before its listener does."""
    for _ in range(1000):
        port = 10000 + secrets.randbelow(14000)
        with socket.socket() as s:
            try:
                s.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise Failure("no free port")


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("0.0.0.0", port))
            return True
        except OSError:
            return False


def wait_until(what, seconds, condition, pause=0.1):
    """Asks until the answer is true. What is waited for has a deadline, never a fixed sleep."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


class Stack:
    """A private PostgreSQL and Kafka (deploy/stack), or what the environment names; without Kafka
    when it is not wanted."""

    def __init__(self, directory, kafka=True):
        if directory is None and "POSTRIDER_DATABASE__URL" in os.environ:
            self.dir = os.environ.get("STACK_DIR")
            self.env = dict(os.environ)
            return
        self.dir = os.path.abspath(directory or ROOT / ".stack")
        say(f"stack: up in {self.dir}")
        # For measuring: a broker with both its compilers. It matters only when it is not running.
        full = {"POSTRIDER_STACK_KAFKA_JIT": "full", "POSTRIDER_STACK_KAFKA_HEAP": "1g"}
        self._run("up", {**full, **os.environ}, *([] if kafka else ["--no-kafka"]))
        out = subprocess.run(["bash", "-c", 'set -a; source "$1"; env -0', "bash",
                              f"{self.dir}/env"], check=True, stdout=subprocess.PIPE).stdout
        self.env = dict(item.decode().split("=", 1) for item in out.split(b"\0") if item)

    def _run(self, verb, env, *flags):
        done = subprocess.run([str(ROOT / "deploy" / "stack"), verb, *flags, "--dir", self.dir],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Failure(f"deploy/stack {verb} failed:\n{done.stdout.decode()}")

    def verb(self, verb):
        """stop-postgres, start-postgres, kill-kafka, start-kafka."""
        if self.dir is None:
            raise Failure("this scenario needs a stack of its own: --stack DIR")
        say(f"stack: {verb}")
        self._run(verb, dict(os.environ))

    def broker_cpu(self):
        """(pid, CPU seconds) of the stack's Kafka; None when it does not run or is not ours."""
        try:
            pid = int(pathlib.Path(self.dir or "", "run", "kafka").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        stat = stat_of(pid)
        return (pid, stat[0]) if stat is not None else None

    def psql(self, url, statement):
        psql = os.path.join(self.env.get("STACK_PG_BIN", ""), "psql")
        done = subprocess.run([psql or "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c",
                               statement], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Failure(f"psql: {done.stderr.decode()}")
        return done.stdout.decode().strip()


def stat_of(pid):
    """CPU seconds and resident MB of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rsplit(b") ", 1)[1].split()
        with open(f"/proc/{pid}/statm", "rb") as f:
            pages = int(f.read().split()[1])
    except (OSError, IndexError):
        return None
    if fields[0] == b"Z":
        return None
    return ((int(fields[11]) + int(fields[12])) / TICKS,
            pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def thread_cpu_of(pid):
    """CPU seconds of a process's threads by the beginning of their names."""
    used = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            name = (task / "comm").read_text().strip()
            # In nanoseconds: the ticks of `stat` leave out too much of many threads.
            seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            continue
        part = "main" if task.name == str(pid) else THREAD_PARTS.split(name)[0]
        used[part] = used.get(part, 0.0) + seconds
    return used


class Role:
    """One role, or all of them (`label` all), in a process of its own, which may be stopped, killed
    and started again; its CPU is summed over all its lives, its memory the most that was seen."""

    def __init__(self, stage, role, name, options=None):
        self.stage, self.role, self.name = stage, role, name
        self.label = "all" if "," in role else role
        self.options = dict(options or {})  # environment of its own
        self.probe = free_port()
        self.process = None
        self.cpu_before = {}
        self.cpu = {}  # by role; of a process of all by thread, see THREAD_PARTS
        self.rss = 0.0
        self.lives = 0
        self.life_ended = 0.0

    def start(self):
        self.life_ended = 0.0
        env = dict(self.stage.env)
        env["POSTRIDER_PROBES__LISTEN"] = f"127.0.0.1:{self.probe}"
        env.setdefault("POSTRIDER_DATA_DIR", str(self.stage.dir / f"data-{self.name}"))
        env.update(self.options)
        self.lives += 1
        with open(self.stage.dir / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.stage.postrider), "serve", "--roles", self.role], env=env, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, cwd=self.stage.dir)
        return self

    def sample(self):
        if self.process is None:
            return
        stat = stat_of(self.process.pid)
        if stat is None:
            return
        used = {self.role: stat[0]}
        if self.label == "all":
            used = thread_cpu_of(self.process.pid)
            # Of threads that have ended.
            self.life_ended = max(stat[0] - sum(used.values()), self.life_ended)
            used["ended"] = self.life_ended
        self.cpu = {part: self.cpu_before.get(part, 0.0) + s for part, s in used.items()}
        self.rss = max(self.rss, stat[1])

    def resident_mb(self):
        """Its memory now; 0 when it does not run."""
        stat = stat_of(self.process.pid) if self.process is not None else None
        return stat[1] if stat is not None else 0.0

    def _ended(self):
        self.cpu_before = self.cpu
        self.process = None

    def check(self):
        if self.process is not None and self.process.poll() is not None:
            raise Failure(f"{self.name} ended with status {self.process.returncode}: "
                          f"see {self.stage.dir / (self.name + '.log')}")

    def _probe(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.probe, timeout=2)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""

    def ready(self):
        self.check()
        return self._probe("/readyz")[0] == 200

    def metric(self, name):
        """A counter of /metrics, summed over its labels; 0 when there is none."""
        return self.metrics(name)[0]

    def assigned_since(self, at):
        """When the process said first, since `at`, that a shard was assigned its share; None when
        it did not. Both in seconds since the epoch."""
        with open(self.stage.dir / f"{self.name}.log", encoding="utf-8", errors="replace") as log:
            for line in log:
                found = re.match(r'time=(\S+)Z level=info msg="shard assigned"', line)
                if not found:
                    continue
                said = datetime.datetime.fromisoformat(found.group(1)).replace(
                    tzinfo=datetime.timezone.utc).timestamp()
                if said >= at:
                    return said
        return None

    def metrics(self, *names):
        """Several ones, by one look."""
        lines = self._probe("/metrics")[1].splitlines()
        return [sum(float(line.rsplit(" ", 1)[1]) for line in lines
                    if line.startswith((name + " ", name + "{"))) for name in names]

    def wait_ready(self, seconds=120):
        wait_until(f"{self.name} is ready", seconds, self.ready, 0.05)
        return self

    def kill(self):
        """The signal only: see reap()."""
        self.sample()
        self.process.send_signal(signal.SIGKILL)

    def reap(self):
        self.process.wait()
        self._ended()

    def stop(self, seconds=60):
        """Drains. Returns how long that took."""
        if self.process is None:
            return 0.0
        self.sample()
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        deadline = start + seconds
        while self.process.poll() is None:
            self.sample()
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                self._ended()
                raise Failure(f"{self.name} did not stop within {seconds:.0f} s")
            time.sleep(0.01)
        status = self.process.returncode
        self._ended()
        if status != 0:
            raise Failure(f"{self.name} stopped with status {status}")
        return time.monotonic() - start


class Tool:
    """A command of postrider-loadtest that runs beside the scenario."""

    def __init__(self, stage, name, arguments):
        self.name = name
        self.errors = stage.dir / f"{name}.log"
        self.output = stage.dir / f"{name}.json"
        with open(self.errors, "wb") as err, open(self.output, "wb") as out:
            self.process = subprocess.Popen([str(stage.tool), *arguments], stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL)

    def running(self):
        return self.process.poll() is None

    def stop(self):
        if self.running():
            self.process.send_signal(signal.SIGTERM)

    def result(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure(f"{self.name} did not end within {seconds:.0f} s") from None
        if self.process.returncode != 0:
            raise Failure(f"{self.name} failed: {self.errors.read_text(errors='replace')[-2000:]}")
        return json.loads(self.output.read_text())


class Load:
    """One plan of customers and events: its registration, its receiver, what it produces, and its
    books. A scenario may have a second one beside the stage's own: of other tenants and customers,
    and so of other messages, though by the same topics."""

    def __init__(self, stage, name, seed):
        self.stage, self.name, self.seed = stage, name, seed
        self.receiver = self.generator = self.expectation = None
        self.receiver_port = free_port()
        self.ledgers = []  # of the receiver's lives
        self.produced = []  # the generator's
        self.events = 0  # produced so far
        self.connections = 8  # of the generator to the API; one keeps the events' order
        self.sent_again = 0  # by the API, their answers lost: events that may be stored twice

    def path(self, name):
        return str(self.stage.dir / (self.name + name))

    def plan(self, rate, **options):
        """Makes the plan; options as the tool's flags, with `_` for `-`."""
        chosen = {"seed": self.seed, "topic_prefix": self.stage.source_prefix, **options}
        for overruled in self.stage.args.plan if not self.name else []:
            name, value = overruled.split("=", 1)
            chosen[name.replace("-", "_")] = value
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        self.expectation = self.stage.run_tool("plan", "--out", self.path("plan.json"), "--rate",
                                               rate, *flags)
        say(f"{self.name}plan: {json.dumps(self.expectation)}")

    def register(self):
        """Makes the plan's customers and all of theirs through the API, which must run."""
        start = time.monotonic()
        made = self.stage.run_tool(
            "register", "--plan", self.path("plan.json"), "--state", self.path("state"), "--api",
            self.stage.api, "--operator-key", self.stage.operator_key, "--receiver-port",
            self.receiver_port, show=True)
        say(f"registered {json.dumps(made)} in {time.monotonic() - start:.0f} s")

    def set_endpoint(self, number, **settings):
        """Changes settings of an endpoint of a large customer; effective within two seconds."""
        self._of_endpoint("PATCH", number, "", settings)

    def tell_endpoint(self, number, verb):
        """Pauses or resumes one of a large customer; effective within two seconds."""
        self._of_endpoint("POST", number, "/" + verb, {})

    def _of_endpoint(self, method, number, what, body):
        with open(self.path("state"), encoding="ascii") as state:
            known = {tuple(words[:2]): words[2:] for words in map(str.split, state)}
        endpoint = known["endpoint", str(number)][0]
        key = known["customer", str(number // BROAD_ENDPOINTS)][1]
        status, _, answer = self.stage.call(method, f"/v1/endpoints/{endpoint}{what}", body, key)
        if not 200 <= status <= 299:
            raise Failure(f"endpoint {number}: {method} {what} {body}: {status} {answer}")

    def receive(self, rules=""):
        """Starts the receiver, again too: then with a ledger and counts of its own."""
        life = f"-{len(self.ledgers) + 1}" if self.ledgers else ""
        self.ledgers.append(self.path(f"received{life}.ledger"))
        pathlib.Path(self.path("rules")).write_text(rules)
        pathlib.Path(self.path("received.json")).unlink(missing_ok=True)
        self.receiver = Tool(self.stage, f"{self.name}receive{life}", [
            "receive", "--plan", self.path("plan.json"), "--state", self.path("state"),
            "--listen-port", str(self.receiver_port), "--ledger", self.ledgers[-1],
            "--metrics-file", self.path("received.json"), "--rules-file", self.path("rules"),
            "--seed", str(self.seed)])
        self.stage.tools.append(self.receiver)
        wait_until("receive listens", 60, lambda: os.path.exists(self.path("received.json")) or
                   not self.receiver.running())
        self.received()

    def rules(self, text):
        """How the receiver answers from now on (within a second)."""
        pathlib.Path(self.path("rules.next")).write_text(text)
        os.replace(self.path("rules.next"), self.path("rules"))

    def received(self):
        """The receiver's counts, at most a second old."""
        if not self.receiver.running():
            raise Failure(f"receive ended: {self.receiver.errors.read_text()}")
        return json.loads(pathlib.Path(self.path("received.json")).read_text())

    def generate(self, rate=0, seconds=0, events=0):
        """Begins to produce; see `generated`. Once more goes on with the next event."""
        if self is self.stage:
            self.stage.measure_from()
        life = f"-{len(self.produced) + 1}" if self.produced else ""
        self.produced.append(self.path(f"produced{life}.ledger"))
        to = ["--brokers", self.stage.brokers]
        if self.stage.by_api:
            to = ["--api", self.stage.api, "--state", self.path("state"), "--connections",
                  str(self.connections)]
        self.generator = Tool(self.stage, f"{self.name}generate{life}", [
            "generate", "--plan", self.path("plan.json"), *to, "--ledger", self.produced[-1], "--seed",
            str(self.seed), "--first", str(self.events),
            "--rate", str(rate), "--seconds", str(seconds), "--events", str(events)])
        self.stage.tools.append(self.generator)
        return self.generator

    def generated(self, seconds):
        """Waits for the generator's end; every event is acknowledged then."""
        deadline = time.monotonic() + seconds
        while self.generator.running() and time.monotonic() < deadline:
            self.stage.check_roles()
            time.sleep(0.2)
        made = self.generator.result(max(1.0, deadline - time.monotonic()))
        self.events += made["events"]
        self.sent_again += made["sent_again"]
        say(f"{self.name}generated: {json.dumps(made)}")
        return made

    def letters(self):
        """Lists the dead letters for the books; says how many there are."""
        return self.stage.run_tool(
            "letters", "--state", self.path("state"), "--api", self.stage.api, "--out",
            self.path("letters"))["letters"]

    def expected(self):
        """How many messages the acknowledged events must become."""
        return self.stage.run_tool("account", "--plan", self.path("plan.json"),
                                   *self._flags("--produced", self.produced))["expected"]

    def account(self, *more):
        """The books as they stand."""
        return self.stage.run_tool(
            "account", "--plan", self.path("plan.json"), "--state", self.path("state"),
            *self._flags("--produced", self.produced), *self._flags("--received", self.ledgers),
            *more, may_fail=True)

    @staticmethod
    def _flags(name, values):
        return [flag for value in values for flag in (name, value)]


class Stage(Load):
    """A run: a fresh database, fresh topics, the roles, and the load with its books."""

    def __init__(self, args):
        super().__init__(self, "", args.seed)
        self.args = args
        self.build = pathlib.Path(args.build).resolve()
        self.postrider = self.build / "postrider"
        self.tool = self.build / "loadtest" / "postrider-loadtest"
        for binary in (self.postrider, self.tool):
            if not os.access(binary, os.X_OK):
                raise Failure(f"{binary} is missing: cmake --preset release && "
                              f"cmake --build build/release")
        self.embedded = args.log == "embedded"
        self.by_api = self.embedded or args.publish == "api"
        self.dir = self.build / "loadtest-runs" / (
            args.name + ("-embedded" if self.embedded else ""))
        self.run_id = time.strftime("%m%d%H%M%S") + secrets.token_hex(2)
        self.roles = []
        self.tools = []
        self.cleanups = []  # run at the end, the last first, when no process runs any more
        self.figures = {}
        self.checks = []
        self.cpu_start = {}
        self.broker_start = None
        self.dispatch_prefix = f"postrider-{self.run_id}."
        self.source_prefix = f"events-{self.run_id}."
        self._sampling = threading.Event()
        self._sampler = None
        self.stack = None
        self.database = None

    # --- The run's beginning and end -----------------------------------------------------------

    def __enter__(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        try:
            self.stack = Stack(self.args.stack, kafka=not self.embedded)
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self):
        owner = self.stack.env["POSTRIDER_DATABASE__URL"]
        self.database = f"loadtest_{self.run_id}"
        self.stack.psql(owner, f"create database {self.database}")
        self.url = owner.rsplit("/", 1)[0] + "/" + self.database
        key_file = self.dir / "keys"
        with open(os.open(key_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("k1:" + base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
        self.api_port = free_port()
        self.api = f"http://127.0.0.1:{self.api_port}"
        keep = {k: v for k, v in self.stack.env.items() if not k.startswith("POSTRIDER_")}
        self.env = {
            **keep,
            "POSTRIDER_DATABASE__URL": self.url,
            "POSTRIDER_LOG__KIND": self.args.log,
            "POSTRIDER_KAFKA__BROKERS": self.brokers,
            "POSTRIDER_KAFKA__PREFIX": self.dispatch_prefix,
            "POSTRIDER_KAFKA__ALLOW_SINGLE_REPLICA":
                self.stack.env.get("POSTRIDER_KAFKA__ALLOW_SINGLE_REPLICA", "false"),
            "POSTRIDER_SECRETS__KEY_FILE": str(key_file),
            "POSTRIDER_API__LISTEN": f"127.0.0.1:{self.api_port}",
            "POSTRIDER_NETWORK__ALLOW": "127.0.0.0/8",
            "POSTRIDER_SOURCE__TOPICS": "^" + self.source_prefix.replace(".", "\\.") + ".*",
            "POSTRIDER_SOURCE__TOPIC_PREFIX": self.source_prefix,
        }
        for option in self.args.option:
            name, value = option.split("=", 1)
            self.env["POSTRIDER_" + name.upper().replace(".", "__")] = value
        self.postrider_run("migrate")
        self.operator_key = self.postrider_run("keys", "create", "--scope", "operator").split()[-1]
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def postrider_knows(self, *command):
        done = subprocess.run([str(self.postrider), *command, "--help"], env=self.env, cwd=self.dir,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode == 0 and f"{' '.join(command)} [" in done.stdout.decode()

    def postrider_run(self, *arguments):
        done = subprocess.run([str(self.postrider), *arguments], env=self.env, cwd=self.dir,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Failure(f"postrider {' '.join(arguments)}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def _sample(self):
        while not self._sampling.wait(0.5):
            for role in list(self.roles):
                role.sample()

    def __exit__(self, *_):
        self._sampling.set()
        if self._sampler is not None:
            self._sampler.join()
        for role in self.roles:
            if role.process is not None:
                role.process.kill()
                role.process.wait()
        for tool in self.tools:
            if tool.running():
                tool.process.kill()
                tool.process.wait()
        for cleanup in reversed(self.cleanups):
            try:
                cleanup()
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                say(f"clean-up: {failure}")
        if self.database is None or self.args.keep:
            return
        try:
            self.stack.psql(self.stack.env["POSTRIDER_DATABASE__URL"],
                            f"drop database if exists {self.database} with (force)")
            if not self.embedded:
                self.run_tool("delete-topics", "--brokers", self.brokers, "--prefix",
                              self.dispatch_prefix, "--prefix", self.source_prefix)
        except (Failure, OSError) as failure:
            say(f"clean-up: {failure}")

    # --- Tools ---------------------------------------------------------------------------------

    @property
    def brokers(self):
        # Nobody may ask one when there is none.
        return "127.0.0.1:1" if self.embedded else self.stack.env["POSTRIDER_KAFKA__BROKERS"]

    def run_tool(self, *arguments, may_fail=False, show=False):
        done = subprocess.run([str(self.tool), *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=None if show else subprocess.PIPE)
        if done.returncode != 0 and not (may_fail and done.stdout.strip()):
            errors = "" if show else done.stderr.decode(errors="replace")
            raise Failure(f"postrider-loadtest {arguments[0]}: {errors}")
        text = done.stdout.decode()
        return json.loads(text) if text.strip() else {}

    def start(self, role, name=None, **options):
        """A process; options as its environment has them, without POSTRIDER_ and in small letters:
        kafka__brokers."""
        environment = {f"POSTRIDER_{key.upper()}": str(value) for key, value in options.items()}
        started = Role(self, role, name or ("postrider" if "," in role else role),
                       environment).start()
        self.roles.append(started)
        return started

    def start_roles(self, names=ROLES):
        """Each role in a process of its own, all ready. The embedded log has all in one, which runs
        since start_api()."""
        for name in names if not self.embedded else ():
            self.start(name)
        for role in self.roles:
            role.wait_ready()
            say(f"{role.name}: ready")

    def start_api(self):
        """The process that has the API: on the embedded log it has all the other roles too."""
        return self.start(",".join(ROLES) if self.embedded else "api").wait_ready()

    def role_of(self, role):
        """The first process that has the role."""
        return next(one for one in self.roles if role in one.role.split(","))

    def make_topics(self):
        """The embedded log makes them as they are published to."""
        if not self.embedded:
            say("topics: creating")
            self.run_tool("topics", "--plan", self.path("plan.json"), "--brokers", self.brokers)

    def prepare(self, rate, roles=("matcher", "worker", "indexer"), **plan):
        """All that comes before the load: plan, topics, API, registration, receiver, roles."""
        self.plan(rate, **plan)
        self.make_topics()
        kept = Kept(self)
        if kept.restore():
            self.start_api()
        else:
            api = self.start_api()
            self.register()
            if self.expectation["subscriptions"] >= KEEP_FROM_SUBSCRIPTIONS:
                api.stop()
                kept.keep()
                api.start().wait_ready()
        self.receive()
        self.start_roles(roles)

    def wait_while_running(self, seconds):
        """Lets it run for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check_roles()
            time.sleep(0.1)

    def check_roles(self):
        for role in self.roles:
            role.check()

    # --- Measuring -----------------------------------------------------------------------------

    def measure_from(self):
        for role in self.roles:
            role.sample()
        self.cpu_start = {id(role): dict(role.cpu) for role in self.roles}
        self.broker_start = None if self.embedded else self.stack.broker_cpu()

    def measure_to(self):
        """CPU seconds since measure_from() by role, on the embedded log by thread, and the broker's
        if it is ours and was not started anew meanwhile."""
        used = {}
        for role in self.roles:
            role.sample()
            start = self.cpu_start.get(id(role), {})
            for part, cpu in role.cpu.items():
                used[part] = used.get(part, 0.0) + cpu - start.get(part, 0.0)
        broker = self.stack.broker_cpu() if self.broker_start is not None else None
        if broker is not None and broker[0] == self.broker_start[0]:
            used["broker"] = broker[1] - self.broker_start[1]
        return used

    def drain(self, stalled=90):
        """Waits until every expected message is in or nothing has come for `stalled` seconds, then
        a little longer, so that repeats are seen too."""
        expected = self.expected()
        say(f"drain: {expected} messages are due")
        last, since, self.cpu_used = -1, time.monotonic(), None
        while True:
            self.check_roles()
            accepted = self.received()["accepted"]
            if accepted != last:
                last, since = accepted, time.monotonic()
            if accepted >= expected and self.cpu_used is None:
                self.cpu_used = self.measure_to()
            # Repeats are among the accepted: only the books tell when all is in.
            quiet = time.monotonic() - since
            if accepted >= expected and quiet > 3 and self.account()["lost"] == 0:
                break
            if quiet > stalled:
                say(f"drain: {accepted} of {expected} after {stalled} s without any")
                break
            time.sleep(0.25 if accepted < expected else 1)
        self.cpu_used = self.cpu_used or self.measure_to()

    def drain_books(self, stalled=90):
        """Waits until every expected message is delivered or a letter, and no more comes, or until
        nothing changes for `stalled` seconds. Unlike drain() it looks at the letters too."""
        last, since, quiet_since, accepted = None, time.monotonic(), time.monotonic(), -1
        while True:
            self.check_roles()
            now = time.monotonic()
            heard = self.received()["accepted"]
            if heard != accepted:
                accepted, quiet_since = heard, now
            self.letters()
            account = self.account("--dead-letters", self.path("letters"))
            if account["lost"] != last:
                say(f"drain: {account['lost']} messages are due")
                last, since = account["lost"], now
            if last == 0 and now - quiet_since > 3:
                break
            if now - max(since, quiet_since) > stalled:
                say(f"drain: {last} are due after {stalled} s without any")
                break
            time.sleep(1)
        self.cpu_used = self.measure_to()
        return account

    def memory_limit_mb(self):
        """memory.limit of the roles; None when the binary has none."""
        reference = self.postrider_run("config", "reference")
        found = re.search(r"^\| `memory.limit` \| `(\d+)([KMGT]?B)`", reference, re.M)
        size = self.env.get("POSTRIDER_MEMORY__LIMIT") or (found and "".join(found.groups()))
        found = re.fullmatch(r"(\d+)([KMGT]?B)", size or "")
        if not found:
            return None
        unit = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
        return round(int(found.group(1)) * unit[found.group(2)] / 1e6)

    def settle(self, no_repeats=False, latency_skip_seconds=0):
        """Stops the roles in order, then the receiver, and does the accounts."""
        letters = self.letters()
        for role in self.roles:
            role.sample()
        for role in list(self.roles):
            took = role.stop()
            say(f"{role.name}: stopped in {took:.1f} s")
        self.receiver.stop()
        received = self.receiver.result(60)
        account = self.account("--dead-letters", self.path("letters"), "--latency-skip-seconds",
                               latency_skip_seconds)
        pathlib.Path(self.path("account.json")).write_text(json.dumps(account) + "\n")
        delivered = max(1, account["delivered"])
        cpu = self.cpu_used
        rss = {}
        for role in self.roles:
            rss[role.label] = max(rss.get(role.label, 0.0), role.rss)
        # What the log takes is in their threads on Kafka, but for the broker.
        event_path = sum(cpu.get(part, 0.0) for part in ("matcher", "worker", "log", "rocksdb"))
        self.figures.update({
            "events": account["events"],
            "messages": account["delivered"],
            "messages_per_s": round(account["delivered"] / max(account["seconds"], 0.001), 1),
            "lost": account["lost"],
            "duplicated": account["repeats"],
            "foreign": account["foreign"],
            "dead_letters": letters,
            "signatures_bad": received["signatures_bad"],
            "contents_bad": received["contents_bad"],
            "envelopes_bad": received["envelopes_bad"],
            "ids_changed": account["ids_changed"],
            "p50_ms": round(account["p50_ms"], 2),
            "p99_ms": round(account["p99_ms"], 2),
            "cpu_us_per_message": {role: round(s * 1e6 / delivered, 2) for role, s in cpu.items()},
            "path_us_per_message": round(sum(cpu.values()) * 1e6 / delivered, 2),
            "messages_per_cpu_s": round(delivered / event_path) if event_path > 0 else None,
            "rss_mb": {role: round(mb) for role, mb in rss.items()},
            "requests": received["accepted_requests"],
            "messages_per_request":
                round(received["accepted"] / max(1, received["accepted_requests"]), 1),
            "addresses": received["addresses"],
            "endpoints": received["endpoints"],
        })
        self.check("something delivered", account["delivered"] > 0, "nothing came")
        self.check("nothing lost", account["lost"] == 0, f"{account['lost']} lost, such as "
                   f"(event, endpoint) {account['lost_examples'][:3]}")
        self.check("nothing delivered that should not be", account["foreign"] == 0,
                   f"{account['foreign']} foreign, such as {account['foreign_examples'][:3]}")
        wrong = received["signatures_bad"] + account["signatures_bad"]
        self.check("every signature verified", wrong == 0, f"{wrong} bad")
        changed = received["contents_bad"] + received["envelopes_bad"] + received["malformed"]
        self.check("every message as produced", changed == 0, f"{changed} bad, see receive.json")
        self.check("ids are the same on a repeat", account["ids_changed"] == 0,
                   f"{account['ids_changed']} changed")
        if no_repeats:
            self.check("nothing delivered twice", account["repeats"] == 0,
                       f"{account['repeats']} repeats, such as {account['repeated_examples'][:3]}")
        return account

    def check(self, what, ok, otherwise="", fatal=True):
        """A demand: `fatal` ones decide the exit status, the others are figures to be read."""
        self.checks.append({"what": what, "ok": bool(ok), "fatal": fatal,
                            "otherwise": "" if ok else otherwise})

    def result(self):
        figures = {key: self.figures.get(key) for key in KEYS}
        figures.update(self.figures)
        return {"scenario": self.args.name, **figures, "checks": self.checks}

    # --- REST ----------------------------------------------------------------------------------

    def call(self, method, path, body=None, key=None):
        """Status, headers and JSON of one API call; status 0 when nobody answers."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=30)
            connection.request(method, path, None if body is None else json.dumps(body), {
                "authorization": f"Bearer {key or self.operator_key}",
                "content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, answer.headers, json.loads(text) if text else None
        except (OSError, http.client.HTTPException):
            return 0, {}, None


class Kept:
    """A large plan takes minutes to register. What came of it is kept as a template database of the
    stack, with the keys and ids that belong to it; later runs of that plan begin from a copy."""

    def __init__(self, stage):
        self.stage = stage
        plan = json.loads(pathlib.Path(stage.path("plan.json")).read_text())
        plan["options"].pop("topic_prefix")  # event types are registered without it
        name = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]
        self.database = f"loadtest_kept_{name}"
        self.dir = stage.build / "loadtest-runs" / "kept" / name
        self.owner = stage.stack.env["POSTRIDER_DATABASE__URL"]

    def _psql(self, statement):
        return self.stage.stack.psql(self.owner, statement)

    def _copy(self, source, target):
        self._psql(f"drop database if exists {target} with (force)")
        self._psql(f"create database {target} template {source}")

    def keep(self):
        stage = self.stage
        shutil.rmtree(self.dir, ignore_errors=True)
        self._copy(stage.database, self.database)
        self.dir.mkdir(parents=True, mode=0o700)
        shutil.copy(stage.path("state"), self.dir / "state")
        shutil.copy(stage.path("keys"), self.dir / "keys")
        note = {"operator_key": stage.operator_key, "receiver_port": stage.receiver_port}
        (self.dir / "note.json").write_text(json.dumps(note))
        say(f"kept the registration as {self.database}")

    def restore(self):
        stage = self.stage
        if stage.args.fresh or not (self.dir / "note.json").exists():
            return False
        if not self._psql(f"select 1 from pg_database where datname = '{self.database}'"):
            return False
        note = json.loads((self.dir / "note.json").read_text())
        if not is_free(note["receiver_port"]):
            return False
        self._copy(self.database, stage.database)
        shutil.copy(self.dir / "state", stage.path("state"))
        shutil.copy(self.dir / "keys", stage.path("keys"))
        stage.operator_key, stage.receiver_port = note["operator_key"], note["receiver_port"]
        stage.postrider_run("migrate")  # newer than what was kept, perhaps
        say(f"registration: a copy of {self.database} (--fresh registers anew)")
        return True


def table(name, result):
    """The figures as one table; what is many by name is folded into several lines."""
    rows = []
    for key, value in result.items():
        if key in ("scenario", "checks") or value is None:
            continue
        if not isinstance(value, dict):
            rows.append((key, str(value)))
            continue
        parts = [f"{k} {v}" for k, v in value.items()]
        for at in range(0, len(parts), 8):
            rows.append((key if at == 0 else "", "  ".join(parts[at:at + 8])))
    for check in result["checks"]:
        mark = "ok" if check["ok"] else ("FAILED" if check["fatal"] else "MISSED")
        rows.append((mark, check["what"] + (f": {check['otherwise']}" if not check["ok"] else "")))
    width = max(len(key) for key, _ in rows)
    line = "-" * min(100, width + 2 + max(len(value) for _, value in rows))
    return "\n".join([f"scenario {name}", line,
                      *(f"{key:<{width}}  {value}" for key, value in rows), line])
