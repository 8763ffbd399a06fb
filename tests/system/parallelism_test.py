#!/usr/bin/python3
"""An endpoint that is spread over parts: two workers send to it, each message arrives once, and what
one of them learns of the endpoint holds for both."""
import collections
import threading
import time
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

PARTS = 4


class ParallelismTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.workers = [cls.roles["worker"], world.service("worker", "worker2").start()]
        cls.workers[1].wait_ready()
        # A second worker takes its half of the key groups when it has been told of them.
        wait_until("both workers have key groups", ARRIVE_S, lambda: all(
            worker.metric("postrider_stream_tasks", state="running") > 0
            for worker in cls.workers), 0.2)

    def setUp(self):
        self.receiver = self.world.receiver
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, (self.tenant,))
        self.path = "/" + self.unique("whale")

    def endpoint(self, **settings):
        made = self.customer.endpoint(self.path, **{"parallelism": PARTS, **settings})
        self.world.settle()
        self.url = f"/v1/endpoints/{made['id']}"
        return made

    def delivered_by(self):
        return [worker.metric("postrider_delivery_messages_delivered_total") for worker in self.workers]

    def publish(self, count):
        events = self.events(count, self.tenant)
        self.world.publish(events)
        return self.ids(events)

    def taken(self):
        return collections.Counter(event for d in self.receiver.got(self.path)
                                   if d.status == 200 for event in d.event_ids())

    def wait_taken(self, ids):
        wait_until("all of it", ARRIVE_S, lambda: set(ids) <= set(self.taken()))

    def prove_parts(self, parts=PARTS):
        """Who has never answered well is sent one request in so many seconds by each part."""
        ids = self.publish(parts * 8)
        self.world.wait_ids(self.path, ids)
        return ids

    def test_everything_arrives_once_from_both_workers_within_the_window(self):
        running, most, lock = [0], [0], threading.Lock()

        def answer(handler, delivery):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.05)
            with lock:
                running[0] -= 1
            delivery.status = 200
            handler.answer(200)

        self.receiver.answer(self.path, answer)
        # So many parts that both workers have some of them.
        self.endpoint(parallelism=16, window_max=18)
        before = self.delivered_by()
        ids = self.prove_parts()
        ids += self.publish(300)
        self.world.wait_ids(self.path, ids)
        counts = collections.Counter(self.receiver.event_ids(self.path))
        self.assertEqual(sorted(counts), sorted(ids))
        self.assertEqual(set(counts.values()), {1})
        self.assertLessEqual(most[0], 18)
        wait_until("both have counted", ARRIVE_S, lambda: sum(self.delivered_by()) - sum(before)
                   >= len(ids))
        for worker, was in zip(self.delivered_by(), before):
            self.assertGreater(worker - was, 0)
        wait_until("its status", ARRIVE_S, lambda: self.customer.ok(
            "GET", self.url + "/status")["state"] == "healthy")

    def test_a_disable_stops_every_part_and_is_told_once(self):
        self.endpoint()
        told = "/" + self.unique("told")
        self.customer.endpoint(told, ("endpoint.*",))
        self.world.settle()
        ids = self.prove_parts()
        gone = threading.Event()

        def answer(handler, delivery):
            # To one request alone.
            delivery.status = 200 if gone.is_set() else 410
            gone.set()
            handler.answer(delivery.status)

        self.receiver.answer(self.path, answer)
        late = self.publish(1)
        wait_until("a 410", ARRIVE_S, gone.is_set)
        wait_until("all parts say so", ARRIVE_S, lambda: sum(
            worker.metric("postrider_delivery_endpoints", state="disabled")
            for worker in self.workers) >= PARTS)
        wait_until("its status says so", ARRIVE_S, lambda: self.customer.ok(
            "GET", self.url + "/status")["state"] == "disabled")
        late += self.publish(40)
        wait_until("they wait", ARRIVE_S, lambda: sum(
            worker.metric("postrider_delivery_backlog_messages") for worker in self.workers) >= 41)
        self.assertEqual(set(self.receiver.event_ids(self.path)) - set(ids), set(late[:1]))
        wait_until("an operational event", ARRIVE_S, lambda: self.receiver.got(told))

        self.customer.ok("POST", self.url + "/enable", {})
        self.world.wait_ids(self.path, late)
        wait_until("its state", ARRIVE_S, lambda: self.customer.ok(
            "GET", self.url + "/status")["state"] in ("healthy", "probing"))
        wait_until("its recovery is told", ARRIVE_S, lambda: any(
            m["type"] == "endpoint.recovered" for d in self.receiver.got(told)
            for m in d.messages()))
        types = [m["type"] for d in self.receiver.got(told) for m in d.messages()]
        self.assertEqual(types, ["endpoint.disabled", "endpoint.recovered"])

    def test_a_worker_that_is_killed_loses_nothing_of_its_parts(self):
        self.endpoint(parallelism=16, retry={"attempts": 50, "first_delay_ms": 500, "cap_ms": 1000})
        ids = self.prove_parts(16)
        # A part of it waits when the worker dies, and some is in flight.
        self.receiver.answer(self.path, 503)
        ids += self.publish(100)
        wait_until("they wait", ARRIVE_S, lambda: sum(
            worker.metric("postrider_delivery_backlog_messages") for worker in self.workers) >= 50)
        killed = self.workers[1]
        killed.kill()
        killed.reap()
        self.receiver.answer(self.path, 200)
        ids += self.publish(100)
        self.wait_taken(ids)
        killed.start().wait_ready()
        ids += self.publish(20)
        self.wait_taken(ids)

    def test_a_change_of_parallelism_and_of_key_groups_loses_nothing(self):
        self.endpoint(retry={"attempts": 50, "first_delay_ms": 1000, "cap_ms": 2000})
        ids = self.prove_parts()
        self.receiver.answer(self.path, 503)
        ids += self.publish(60)
        wait_until("they wait", ARRIVE_S, lambda: sum(
            worker.metric("postrider_delivery_backlog_messages") for worker in self.workers) >= 60)
        self.customer.ok("PATCH", self.url, {"parallelism": 2})
        self.world.settle()
        ids += self.publish(20)
        done = self.world.run("rescale", "--lease", "5s", "--key-groups", "5", timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for worker in self.workers:
            worker.wait_ready()
        self.receiver.answer(self.path, 200)
        self.wait_taken(ids)
        self.assertEqual(set(self.taken().values()), {1})


if __name__ == "__main__":
    unittest.main()
