"""One endpoint that is offered more than its window takes, on one key group and then spread over
four, with two workers. Its limits are divided by the parts, so its rate must stay; what changes is
that the work of one endpoint is no longer that of one shard. Nothing may be lost or come twice."""
import time

import stage as stages
from ledgers import accepted, count_between

PARALLELISM = (1, 4)
WHALE, OTHERS = 0, (1, 2)
SLOW_MS = 50
WINDOW = 32
EFFECTIVE_SECONDS = 3  # a changed setting is in every process by then
WARM_UP_SECONDS = 8
DELIVERED = "postrider_delivery_messages_delivered_total"


def run(stage):
    most = WINDOW * 1000 / SLOW_MS
    rate = stage.args.rate or 1.25 * most
    seconds = stage.args.seconds or 20
    # Of the three endpoints that a large customer has the first one takes every event.
    stage.prepare(rate, mode="streaming", topics=1, tenants=20, tenant_skew=0.2, customers=1,
                  large_customers=1, endpoints=3, subscriptions=0, fan_out=1, addresses=3,
                  window_max=WINDOW, horizon_ms=3600000)
    stage.start("worker", "worker-2").wait_ready()
    workers = [role for role in stage.roles if role.label == "worker"]
    found = {}
    for parts in PARALLELISM:
        stage.set_endpoint(WHALE, parallelism=parts)
        found[parts] = measure(stage, workers, rate, seconds)
        stages.say(f"parallelism {parts}: {found[parts]}")
    stage.settle(no_repeats=True)
    got = sorted(r[1] for r in accepted(stage.ledgers) if r[3] == WHALE)
    figures = stage.figures
    reached = {}
    for parts, (begin, end, share) in found.items():
        reached[parts] = count_between(got, begin, end) / (end - begin)
        figures[f"parallelism_{parts}_per_second"] = round(reached[parts], 1)
        figures[f"parallelism_{parts}_largest_worker_share"] = round(share, 3)
    one, spread = PARALLELISM
    gain = reached[spread] / max(1, reached[one])
    share = found[spread][2]
    figures["parallelism_gain"] = round(gain, 2)
    figures["parallelism_largest_worker_share"] = round(share, 3)
    figures["parallelism_window_per_second"] = round(most, 1)
    # At most what the window allows, and no part with more than its share of it.
    for parts in PARALLELISM:
        stage.check(f"the window binds with parallelism {parts}", reached[parts] <= 1.03 * most,
                    f"{reached[parts]:.0f} a second, {most:.0f} allowed")
    stage.check("one key group is one worker's work", found[one][2] == 1,
                f"the largest share is {found[one][2]:.3f}")
    stage.check("parts take nothing from the rate", gain >= 0.9, f"{gain:.2f} of it", fatal=False)
    stage.check("parts are spread over the workers", share < 1, f"{share:.3f} is one worker's",
                fatal=False)


def measure(stage, workers, rate, seconds):
    """(begin, end, the largest share of a worker) of the load, which is delivered afterwards; the
    others wait meanwhile."""
    for other in OTHERS:
        stage.tell_endpoint(other, "pause")
    stage.rules(f"/ slow {SLOW_MS}\n")
    stage.wait_while_running(EFFECTIVE_SECONDS)
    stage.generate(rate=rate, seconds=WARM_UP_SECONDS + seconds)
    stage.wait_while_running(WARM_UP_SECONDS)
    begin, before = time.time(), [worker.metric(DELIVERED) for worker in workers]
    stage.wait_while_running(seconds)
    end, after = time.time(), [worker.metric(DELIVERED) for worker in workers]
    stage.generated(60)
    stage.rules("")
    for other in OTHERS:
        stage.tell_endpoint(other, "resume")
    stage.drain()
    made = [now - was for now, was in zip(after, before)]
    return begin, end, max(made) / max(1, sum(made))
