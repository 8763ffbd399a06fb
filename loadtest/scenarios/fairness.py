"""More for everyone than the worker can send: customers of equal rights and unequal traffic, each
of which offers more than its share. The slots are few and the receivers slow, so that the slots are
what there is to share out; counted is what each customer is delivered."""
import time

from ledgers import accepted

CUSTOMERS = 10
ENDPOINTS_EACH = 3  # those of a customer have numbers in a row
SLOTS = 60
SLOW_MS = 200
WARM_UP_SECONDS = 15
ERROR_MOST = 0.1


def run(stage):
    rate = stage.args.rate or 800
    seconds = stage.args.seconds or 40
    stage.env["POSTRIDER_WORKER__REQUESTS_MAX"] = str(SLOTS)
    stage.prepare(rate, topics=20, tenants=1000, tenant_skew=0.5, customers=CUSTOMERS,
                  large_customers=CUSTOMERS, endpoints=ENDPOINTS_EACH * CUSTOMERS, subscriptions=0,
                  fan_out=2, addresses=30, mode="streaming", horizon_ms=3600000)
    stage.rules(f"/ slow {SLOW_MS}\n")
    stage.generate(rate=rate, seconds=WARM_UP_SECONDS + seconds)
    stage.wait_while_running(WARM_UP_SECONDS)
    begin = time.time()
    stage.wait_while_running(seconds - 2)
    end = time.time()
    stage.generated(60)
    stage.rules("")
    stage.drain()
    stage.settle(no_repeats=True)
    delivered = {customer: 0 for customer in range(CUSTOMERS)}
    for record in accepted(stage.ledgers):
        if begin * 1e6 <= record[1] <= end * 1e6:
            delivered[record[3] // ENDPOINTS_EACH] += 1
    total = sum(delivered.values())
    shares = {customer: n / max(1, total) for customer, n in delivered.items()}
    error = max(abs(share * CUSTOMERS - 1) for share in shares.values())
    figures = stage.figures
    figures["delivered_per_s"] = round(total / (end - begin))
    figures["shares"] = {str(k): round(v, 4) for k, v in shares.items()}
    figures["share_error_max"] = round(error, 3)
    # The slots were full all the while, else nothing was shared out.
    most = SLOTS * 1000 / SLOW_MS
    stage.check("the slots were in use", total / (end - begin) > 0.7 * most,
                f"{figures['delivered_per_s']} of {most:.0f} a second", fatal=False)
    stage.check(f"each customer within {ERROR_MOST:.0%} of its share", error <= ERROR_MOST,
                f"{error:.1%}", fatal=False)

