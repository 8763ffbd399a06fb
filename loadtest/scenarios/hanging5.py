"""10,000 endpoints, of which one in twenty never answers, and one customer that makes half of the
traffic: what the others feel of it, compared with the same load while all answered."""
import time

import stage as stages
from ledgers import first_arrivals_of, latencies_of, quantile

HANGS_EACH = 20
WARM_UP_SECONDS = 40  # a broker that has just started is slow until its code is compiled
BEFORE_SECONDS = 25
SKIP_SECONDS = 5
RETRIES = {"attempts": 50, "first_delay_ms": 1000, "cap_ms": 30000, "horizon_ms": 24 * 3600000}
WATERMARK_AGE = "postrider_stream_watermark_age_seconds"


def hangs(endpoint):
    return endpoint % HANGS_EACH == 7


def run(stage):
    rate = stage.args.rate or 400
    seconds = stage.args.seconds or 60
    stage.prepare(rate, mode="mixed", **RETRIES)
    whale = stages.Load(stage, "whale-", stage.args.seed + 1000)
    messages = rate * stage.expectation["fan_out"]
    whale.plan(messages, topics=20, tenants=20, customers=1, large_customers=1, endpoints=3,
               subscriptions=0, fan_out=1, addresses=3, tenant_prefix="whale", **RETRIES)
    whale.register()
    whale.receive()
    stage.generate(rate=rate, seconds=24 * 3600)
    whale.generate(rate=messages / whale.expectation["fan_out"], seconds=24 * 3600)
    stage.wait_while_running(WARM_UP_SECONDS)
    worker = stage.role_of("worker")
    before = time.time()
    stage.wait_while_running(BEFORE_SECONDS)
    before = (before, time.time())
    endpoints = stage.expectation["endpoints"]
    stage.rules("".join(f"/e/{n} hang\n" for n in range(endpoints) if hangs(n)))
    stage.wait_while_running(SKIP_SECONDS)
    begin, age = time.time(), 0.0
    while time.time() < begin + seconds:
        stage.wait_while_running(1)
        age = max(age, worker.metric(WATERMARK_AGE))
    during = (begin, time.time())
    rss = worker.rss
    stage.rules("")
    for load in (whale, stage):
        load.generator.stop()
        load.generated(60)
    stages.wait_until("the whale's books are closed", 600,
                      lambda: whale.account()["lost"] == 0, 2)
    stage.drain_books()
    stage.settle()
    whale.receiver.stop()
    whale.receiver.result(60)
    compare(stage, before, during)
    figures = stage.figures
    figures["watermark_age_max_s"] = round(age, 1)
    figures["worker_rss_hanging_mb"] = round(rss)
    limit = stage.memory_limit_mb()
    stage.check("watermark age at most 10 s", age <= 10, f"{age:.1f} s", fatal=False)
    if limit is not None:
        stage.check("the worker stays within memory.limit", worker.rss <= limit,
                    f"{worker.rss:.0f} MB of {limit} MB", fatal=False)


def compare(stage, before, during):
    figures = stage.figures
    first = first_arrivals_of(stage.ledgers, lambda endpoint: not hangs(endpoint))
    found = {name: latencies_of(stage.produced[0], first, *window)
             for name, window in (("before", before), ("during", during))}
    for at, mode in enumerate(("streaming", "batch")):
        p99 = {name: quantile(by_mode[at], 0.99) for name, by_mode in found.items()}
        figures[f"healthy_{mode}_p99_ms"] = {k: v and round(v, 1) for k, v in p99.items()}
        name = "healthy_p99_ratio" if mode == "streaming" else "healthy_batch_p99_ratio"
        ratio = p99["during"] / p99["before"] if p99["before"] and p99["during"] else None
        figures[name] = ratio and round(ratio, 2)
        stage.check(f"{name} at most 1.2", ratio is not None and ratio <= 1.2, f"{ratio}",
                    fatal=False)
