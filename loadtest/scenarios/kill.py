"""kill -9 of all role processes at once, in the middle of a run, and restart, again and again.
Nothing may be lost; what is repeated is bounded by what was completed since the last commits, and
by what was published again because the API died before it answered."""
import math
import random
import time

import stage as stages
from ledgers import arrivals, count_between

COMMIT_SECONDS = 0.3  # a commit every 200 ms, and its way
PUBLISHED_SPREAD = 1.5  # a few events may make more messages than the mean
IN_FLIGHT_SECONDS = 0.05  # a request that was answered this long before may not have been noted


def wait_heard(stage, messages, seconds):
    """Until the receiver has heard that many more: the roles are at work again, be it on the
    backlog of the last kill."""
    before = stage.received()["accepted"]

    def heard():
        stage.check_roles()
        return stage.received()["accepted"] - before >= messages

    stages.wait_until("delivery after a restart", seconds, heard)


def watch_matcher(stage, seconds):
    """Lets the load run. Returns how many messages the matcher made in the last COMMIT_SECONDS."""
    matcher = stage.role_of("matcher")
    seen = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(seen) < 2:
        seen.append((time.monotonic(), matcher.metric("postrider_matching_messages_total")))
        time.sleep(0.05)
    last_at, last = seen[-1]
    first = min((v for t, v in seen if last_at - t <= COMMIT_SECONDS + 0.05), default=0)
    return last - first


def run(stage):
    rate = stage.args.rate or 1000
    rounds = stage.args.rounds or 20
    rng = random.Random(stage.args.seed)
    stage.prepare(rate, topics=50, tenants=3000, customers=100, large_customers=20, endpoints=300,
                  subscriptions=1500, addresses=200, wait_max_ms=1000)
    offered = rate * stage.expectation["fan_out"]
    # It ends when the rounds are over.
    stage.generate(rate=rate, seconds=stage.args.seconds or rounds * 90)
    kills = []
    for number in range(rounds):
        wait_heard(stage, offered, 90)
        # A kill at a random point of commits, batches and backlog.
        made = watch_matcher(stage, COMMIT_SECONDS + rng.uniform(0, 3))
        if not stage.generator.running():
            break
        killed = time.time()
        for role in stage.roles:
            role.kill()
        for role in stage.roles:
            role.reap()
        kills.append((killed, made))
        for role in stage.roles:
            role.start()
        for role in stage.roles:
            role.wait_ready()
        stages.say(f"kill {number + 1} of {rounds}: back after {time.time() - killed:.1f} s")
    wait_heard(stage, offered, 90)
    stage.generator.stop()
    stage.generated(180)
    stage.drain()
    account = stage.settle()
    heard = arrivals(stage.ledgers)
    matcher = worker = in_flight = 0
    for killed, made in kills:
        matcher += made
        worker += count_between(heard, killed - COMMIT_SECONDS, killed)
        in_flight += count_between(heard, killed - IN_FLIGHT_SECONDS, killed + IN_FLIGHT_SECONDS)
    published = math.ceil(stage.sent_again * stage.expectation["fan_out"] * PUBLISHED_SPREAD)
    allowed = matcher + worker + in_flight + published
    gaps = [b - a for a, b in zip(heard, heard[1:])]
    stage.figures["rounds"] = len(kills)
    stage.figures["repeats"] = account["repeats"]
    stage.figures["repeats_allowed"] = round(allowed)
    stage.figures["allowed_by"] = {"matcher": round(matcher), "worker": worker,
                                   "in_flight": in_flight, "published_again": published}
    stage.figures["gap_ms"] = round(max(gaps, default=0) / 1000, 1)
    stage.check(f"{rounds} rounds", len(kills) == rounds, f"{len(kills)}")
    stage.check("repeats within what is allowed", account["repeats"] <= allowed,
                f"{account['repeats']} of {allowed:.0f}")
