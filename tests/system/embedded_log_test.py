#!/usr/bin/python3
"""One process and no Kafka: log.kind: embedded."""
import random
import threading
import time
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

KILLS = 4


class EmbeddedLogTest(SystemTest):
    LOG = "embedded"

    def setUp(self):
        self.tenant = self.unique("t")
        self.path = "/" + self.unique("hook")
        self.customer = Customer(self.world, (self.tenant,))

    def test_delivers_what_it_has_accepted_though_it_is_killed_again_and_again(self):
        self.customer.endpoint(self.path)
        self.world.settle()
        accepted, over = [], threading.Event()

        def publish():
            number = 0
            while not over.is_set():
                number += 1
                event = {"type": "order.created", "tenant": self.tenant, "data": {},
                         "id": f"{self.tenant}-{number}"}
                answer = self.world.ask("POST", "/v1/events", event, key=self.world.publisher,
                                        timeout=5)
                if answer.status in (200, 201, 202):
                    accepted.append(event["id"])
                else:
                    time.sleep(0.02)

        publisher = threading.Thread(target=publish)
        publisher.start()
        chosen = random.Random(7)
        try:
            for _ in range(KILLS):
                before = len(accepted)
                wait_until("events are accepted", ARRIVE_S,
                           lambda least=before + chosen.randrange(5, 100): len(accepted) >= least)
                self.world.api.process.kill()
                self.world.api.process.wait()
                self.world.api.start().wait_ready()
        finally:
            over.set()
            publisher.join()
        self.assertGreater(len(accepted), KILLS * 5)
        self.world.wait_ids(self.path, set(accepted))

    def test_refuses_a_second_process_and_names_kafka(self):
        directory = self.world.api.env["POSTRIDER_DATA_DIR"] + "/log"
        second = self.world.run("serve", f"--log.directory={directory}")
        self.assertEqual(second.returncode, 1, second.stderr)
        self.assertIn("in use by another process", second.stderr)
        self.assertIn("Apache Kafka", second.stderr)
        again = self.world.run("serve", env=self.world.api.env)
        self.assertEqual(again.returncode, 1, again.stderr)
        self.assertIn("owned by another running process", again.stderr)
        self.assertIn("Apache Kafka", again.stderr)

    def test_refuses_to_be_one_of_several_processes(self):
        part = self.world.run("serve", "--roles=api,worker")
        self.assertEqual(part.returncode, 2, part.stderr)
        self.assertIn('option log.kind: ', part.stderr)
        self.assertIn('lacks "matcher"', part.stderr)
        for command in (("rescale", "--key-groups=4"), ("savepoint", "create",
                                                           f"--to={self.world.dir}/savepoint")):
            refused = self.world.run(*command)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("needs Apache Kafka", refused.stderr)

    def test_finishes_an_upgrade_of_state_while_the_service_is_stopped(self):
        self.customer.endpoint(self.path)
        self.world.settle()
        env = {name: self.world.api.env[name] for name in ("POSTRIDER_DATA_DIR",)}
        running = self.world.run("state", "upgrade", env=env)
        self.assertEqual(running.returncode, 1, running.stderr)
        self.assertIn("in use by another process", running.stderr)
        self.world.api.process.terminate()
        self.world.api.process.wait()
        first = self.world.run("state", "upgrade", "--finish", env=env)
        self.assertEqual(first.returncode, 0, first.stderr)
        again = self.world.run("state", "upgrade", env=env)
        self.assertIn("nothing to finish", again.stdout)
        self.world.api.start().wait_ready()
        events = self.events(3, self.tenant)
        self.world.publish(events)
        self.world.wait_ids(self.path, {event["id"] for event in events})


if __name__ == "__main__":
    unittest.main()
