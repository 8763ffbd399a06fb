#!/usr/bin/python3
"""The OPS cases, each named by its id, and clocks that are set (STATE-05) as a receiver sees them;
tests/README.md says which tests prove the others. POSTRIDER_CASES_SCALE multiplies their sizes."""
import base64
import collections
import hashlib
import hmac
import os
import pathlib
import shutil
import signal
import statistics
import struct
import subprocess
import time
import unittest

from broker import Broker, Refused
from harness import ARRIVE_S, Customer, SystemTest, kafka_only, now, wait_until

SCALE = int(os.environ.get("POSTRIDER_CASES_SCALE", "1"))


class LosingTest(SystemTest):
    """OPS-01: a dependency loses all that it knew."""

    LINES_PER_MINUTE = 60

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/hook", mode="batch", batch={"events_max": 50, "wait_max_ms": 100})
        cls.customer.endpoint("/waiting", mode="batch", batch={"events_max": 50, "wait_max_ms": 50},
                              retry={"first_delay_ms": 2000, "cap_ms": 2000, "attempts": 50})
        world.settle()

    def setUp(self):
        self.addCleanup(lambda: [service.start().wait_ready() for service in self.world.services
                                 if service.process is None])

    def stream(self, per_second=50):
        stream = self.world.stream("order.created", "t", per_second)
        self.addCleanup(stream.abandon)
        wait_until("the stream", ARRIVE_S, lambda: set(stream.acknowledged) & set(
            self.world.receiver.event_ids("/hook")))
        return stream

    def lines(self):
        return {service.name: len(service.log_text().splitlines())
                for service in self.world.services}

    def check_lines(self, before, since):
        """No flood: a few at once, then no more than the bound."""
        minutes = max(1.0, (now() - since) / 60)
        for name, count in self.lines().items():
            more = count - before[name]
            print(f"{name}: {more} log lines in {now() - since:.0f} s", flush=True)
            self.assertLess(more, self.LINES_PER_MINUTE * minutes, name)


@kafka_only("deletes the group in Kafka")
class LostGroupTest(LosingTest):
    def test_OPS_01_the_consumer_group_is_deleted(self):
        world, worker = self.world, self.roles["worker"]
        stream = self.stream()
        group = world.prefix + "deliver.default"
        broker = Broker(world.brokers)
        with self.assertRaises(Refused):
            broker.delete_group(group)  # While it has members.
        before, since = self.lines(), now()
        worker.kill()
        worker.reap()

        def deleted():
            try:
                broker.delete_group(group)
                return True
            except Refused:
                return False
        wait_until("the group is deleted", ARRIVE_S, deleted, 0.5)
        worker.start().wait_ready()
        before["worker"] = 0
        acknowledged = stream.end()
        world.wait_ids("/hook", acknowledged)
        self.check_lines(before, since)


@kafka_only("goes on publishing without the database, past the API")
class LostDatabaseTest(LosingTest):
    def test_OPS_01_the_database_is_emptied(self):
        world, api = self.world, self.world.api
        stream = self.stream()
        before, since = self.lines(), now()
        world.psql_admin("drop schema postrider cascade")
        # What is known goes on; the API says that it cannot.
        first = len(stream.acknowledged)
        wait_until("delivery goes on", ARRIVE_S, lambda: len(set(
            stream.acknowledged[first:]) & set(world.receiver.event_ids("/hook"))) > 100)
        answer = world.ask("GET", "/v1/endpoints", key=self.customer.key)
        self.assertIn(answer.status, (500, 503), answer)
        wait_until("a while of it", 60 * SCALE, lambda: now() - since > 12 * SCALE, 0.5)
        self.check_lines(before, since)
        stream.end()
        for service in world.services:
            service.check()
        # Repaired: nobody is started again.
        world.migrate()
        wait_until("the API answers", ARRIVE_S, lambda: world.ask(
            "GET", "/v1/customers").status == 200)
        world.register_types(["order.created"])
        customer = Customer(world, ["t"])
        customer.endpoint("/repaired")
        new = self.events(3, "t")

        def arrived():
            # It is in effect when the processes have seen the new database.
            world.publish(new)
            return set(self.ids(new)) <= set(world.receiver.event_ids("/repaired"))
        wait_until("deliveries after the repair", ARRIVE_S, arrived, 2)
        for service in world.services:
            service.check()
            self.assertLessEqual(service.lives, 2)
        self.assertEqual(api.lives, 1)
        self.check_lines(before, since)


class LostStateTest(LosingTest):
    # Little enough that stores write their files while the test runs.
    OPTIONS = {"POSTRIDER_MEMORY__LIMIT": "320MB"}
    BYTES = 900

    def fill(self, path, count):
        """More of the backlog, as JSON of some size; the ids."""
        names = [self.unique("big") for _ in range(count)]
        before = self.roles["worker"].metric("postrider_delivery_backlog_messages")
        self.world.write("order.created", "big",
                         {name: {"filler": "x" * self.BYTES} for name in names})
        wait_until(f"{path} is filled", ARRIVE_S * SCALE, lambda: self.roles["worker"].metric(
            "postrider_delivery_backlog_messages") >= before + count * 0.9, 0.2)
        return names

    def test_OPS_01_the_state_directory_is_wiped_under_load(self):
        world, worker = self.world, self.roles["worker"]
        customer = Customer(world, ["big"])
        customer.endpoint("/big", mode="batch", batch={"events_max": 1000, "wait_max_ms": 200},
                          retry={"first_delay_ms": 2000, "cap_ms": 2000, "attempts": 50})
        world.receiver.answer("/big", 503)
        world.settle()
        stream = self.stream()
        names = self.fill("/big", 15_000 * SCALE)
        before, since = self.lines(), now()
        state = pathlib.Path(worker.env["POSTRIDER_DATA_DIR"]) / "state"
        self.assertTrue(any(state.rglob("*.sst")), "nothing was written to disk")
        shutil.rmtree(state)
        # What comes now needs new files.
        names += self.fill("/big", 25_000 * SCALE)
        first = len(stream.acknowledged)
        wait_until("delivery goes on", ARRIVE_S, lambda: len(set(
            stream.acknowledged[first:]) & set(world.receiver.event_ids("/hook"))) > 200)
        looked = len(world.receiver.got("/big"))
        world.receiver.answer("/big", 200)
        acknowledged = stream.end()
        world.wait_ids("/hook", acknowledged)
        missing = set(names)

        def taken():
            nonlocal looked
            got = world.receiver.got("/big")[looked:]
            looked += len(got)
            for delivery in got:
                missing.difference_update(delivery.event_ids())
            return not missing
        wait_until("what waited is delivered", 2 * ARRIVE_S * SCALE, taken, 1)
        self.assertEqual(worker.lives, 1)
        worker.check()
        restarts = worker.metric("postrider_stream_task_restarts_total", job="worker")
        print(f"{restarts:.0f} tasks began again", flush=True)
        self.check_lines(before, since)
        self.assertEqual(customer.letters(), [])
        # It goes on in a new life, which makes the directory anew.
        worker.stop()
        worker.start().wait_ready()
        last = self.events(1, "t")
        world.publish(last)
        world.wait_ids("/hook", self.ids(last))


class StopUnderLoadTest(SystemTest):
    """OPS-03."""

    GRACE_S = 30

    @classmethod
    def begin(cls, world):
        if world.embedded:
            cls.service = world.serve()
        else:
            world.serve(roles="api,indexer")
            cls.service = world.service("matcher,worker", "one")
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/hook")
        cls.customer.endpoint("/batch", mode="batch", batch={"events_max": 50, "wait_max_ms": 200})

    def test_OPS_03_signals_under_load_end_in_time_with_nothing_lost_or_repeated(self):
        world, service = self.world, self.service
        # On its own log the service runs already, and may not know yet of the endpoints.
        world.settle()
        stream = world.stream("order.created", "t", per_second=200)
        self.addCleanup(stream.abandon)
        for number in range(6 * SCALE):
            if service.process is None:
                service.start()
            service.wait_ready()
            seen = len(world.receiver.got("/hook"))
            wait_until("it delivers", ARRIVE_S, lambda n=seen + 50 + 37 * (number % 5): len(
                world.receiver.got("/hook")) > n, 0.002)
            service.process.send_signal(signal.SIGINT if number % 2 else signal.SIGTERM)
            begin = now()
            self.assertEqual(service.process.wait(self.GRACE_S), 0)
            print(f"stopped after {now() - begin:.2f} s", flush=True)
            service.reap()
        service.start().wait_ready()
        acknowledged = stream.end()
        for path in ("/hook", "/batch"):
            world.wait_ids(path, acknowledged)
            ids = world.receiver.event_ids(path)
            repeats = {i for i, n in collections.Counter(ids).items() if n > 1}
            self.assertEqual(repeats - stream.uncertain, set(), path)
        print(f"{len(stream.uncertain)} of {len(acknowledged)} published again", flush=True)
        service.stop()

    @kafka_only("no log plays a part")
    def test_OPS_03_it_stops_as_the_first_process_of_a_container(self):
        probe = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "true"], check=False,
                               capture_output=True)
        if probe.returncode != 0:
            self.skipTest("no right to make a process namespace")
        world, service = self.world, self.service
        with open(service.log, "ab") as log:
            outer = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", world.postrider_binary, "serve",
                 "--roles", service.role], env=service.env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, cwd=world.dir)
        self.addCleanup(lambda: outer.poll() is None and outer.kill())
        event = self.events(1, "t")
        world.publish(event)
        world.wait_ids("/hook", self.ids(event))
        inner = int(pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
        status = pathlib.Path(f"/proc/{inner}/status").read_text()
        self.assertRegex(status, rf"NSpid:\s+{inner}\s+1\n")
        os.kill(inner, signal.SIGTERM)
        self.assertEqual(outer.wait(self.GRACE_S), 0)


class TelemetryTest(SystemTest):
    """OPS-06: what a request took is not what a message waited."""

    def figures(self):
        metric = self.world.api.metric
        return {name: metric(f"postrider_delivery_{name}")
                for name in ("attempt_seconds_sum", "attempt_seconds_count",
                             "end_to_end_seconds_sum", "end_to_end_seconds_count")}

    def measured(self, path, event):
        """(seconds of the attempt, seconds from the event on) of one event's delivery."""
        before = self.figures()
        self.world.publish(event)
        self.world.wait_ids(path, [event["id"]])

        def counted():
            after = self.figures()
            return after if after["end_to_end_seconds_count"] > before[
                "end_to_end_seconds_count"] else None
        after = wait_until("it is measured", ARRIVE_S, counted)
        more = {name: after[name] - before[name] for name in after}
        self.assertEqual(more["attempt_seconds_count"], 1)
        self.assertEqual(more["end_to_end_seconds_count"], 1)
        return more["attempt_seconds_sum"], more["end_to_end_seconds_sum"]

    def test_OPS_06_an_attempt_is_measured_without_the_wait_before_it(self):
        customer = Customer(self.world, ["t"])
        customer.endpoint("/slow", mode="batch", batch={"events_max": 10, "wait_max_ms": 1500})
        self.world.receiver.answer("/slow", lambda handler, _: (
            time.sleep(0.3), handler.answer(200)))  # A receiver that takes 300 ms.
        self.world.settle()
        attempt, whole = self.measured("/slow", self.events(1, "t")[0])
        self.assertGreaterEqual(attempt, 0.3)
        self.assertLess(attempt, 0.8)
        self.assertGreaterEqual(whole, 1.8)
        self.assertLess(whole, 5)

    def test_OPS_06_a_timeout_is_one_exactly_when_the_deadline_ended_it(self):
        customer = Customer(self.world, ["u"])
        hangs = customer.endpoint("/hangs", timeout_ms=1000, retry={"attempts": 1})
        refused = customer.endpoint(url="http://127.0.0.1:9/", retry={"attempts": 1})
        self.world.receiver.answer("/hangs", lambda handler, _: time.sleep(3))
        self.world.settle()

        def timeouts():
            return self.world.api.metric("postrider_delivery_attempts_total", outcome="timeout")
        before = timeouts()
        self.world.publish(self.events(1, "u"))
        letters = wait_until("the letters", ARRIVE_S, lambda: [
            rows for rows in [customer.letters()] if len(rows) == 2])[0]
        self.assertEqual({letter["endpoint_id"] for letter in letters},
                         {hangs["id"], refused["id"]})
        # Nobody has answered; one of them is a timeout.
        self.assertEqual([letter["last_status"] for letter in letters], [None, None])
        self.assertEqual(timeouts(), before + 1)


class OrderTest(SystemTest):
    """OPS-07: without order (the default), and with it."""

    def test_OPS_07_a_retry_holds_up_nobody_and_says_when_its_event_was(self):
        world = self.world
        customer = Customer(world, ["t"])
        customer.endpoint("/hook", retry={"first_delay_ms": 3000, "cap_ms": 3000})
        first = {"failed": False}

        def answer(handler, delivery):
            if delivery.event_ids() == [events[0]["id"]] and not first["failed"]:
                first["failed"] = True
                return handler.answer(503)
            return handler.answer(200)
        world.receiver.answer("/hook", answer)
        world.settle()
        events = [{"type": "order.created", "tenant": "t", "id": self.unique("e"),
                   "time": f"2026-01-01T00:00:0{n}Z", "data": {"key": "k", "n": n}}
                  for n in range(1, 6)]
        begin = now()
        world.publish(events)
        world.wait_ids("/hook", self.ids(events[1:]), 10)
        others = [d for d in world.receiver.got("/hook") if d.event_ids() != [events[0]["id"]]]
        # The second request of an endpoint that has never answered well comes after a second.
        self.assertLess(max(d.at for d in others) - begin, 2.0)
        wait_until("the retry", ARRIVE_S, lambda: len(world.receiver.got("/hook")) == 6)
        # What a receiver restores the order by.
        messages = [message for d in world.receiver.got("/hook") for message in d.messages()]
        ordered = sorted({m["timestamp"]: m["data"]["n"] for m in messages}.items())
        self.assertEqual([n for _, n in ordered], [1, 2, 3, 4, 5])

    def test_OPS_07_an_order_by_key_holds_up_that_key_alone(self):
        world = self.world
        customer = Customer(world, ["t"])
        customer.endpoint("/ordered", retry={"first_delay_ms": 3000, "cap_ms": 3000},
                          order={"kind": "key", "key_pointer": "/key"})
        failed = []

        def answer(handler, delivery):
            if delivery.event_ids() == [events[0]["id"]] and len(failed) < 1:
                failed.append(delivery)
                return handler.answer(503)
            return handler.answer(200)
        world.receiver.answer("/ordered", answer)
        world.settle()
        events = [{"type": "order.created", "tenant": "t", "id": self.unique("e"),
                   "data": {"key": key, "n": n}}
                  for n, key in enumerate(["k", "k", "other", "k", "other", "k", "k"])]
        begin = now()
        world.publish(events)
        world.wait_ids("/ordered", self.ids(events), ARRIVE_S)
        got = [(d.at, message["data"]) for d in world.receiver.got("/ordered")
               if d not in failed for message in d.messages()]
        self.assertEqual([data["n"] for _, data in got if data["key"] == "k"], [0, 1, 3, 5, 6])
        others = [(at, data["n"]) for at, data in got if data["key"] == "other"]
        self.assertEqual([n for _, n in others], [2, 4])
        self.assertLess(max(at for at, _ in others) - begin, 2.0)


class ClockTest(SystemTest):
    """A wall clock that is set by an hour while the processes run, and between their lives."""

    HOUR = 3600
    # What the processes take for the time of day: the kernel's and what stands in a file. Waits of
    # libraries that go by the kernel's clock stay as they are.
    SHIFT = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static const volatile long long* seconds;
__attribute__((constructor)) static void open_seconds(void) {
  const char* path = getenv("SHIFTED_CLOCK_FILE");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) abort();
  void* at = mmap(NULL, sizeof(*seconds), PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) abort();
  seconds = at;
  close(fd);
}
int clock_gettime(clockid_t id, struct timespec* now) {
  int result = (int)syscall(SYS_clock_gettime, id, now);
  if (result == 0 && id == CLOCK_REALTIME && seconds) now->tv_sec += *seconds;
  return result;
}
"""

    @classmethod
    def begin(cls, world):
        cls.offset_file = world.dir / "clock"
        cls.offset_file.write_bytes(bytes(8))
        cls.set_clock(0)
        library = world.dir / "shifted_clock.so"
        subprocess.run(["cc", "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), "-"],
                       input=cls.SHIFT, text=True, check=True)
        world.migrate()
        world.create_topics(["order.created"])
        if world.embedded:
            cls.service = world.api = world.service(name="one")
        else:
            world.api = world.service("api,indexer", "api")
            cls.service = world.service("matcher,worker", "one")
        cls.service.env.update({"LD_PRELOAD": str(library),
                                "SHIFTED_CLOCK_FILE": str(cls.offset_file)})
        world.api.start().wait_ready()
        world.register_types(["order.created"])

    def start(self):
        if self.service.process is None:
            self.service.start()
        self.service.wait_ready()

    @classmethod
    def set_clock(cls, seconds):
        cls.offset = seconds
        with open(cls.offset_file, "r+b") as file:
            file.write(struct.pack("=q", seconds))

    def setUp(self):
        self.set_clock(0)
        if self.world.embedded:  # It has the API too.
            self.start()
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, [self.tenant])
        self.addCleanup(self.service.end)

    def publish(self, count=1):
        events = self.events(count, self.tenant)
        self.world.publish(events)
        return self.ids(events)

    def check_signature(self, secret, delivery):
        headers = {name.lower(): value for name, value in delivery.headers.items()}
        text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + delivery.body
        want = base64.b64encode(hmac.new(base64.b64decode(secret[len("whsec_"):]), text,
                                         hashlib.sha256).digest()).decode()
        self.assertIn(f"v1,{want}", headers["webhook-signature"].split())
        return int(headers["webhook-timestamp"])

    def check_quiet(self, rebalances):
        for name in ("lost", "lease_lapses", "fenced"):
            self.assertEqual(self.service.metric(f"postrider_stream_{name}_total"), 0, name)
        self.assertEqual(self.service.metric("postrider_stream_rebalances_total"), rebalances)
        self.assertIn("200", str(self.service.ask_probe("/readyz")[0]))

    def test_STATE_05_a_clock_that_is_set_moves_no_batch_no_retry_and_no_lease(self):
        world, receiver = self.world, self.world.receiver
        self.start()
        single = self.customer.endpoint("/single")
        self.customer.endpoint("/batch", mode="batch",
                               batch={"events_max": 100, "wait_max_ms": 3500})
        retried = 12
        for n in range(retried):
            self.customer.endpoint(f"/retry{n}", retry={"first_delay_ms": 4000, "cap_ms": 4000})
        world.settle()
        # The embedded log makes the topic with the first event, and the matcher is assigned it.
        first = self.publish()
        world.wait_ids("/single", first)
        world.wait_ids("/batch", first)
        rebalances = self.service.metric("postrider_stream_rebalances_total")
        for step in (-self.HOUR, self.HOUR):
            with self.subTest(step=step):
                for n in range(retried):
                    statuses = iter([503])
                    receiver.answer(f"/retry{n}", lambda handler, _, s=statuses: handler.answer(
                        next(s, 200)))
                begin = now()
                event = self.publish()

                def attempts(path, of=event):
                    return [d.at for d in receiver.got(path) if set(of) & set(d.event_ids())]
                wait_until("first attempts", ARRIVE_S, lambda: all(
                    attempts(f"/retry{n}") for n in range(retried)))
                self.set_clock(self.offset + step)
                wait_until("the batch", ARRIVE_S, lambda: attempts("/batch"), 0.01)
                waited = attempts("/batch")[0] - begin
                self.assertGreater(waited, 3.4)
                self.assertLess(waited, 5.5)
                wait_until("the retries", 10, lambda: all(
                    len(attempts(f"/retry{n}")) >= 2 for n in range(retried)), 0.01)
                delays = [second - first for first, second in
                          (attempts(f"/retry{n}")[:2] for n in range(retried))]
                # They are spread over 4 s, neither all at once nor an hour later.
                self.assertLess(max(delays), 6)
                self.assertGreater(statistics.median(delays), 0.4)
                new = self.publish()
                world.wait_ids("/single", new, 10)
                stamp = self.check_signature(single["secret"], receiver.got("/single")[-1])
                self.assertLess(abs(stamp - (time.time() + self.offset)), 5)
                self.check_quiet(rebalances)
        self.assertEqual(self.customer.letters(), [])
        self.service.stop()

    def test_STATE_05_nothing_is_lost_when_the_clock_is_set_between_lives(self):
        world, receiver = self.world, self.world.receiver
        self.start()
        self.customer.endpoint("/later", retry={"first_delay_ms": 20000, "cap_ms": 20000},
                               mode="batch", batch={"events_max": 10, "wait_max_ms": 50})
        self.customer.endpoint("/now")
        receiver.answer("/later", 503)
        world.settle()
        waiting = self.publish(3)
        wait_until("they wait", ARRIVE_S, lambda: self.service.metric(
            "postrider_delivery_backlog_messages") == 3)
        receiver.answer("/later", 200)
        for how, offset in (("kill", -self.HOUR), ("stop", -24 * self.HOUR)):
            with self.subTest(how):
                getattr(self.service, how)()
                if how == "kill":
                    self.service.reap()
                self.set_clock(offset)
                self.service.start().wait_ready()
                new = self.publish()
                world.wait_ids("/now", new, 10)
                world.wait_ids("/later", new, 10)
                # A retry may wait for as much longer as the clock was set; it is not lost.
                taken = {event for d in receiver.got("/later") if d.status == 200
                         for event in d.event_ids()}
                wait_until("the backlog is known", ARRIVE_S, lambda t=taken: self.service.metric(
                    "postrider_delivery_backlog_messages") == len(set(waiting) - t))
                self.check_quiet(self.service.metric("postrider_stream_rebalances_total"))
        # Set forward, what is due fires at once.
        self.service.kill()
        self.service.reap()
        self.set_clock(self.HOUR)
        self.service.start().wait_ready()
        wait_until("what waited is delivered", 15, lambda: set(waiting) <= {
            event for d in receiver.got("/later") if d.status == 200 for event in d.event_ids()})
        wait_until("the backlog is empty", ARRIVE_S, lambda: self.service.metric(
            "postrider_delivery_backlog_messages") == 0)
        self.assertEqual(self.customer.letters(), [])
        self.service.stop()


if __name__ == "__main__":
    unittest.main()
