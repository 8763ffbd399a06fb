"""The ledgers (see ledger.h), read for what the accounts do not tell."""
import bisect
import struct

HEAD_BYTES = 16
PRODUCED = struct.Struct("<QqIHBB")  # number, sent_us, tenant, type, department, acknowledged
RECEIVED = struct.Struct("<QqIIIBBH")  # number, arrived_us, run, endpoint, message, attempt, ...
ACCEPTED, BATCH = 1, 16  # of the flags, the seventh field


def read(path, layout):
    """The records as tuples; a last one that is not whole is left out."""
    with open(path, "rb") as f:
        data = f.read()[HEAD_BYTES:]
    return layout.iter_unpack(data[:len(data) // layout.size * layout.size])


def accepted(paths):
    return (r for path in paths for r in read(path, RECEIVED) if r[6] & ACCEPTED)


def arrivals(paths):
    """When each accepted message came, in us since the epoch, sorted."""
    return sorted(r[1] for r in accepted(paths))


def count_between(sorted_us, from_s, to_s):
    return max(0, bisect.bisect_right(sorted_us, int(to_s * 1e6)) -
               bisect.bisect_left(sorted_us, int(from_s * 1e6)))


def first_arrivals(paths):
    """{(event, endpoint): us} of the accepted."""
    first = {}
    for r in accepted(paths):
        key = (r[0], r[3])
        if r[1] < first.get(key, 1 << 62):
            first[key] = r[1]
    return first


def first_arrivals_of(paths, wanted):
    """{(event, endpoint): (us, whether in a batch)} of the accepted for the endpoints `wanted`."""
    first = {}
    for r in accepted(paths):
        if not wanted(r[3]):
            continue
        key = (r[0], r[3])
        if key not in first or r[1] < first[key][0]:
            first[key] = (r[1], r[6] & BATCH)
    return first


def latencies_of(produced, first, from_s, to_s):
    """(streaming, batch): ms from sent to first arrival, sorted, of the messages whose event was
    sent between the two times."""
    sent = {r[0]: r[1] for r in read(produced, PRODUCED) if from_s * 1e6 <= r[1] <= to_s * 1e6}
    streaming, batches = [], []
    for (number, _), (us, batch) in first.items():
        if number in sent:
            (batches if batch else streaming).append((us - sent[number]) / 1000)
    return sorted(streaming), sorted(batches)


def latencies(produced, received, from_s, to_s):
    """latencies_of() all that was received."""
    return latencies_of(produced, first_arrivals_of(received, lambda _: True), from_s, to_s)


def quantile(values, fraction):
    """Of sorted ones; None of none."""
    return values[min(len(values) - 1, int(fraction * len(values)))] if values else None
