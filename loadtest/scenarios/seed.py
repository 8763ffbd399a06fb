"""The load of the mission, scaled in rate only: 500 source topics, 30,000 tenants (Zipf 1.1),
10,000 endpoints in batch mode, 50,000 subscriptions in all three scopes, mean fan-out 3."""


def run(stage):
    rate = stage.args.rate or 5000
    seconds = stage.args.seconds or 60
    stage.prepare(rate, events_max=1000, wait_max_ms=1000)
    stage.generate(rate=rate, events=int(rate * seconds))
    stage.generated(seconds * 10 + 120)
    stage.drain()
    stage.settle(no_repeats=True)
    figures = stage.figures
    per_request = figures["messages_per_request"]
    stage.check("at least 20 messages per request", per_request >= 20, f"{per_request}",
                fatal=False)
    stage.check("at least 1,000 distinct addresses", figures["addresses"] >= 1000,
                f"{figures['addresses']}", fatal=False)
    stage.check("at least 300,000 events", figures["events"] >= 300000, f"{figures['events']}",
                fatal=False)
    stage.check("at least 25,000 messages per CPU-second of matcher and worker",
                (figures["messages_per_cpu_s"] or 0) >= 25000, f"{figures['messages_per_cpu_s']}",
                fatal=False)
