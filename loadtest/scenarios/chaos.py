"""One fault after another at seeded times under load: processes killed and stopped, the broker and
the database restarted, a disk filled, a network cut, savepoints made and gone back to. Some
endpoints fail, so that there is backlog all the while, and some ask for order; at the end all
answer, and every message is accounted for by id, its order too.
Last, when all is quiet, the pool goes back to a savepoint and delivers what came after it again.
On the embedded log there is one process and no broker, and its disk is the log's too."""
import math
import random
import signal
import time

import stage as stages
from faults import SmallDisk, relay_of
from ledgers import accepted, arrivals, count_between, first_arrivals

# How often each fault comes, beside the others.
WEIGHTS = {"kill_worker": 50, "kill_matcher": 12, "kill_all": 8, "stop_worker": 8, "restart": 6,
           "broker": 3, "postgres": 3, "disk_full": 4, "network_cut": 3, "network_stall": 2,
           "savepoint": 3, "restore": 2}
WEIGHTS_EMBEDDED = {"kill_all": 60, "stop_worker": 8, "restart": 10, "postgres": 6, "disk_full": 12}
KILLS = ("kill_worker", "kill_matcher", "kill_all")
COMMIT_SECONDS = 0.3  # a commit every 200 ms, and its way
LEASE_SECONDS = 5.5  # without the broker sending goes on until the lease lapses
NOTED_SECONDS = 0.1  # a request that was answered this long before may not have been noted
SLOW_MS = 200
READY_SECONDS = 120
WORKERS = 3
POOL = "default"
# Fails, then answers again before its messages are given up.
RETRIES = {"attempts": 15, "first_delay_ms": 500, "cap_ms": 4000, "horizon_ms": 3600000}
DISK_MB = 256
LOG_DISK_MB = 1024
ORDERED = 26  # of the 80 endpoints
SPREAD, PARALLELISM = 1, 4  # one that asks for none, and over how many key groups it is spread
PUBLISHED_SPREAD = 1.5  # a few events may make more messages than the mean
PLAN = {"topics": 20, "tenants": 500, "customers": 30, "large_customers": 12, "endpoints": 80,
        "subscriptions": 300, "addresses": 60, "mode": "mixed", "wait_max_ms": 500,
        "tenant_skew": 0.5, "ordered": ORDERED, **RETRIES}


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


class Chaos:
    def __init__(self, stage):
        self.stage = stage
        self.rng = random.Random(stage.args.seed)
        self.kills_wanted = stage.args.kills or 30
        self.workers = []
        self.disk = self.relay = None
        self.counts = {}
        self.skipped = {}
        self.recovery = {}
        # What a fault may make come twice: (from, to, share of all that arrives then).
        self.uncommitted, self.in_flight = [], []
        self.savepoints_made = 0
        self.savepoint = None  # the last one: (directory, when it was begun, when it was whole)
        self.savepoints = stage.postrider_knows("savepoint", "create")

    # --- The beginning ---------------------------------------------------------------------------

    def set_up(self):
        stage = self.stage
        self.rate = stage.args.rate or 300
        stage.connections = 1  # Events are in the log in their order.
        if SmallDisk.possible():
            self.disk = SmallDisk(stage.path("small-disk"),
                                  LOG_DISK_MB if stage.embedded else DISK_MB)
            stage.cleanups.append(self.disk.remove)
        if stage.embedded:
            return self.set_up_one_process()
        stage.prepare(self.rate, roles=["matcher", "indexer"], **PLAN)
        stage.set_endpoint(SPREAD, parallelism=PARALLELISM)
        self.offered = self.rate * stage.expectation["fan_out"]
        self.relay = relay_of(stage.stack)
        if self.relay is not None:
            stage.cleanups.append(self.relay.close)
        for number in range(1, WORKERS + 1):
            options = {}
            if number == 2 and self.disk is not None:
                options["data_dir"] = self.disk.directory + "/data"
            if number == 3 and self.relay is not None:
                options["kafka__brokers"] = self.relay.brokers
            self.workers.append(stage.start("worker", f"worker-{number}", **options))
        for role in stage.roles:
            role.wait_ready(READY_SECONDS)

    def set_up_one_process(self):
        if self.disk is not None:
            self.stage.env["POSTRIDER_DATA_DIR"] = self.disk.directory + "/data"
        self.stage.prepare(self.rate, **PLAN)
        self.stage.set_endpoint(SPREAD, parallelism=PARALLELISM)
        self.offered = self.rate * self.stage.expectation["fan_out"]
        self.workers = [self.stage.role_of("worker")]
        self.savepoints = False

    def schedule(self):
        """Kinds of faults by their weights, until there are enough kills."""
        weights = dict(WEIGHTS_EMBEDDED if self.stage.embedded else WEIGHTS)
        for kind, missing in (("disk_full", None if self.disk else "only root mounts a disk"),
                              ("network_cut", None if self.relay else "no relay in this stack"),
                              ("network_stall", None if self.relay else "no relay in this stack"),
                              ("savepoint", None if self.savepoints else "not in this binary"),
                              ("restore", None if self.savepoints else "not in this binary")):
            if missing and kind in weights:
                self.skipped[kind] = missing
                stages.say(f"{kind}: skipped: {missing}")
                del weights[kind]
        chosen = self.stage.args.faults
        if chosen:
            weights = {kind: weights[kind] for kind in chosen.split(",") if kind in weights}
        if not any(kind in weights for kind in KILLS):
            raise stages.Failure(f"--faults: none of {', '.join(KILLS)}")
        kills = 0
        # Each kind once at first, so that a short run has them all.
        first = sorted(weights)
        self.rng.shuffle(first)
        while kills < self.kills_wanted:
            kind = first.pop() if first else self.rng.choices(
                list(weights), list(weights.values()))[0]
            kills += kind in KILLS
            yield kind
        yield from (kind for kind in first if kind not in KILLS)

    # --- Load and weather ------------------------------------------------------------------------

    def weather(self):
        """Which endpoints fail from now on, and how."""
        rules = []
        for endpoint in range(80):
            if self.rng.random() < 0.7:
                continue
            how = self.rng.choice(["500", "503", "flaky 30", "flaky 70", f"slow {SLOW_MS}", "429 1",
                                   "reset"])
            rules.append(f"/e/{endpoint} {how}\n")
        self.stage.rules("".join(rules))

    def heard(self, messages, seconds=READY_SECONDS):
        before = self.stage.received()["accepted"]

        def more():
            self.stage.check_roles()
            return self.stage.received()["accepted"] - before >= messages
        stages.wait_until("delivery goes on", seconds, more)

    def wait_ready(self):
        for role in self.stage.roles:
            role.wait_ready(READY_SECONDS)

    def recover(self):
        self.wait_ready()
        self.heard(self.offered * 0.2)

    # --- What may come twice ---------------------------------------------------------------------

    def share(self, victims):
        """How much of what is delivered just now is delivered by these."""
        def delivered():
            return [w.metric("postrider_delivery_messages_delivered_total") for w in self.workers]
        before = delivered()
        time.sleep(COMMIT_SECONDS + 0.1)
        by = [max(0, b - a) for a, b in zip(before, delivered())]
        mine = sum(n for n, worker in zip(by, self.workers) if worker in victims)
        return mine / sum(by) if sum(by) else 1.0

    def allow(self, at, share, until=None):
        """A fault of processes that do `share` of the work; they may have gone on `until` then
        without being able to commit."""
        end = until or at
        self.uncommitted.append((at - COMMIT_SECONDS, end, share))
        self.in_flight.append((end - NOTED_SECONDS - SLOW_MS / 1000, end + NOTED_SECONDS, share))

    def allowed(self, heard, windows, scaled):
        return round(sum(count_between(heard, a, b) * (share if scaled else 1)
                         for a, b, share in windows))

    # --- The faults ------------------------------------------------------------------------------

    def kill(self, victims, share):
        for role in victims:
            role.kill()
        at = time.time()
        for role in victims:
            role.reap()
        self.allow(at, share)
        # At times the others have taken over before it comes back.
        if self.rng.random() < 0.3:
            self.pause(7, 10)
        for role in victims:
            role.start()

    def pause(self, least, most):
        end = time.monotonic() + self.rng.uniform(least, most)
        while time.monotonic() < end:
            self.stage.check_roles()
            time.sleep(0.1)

    def do_kill_worker(self):
        victim = self.rng.choice(self.workers)
        self.kill([victim], self.share([victim]))

    def do_kill_matcher(self):
        self.kill([self.stage.role_of("matcher")], 1.0)

    def do_kill_all(self):
        self.kill(list(self.stage.roles), 1.0)

    def do_stop_worker(self):
        victim = self.rng.choice(self.workers)
        share = self.share([victim])
        victim.process.send_signal(signal.SIGSTOP)
        self.allow(time.time(), share)
        self.pause(8, 20)
        victim.process.send_signal(signal.SIGCONT)

    def do_restart(self):
        victim = self.rng.choice(self.workers)
        took = victim.stop()
        stages.say(f"{victim.name}: stopped in {took:.1f} s")
        self.pause(0, 3)
        victim.start()

    def do_broker(self):
        self.stage.stack.verb("kill-kafka")
        down = time.time()
        self.pause(0, 6)
        self.stage.stack.verb("start-kafka")
        self.allow(down, 1.0, until=min(time.time(), down + LEASE_SECONDS))

    def do_postgres(self):
        self.stage.stack.verb("stop-postgres")
        self.pause(1, 8)
        self.stage.stack.verb("start-postgres")

    def do_disk_full(self):
        victim = self.workers[min(1, len(self.workers) - 1)]
        anew = self.rng.random() < 0.5
        if anew:  # Its stores are to be made on a full disk, and its log opened.
            victim.stop()
        self.disk.fill()
        if anew:
            victim.start()
        self.pause(2, 8)
        self.disk.free()

    def do_network_cut(self, mode="cut"):
        victim = self.workers[2]
        share = self.share([victim])
        self.relay.set(mode)
        cut = time.time()
        self.pause(1, 12)
        self.relay.set("open")
        self.allow(cut, share, until=min(time.time(), cut + LEASE_SECONDS))

    def do_network_stall(self):
        self.do_network_cut("stalled")

    def do_savepoint(self):
        self.savepoints_made += 1
        directory = self.stage.path(f"savepoint-{self.savepoints_made}")
        begun = time.time()
        self.stage.postrider_run("savepoint", "create", "--pool", POOL, "--to", directory)
        whole = time.time()
        self.stage.postrider_run("savepoint", "verify", directory)
        self.savepoint = (directory, begun, whole)

    def do_restore(self):
        """Back to the last savepoint under load: what was delivered since may come again."""
        if self.savepoint is None:
            self.do_savepoint()
            self.heard(self.offered)
        directory, begun, _ = self.savepoint
        for worker in self.workers:
            worker.stop()
        self.allow(begun, 1.0, until=time.time())
        said = self.stage.postrider_run("savepoint", "restore", directory, "--pool", POOL)
        stages.say(f"restore: {said}")
        for worker in self.workers:
            worker.start()

    def strike(self, kind):
        begin = time.monotonic()
        getattr(self, f"do_{kind}")()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        # At times the next one comes while this one is not healed.
        if kind in KILLS and self.rng.random() < 0.25:
            self.pause(0, 2)
            stages.say(f"{kind}: not waited for")
            return
        struck = time.monotonic()
        self.recover()
        healed = time.monotonic()
        self.recovery.setdefault(kind, []).append(healed - struck)
        stages.say(f"{kind}: {struck - begin:.1f} s, healed in {healed - struck:.1f} s "
                   f"({self.kills()} of {self.kills_wanted} kills)")
        self.pause(0, 3)

    def kills(self):
        return sum(self.counts.get(kind, 0) for kind in KILLS)

    # --- Back to a savepoint ---------------------------------------------------------------------

    def go_back(self, before):
        """Everything is delivered. Goes back to the last savepoint: what arrived for the first time
        after it was whole must come again, and nothing may be lost."""
        stage = self.stage
        directory, _, whole = self.savepoint
        letters = self.letter_keys()
        first = first_arrivals(stage.ledgers)
        due = {key for key, us in first.items() if us > (whole + 1) * 1e6 and key not in letters}
        for worker in self.workers:
            worker.stop()
        said = stage.postrider_run("savepoint", "restore", directory, "--pool", POOL)
        restored = time.time()
        stages.say(f"restore: {said}")
        for worker in self.workers:
            worker.start()
        self.wait_ready()
        last, since = None, time.monotonic()
        while time.monotonic() - since < 60:
            stage.check_roles()
            missing = due - self.delivered_since(restored)
            if not missing:
                break
            if len(missing) != last:
                last, since = len(missing), time.monotonic()
            time.sleep(1)
        stage.figures["restore"] = {"due_again": len(due), "missing": len(missing)}
        stage.check("a restore brings back what came after its savepoint", not missing,
                    f"{len(missing)} of {len(due)}, such as {sorted(missing)[:3]}")
        after = stage.drain_books()
        stage.figures["restore"]["repeats"] = after["repeats"] - before["repeats"]

    def delivered_since(self, at):
        return {(r[0], r[3]) for r in accepted(self.stage.ledgers) if r[1] >= at * 1e6}

    def letter_keys(self):
        """(event, endpoint) of the dead letters."""
        stage = self.stage
        index = {}
        with open(stage.path("state"), encoding="ascii") as state:
            for line in state:
                words = line.split()
                if words and words[0] == "endpoint":
                    index[words[2]] = int(words[1])
        keys = set()
        with open(stage.path("letters"), encoding="ascii") as letters:
            for line in letters:
                event, endpoint = line.split()[:2]
                keys.add((int(event.rsplit("-", 1)[1]), index.get(endpoint)))
        return keys

    # --- All of it -------------------------------------------------------------------------------

    def run(self):
        stage = self.stage
        self.set_up()
        schedule = list(self.schedule())
        stages.say(f"{len(schedule)} faults: {' '.join(schedule)}")
        self.weather()
        stage.generate(rate=self.rate, seconds=120 + 60 * len(schedule))
        self.heard(self.offered)
        for number, kind in enumerate(schedule):
            if number % 3 == 0:
                self.weather()
            self.strike(kind)
        if self.savepoints and self.savepoint is None and not stage.args.faults:
            self.strike("savepoint")
        self.recover()
        self.pause(2, 4)
        stage.generator.stop()
        stage.generated(180)
        stage.rules("")
        books = stage.drain_books()
        if self.savepoint is not None:
            self.go_back(books)
        stage.settle()
        self.report(books)

    def report(self, books):
        stage = self.stage
        heard = arrivals(stage.ledgers)
        traffic = self.allowed(heard, self.uncommitted, scaled=True)
        in_flight = self.allowed(heard, self.in_flight, scaled=True)
        # The API died before it answered, so that the log has the events twice.
        published = math.ceil(stage.sent_again * stage.expectation["fan_out"] * PUBLISHED_SPREAD)
        upper = published + sum(self.allowed(heard, w, scaled=False)
                                for w in (self.uncommitted, self.in_flight))
        stage.figures.update({
            "rounds": sum(self.counts.values()),
            "kills": self.kills(),
            "seed": stage.args.seed,
            "faults": dict(sorted(self.counts.items())),
            "skipped": self.skipped or None,
            "recovery_s": {kind: f"{median(times):.1f}/{max(times):.1f}"
                           for kind, times in sorted(self.recovery.items())},
            "ordered": books["ordered"],
            "reordered": books["reordered"],
            "repeats": books["repeats"],
            "repeats_allowed": traffic + in_flight + published,
            "allowed_by": {"traffic": traffic, "in_flight": in_flight,
                           "published_again": published, "of_all_workers": upper},
            "lives": {role.name: role.lives for role in stage.roles},
        })
        stage.check(f"{self.kills_wanted} kills", self.kills() >= self.kills_wanted,
                    f"{self.kills()}")
        stage.check("messages that have an order", books["ordered"] > 0, f"{books['ordered']}")
        stage.check("none of them out of order", books["reordered"] == 0,
                    f"{books['reordered']}, such as {books['reordered_examples'][:3]}")
        stage.check("repeats within what is allowed", books["repeats"] <= traffic + in_flight +
                    published, f"{books['repeats']} of {traffic + in_flight + published}",
                    fatal=False)
        stage.check("repeats within what all workers did", books["repeats"] <= upper,
                    f"{books['repeats']} of {upper}")


def run(stage):
    Chaos(stage).run()
