"""What a message costs the worker in batches of at least a hundred, and where that goes."""
from cost import measure

# As much as two cores carry with the broker and the receivers on them: a message costs the more the
# less there is to do, and what it costs counts when there is much.
EVENTS_PER_SECOND = 5000


def run(stage):
    measure(stage, EVENTS_PER_SECOND, most=10, topics=50, tenants=2000, customers=40,
            large_customers=20, endpoints=200, subscriptions=400, addresses=200, mode="batch",
            events_max=1000, wait_max_ms=2000)
    per_request = stage.figures["messages_per_request"]
    stage.check("at least 100 messages per request", per_request >= 100, f"{per_request}",
                fatal=False)
