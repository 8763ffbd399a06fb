"""PostgreSQL away for 30 s under load, and a worker restarted meanwhile: delivery goes on from the
last snapshot, REST says 503 with Retry-After, and all is well afterwards without a restart."""
import time

import stage as stages

DOWN_SECONDS = 30


def watch_delivery(stage, seconds, probe):
    """Lets the load run on. Returns how much was heard, and what `probe` answered each second."""
    before = stage.received()["accepted"]
    answers = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stage.check_roles()
        answers.append(probe())
        time.sleep(1)
    return stage.received()["accepted"] - before, answers


def run(stage):
    rate = stage.args.rate or 500
    stage.prepare(rate, topics=50, tenants=3000, customers=100, large_customers=20, endpoints=300,
                  subscriptions=1500, addresses=200)
    offered = rate * stage.expectation["fan_out"]
    stage.generate(rate=rate, seconds=stage.args.seconds or 90 + DOWN_SECONDS)
    watch_delivery(stage, 10, lambda: None)
    worker = next(role for role in stage.roles if role.role == "worker")

    def customers():
        status, headers, _ = stage.call("GET", "/v1/customers?limit=1")
        return status, headers.get("retry-after")

    stage.stack.verb("stop-postgres")
    down = time.time()
    heard_first, answers = watch_delivery(stage, DOWN_SECONDS / 2, customers)
    worker.stop()
    worker.start()
    # It can be ready at once or only when it has given the database up; it must deliver either way.
    heard_second, more = watch_delivery(stage, DOWN_SECONDS / 2, customers)
    answers += more
    stage.stack.verb("start-postgres")
    back = time.time()
    settled = [a for a in answers[5:] if a[0] != 0]
    stage.check("REST says 503 with Retry-After",
                settled and all(a[0] == 503 and a[1] for a in settled), f"{settled[:5]}")
    expected = offered * DOWN_SECONDS / 2
    stage.check("delivery goes on while PostgreSQL is down", heard_first > expected * 0.7,
                f"{heard_first} of about {expected:.0f}")
    stage.check("a worker restarted meanwhile delivers", heard_second > expected * 0.3,
                f"{heard_second} of about {expected:.0f}")
    stages.wait_until("REST answers again", 60, lambda: customers()[0] == 200, 0.5)
    status, _, made = stage.call("POST", "/v1/customers", {"name": "afterwards"})
    stage.check("a customer can be made afterwards", status == 201, f"{status} {made}")
    for role in stage.roles:
        role.wait_ready(60)
    stages.say(f"all ready {time.time() - back:.1f} s after PostgreSQL was back")
    watch_delivery(stage, 10, lambda: None)
    stage.generator.stop()
    stage.generated(120)
    stage.drain()
    stage.settle()
    gaps = stage.run_tool("gaps", "--state", stage.path("state"), "--received",
                       stage.path("received.ledger"), "--key-groups", 1, "--from-us",
                       int(down * 1e6), "--to-us", int(back * 1e6))
    stage.figures["rounds"] = 1
    stage.figures["repeats"] = stage.figures["duplicated"]
    stage.figures["gap_ms"] = round(gaps["max_ms"], 1)
