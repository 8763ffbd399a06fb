#!/usr/bin/python3
"""PostgreSQL and Kafka away and back, under load."""
import threading
import unittest

from harness import ARRIVE_S, Customer, Stream, SystemTest, now, wait_until


class OutageTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/single")
        cls.customer.endpoint("/batch", mode="batch", batch={"events_max": 50, "wait_max_ms": 200})
        world.settle()

    def setUp(self):
        self.addCleanup(self.world.stack.verb, "start-kafka")
        self.addCleanup(self.world.stack.verb, "start-postgres")

    def stream(self):
        stream = Stream(self.world, "order.created", "t", per_second=100)
        self.addCleanup(stream.abandon)
        self.wait_for_more(stream)
        return stream

    def wait_for_more(self, stream, count=50):
        """Until so many events that are written from now on have arrived."""
        first = len(stream.acknowledged)

        def arrived():
            new = stream.acknowledged[first:]
            return len(set(new) & set(self.world.receiver.event_ids("/single"))) >= count
        wait_until("delivery goes on", ARRIVE_S, arrived)

    def all_alive(self):
        for service in self.world.services:
            service.check()

    def test_delivery_goes_on_without_postgres_and_a_worker_may_restart_meanwhile(self):
        stack, api, worker = self.world.stack, self.world.api, self.roles["worker"]
        dying = self.customer.endpoint("/dying", retry={"attempts": 1})
        self.world.settle()
        self.prove("/dying", "t")
        self.world.receiver.answer("/dying", 400)  # takes nothing, and lives
        # A change is in a worker's file a few seconds later.
        snapshot = self.world.dir / "data-worker" / "snapshot"
        wait_until("the worker keeps the snapshot", 20, lambda: b"/dying" in snapshot.read_bytes())
        stream = self.stream()
        stack.verb("stop-postgres")
        away = now()

        def refused():
            begin = now()
            answer = self.world.ask("GET", f"/v1/endpoints/{dying['id']}", key=self.customer.key)
            return answer if answer.status == 503 and now() - begin < 2 else None
        # At once, whatever the state of its connections; nothing else but 503 from then on.
        answer = wait_until("the API says 503", 4, refused)
        self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
        for method, path, body in (
                ("GET", "/v1/endpoints", None),
                ("POST", "/v1/endpoints", {"url": self.world.receiver.url}),
                ("POST", "/v1/dead-letters/poll", {})):
            begin = now()
            answer = self.world.ask(method, path, body, key=self.customer.key)
            self.assertEqual(answer.status, 503, answer)
            self.assertLess(now() - begin, 2)
            self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
        self.assertEqual(api.ask_probe("/healthz")[0], 200)
        self.wait_for_more(stream)

        worker.kill()
        worker.reap()
        worker.start().wait_ready()  # From its file.
        self.wait_for_more(stream)
        wait_until("five seconds have passed", 10, lambda: now() - away > 5)
        self.all_alive()
        self.wait_for_more(stream)

        stack.verb("start-postgres")
        wait_until("the API answers again", 30, lambda: self.customer.ask(
            "GET", "/v1/endpoints").status == 200)
        for service in self.world.services:
            service.wait_ready(60)
        # A change is effective again, and nobody was restarted but the worker.
        self.customer.endpoint("/after")
        self.world.settle()
        new = self.events(1, "t")
        self.world.publish(new)
        self.world.wait_ids("/after", self.ids(new))
        acknowledged = stream.end()
        self.world.wait_ids("/single", acknowledged)
        self.world.wait_ids("/batch", acknowledged)

        # The dead letters of the meantime are all there, each once.
        def letters():
            rows = [letter["event_id"] for letter in self.customer.letters(dying["id"])]
            return rows if set(acknowledged) <= set(rows) else None
        rows = wait_until("all dead letters", ARRIVE_S, letters, 0.5)
        self.assertEqual(len(rows), len(set(rows)))
        self.assertEqual([service.lives for service in self.world.services],
                         [2 if service is worker else 1 for service in self.world.services])

    def test_nothing_that_was_acknowledged_is_lost_when_kafka_is_killed(self):
        stack = self.world.stack
        before = set(self.world.receiver.event_ids("/single"))
        lives = [service.lives for service in self.world.services]
        stream = self.stream()
        acknowledged, refused, other, longest = [], [], [], [0.0]
        ending = threading.Event()

        def publish():
            while not ending.wait(0.05):
                event = self.events(1, "t")[0]
                begin = now()
                answer = self.world.ask("POST", "/v1/events", event, key=self.world.publisher,
                                        timeout=60)
                longest[0] = max(longest[0], now() - begin)
                (acknowledged if answer.status == 202 else
                 refused if answer.status == 503 and "retry-after" in answer.headers else
                 other).append((event["id"], answer))
        publishers = [threading.Thread(target=publish, daemon=True) for _ in range(4)]
        self.addCleanup(ending.set)
        for publisher in publishers:
            publisher.start()
        wait_until("events are acknowledged", ARRIVE_S, lambda: len(acknowledged) > 10)
        stack.verb("kill-kafka")
        # Bounded, and said so; REST that needs no Kafka goes on.
        wait_until("publishing is refused", ARRIVE_S, lambda: refused)
        self.assertEqual(self.customer.ask("GET", "/v1/endpoints").status, 200)
        for role in ("matcher", "worker"):
            wait_until(f"{role} is not ready", ARRIVE_S,
                       lambda r=role: self.roles[r].ask_probe("/readyz")[0] == 503)
            self.assertEqual(self.roles[role].ask_probe("/healthz")[0], 200)
        stack.verb("start-kafka")
        count = len(acknowledged)
        wait_until("events are acknowledged again", ARRIVE_S,
                   lambda: len(acknowledged) > count + 10)
        for service in self.world.services:
            service.wait_ready(ARRIVE_S)
        ending.set()
        for publisher in publishers:
            publisher.join(60)
        self.wait_for_more(stream)
        streamed = stream.end()
        ids = [event for event, _ in acknowledged] + streamed
        self.world.wait_ids("/single", ids)
        self.world.wait_ids("/batch", ids)
        self.assertEqual(other, [])
        self.assertLess(longest[0], 40)
        self.all_alive()
        self.assertEqual([service.lives for service in self.world.services], lives)
        # What was refused may have been stored all the same; nothing else came.
        new = set(self.world.receiver.event_ids("/single")) - before
        self.assertEqual(new - set(ids) - {event for event, _ in refused}, set())
        print(f"longest answer {longest[0]:.1f} s, {len(refused)} refused", flush=True)


if __name__ == "__main__":
    unittest.main()
