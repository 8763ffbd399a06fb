"""What the system tests do to Kafka behind Postrider's back, in the plain encoding of
deploy/kafka/wire.py: records and topics deleted, commits read, written and forgotten."""
import struct
import sys

from harness import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "kafka"))
import wire

LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 8, 9, 10
DELETE_TOPICS, DELETE_RECORDS, DELETE_GROUPS = 20, 21, 42
TIMEOUT_MS = 20_000


class Refused(Exception):
    def __init__(self, what, error):
        super().__init__(f"{what}: Kafka's error {error}")
        self.error = error


class Broker:
    def __init__(self, brokers):
        host, _, port = brokers.rpartition(":")
        self._at = host, int(port)

    def _ask(self, api, version, body):
        with wire.Connection(*self._at, timeout=TIMEOUT_MS / 1000 + 5) as connection:
            return wire.Reader(connection.ask(api, version, body))

    @staticmethod
    def _check(what, error):
        if error:
            raise Refused(what, error)

    def create_topic(self, topic, **settings):
        """Of one partition; a setting's '.' is '_' here."""
        body = (struct.pack(">i", 1) + wire.text(topic) + struct.pack(">ihi", 1, 1, 0) +
                struct.pack(">i", len(settings)) +
                b"".join(wire.text(name.replace("_", ".")) + wire.text(str(value))
                         for name, value in settings.items()))
        answer = self._ask(wire.CREATE_TOPICS, 2, body + struct.pack(">ib", TIMEOUT_MS, 0))
        answer.number("i"), answer.number("i"), answer.text()
        self._check(f"create {topic}", answer.number("h"))

    def delete_records(self, topic, partition, before):
        """Those below the offset `before`."""
        body = (struct.pack(">i", 1) + wire.text(topic) +
                struct.pack(">iiqi", 1, partition, before, TIMEOUT_MS))
        answer = self._ask(DELETE_RECORDS, 0, body)
        answer.number("i"), answer.number("i"), answer.text(), answer.number("i")
        answer.number("i"), answer.number("q")
        self._check(f"delete records of {topic}", answer.number("h"))

    def delete_topics(self, *topics):
        body = struct.pack(">i", len(topics)) + b"".join(map(wire.text, topics))
        answer = self._ask(DELETE_TOPICS, 1, body + struct.pack(">i", TIMEOUT_MS))
        answer.number("i")
        for _ in range(answer.number("i")):
            self._check(f"delete {answer.text()}", answer.number("h"))

    def end(self, topic, partition):
        """The offset of the next record."""
        body = (struct.pack(">ii", -1, 1) + wire.text(topic) +
                struct.pack(">iiq", 1, partition, -1))
        answer = self._ask(LIST_OFFSETS, 1, body)
        answer.number("i"), answer.text(), answer.number("i"), answer.number("i")
        self._check(f"the end of {topic}", answer.number("h"))
        answer.number("q")
        return answer.number("q")

    def committed(self, group, topic, partition):
        """The group's offset, -1 without one."""
        body = (wire.text(group) + struct.pack(">i", 1) + wire.text(topic) +
                struct.pack(">ii", 1, partition))
        answer = self._ask(OFFSET_FETCH, 1, body)
        answer.number("i"), answer.text(), answer.number("i"), answer.number("i")
        offset = answer.number("q")
        answer.text()
        self._check(f"commits of {group}", answer.number("h"))
        return offset

    def commit(self, group, topic, partition, offset):
        """For a group without members."""
        body = (wire.text(group) + struct.pack(">i", -1) + wire.text("") +
                struct.pack(">qi", -1, 1) + wire.text(topic) +
                struct.pack(">iiq", 1, partition, offset) + wire.text(""))
        answer = self._ask(OFFSET_COMMIT, 2, body)
        answer.number("i"), answer.text(), answer.number("i"), answer.number("i")
        self._check(f"commit of {group}", answer.number("h"))

    def delete_group(self, group):
        """With all that it has committed; it must have no members."""
        answer = self._ask(DELETE_GROUPS, 0, struct.pack(">i", 1) + wire.text(group))
        answer.number("i"), answer.number("i"), answer.text()
        self._check(f"delete {group}", answer.number("h"))
