#!/usr/bin/python3
"""`postrider publish` and `postrider log`: events in by lines, the log looked at, and moved to Kafka."""
import collections
import json
import random
import subprocess
import unittest

from harness import ARRIVE_S, ApiStream, Customer, SystemTest, wait_until

EVENTS = 3_000


class LogCommandsTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.migrate()
        world.api = world.service(log__kind="embedded", kafka__brokers="127.0.0.1:1").start()
        world.api.wait_ready()
        world.register_types(("order.created", "order.paid"))

    def setUp(self):
        self.tenant = self.unique("t")
        self.path = "/" + self.unique("hook")
        self.customer = Customer(self.world, (self.tenant,))

    def line(self, number, **more):
        return json.dumps({"tenant": self.tenant, "id": f"{self.tenant}-{number}",
                           "data": {"number": number}, **more})

    def publish(self, lines, *flags, key=None):
        """`postrider publish` with the lines as its standard input."""
        return subprocess.run(
            [self.world.postrider_binary, "publish", "--url",
             f"http://127.0.0.1:{self.world.api.api_port}", *flags],
            input="".join(line + "\n" for line in lines), text=True, capture_output=True,
            timeout=120, check=False,
            env={**self.world.env, "POSTRIDER_API_KEY": key or self.world.publisher})

    def log(self, *arguments):
        return self.world.run("log", *arguments,
                              env={"POSTRIDER_DATA_DIR": self.world.api.env["POSTRIDER_DATA_DIR"],
                                   "POSTRIDER_LOG__KIND": "embedded"})

    def test_publishes_lines_and_tells_of_those_that_are_refused(self):
        self.customer.endpoint(self.path)
        self.world.settle()
        done = self.publish([self.line(1), "{", self.line(3, type="order.paid"),
                             self.line(4, tenant=""), self.line(5)],
                            "--topic", self.world.source_prefix + "order.created")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("line 2: is not one JSON value", done.stderr)
        self.assertIn("line 3: /type: is not order.created", done.stderr)
        self.assertIn("line 4: /tenant:", done.stderr)
        self.assertIn("accepted 2, refused 3", done.stderr)
        self.world.wait_ids(self.path, {f"{self.tenant}-{n}" for n in (1, 5)})
        file = self.world.dir / "events.ndjson"
        file.write_text(self.line(6, type="order.paid") + "\n")
        key = self.world.dir / "publisher.key"
        key.write_text(self.world.publisher + "\n")
        done = self.world.run("publish", str(file), f"--key-file={key}",
                              f"--url=http://127.0.0.1:{self.world.api.api_port}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.world.wait_ids(self.path, {f"{self.tenant}-6"})
        done = self.publish([self.line(7)], "--topic", "order.created", key="pr_none")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("status 401", done.stderr)
        self.assertNotIn("pr_none", done.stderr)

    def test_publishes_through_a_restart_of_the_service(self):
        self.customer.endpoint(self.path)
        self.world.settle()
        before = self.world.api.api_port
        self.world.api.env["POSTRIDER_API__LISTEN"] = f"127.0.0.1:{before}"
        publishing = subprocess.Popen(
            [self.world.postrider_binary, "publish", "--topic", "order.created",
             "--url", f"http://127.0.0.1:{before}"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**self.world.env, "POSTRIDER_API_KEY": self.world.publisher})
        for number in range(500):
            publishing.stdin.write(self.line(number) + "\n")
        publishing.stdin.flush()
        self.world.wait_ids(self.path, {f"{self.tenant}-0"})
        self.world.api.process.kill()
        self.world.api.process.wait()
        for number in range(500, 1_000):
            publishing.stdin.write(self.line(number) + "\n")
        publishing.stdin.close()
        self.world.api.start().wait_ready()
        self.assertEqual(publishing.wait(ARRIVE_S), 0)
        self.assertIn("accepted 1000, refused 0", publishing.stderr.read())
        publishing.stderr.close()
        self.world.wait_ids(self.path, {f"{self.tenant}-{n}" for n in range(1_000)})

    def test_zz_moves_to_kafka_without_loss(self):
        """The last one: it leaves the embedded log behind."""
        self.customer.endpoint(self.path)
        closed = self.path + "-closed"
        self.world.receiver.answer(closed, 500)
        self.customer.endpoint(closed, retry={"first_delay_ms": 500, "cap_ms": 1_000})
        self.world.settle()
        lines = [self.line(n) for n in range(EVENTS)]
        done = self.publish(lines, "--topic", "order.created", "--in-flight", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        ids = {f"{self.tenant}-{n}" for n in range(EVENTS)}

        busy = self.log("list")
        self.assertEqual(busy.returncode, 1, busy.stderr)
        self.assertIn("stop the service first", busy.stderr)
        # Amid its work: what is not delivered yet moves too.
        self.world.api.process.terminate()
        self.world.api.process.wait()

        listed = json.loads(self.log("list", "--json").stdout)
        topic = self.world.source_prefix + "order.created"
        partitions = {one["name"]: one["partitions"] for one in listed["topics"]}
        self.assertGreaterEqual(sum(p["end"] for p in partitions[topic]), EVENTS)
        match = [p for p in listed["positions"] if p["topic"] == topic]
        self.assertTrue(match and all("incarnation" in p for p in match), match)
        read = self.log("read", "--topic", topic, "--from",
                        str(partitions[topic][0]["end"] - 1), "--max", "5", "--json")
        record = json.loads(read.stdout)
        self.assertEqual(record["offset"], partitions[topic][0]["end"] - 1)
        self.assertIn({"name": "tenant", "value": self.tenant}, record["headers"])
        whole = self.log("verify")
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        self.assertIn("all is whole", whole.stdout)

        # Killed now and then, and run again.
        flags = ["log", "export", "--to", self.world.brokers]
        env = {**self.world.env, "POSTRIDER_KAFKA__BROKERS": "127.0.0.1:1",
               "POSTRIDER_DATA_DIR": self.world.api.env["POSTRIDER_DATA_DIR"]}
        chosen = random.Random(5)
        for _ in range(3):
            run = subprocess.Popen([self.world.postrider_binary, *flags], env=env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                run.wait(chosen.uniform(0.2, 2))
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
        moved = self.log(*flags[1:], "--json")
        self.assertEqual(moved.returncode, 0, moved.stderr)
        again = self.log(*flags[1:])
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("exported already", again.stdout)

        before = self.world.receiver.event_ids(self.path)
        self.world.receiver.answer(closed, 200)
        self.world.api = self.world.service(name="on-kafka").start().wait_ready()
        done = self.publish([self.line("after")], "--topic", "order.created")
        self.assertEqual(done.returncode, 0, done.stderr)
        ids.add(f"{self.tenant}-after")
        self.world.wait_ids(self.path, ids)
        self.world.wait_ids(closed, ids)
        # A planned stop commits all that it has done: nothing is delivered twice.
        arrived = self.world.receiver.event_ids(self.path)
        repeats = len(arrived) - len(set(arrived))
        self.assertEqual(repeats, len(before) - len(set(before)), f"{repeats} repeats")


class MoveWhileItRunsTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.migrate()
        world.api = world.service(log__kind="embedded", kafka__brokers="127.0.0.1:1").start()
        world.api.wait_ready()
        world.register_types(("order.created",))

    def begin_export(self, name):
        errors = self.world.dir / f"{name}.log"
        with open(errors, "wb") as log:
            run = subprocess.Popen(
                [self.world.postrider_binary, "log", "export", "--to", self.world.brokers,
                 "--wait", "--json"],
                env={**self.world.env, "POSTRIDER_KAFKA__BROKERS": "127.0.0.1:1",
                     "POSTRIDER_LOG__KIND": "embedded",
                     "POSTRIDER_DATA_DIR": self.world.api.env["POSTRIDER_DATA_DIR"]},
                stdout=subprocess.PIPE, stderr=log, text=True)

        def caught_up():
            if run.poll() is not None:
                raise AssertionError(f"the export ended: {errors.read_text()}")
            return "caught up" in errors.read_text()
        wait_until("the export has caught up", ARRIVE_S, caught_up, 0.05)
        return run

    def test_copies_while_events_come_and_what_is_left_when_it_is_stopped(self):
        tenant, path = self.unique("t"), "/" + self.unique("hook")
        customer = Customer(self.world, (tenant,))
        customer.endpoint(path)
        closed = path + "-closed"
        self.world.receiver.answer(closed, 500)
        customer.endpoint(closed, retry={"first_delay_ms": 500, "cap_ms": 1_000})
        self.world.settle()
        events = self.events(EVENTS, tenant)
        for at in range(0, EVENTS, 1_000):
            self.world.publish(events[at:at + 1_000])
        stream = ApiStream(self.world, "order.created", tenant, 100)
        try:
            killed = self.begin_export("export-killed")
            killed.kill()
            killed.communicate()
            before = len(stream.acknowledged)
            wait_until("events are accepted", ARRIVE_S,
                       lambda: len(stream.acknowledged) > before + 100)
            export = self.begin_export("export")
            self.world.api.process.terminate()
            self.world.api.process.wait()
            moved, _ = export.communicate(timeout=ARRIVE_S)
            self.assertEqual(export.returncode, 0)
            topics = {one["name"]: one for one in json.loads(moved)["topics"]}
            source = topics[self.world.source_prefix + "order.created"]
            self.assertLess(source["last_step"], EVENTS, "it began anew")
            self.assertEqual(source["missing"], 0)
            self.world.receiver.answer(closed, 200)
            self.world.api = self.world.service(name="on-kafka").start().wait_ready()
            ids = set(stream.end()) | set(self.ids(events))
        finally:
            stream.abandon()
        self.world.wait_ids(path, ids)
        self.world.wait_ids(closed, ids)
        arrived = collections.Counter(self.world.receiver.event_ids(path))
        repeated = {one for one, times in arrived.items() if times > 1}
        self.assertLessEqual(repeated, stream.uncertain, "a planned stop delivers nothing twice")


if __name__ == "__main__":
    unittest.main()
