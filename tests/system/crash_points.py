"""How the crash tests find their moments from outside: what the broker holds of a topic and of a
group, the broker held still, and which process a request came from."""
import os
import pathlib
import signal
import struct
import sys

from harness import ROOT, needed

sys.path.insert(0, str(ROOT / "deploy" / "kafka"))
import wire  # noqa: E402

LIST_OFFSETS, OFFSET_FETCH = 2, 9


class Positions:
    """Asks the broker on a connection of its own: a millisecond or so a question."""

    def __init__(self, brokers):
        host, _, port = brokers.split(",")[0].rpartition(":")
        self._connection = wire.Connection(host, int(port), timeout=30)
        self._partitions = {}  # of topics

    def close(self):
        self._connection.__exit__()

    def ends(self, topic, partitions=1):
        """The offset that the next record of each partition will have."""
        body = struct.pack(">ii", -1, 1) + wire.text(topic) + struct.pack(">i", partitions)
        body += b"".join(struct.pack(">iq", number, -1) for number in range(partitions))
        answer = wire.Reader(self._connection.ask(LIST_OFFSETS, 1, body))
        ends = {}
        for _ in range(answer.number("i")):
            answer.text()
            for _ in range(answer.number("i")):
                partition, error = answer.number("i"), answer.number("h")
                answer.number("q")
                ends[partition] = answer.number("q")
                if error:
                    raise AssertionError(f"ListOffsets {topic}-{partition}: error {error}")
        return [ends[number] for number in range(partitions)]

    def end(self, topic):
        """How many records were ever written to all its partitions."""
        return sum(self.ends(topic, self._partitions_of(topic)))

    def _partitions_of(self, topic):
        if topic not in self._partitions:
            answer = wire.Reader(self._connection.ask(
                wire.METADATA, 1, struct.pack(">i", 1) + wire.text(topic)))
            for _ in range(answer.number("i")):
                answer.number("i")
                answer.text()
                answer.number("i")
                answer.text()
            answer.number("i")  # The controller.
            answer.number("i")  # One topic.
            if answer.number("h"):
                raise AssertionError(f"there is no topic {topic}")
            answer.text()
            answer.number("b")
            self._partitions[topic] = answer.number("i")
        return self._partitions[topic]

    def committed(self, group, topic, partitions=1):
        """The offsets that the group has committed; -1: none."""
        body = wire.text(group) + struct.pack(">i", 1) + wire.text(topic)
        body += struct.pack(">i", partitions)
        body += b"".join(struct.pack(">i", number) for number in range(partitions))
        answer = wire.Reader(self._connection.ask(OFFSET_FETCH, 1, body))
        offsets = {}
        for _ in range(answer.number("i")):
            answer.text()
            for _ in range(answer.number("i")):
                partition = answer.number("i")
                offsets[partition] = answer.number("q")
                answer.text()
                error = answer.number("h")
                if error:
                    raise AssertionError(f"OffsetFetch {group}: error {error}")
        return [offsets[number] for number in range(partitions)]


class Broker:
    """The stack's broker, which can be held still: what it is sent waits in its sockets, and nobody
    is answered."""

    def __init__(self):
        run = pathlib.Path(needed("STACK_DIR")) / "run" / "kafka"
        self.pid = int(run.read_text().split()[0])
        self.port = int(needed("STACK_KAFKA_PORT"))

    def hold(self):
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def unread(self):
        """Bytes that wait in its sockets."""
        return sum(row.received for row in connections() if row.local == self.port)


class Connection:
    def __init__(self, line):
        fields = line.split()
        self.local = int(fields[1].rsplit(":", 1)[1], 16)
        self.remote = int(fields[2].rsplit(":", 1)[1], 16)
        self.received = int(fields[4].split(":")[1], 16)
        self.inode = fields[9]


def connections():
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="ascii") as table:
            next(table)
            for line in table:
                yield Connection(line)


def sender_of(handler, pids):
    """Which of the processes holds the other end of a handler's connection; None: none of them.
    Looked up once a connection."""
    if not hasattr(handler, "sender"):
        handler.sender = _holder(handler.client_address[1], handler.server.server_address[1], pids)
    return handler.sender


def _holder(local, remote, pids):
    inodes = {f"socket:[{row.inode}]" for row in connections()
              if row.local == local and row.remote == remote}
    for pid in pids:
        try:
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                try:
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                        return pid
                except OSError:
                    pass  # Closed meanwhile.
        except OSError:
            pass  # It is gone.
    return None
