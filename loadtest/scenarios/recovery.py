"""Endpoints with a million messages of backlog come back, weak: they answer 429 above their rate and
break down when they get far more. Drained well, they never do."""
import time

import stage as stages
from backlog import HEALTHY, RETRIES, Backlog

REQUESTS_PER_SECOND = 20  # of each
EVENTS_MAX = 100
DRAIN_SECONDS = 1800


class Recovery(Backlog):
    def set_up(self):
        stage, dead = self.stage, self.dead
        stage.plan(self.rate, **HEALTHY, **RETRIES)
        # One customer's three broad endpoints.
        dead.plan(self.dead_rate, topics=20, tenants=10, tenant_skew=0, customers=1,
                  large_customers=1, endpoints=3, subscriptions=0, addresses=3, fan_out=1,
                  tenant_prefix="dead", mode="batch", events_max=EVENTS_MAX, wait_max_ms=1000,
                  **RETRIES)
        self.fan_out = dead.expectation["fan_out"]
        self.begin_roles()

    def run(self):
        stage, dead = self.stage, self.dead
        self.set_up()
        dead.receiver.stop()
        dead.receiver.result(60)
        stage.generate(rate=self.rate, seconds=24 * 3600)
        self.generate_dead(events=int(self.messages / self.fan_out))
        self.watch(until=lambda: not dead.generator.running(),
                   limit=3 * self.messages / self.dead_rate + 600)
        dead.generated(60)
        due = dead.expected()
        stages.say(f"{due} messages are due to the dead endpoints")
        self.watch(until=lambda: self.waiting() >= due * 0.999)
        figures = stage.figures
        figures["backlog_messages"] = round(self.waiting())
        dead.receive(f"/ limit {REQUESTS_PER_SECOND}\n")
        begin = time.time()
        self.watch(until=lambda: self.waiting() < due * 0.001, limit=DRAIN_SECONDS)
        seconds = time.time() - begin
        figures["drained_per_s"] = round(figures["backlog_messages"] / seconds)
        figures["second_outages"] = dead.received()["breakdowns"]
        stage.generator.stop()
        stage.generated(120)
        stage.drain_books()
        stages.wait_until("the dead ones' books are closed", 300,
                          lambda: self.books()["lost"] == 0, 2)
        stage.settle()
        dead.receiver.stop()
        received = dead.receiver.result(60)
        figures["refused_requests"] = received["requests"] - received["accepted_requests"]
        books = dead.account("--dead-letters", dead.path("letters"))
        stage.check("nothing lost of the backlog", books["lost"] == 0, f"{books['lost']}")
        stage.check("no second outage", figures["second_outages"] == 0,
                    f"{figures['second_outages']}", fatal=False)


def run(stage):
    if stage.args.messages is None:
        stage.args.messages = 1000000
    Recovery(stage).run()
