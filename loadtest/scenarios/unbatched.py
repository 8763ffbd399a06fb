"""What a request with a single message costs the worker, and where that goes."""
from cost import measure

# As much as two cores carry with the broker and the receivers on them; see batched.py.
EVENTS_PER_SECOND = 1800


def run(stage):
    measure(stage, EVENTS_PER_SECOND, most=45, topics=20, tenants=2000, customers=50,
            large_customers=20, endpoints=200, subscriptions=400, addresses=100, mode="streaming")
