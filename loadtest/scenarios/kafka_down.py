"""Kafka killed under load and started again after 10 s: nothing is lost, and all roles recover
without a restart."""
import time

import stage as stages

DOWN_SECONDS = 10


def run(stage):
    rate = stage.args.rate or 500
    stage.prepare(rate, topics=50, tenants=3000, customers=100, large_customers=20, endpoints=300,
                  subscriptions=1500, addresses=200)
    stage.generate(rate=rate, seconds=stage.args.seconds or 300)
    time.sleep(10)
    before = stage.received()["accepted"]
    stage.stack.verb("kill-kafka")
    down = time.time()
    time.sleep(DOWN_SECONDS)
    stage.check_roles()
    stage.stack.verb("start-kafka")
    back = time.time()
    stages.say(f"Kafka answers again {back - down:.1f} s after it was killed")
    for role in stage.roles:
        role.wait_ready(120)
    ready = time.time()
    stages.say(f"all ready {ready - back:.1f} s later")
    at = stage.received()["accepted"]
    stages.wait_until("delivery goes on", 120,
                      lambda: stage.received()["accepted"] > at + rate, 0.5)
    time.sleep(10)
    stage.generator.stop()
    stage.generated(180)
    stage.drain()
    account = stage.settle()
    gaps = stage.run_tool("gaps", "--state", stage.path("state"), "--received",
                       stage.path("received.ledger"), "--key-groups", 1)
    stage.figures["rounds"] = 1
    stage.figures["repeats"] = account["repeats"]
    stage.figures["gap_ms"] = round(gaps["max_ms"], 1)
    stage.figures["down_s"] = round(back - down, 1)
    stage.check("delivered before and after", 0 < before < account["delivered"], f"{before}")
