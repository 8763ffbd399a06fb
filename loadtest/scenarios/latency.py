"""1,000 events/s to streaming endpoints, and beside it, under the same load, a bare double Kafka
hop with the product's own client settings: what the product adds to the floor. The embedded log
has no such floor."""
import stage as stages

# As the product's defaults: matcher.* and worker.* of `postrider config reference`.
FIRST_CONSUMER = "fetch.wait.max.ms=500,fetch.min.bytes=1"
SECOND_CONSUMER = "fetch.wait.max.ms=10,fetch.min.bytes=100000"
PRODUCER = "linger.ms=5,compression.type=lz4"
WARM_UP_SECONDS = 10


def run(stage):
    rate = stage.args.rate or 1000
    seconds = (stage.args.seconds or 60) + WARM_UP_SECONDS
    topics = 20
    stage.prepare(rate, mode="streaming", fan_out=1, topics=topics, tenants=2000, customers=50,
                  large_customers=20, endpoints=200, subscriptions=400, addresses=100)
    stage.generate(rate=rate, seconds=seconds)
    hop = None if stage.embedded else stages.Tool(stage, "hop", [
        "hop", "--brokers", stage.brokers, "--prefix", f"{stage.dispatch_prefix}hop-",
        "--rate", str(rate), "--seconds", str(seconds), "--skip-seconds", str(WARM_UP_SECONDS),
        "--first-partitions", str(topics), "--second-partitions", "64",
        "--producer-properties", PRODUCER, "--first-consumer-properties", FIRST_CONSUMER,
        "--second-consumer-properties", SECOND_CONSUMER])
    if hop is not None:
        stage.tools.append(hop)
    stage.generated(seconds + 120)
    floor = None if hop is None else hop.result(seconds + 120)
    stage.drain()
    stage.settle(no_repeats=True, latency_skip_seconds=WARM_UP_SECONDS)
    if floor is None:
        return
    figures = stage.figures
    figures["hop_p50_ms"] = round(floor["p50_ms"], 2)
    figures["hop_p99_ms"] = round(floor["p99_ms"], 2)
    for name in ("p50", "p99"):
        ratio = figures[f"{name}_ms"] / max(floor[f"{name}_ms"], 0.001)
        figures[f"{name}_ratio"] = round(ratio, 2)
        stage.check(f"{name} at most twice the bare hop's", ratio <= 2, f"{ratio:.2f}",
                    fatal=False)
