#!/usr/bin/python3
"""Creates topics of one replica on a broker; one that exists is left as it is.

create_topics.py HOST:PORT PARTITIONS TOPIC...
"""

import struct
import sys

import wire

VERSION = 2
TIMEOUT_MS = 30_000
TOPIC_ALREADY_EXISTS = 36


def create_topics(host, port, partitions, topics):
    """[(topic, reason)] of those that could not be created. Raises OSError."""
    body = struct.pack(">i", len(topics))
    for topic in topics:
        # No explicit assignment of replicas, no settings.
        body += wire.text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
    body += struct.pack(">ib", TIMEOUT_MS, 0)
    with wire.Connection(host, port, timeout=TIMEOUT_MS / 1000 + 5) as connection:
        least, most = connection.versions().get(wire.CREATE_TOPICS, (0, -1))
        if not least <= VERSION <= most:
            raise ConnectionError(
                f"CreateTopics v{VERSION} is not served (v{least} to v{most} are)"
            )
        answer = wire.Reader(connection.ask(wire.CREATE_TOPICS, VERSION, body))
    answer.number("i")  # The throttle time.
    failed = []
    for _ in range(answer.number("i")):
        topic, error, reason = answer.text(), answer.number("h"), answer.text()
        if error not in (0, TOPIC_ALREADY_EXISTS):
            failed.append((topic, reason or f"error {error}"))
    return failed


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip())
    host, _, port = sys.argv[1].rpartition(":")
    try:
        failed = create_topics(host, int(port), int(sys.argv[2]), sys.argv[3:])
    except OSError as error:
        sys.exit(f"create_topics.py: {error}")
    for topic, reason in failed:
        print(f"create_topics.py: {topic}: {reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
