#!/usr/bin/python3
"""The KAFKA cases that need the real client, broker and processes, each named by its id;
tests/README.md says which tests prove the others. POSTRIDER_CASES_SCALE multiplies their sizes."""
import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest

from broker import Broker, Refused
from harness import ARRIVE_S, ROOT, Customer, Stream, SystemTest, now, wait_until
from stage import stat_of

SCALE = int(os.environ.get("POSTRIDER_CASES_SCALE", "1"))
SESSION_S = 6
POLL_INTERVAL_S = 10


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


class ClientTest(unittest.TestCase):
    def calls(self):
        """Every call of librdkafka that the product makes."""
        calls = set()
        for path in (ROOT / "core").rglob("*.cc"):
            calls |= set(re.findall(r"\b(rd_kafka_\w+)\(", path.read_text()))
        self.assertIn("rd_kafka_consumer_poll", calls)
        return calls

    def test_KAFKA_04_no_batch_consume_is_called(self):
        bad = {call for call in self.calls() if "consume_batch" in call}
        self.assertEqual(bad, set())

    def test_KAFKA_14_nothing_is_ever_paused(self):
        bad = {call for call in self.calls() if re.search("pause|resume", call)}
        self.assertEqual(bad, set())

    def test_KAFKA_02_no_offset_is_stored_by_the_client(self):
        bad = {call for call in self.calls() if re.search("offsets?_store|commit_message", call)}
        self.assertEqual(bad, set())
        text = (ROOT / "core/kafka/internal/kafka_consumer.cc").read_text()
        for name in ("enable.auto.commit", "enable.auto.offset.store"):
            self.assertRegex(text, rf'"{re.escape(name)}", "false"')


class TimedStream:
    """Events of one tenant at a rate by Kafka alone; knows when each was written."""

    def __init__(self, world, event_type, tenant, per_second, prefix):
        self.written = {}
        self._ending = threading.Event()
        self._process = subprocess.Popen(
            [world.tool_binary, "publish", "--brokers", world.brokers, "--topic",
             world.source_prefix + event_type, f"--header=tenant={tenant}"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._write, args=(1 / per_second, prefix),
                                        daemon=True)
        self._thread.start()

    def _write(self, pause, prefix):
        for n in itertools.count():
            if self._ending.wait(pause):
                break
            name = f"{prefix}-{n}"
            self.written[name] = now()
            try:
                self._process.stdin.write(json.dumps({"id": name}).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                return

    def end(self):
        """Stops; the ids that Kafka has acknowledged, all."""
        self._ending.set()
        self._thread.join()
        self._process.stdin.close()
        if self._process.wait(ARRIVE_S) != 0:
            raise AssertionError("Kafka did not acknowledge every event")
        return list(self.written)

    def abandon(self):
        self._ending.set()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()


class HungReceiverTest(SystemTest):
    """One key group, one source partition, and a receiver that hangs, with more lag than memory."""

    LIMIT_MB = 320
    OPTIONS = {"POSTRIDER_WORKER__KEY_GROUPS": "1", "POSTRIDER_MEMORY__LIMIT": f"{LIMIT_MB}MB"}
    HUNG_S = max(POLL_INTERVAL_S, SESSION_S) + 8

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()

    def latencies(self, stream, path, since):
        """Of the events that were written since then; those that have not come count up to now."""
        came = {}
        for delivery in self.world.receiver.got(path):
            for event in delivery.event_ids():
                came.setdefault(event, delivery.at)
        written = {name: at for name, at in list(stream.written.items()) if at >= since}
        return [came.get(name, now()) - at for name, at in written.items()]

    def test_KAFKA_07_11_16_receivers_that_hang_cost_no_rebalance_no_memory_and_no_other(self):
        world, worker, matcher = self.world, self.roles["worker"], self.roles["matcher"]
        fine, hung = Customer(world, ["fine"]), Customer(world, ["hung"])
        fine.endpoint("/fine")
        hung.endpoint("/hung", mode="batch", timeout_ms=30000,
                      batch={"events_max": 1000, "wait_max_ms": 1000},
                      retry={"first_delay_ms": 1000, "cap_ms": 2000, "attempts": 50})
        release = threading.Event()
        self.addCleanup(release.set)

        def hang(handler, delivery):
            if not release.wait(120):
                return
            delivery.status = 200
            handler.answer(200)
        world.receiver.answer("/hung", hang)
        world.settle()
        group, topic = world.prefix + "deliver.default", world.prefix + "dispatch.default"
        broker = Broker(world.brokers)

        stream = TimedStream(world, "order.created", "fine", 50, self.unique("f"))
        self.addCleanup(stream.abandon)
        begin = now()
        wait_until("a baseline", ARRIVE_S, lambda: now() - begin > 5)
        baseline = percentile(self.latencies(stream, "/fine", begin + 1), 0.99)

        count = 60_000 * SCALE
        filler = "x" * 900
        names = [f"h{n}" for n in range(count)]
        rebalances = worker.metric("postrider_stream_rebalances_total")
        world.publish_to_kafka("order.created", [
            json.dumps({"id": name, "filler": filler}).encode() for name in names], tenant="hung")
        wait_until("the receiver hangs", ARRIVE_S, lambda: world.receiver.got("/hung"))
        hung_from = now()
        rss = {"worker": 0, "matcher": 0}

        def watch():
            """Meanwhile, twice a second."""
            for role, most in list(rss.items()):
                rss[role] = max(most, stat_of(self.roles[role].process.pid)[1])
            self.assertLess(worker.metric("postrider_stream_commit_age_seconds"), 4)
            return broker.committed(group, topic, 0)
        # What hangs leaves the partition's path: the commit gets over all of it.
        wait_until("the partition moves on", ARRIVE_S * SCALE, lambda: watch() >= count, 0.5)
        others_from = now()
        committed = [watch()]
        while now() - hung_from < self.HUNG_S * SCALE or now() - others_from < 8:
            committed.append(watch())
            time.sleep(0.5)  # The time between two samples.
        for service in (worker, matcher):
            service.check()
            for name in ("lost", "lease_lapses", "fenced"):
                self.assertEqual(service.metric(f"postrider_stream_{name}_total"), 0, name)
        self.assertEqual(worker.metric("postrider_stream_rebalances_total"), rebalances)
        # Memory stays within its limit, whatever lies in Kafka.
        print(f"rss at most {rss} MB", flush=True)
        self.assertLess(rss["worker"], self.LIMIT_MB * 1.048576)
        self.assertLess(rss["matcher"], 400)
        # Others are not held up, and the commit keeps moving with them.
        self.assertGreater(committed[-1], committed[0] + 200)
        p99 = percentile(self.latencies(stream, "/fine", others_from), 0.99)
        print(f"p99 of the others {p99 * 1000:.0f} ms, before {baseline * 1000:.0f} ms", flush=True)
        self.assertLess(p99, max(2 * baseline, baseline + 1.0))

        release.set()
        fine_ids = stream.end()
        world.wait_ids("/fine", fine_ids)

        missing, looked = set(names), 0

        def done():
            nonlocal looked
            got = world.receiver.got("/hung")[looked:]
            looked += len(got)
            for delivery in got:  # Everything is taken from now on.
                missing.difference_update(delivery.event_ids())
            return not missing
        wait_until("what hung is delivered", ARRIVE_S * SCALE, done, 1)
        self.assertEqual(hung.letters(), [])
        self.assertEqual(worker.lives, 1)


class RebalanceTest(SystemTest):
    """Workers that come and go while shards are full."""

    OPTIONS = {"POSTRIDER_WORKER__MESSAGES_MAX": "1000", "POSTRIDER_WORKER__STOP_WAIT_MAX": "10s"}

    @classmethod
    def begin(cls, world):
        world.serve(roles="api,matcher,indexer")
        cls.worker = world.service("worker", "worker").start().wait_ready()
        cls.guest = world.service("worker", "guest")

    def test_KAFKA_04_14_no_offset_is_skipped_and_no_partition_stays_silent(self):
        world, receiver = self.world, self.world.receiver
        customer = Customer(world, ["t"])
        paths = [f"/p{n}" for n in range(12)]
        slow = threading.Event()
        for path in paths:
            customer.endpoint(path, mode="batch", batch={"events_max": 20, "wait_max_ms": 100})

            def answer(handler, delivery):
                if slow.is_set():
                    time.sleep(0.3)  # A slow receiver.
                handler.answer(200)
            receiver.answer(path, answer)
        world.settle()
        names = [self.unique("e") for _ in range(3_000 * SCALE)]
        publisher = threading.Thread(target=world.publish_to_kafka, daemon=True, args=(
            "order.created", [json.dumps({"id": name}).encode() for name in names]),
            kwargs={"tenant": "t"})
        publisher.start()
        ending = threading.Event()
        self.addCleanup(ending.set)

        def toggle():
            while not ending.wait(0.05):
                slow.clear() if slow.is_set() else slow.set()
        threading.Thread(target=toggle, daemon=True).start()
        rebalances = self.worker.metric("postrider_stream_rebalances_total")

        def rebalanced():
            return self.worker.metric("postrider_stream_rebalances_total") > rebalances + done
        for done in range(0, 12 * SCALE, 2):
            self.guest.start().wait_ready()
            wait_until("it was given its share", ARRIVE_S, rebalanced, 0.02)
            self.assertLess(self.guest.stop(), 15)
            done += 1
            wait_until("its share came back", ARRIVE_S, rebalanced, 0.02)
        publisher.join()
        ending.set()
        slow.clear()
        for path in paths:
            world.wait_ids(path, names)
        # Each partition delivers within 5 s of its release.
        last = self.unique("last")
        world.publish_to_kafka("order.created", [json.dumps({"id": last}).encode()], tenant="t")
        for path in paths:
            world.wait_ids(path, [last], 5)
        wait_until("nothing is pending", ARRIVE_S, lambda: self.worker.metric(
            "postrider_stream_pending_records") == 0)
        self.assertEqual(customer.letters(), [])


class StopTest(SystemTest):
    """KAFKA-09: a stop ends in time in every state of the group."""

    GRACE_S = 20
    OPTIONS = {"POSTRIDER_WORKER__STOP_WAIT_MAX": "5s"}

    @classmethod
    def begin(cls, world):
        world.serve(roles="api,indexer")
        cls.one = world.service("matcher,worker", "one")
        cls.two = world.service("matcher,worker", "two")
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/hook")
        cls.published = []

    def setUp(self):
        for service in (self.one, self.two):
            if service.process is not None and service.process.poll() is not None:
                service.reap()
        self.addCleanup(self.world.stack.verb, "start-kafka")

    def publish(self):
        event = self.events(1, "t")
        self.world.publish(event)
        self.published += self.ids(event)

    def stop(self, service, signals=1):
        begin = now()
        for _ in range(signals):
            if service.process.poll() is None:
                service.process.send_signal(signal.SIGTERM)
        status = service.process.wait(self.GRACE_S)
        took = now() - begin
        print(f"{service.name}: status {status} after {took:.1f} s", flush=True)
        service.reap()
        return status

    def all_arrive(self):
        self.one.start().wait_ready()
        self.publish()
        self.world.wait_ids("/hook", self.published)
        self.assertEqual(self.stop(self.one), 0)

    def test_KAFKA_09_before_the_first_assignment(self):
        self.publish()
        for line in ("postrider starts", "kafka client library", "probes listen"):
            with self.subTest(line):
                self.one.start()
                wait_until(line, ARRIVE_S, lambda t=line: self.one.find_in_log(t), 0.001)
                self.assertEqual(self.stop(self.one), 0)
        self.all_arrive()

    def test_KAFKA_09_while_a_rebalance_is_going_on(self):
        self.one.start().wait_ready()
        self.publish()
        self.two.start().wait_probes()  # It joins.
        self.assertEqual(self.stop(self.one), 0)
        self.assertEqual(self.stop(self.two), 0)
        self.all_arrive()

    def test_KAFKA_09_when_a_topic_was_just_deleted(self):
        self.world.make_topics(1, self.world.source_prefix + "order.deleted")
        self.one.start().wait_ready()
        self.publish()
        Broker(self.world.brokers).delete_topics(self.world.source_prefix + "order.deleted")
        self.assertEqual(self.stop(self.one), 0)
        self.all_arrive()

    def test_KAFKA_09_while_the_broker_is_away_and_with_a_request_in_hand(self):
        self.one.start().wait_ready()
        release = threading.Event()
        self.addCleanup(release.set)
        self.world.receiver.answer("/hook", lambda handler, _: release.wait(60) and
                                   handler.answer(200))
        before = len(self.world.receiver.got("/hook"))
        self.publish()
        wait_until("the request", ARRIVE_S,
                   lambda: len(self.world.receiver.got("/hook")) > before)
        self.world.stack.verb("kill-kafka")
        self.assertEqual(self.stop(self.one), 0)
        release.set()
        self.world.receiver.answer("/hook", 200)
        self.world.stack.verb("start-kafka")
        self.world.api.wait_ready()
        self.all_arrive()

    def test_KAFKA_09_twice(self):
        self.one.start().wait_ready()
        self.publish()
        self.assertIn(self.stop(self.one, signals=2), (0, 1))
        self.all_arrive()


class OutOfRangeTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/hook", mode="batch", batch={"events_max": 100, "wait_max_ms": 100})
        world.settle()
        cls.topic = world.source_prefix + "order.created"
        cls.group = world.prefix + "match"
        cls.broker = Broker(world.brokers)

    def write(self, count):
        names = [self.unique("e") for _ in range(count)]
        self.world.publish_to_kafka(
            "order.created", [json.dumps({"id": name}).encode() for name in names], tenant="t")
        return names

    def committed(self):
        return self.broker.committed(self.group, self.topic, 0)

    def test_KAFKA_10_what_was_deleted_above_the_commit_is_counted_and_reported(self):
        matcher = self.roles["matcher"]
        first = self.write(10)
        self.world.wait_ids("/hook", first)
        wait_until("its commit", ARRIVE_S,
                   lambda: self.committed() == self.broker.end(self.topic, 0))
        start = self.committed()
        matcher.stop()
        lag = self.write(1_000)
        self.broker.delete_records(self.topic, 0, start + 500)
        matcher.start().wait_ready()
        self.world.wait_ids("/hook", lag[500:])
        self.assertEqual(set(lag[:500]) & set(self.world.receiver.event_ids("/hook")), set())
        self.assertEqual(matcher.metric("postrider_stream_out_of_range_total", job="matcher",
                                        side="below_start"), 1)
        line = next(line for line in matcher.log_text().splitlines() if "records were lost" in line)
        for part in ("level=error", f"partition={self.topic}/0", f"position={start}",
                     f"log_start={start + 500}", "lost_at_most=500"):
            self.assertIn(part, line)

    def test_KAFKA_10_a_topic_made_anew_is_read_from_its_start(self):
        matcher = self.roles["matcher"]
        matcher.stop()
        self.broker.delete_topics(self.topic)

        def gone():
            try:
                self.broker.end(self.topic, 0)
                return False
            except (Refused, OSError):
                return True
        wait_until("the topic is gone", ARRIVE_S, gone)
        self.world.create_topics(["order.created"])
        names = self.write(100)
        # Of the topic that had this name before.
        self.broker.commit(self.group, self.topic, 0, 5_000)
        matcher.start().wait_ready()
        self.world.wait_ids("/hook", names)
        wait_until("the commit", ARRIVE_S, lambda: self.committed() == 100)
        self.assertEqual(matcher.metric("postrider_stream_out_of_range_total", job="matcher",
                                        side="above_end"), 1)
        self.assertIn("all of the log is read anew", matcher.log_text())


class DiscoveryTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/all", mode="batch", batch={"events_max": 100, "wait_max_ms": 100})
        cls.customer.endpoint("/old", ["order.created"])
        world.settle()

    def write(self, event_type, count=10):
        names = [self.unique("e") for _ in range(count)]
        self.world.tool(
            "publish", "--brokers", self.world.brokers, "--create-topic", "--topic",
            self.world.source_prefix + event_type, "--header=tenant=t",
            stdin=b"".join(json.dumps({"id": name}).encode() + b"\n" for name in names))
        return names

    def test_KAFKA_13_topics_come_and_go_and_nothing_else_is_disturbed(self):
        world, receiver, matcher = self.world, self.world.receiver, self.roles["matcher"]
        stream = Stream(world, "order.created", "t", per_second=20)
        self.addCleanup(stream.abandon)
        wait_until("the stream", ARRIVE_S, lambda: receiver.got("/old"))
        lines = len(matcher.log_text().splitlines())
        begin = now()
        types = [f"new.t{n:02d}" for n in range(50)]
        written = {name: self.write(name) for name in types}
        # They are read from their start, however late they are found.
        world.wait_ids("/all", [event for events in written.values() for event in events], 30)
        broker = Broker(world.brokers)
        broker.delete_topics(*(world.source_prefix + name for name in types[:20]))

        def gone(name):
            try:
                broker.end(world.source_prefix + name, 0)
                return False
            except (Refused, OSError):
                return True
        wait_until("they are gone", ARRIVE_S, lambda: all(map(gone, types[:20])), 0.2)
        again = [event for name in types[:5] for event in self.write(name)]
        more = [event for name in types[20:] for event in self.write(name, 2)]
        world.wait_ids("/all", again + more, 30)
        acknowledged = stream.end()
        end = now()
        world.wait_ids("/old", acknowledged)
        world.wait_ids("/all", acknowledged)
        at = [d.at for d in receiver.got("/old") if begin < d.at < end]
        gap = max(later - earlier for earlier, later in itertools.pairwise(at))
        lines = len(matcher.log_text().splitlines()) - lines
        print(f"longest gap {gap:.1f} s, {lines} log lines", flush=True)
        self.assertLess(gap, 5)
        self.assertLess(lines, 200)
        self.assertEqual(matcher.lives, 1)


if __name__ == "__main__":
    unittest.main()
