#!/usr/bin/python3
"""Processes that start while Kafka or PostgreSQL is away: they live, say what they wait for, end when
they are told to, and go to work by themselves."""
import re
import signal
import socket
import unittest
import urllib.parse

from harness import ARRIVE_S, Customer, SystemTest, now, wait_until
from relay import Relay

ROLES = ("api", "matcher", "worker", "indexer")


class StartTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.migrate()

    def nobody(self):
        """A port of the loopback where nothing listens for as long as the socket is there."""
        held = socket.socket()
        self.addCleanup(held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        return held, held.getsockname()[1]

    def relay(self, held, port, target):
        held.close()
        made = Relay(port, target)
        self.addCleanup(made.close)

    def stops_clean(self, service):
        begun = now()
        service.process.send_signal(signal.SIGTERM)
        self.assertEqual(service.process.wait(30), 0)
        service.reap()
        self.assertLess(now() - begun, 15)

    def test_each_role_waits_for_kafka_says_so_and_stops_when_it_is_told_to(self):
        _, port = self.nobody()
        for role in ROLES:
            with self.subTest(role):
                service = self.world.service(role, f"alone-{role}",
                                             kafka__brokers=f"127.0.0.1:{port}")
                service.start().wait_probes(30)
                wait_until("the wait is told of", 15,
                           lambda s=service: s.find_in_log('msg="waiting for the log"'), 0.05)
                self.assertEqual(service.ask_probe("/healthz", timeout=10)[0], 200)
                status, text = service.ask_probe("/readyz", timeout=10)
                self.assertEqual(status, 503)
                self.assertIn(f"127.0.0.1:{port}", text)
                self.assertEqual(service.ask_probe("/metrics", timeout=10)[0], 200)
                self.stops_clean(service)

    def test_goes_to_work_when_kafka_and_postgres_come(self):
        kafka, kafka_port = self.nobody()
        postgres, postgres_port = self.nobody()
        url = urllib.parse.urlsplit(self.world.url)
        away = re.sub(r":\d+$", f":{postgres_port}", url.netloc)
        service = self.world.service(
            name="early", kafka__brokers=f"127.0.0.1:{kafka_port}",
            database__url=urllib.parse.urlunsplit(url._replace(netloc=away)))
        service.start().wait_probes(30)
        wait_until("the wait is told of", 30,
                   lambda: service.find_in_log('msg="waiting for the log"'), 0.05)
        self.assertEqual(service.ask_probe("/readyz", timeout=10)[0], 503)
        self.relay(kafka, kafka_port, int(self.world.brokers.rsplit(":", 1)[1]))
        # Without a database there is no snapshot and no key: not ready, but there.
        wait_until("the log is there", 30,
                   lambda: '"log"' not in service.ask_probe("/readyz", timeout=10)[1] and
                   service.port_of("api"), 0.1)
        self.assertEqual(service.ask_probe("/healthz", timeout=10)[0], 200)
        self.assertEqual(service.ask_probe("/readyz", timeout=10)[0], 503)
        self.relay(postgres, postgres_port, url.port)
        service.wait_ready(60)
        self.world.api = service
        self.world.create_topics(["order.created"])
        self.world.register_types(["order.created"])
        Customer(self.world, ["t"]).endpoint("/early")
        self.world.settle()
        events = self.events(3, "t")
        self.world.publish(events)
        self.world.wait_ids("/early", self.ids(events), ARRIVE_S)
        self.stops_clean(service)

    def test_gives_up_after_startup_timeout_if_one_is_given(self):
        _, port = self.nobody()
        done = self.world.run("serve", "--roles", "matcher", timeout=60,
                              env={"POSTRIDER_KAFKA__BROKERS": f"127.0.0.1:{port}",
                                   "POSTRIDER_STARTUP_TIMEOUT": "1s",
                                   "POSTRIDER_DATA_DIR": str(self.world.dir / "data-giving-up")})
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("cannot start", done.stderr)


if __name__ == "__main__":
    unittest.main()
