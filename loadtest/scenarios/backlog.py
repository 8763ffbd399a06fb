"""Messages for endpoints that are dead, by the million, beside healthy ones: what that costs the
healthy ones, the worker's memory, a restart of it, and each message on its way into the backlog and
out of it again.

Both kinds have the same load before: so the ratio of the healthy ones' latency tells of the deaths
alone. The dead ones' receiver is gone (connections are refused), or answers 503 with --answer 503.
"""
import time

import stage as stages
from ledgers import accepted, latencies, quantile

BEFORE_SECONDS = 30
SKIP_SECONDS = 5
FAN_OUT = 10  # of an event for the dead ones
DEAD_RATE = 3000  # messages/s; at 8,000 two cores with Kafka, load and receivers have no idle time
ORDERED = 0.2  # of the dead ones ask for order
RETRIES = {"attempts": 50, "first_delay_ms": 5000, "cap_ms": 30000, "horizon_ms": 24 * 3600000}
# More hosts than the dead ones have: were most of those that are tried out of reach, that would be
# taken for an outage of the worker's own.
HEALTHY = {"topics": 20, "tenants": 500, "customers": 60, "large_customers": 50, "endpoints": 150,
           "subscriptions": 0, "addresses": 140, "mode": "mixed", "tenant_skew": 0.5}
WAIT_SECONDS = 900
# Messages for the dead ones that come while the worker is stopped: parked as fast as it can.
LAG_MESSAGES = 200000
PRIMED = 20  # messages of each dead endpoint before that, so that it is known to fail
LAG_KNOWN_SECONDS = 7  # a source's end is asked for every 5 s


class Backlog:
    def __init__(self, stage):
        self.stage = stage
        self.dead = stages.Load(stage, "dead-", stage.args.seed + 1000)
        self.messages = stage.args.messages or 2000000
        self.count = stage.args.endpoints_dead or 100
        self.rate = stage.args.rate or 300  # events/s for the healthy ones
        self.dead_rate = stage.args.dead_rate or DEAD_RATE
        self.refuses = stage.args.answer is None

    def set_up(self):
        stage, dead = self.stage, self.dead
        stage.plan(self.rate, **HEALTHY, **RETRIES)
        # Three broad endpoints a customer, which is all that it has.
        large = (self.count + 2) // 3
        dead.plan(self.dead_rate / FAN_OUT, topics=20, tenants=10 * large, tenant_skew=0,
                  customers=large, large_customers=large, endpoints=3 * large, subscriptions=0,
                  addresses=3 * large, fan_out=min(FAN_OUT, large), tenant_prefix="dead",
                  mode="batch", wait_max_ms=1000, ordered=round(ORDERED * 3 * large), **RETRIES)
        self.fan_out = dead.expectation["fan_out"]
        self.begin_roles()

    def begin_roles(self):
        stage, dead = self.stage, self.dead
        stage.run_tool("topics", "--plan", stage.path("plan.json"), "--brokers", stage.brokers)
        stage.start("api").wait_ready()
        stage.register()
        dead.register()
        stage.receive()
        dead.receive()
        stage.start_roles(["matcher", "worker", "indexer"])
        self.worker = stage.role_of("worker")

    def cpu(self):
        self.worker.sample()
        return self.worker.cpu["worker"]

    def watch(self, seconds=None, until=None, limit=WAIT_SECONDS):
        """Lets it run. Returns how long, and the worker's CPU seconds."""
        begin, cpu = time.monotonic(), self.cpu()
        while True:
            self.stage.check_roles()
            passed = time.monotonic() - begin
            if (seconds is not None and passed >= seconds) or (until is not None and until()):
                return passed, self.cpu() - cpu
            if passed > limit:
                raise stages.Failure(f"not within {limit} s")
            time.sleep(0.2)

    def waiting(self):
        """Messages in the backlog, as the worker says."""
        return self.worker.metric("postrider_delivery_backlog_messages")

    def generate_dead(self, **how_long):
        return self.dead.generate(rate=self.dead_rate / self.fan_out, **how_long)

    def run(self):
        stage, dead = self.stage, self.dead
        self.set_up()
        figures = stage.figures
        stage.generate(rate=self.rate, seconds=24 * 3600)
        # The healthy load alone costs the worker this much a second.
        self.watch(SKIP_SECONDS)
        passed, cpu = self.watch(BEFORE_SECONDS)
        idle = cpu / passed
        figures["healthy_cpu_s_per_s"] = round(idle, 3)
        # Both kinds of endpoints well.
        self.generate_dead(seconds=3600)
        self.watch(SKIP_SECONDS)
        before = time.time()
        self.watch(BEFORE_SECONDS)
        before = (before, time.time())
        dead.generator.stop()
        dead.generated(60)
        stages.wait_until("the dead ones have all that they had in life", 60,
                          lambda: dead.account()["lost"] == 0, 0.5)
        # They die; the same load goes on.
        if self.refuses:
            dead.receiver.stop()
            dead.receiver.result(60)
        else:
            dead.rules(f"/ {stage.args.answer}\n")
            time.sleep(2)
        alive = dead.expected()
        self.catch_up(idle, alive)
        begin = time.time()
        parked_before = self.waiting()
        self.worker.rss = 0.0
        cpu = self.cpu()
        self.generate_dead(events=int(self.messages / self.fan_out))
        self.watch(until=lambda: not dead.generator.running(),
                   limit=3 * self.messages / self.dead_rate + 600)
        dead.generated(60)
        due = dead.expected() - alive
        stages.say(f"{due} messages are due to the dead endpoints")
        self.watch(until=lambda: self.waiting() >= due * 0.999, limit=WAIT_SECONDS)
        during = (begin + SKIP_SECONDS, time.time())
        parked = self.waiting() - parked_before
        seconds = during[1] - begin
        figures["parked"] = round(parked)
        figures["parked_per_s"] = round(parked / seconds)
        figures["park_us"] = round((self.cpu() - cpu - idle * seconds) * 1e6 / max(1, parked), 1)
        # It stands: they are probed, the healthy ones go on.
        standing = time.time()
        self.watch(BEFORE_SECONDS)
        standing = (standing, time.time() - SKIP_SECONDS)  # what comes before the kill's silence
        figures["worker_rss_mb"] = round(self.worker.rss)
        self.standing = self.waiting()
        self.restart()
        self.drain(idle, due)
        self.settle(before, during, standing)

    def catch_up(self, idle, alive):
        """The worker is stopped while messages for the dead ones come, and started: it parks them
        as fast as it can. What its start costs and what the healthy ones had meanwhile are in it;
        the latter is taken out at what they cost before."""
        figures, dead = self.stage.figures, self.dead

        def park(messages):
            dead.generate(events=int(messages / self.fan_out))
            dead.generated(WAIT_SECONDS)
            return dead.expected() - alive
        primed = park(PRIMED * self.count)
        self.watch(until=lambda: self.waiting() >= primed * 0.999)
        stopped = time.time()
        self.worker.stop()
        due = park(LAG_MESSAGES)
        quiet = time.monotonic()

        def matched():
            nonlocal quiet
            if self.stage.role_of("matcher").metric("postrider_stream_lag_records") > 1000:
                quiet = time.monotonic()
            return time.monotonic() - quiet > LAG_KNOWN_SECONDS
        self.watch(until=matched)
        cpu, started = self.cpu(), time.time()
        self.worker.start()
        self.watch(until=lambda: self.waiting() >= due * 0.999)
        ended = time.time()
        lag = due - primed
        figures["lag_parked"] = round(lag)
        figures["lag_parked_per_s"] = round(lag / (ended - started))
        figures["lag_park_us"] = round(
            (self.cpu() - cpu - idle * (ended - stopped)) * 1e6 / max(1, lag), 1)

    def restart(self):
        """kill -9 and start: when does the first message of a healthy endpoint come?"""
        figures = self.stage.figures
        self.worker.kill()
        self.killed = time.time()
        self.worker.reap()
        self.worker.start()
        self.started = time.time()
        self.worker.wait_ready()
        self.ready = time.time()
        figures["restart_to_ready_ms"] = round((self.ready - self.started) * 1000)
        self.watch(SKIP_SECONDS)
        self.watch(until=lambda: self.waiting() >= self.standing * 0.99)
        figures["restored_after_s"] = round(time.time() - self.ready, 1)
        figures["worker_rss_restored_mb"] = round(self.worker.rss)

    def drain(self, idle, due):
        """They come back."""
        figures, dead = self.stage.figures, self.dead
        cpu, begin = self.cpu(), time.time()
        waiting = self.waiting()
        if self.refuses:
            dead.receive()
        else:
            dead.rules("")
        self.watch(until=lambda: self.waiting() < due * 0.001)
        seconds = time.time() - begin
        drained = max(1, waiting - self.waiting())
        figures["drained_per_s"] = round(drained / seconds)
        figures["drain_us"] = round((self.cpu() - cpu - idle * seconds) * 1e6 / drained, 1)

    def settle(self, before, during, standing):
        stage, dead = self.stage, self.dead
        figures = stage.figures
        stage.generator.stop()
        stage.generated(120)
        stage.drain_books()
        stages.wait_until("the dead ones' books are closed", WAIT_SECONDS,
                          lambda: self.books()["lost"] == 0, 2)
        self.dead.letters()
        stage.settle()
        dead.receiver.stop()
        dead.receiver.result(60)
        books = dead.account("--dead-letters", dead.path("letters"))
        figures["dead_endpoints"] = {"expected": books["expected"], "delivered":
                                     books["delivered"], "lost": books["lost"], "repeats":
                                     books["repeats"], "dead_letters": books["dead_lettered"],
                                     "ordered": books["ordered"], "reordered": books["reordered"]}
        stage.check("nothing lost of the dead endpoints'", books["lost"] == 0,
                    f"{books['lost']} lost, such as {books['lost_examples'][:3]}")
        stage.check("none out of order where that was asked for",
                    books["ordered"] > 0 and books["reordered"] == 0,
                    f"{books['reordered']} of {books['ordered']} are")
        wrong = sum(books[key] for key in ("foreign", "signatures_bad", "contents_bad",
                                           "envelopes_bad", "ids_changed"))
        stage.check("all of the dead endpoints' as produced", wrong == 0, f"{wrong} are not")
        self.latencies(before, during, standing)
        limit = stage.memory_limit_mb()
        figures["memory_limit_mb"] = limit
        if limit is not None:
            most = max(figures["worker_rss_mb"], figures["worker_rss_restored_mb"])
            stage.check("the worker stays within memory.limit", most <= limit,
                        f"{most} MB of {limit} MB", fatal=False)
        for name, most in (("park_us", 15), ("lag_park_us", 15), ("drain_us", 15),
                           ("restart_to_delivery_ms", 3000), ("healthy_p99_ratio", 1.2)):
            stage.check(f"{name} at most {most}", (figures[name] or 1e9) <= most,
                        f"{figures[name]}", fatal=False)

    def latencies(self, before, during, standing):
        stage, figures = self.stage, self.stage.figures
        produced = stage.produced[0]
        found = {name: latencies(produced, stage.ledgers, *window) for name, window in
                 (("before", before), ("during", during), ("standing", standing))}
        for at, mode in enumerate(("streaming", "batch")):
            p99 = {name: quantile(by_mode[at], 0.99) for name, by_mode in found.items()}
            figures[f"healthy_{mode}_p99_ms"] = {k: v and round(v, 1) for k, v in p99.items()}
            prefix = "healthy_p99_ratio" if mode == "streaming" else "healthy_batch_p99_ratio"
            for name, key in (("during", prefix), ("standing", prefix + "_standing")):
                figures[key] = round(p99[name] / p99["before"], 2) \
                    if p99["before"] and p99[name] else None
        after = [r[1] / 1e6 for r in accepted(stage.ledgers) if r[1] / 1e6 > self.started]
        first = min(after, default=None)
        figures["restart_to_delivery_ms"] = \
            first and round(max(0.0, first - self.assigned()) * 1000)

    def assigned(self):
        """When the restarted worker was assigned its key groups, by its log."""
        return self.worker.assigned_since(self.started) or self.started

    def books(self):
        self.dead.letters()
        return self.dead.account("--dead-letters", self.dead.path("letters"))


def run(stage):
    Backlog(stage).run()
