#!/usr/bin/python3
"""The crash table on the real binaries: a worker is killed at each step of a message that fails at
first, and started again. Nothing may be lost, nothing repeated beyond what the row says, and no
letter be doubled. The steps are found from outside: by what the broker holds, by a broker that is
held still, and by a receiver that kills as it answers."""
import collections
import contextlib
import json
import secrets
import threading
import unittest

from crash_points import Broker, Positions
from harness import ARRIVE_S, Customer, SystemTest, now, stage, wait_until

MESSAGES = 3  # fewer than an endpoint may have in flight at first
PAYLOAD_BYTES = 20000
FIRST_DELAY_MS = 2000  # long enough to kill before the retry


class Gate:
    """A rule that holds every request until open() says how all of them are answered."""

    def __init__(self):
        self.held = 0
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._status = None

    def __call__(self, handler, delivery):
        with self._lock:
            self.held += 1
        self._open.wait(ARRIVE_S)
        delivery.status = self._status
        handler.answer(self._status)

    def open(self, status):
        self._status = status
        self._open.set()


class CrashTableTest(SystemTest):
    # One key group: its positions tell all. A short session: less to wait for after a kill.
    OPTIONS = {"POSTRIDER_WORKER__KEY_GROUPS": "1", "POSTRIDER_WORKER__SESSION_TIMEOUT": "3s"}

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.worker = cls.roles["worker"]
        cls.dispatch = world.prefix + "dispatch.default"
        cls.backlog = world.prefix + "backlog.default"
        cls.letters_topic = world.prefix + "dead-letters"
        cls.group = world.prefix + "deliver.default"
        cls.broker = Broker()

    def setUp(self):
        self.addCleanup(self.broker.go_on)
        self.addCleanup(self.bring_back)
        self.positions = Positions(self.world.brokers)
        self.addCleanup(self.positions.close)
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, [self.tenant])
        self.path = "/" + self.unique("hook")
        self.receiver = self.world.receiver

    def bring_back(self):
        if self.worker.process is None or self.worker.process.poll() is not None:
            self.worker.process = None
            self.worker.start().wait_ready()

    # --- Steps -----------------------------------------------------------------------------------

    def begin_row(self, **retry):
        self.endpoint = self.customer.endpoint(
            self.path, timeout_ms=30000,
            retry={"attempts": 5, "first_delay_ms": FIRST_DELAY_MS, "cap_ms": FIRST_DELAY_MS,
                   **retry})
        self.world.settle()
        # Who has never answered well is sent one request per second only.
        self.receiver.answer(self.path, 200)
        proof = self.unique("e")
        self.world.publish_to_kafka("order.created", [json.dumps(
            {"tenant": self.tenant, "id": proof}).encode()])
        wait_until("a first success", ARRIVE_S, lambda: self.accepted()[proof] == 1)
        wait_until("nothing is left of the last row", ARRIVE_S, self.all_committed)

    def publish(self):
        """Several messages, none of which can be compressed."""
        ids = [self.unique("e") for _ in range(MESSAGES)]
        lines = [json.dumps({"tenant": self.tenant, "id": i,
                             "noise": secrets.token_hex(PAYLOAD_BYTES // 2)}).encode() for i in ids]
        self.world.publish_to_kafka("order.created", lines)
        return ids

    def gate(self):
        gate = Gate()
        self.receiver.answer(self.path, gate)
        return gate

    def wait_held(self, gate):
        try:
            wait_until("the requests", ARRIVE_S, lambda: gate.held >= MESSAGES, 0.002)
        except stage.Failure as failure:
            raise AssertionError(f"{failure}: {gate.held}") from None

    def committed(self):
        return self.positions.committed(self.group, self.dispatch)[0]

    def all_committed(self):
        return self.committed() == self.positions.end(self.dispatch)

    def kill(self):
        self.worker.process.kill()
        self.worker.reap()

    def restart(self):
        self.worker.start().wait_ready()

    def have_backlog(self):
        """A first message of the endpoint waits, so that the next entries are written at once."""
        self.receiver.answer(self.path, 500)
        end = self.positions.end(self.backlog)
        first = self.unique("e")
        self.world.publish_to_kafka("order.created", [json.dumps(
            {"tenant": self.tenant, "id": first}).encode()])
        wait_until("the first entry", ARRIVE_S, lambda: self.positions.end(self.backlog) > end and
                   self.all_committed(), 0.01)
        return first

    def fail_once(self):
        """Each message is answered 500 once, and in the backlog, and its offset committed. Returns
        their ids and the gate that holds what comes of them afterwards, however soon."""
        gate = self.gate()
        ids = self.publish()
        self.wait_held(gate)
        following = self.gate()
        gate.open(500)
        wait_until("what failed is done with in its topic", ARRIVE_S, self.all_committed, 0.01)
        return ids, following

    # --- What must hold --------------------------------------------------------------------------

    def accepted(self):
        return collections.Counter(
            event for d in self.receiver.got(self.path) if d.status == 200
            for event in d.event_ids())

    def check_delivered(self, ids, repeats_max):
        """Each of them, under one id, and after one more restart nothing of it comes back."""
        wait_until("all are delivered", ARRIVE_S, lambda: set(ids) <= set(self.accepted()))
        self.pass_an_event()
        counts = self.accepted()
        for event in ids:
            self.assertLessEqual(counts[event], 1 + repeats_max, [
                (round(d.at, 3), d.status, d.headers["webhook-attempt"])
                for d in self.receiver.got(self.path) if event in d.event_ids()])
        message_ids = collections.defaultdict(set)
        for delivery in self.receiver.got(self.path):
            message_ids[delivery.event_ids()[0]].add(delivery.headers["webhook-id"])
        for event in ids:
            self.assertEqual(len(message_ids[event]), 1, event)
        wait_until("all is committed", ARRIVE_S, self.all_committed)
        self.kill()
        self.restart()
        self.pass_an_event()
        after = self.accepted()
        self.assertEqual({e: after[e] for e in ids}, {e: counts[e] for e in ids},
                         "what was delivered comes back")
        return sum(counts[event] - 1 for event in ids)

    def pass_an_event(self):
        """Longer than a retry waits, and an event that came after all others has been through."""
        path = "/" + self.unique("marker")
        self.customer.endpoint(path)
        self.world.settle()
        self.world.publish(self.events(1, self.tenant))
        self.receiver.answer(self.path, 200)
        wait_until("the marker", ARRIVE_S, lambda: self.receiver.got(path))
        end = now() + 2 * FIRST_DELAY_MS / 1000
        wait_until("retries would have come", ARRIVE_S, lambda: now() > end)

    # --- The rows --------------------------------------------------------------------------------

    def test_killed_after_the_entry_was_produced_and_nobody_knows_whether_it_is_stored(self):
        self.begin_row()
        first = self.have_backlog()
        for _ in range(5):
            gate = self.gate()
            ids = [first, *self.publish()]
            self.wait_held(gate)
            self.broker.hold()
            gate.open(500)
            # The entries, or as much of them as a socket takes, are on their way; they are not when
            # the broker was held in the middle of an earlier request.
            with contextlib.suppress(stage.Failure):
                hit = wait_until("the entries are with the broker", 1.5,
                                 lambda: self.broker.unread() > PAYLOAD_BYTES, 0.002)
                break
            self.broker.go_on()
            hit = False
        self.assertTrue(hit, "no entries came to the broker")
        self.kill()
        self.broker.go_on()
        self.receiver.answer(self.path, 200)
        self.restart()
        self.check_delivered(ids, repeats_max=0)

    def test_killed_after_the_entry_was_acknowledged_and_before_the_commit(self):
        self.begin_row()
        for attempt in range(20):
            gate = self.gate()
            before = self.positions.end(self.backlog)
            ids = self.publish()
            self.wait_held(gate)
            gate.open(500)
            wait_until("the entries are stored", ARRIVE_S,
                       lambda n=before: self.positions.end(self.backlog) >= n + MESSAGES, 0)
            self.kill()
            hit = self.committed() < self.positions.end(self.dispatch)
            self.receiver.answer(self.path, 200)
            self.restart()
            if hit:
                break
            self.world.wait_ids(self.path, ids)
        self.assertTrue(hit, "every kill came after the commit")
        print(f"between acknowledgement and commit at try {attempt + 1}", flush=True)
        # The entry and the record that it came from are both read again, and are one message.
        self.check_delivered(ids, repeats_max=0)

    def test_killed_after_the_commit(self):
        self.begin_row()
        ids, gate = self.fail_once()
        self.kill()
        self.receiver.answer(self.path, 200)
        gate.open(503)
        self.restart()
        self.check_delivered(ids, repeats_max=0)

    def test_killed_upon_the_receivers_success_before_the_entry_is_deleted(self):
        self.begin_row()
        ids, gate = self.fail_once()
        self.wait_held(gate)
        gate.open(200)
        self.kill()
        self.receiver.answer(self.path, 200)
        self.restart()
        repeats = self.check_delivered(ids, repeats_max=1)
        print(f"{repeats} of {MESSAGES} repeated", flush=True)

    def test_killed_after_the_success_was_noted_and_the_delete_is_unknown(self):
        self.begin_row()
        ids, gate = self.fail_once()
        self.wait_held(gate)
        name = "postrider_delivery_messages_delivered_total"
        delivered = self.worker.metric(name)
        self.broker.hold()
        gate.open(200)
        wait_until("the worker has its answers", 4,
                   lambda: self.worker.metric(name) >= delivered + MESSAGES, 0.005)
        self.kill()
        self.broker.go_on()
        self.receiver.answer(self.path, 200)
        self.restart()
        repeats = self.check_delivered(ids, repeats_max=1)
        print(f"{repeats} of {MESSAGES} repeated", flush=True)

    def test_killed_after_the_letter_was_stored_before_the_entry_is_deleted(self):
        self.begin_row(attempts=2)
        ids, gate = self.fail_once()
        self.wait_held(gate)
        letters = self.positions.end(self.letters_topic)
        gate.open(500)
        wait_until("a letter is stored", ARRIVE_S,
                   lambda: self.positions.end(self.letters_topic) > letters, 0)
        self.kill()
        self.receiver.answer(self.path, 500)
        self.restart()

        def listed():
            counts = collections.Counter(
                letter["event_id"] for letter in self.customer.letters(self.endpoint["id"]))
            return counts if set(ids) <= set(counts) else None
        wait_until("all letters", ARRIVE_S, listed, 0.2)
        self.pass_an_event()
        stored = self.positions.end(self.letters_topic) - letters
        print(f"{stored} records for {MESSAGES} letters", flush=True)
        self.assertEqual(listed(), collections.Counter(ids))
        # Given up is given up: at most the attempt that was under way is made again.
        tries = collections.Counter(self.receiver.event_ids(self.path))
        for event in ids:
            self.assertLessEqual(tries[event], 3, event)
        self.assertEqual(self.accepted()[ids[0]], 0)
        self.kill()
        self.restart()
        self.pass_an_event()
        self.assertEqual(listed(), collections.Counter(ids))
        self.assertEqual({e: n for e, n in self.accepted().items() if e in ids}, {})


if __name__ == "__main__":
    unittest.main()
