"""Two worker processes under load, one of which is stopped and started again, round by round.
Nothing may be lost and nothing repeated; what a hand-over costs is the longest silence of each key
group."""
import time

import stage as stages

KEY_GROUPS = 64
SETTLE_SECONDS = 3


def run(stage):
    rate = stage.args.rate or 1000
    rounds = stage.args.rounds or 4
    # Nearly even tenants and single messages, so that every key group is heard all the time.
    stage.prepare(rate, mode="streaming", tenant_skew=0.2, topics=20, tenants=2000, customers=100,
                  large_customers=80, endpoints=300, subscriptions=900, addresses=200,
                  departments=4)
    stage.rules("/ slow 50\n")  # receivers answer within 100 ms
    second = stage.start("worker", "worker-2").wait_ready()
    stage.generate(rate=rate, seconds=stage.args.seconds or 60 + rounds * 60)
    time.sleep(SETTLE_SECONDS)
    gaps = []
    for number in range(rounds):
        start = time.time()
        took = second.stop()
        time.sleep(SETTLE_SECONDS)
        second.start().wait_ready()
        time.sleep(SETTLE_SECONDS)
        gaps.append((int(start * 1e6), int(time.time() * 1e6)))
        stages.say(f"round {number + 1} of {rounds}: stopped in {took:.2f} s, back")
        stage.check_roles()
    base = (int(time.time() * 1e6), int((time.time() + 2 * SETTLE_SECONDS) * 1e6))
    time.sleep(2 * SETTLE_SECONDS)
    stage.generator.stop()
    stage.generated(120)
    stage.drain()
    stage.settle(no_repeats=True)

    def longest(window):
        return stage.run_tool("gaps", "--state", stage.path("state"), "--received",
                           stage.path("received.ledger"), "--key-groups", KEY_GROUPS,
                           "--from-us", window[0], "--to-us", window[1])

    found = [longest(window) for window in gaps]
    quiet = longest(base)
    by_group = [max(f["longest_ms"][g] for f in found) for g in range(KEY_GROUPS)]
    stage.figures["rounds"] = rounds
    stage.figures["repeats"] = stage.figures["duplicated"]
    stage.figures["repeats_allowed"] = 0
    stage.figures["gap_ms"] = round(max(f["max_ms"] for f in found), 1)
    medians = sorted(f["median_ms"] for f in found)
    stage.figures["gap_median_ms"] = round(medians[len(medians) // 2], 1)
    stage.figures["gap_undisturbed_ms"] = round(quiet["max_ms"], 1)
    stage.figures["gap_by_key_group_ms"] = {str(g): round(ms) for g, ms in enumerate(by_group)
                                            if ms >= 0}
