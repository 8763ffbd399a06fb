"""10,000 endpoints that have nothing to do: what they cost beside a worker that knows none."""
import time

import stage as stages

SETTLE_SECONDS = 5
# Until connections that nobody uses are closed, and what traffic left to be told has been told.
QUIET_SECONDS = 130
IDLE_SECONDS = 30
RSS_MOST_MB = 100
CPU_MOST_PERCENT = 3
WHOLE_RSS_MOST_MB = 400  # on the embedded log
WHOLE_CPU_MOST_PERCENT = 1


def rest(stage, settle):
    """CPU percent of a core by role, while nothing happens, and the memory then."""
    stage.wait_while_running(settle)
    begin = time.monotonic()
    stage.measure_from()
    stage.wait_while_running(IDLE_SECONDS)
    used = stage.measure_to()
    seconds = time.monotonic() - begin
    return ({role: round(100 * cpu / seconds, 2) for role, cpu in used.items()},
            stage.role_of("worker").resident_mb(), sum(r.resident_mb() for r in stage.roles))


def run(stage):
    rate = stage.args.rate or 2000
    stage.plan(rate, topics=50, tenants=5000, tenant_skew=0, subscriptions=15000, fan_out=3)
    stage.make_topics()
    stage.start_api()
    stage.start_roles(["matcher", "worker", "indexer"])
    cpu_empty, rss_empty, _ = rest(stage, SETTLE_SECONDS)
    stage.register()
    stage.receive()
    # Each has had something to do, as far as events reach it.
    stage.generate(rate=rate, events=int(stage.args.seconds or 20) * int(rate))
    stage.generated(300)
    stage.drain()
    cpu_after, rss_after, _ = rest(stage, SETTLE_SECONDS)
    cpu_idle, rss_idle, rss_whole = rest(stage, QUIET_SECONDS)
    figures = stage.figures
    figures["cpu_percent_empty"], figures["cpu_percent"] = cpu_empty, cpu_idle
    figures["cpu_percent_after_traffic"], figures["rss_after_traffic_mb"] = \
        cpu_after, round(rss_after)
    figures["rss_empty_mb"], figures["rss_idle_mb"] = round(rss_empty), round(rss_idle)
    figures["rss_idle_endpoints_mb"] = round(rss_idle - rss_empty)
    figures["rss_whole_mb"] = round(rss_whole)
    figures["cpu_percent_whole"] = round(sum(p for role, p in cpu_idle.items()
                                             if role != "broker"), 2)
    stage.settle(no_repeats=True)
    if stage.embedded:
        # One process is all there is.
        whole = figures["cpu_percent_whole"]
        stage.check(f"at most {WHOLE_RSS_MOST_MB} MB in all", rss_whole <= WHOLE_RSS_MOST_MB,
                    f"{rss_whole:.0f} MB", fatal=False)
        stage.check(f"less than {WHOLE_CPU_MOST_PERCENT}% of a core in all",
                    whole < WHOLE_CPU_MOST_PERCENT, f"{whole}%", fatal=False)
        return
    stage.check(f"10,000 idle endpoints take less than {RSS_MOST_MB} MB of the worker's",
                rss_idle - rss_empty < RSS_MOST_MB, f"{rss_idle - rss_empty:.0f} MB", fatal=False)
    for role, percent in cpu_idle.items():
        if role == "broker":
            continue  # not ours; told beside them
        stage.check(f"{role}: at most {CPU_MOST_PERCENT}% of a core", percent <= CPU_MOST_PERCENT,
                    f"{percent}%", fatal=False)
    stages.say(f"cpu_percent: {cpu_idle}")
