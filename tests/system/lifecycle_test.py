#!/usr/bin/python3
"""Commands, probes, logs, and how a process starts, drains, dies and comes back."""
import base64
import collections
import pathlib
import re
import signal
import subprocess
import threading
import unittest
import urllib.parse

from harness import ARRIVE_S, Customer, SystemTest, World, kafka_only, now, wait_until


@kafka_only("no log plays a part")
class CommandTest(unittest.TestCase):
    def setUp(self):
        self.world = World("CommandTest", {})
        self.addCleanup(lambda: self.world.close(keep=False))

    def test_says_its_version(self):
        self.assertRegex(self.world.run_ok("--version"), r"^postrider \d+\.\d+\.\d+$")

    def test_wants_a_command(self):
        for arguments in ((), ("dance",), ("keys",), ("keys", "create"),
                          ("keys", "create", "--scope", "customer"), ("config",)):
            with self.subTest(arguments):
                done = self.world.run(*arguments)
                self.assertEqual(done.returncode, 2, done)
                self.assertTrue(done.stderr)

    def test_prints_every_option_with_its_range_and_environment(self):
        lines = [line for line in self.world.run_ok("config", "reference").splitlines()
                 if line.startswith("| `")]
        names = [re.match(r"\| `([a-z0-9_.]+)`", line).group(1) for line in lines]
        self.assertEqual(len(names), len(set(names)))
        for name in ("database.url", "kafka.brokers", "secrets.key_file", "network.allow",
                     "event.bytes_max", "worker.key_groups", "probes.listen"):
            self.assertIn(name, names)
        for name, line in zip(names, lines):
            self.assertIn("POSTRIDER_" + name.upper().replace(".", "__"), line)
            default, allowed, _, text = [cell.strip() for cell in line.split(" | ")][1:5]
            self.assertTrue(allowed and text, line)
            del default  # May be empty: what must be given has none.

    def test_checks_a_configuration_without_serving(self):
        self.assertIn("fine", self.world.run_ok("config", "check"))
        done = self.world.run("config", "check", env={"POSTRIDER_SECRETS__KEY_FILE": ""})
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("secrets.key_file", done.stderr)

    def test_refuses_keys_that_others_may_read(self):
        path = pathlib.Path(self.world.env["POSTRIDER_SECRETS__KEY_FILE"])
        path.chmod(0o644)
        done = self.world.run("config", "check")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("secrets.key_file", done.stderr)

    def test_migrates_once_however_often_it_is_asked(self):
        first = self.world.run_ok("migrate")
        self.assertIn("applied 0001_schema", first)
        second = self.world.run_ok("migrate")
        self.assertNotIn("applied", second)
        self.assertEqual(first.splitlines()[-1], second.splitlines()[-1])
        self.assertRegex(second, r"version \d+$")

    def test_migrates_once_when_many_ask_at_once(self):
        running = [subprocess.Popen([self.world.postrider_binary, "migrate"], env=self.world.env,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for _ in range(4)]
        texts = [process.communicate(timeout=120)[0] for process in running]
        self.assertEqual([process.returncode for process in running], [0] * 4, texts)
        self.assertEqual(sum("applied 0001_schema" in text for text in texts), 1, texts)

    def test_refuses_a_schema_whose_migration_was_changed(self):
        self.world.migrate()
        self.world.stack.psql(self.world.url, "update postrider.schema_migrations set checksum = "
                              "reverse(checksum)")
        done = self.world.run("migrate")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("0001_schema", done.stderr)

    def test_makes_the_first_operators_key(self):
        self.world.migrate()
        self.assertRegex(self.world.operator, r"^pr_[0-9a-z]{12}_[0-9a-z]+$")
        another = self.world.run_ok("keys", "create", "--scope", "operator", "--name", "ops")
        self.assertNotEqual(another, self.world.operator)
        self.world.api = self.world.service("api").start().wait_ready()
        keys = self.world.ok("GET", "/v1/keys", key=another)["data"]
        self.assertEqual([(key["scope"], key["name"]) for key in keys],
                         [("operator", "ops"), ("operator", "")])


class ProbeTest(SystemTest):
    """Every role in a process of its own."""

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()

    def test_every_process_has_health_readiness_and_metrics_of_its_own(self):
        for role, service in self.roles.items():
            with self.subTest(role):
                self.assertEqual(service.ask_probe("/healthz")[0], 200)
                status, text = service.ask_probe("/readyz")
                self.assertEqual(status, 200)
                self.assertIn(role, text)
                status, text = service.ask_probe("/metrics")
                self.assertEqual(status, 200)
                self.assertIn("# HELP postrider_", text)
                self.assertEqual(service.ask_probe("/elsewhere")[0], 404)

    def test_metrics_carry_no_label_of_a_customer_tenant_or_endpoint(self):
        for service in self.roles.values():
            text = service.ask_probe("/metrics")[1]
            labels = set(re.findall(r'(\w+)="', text))
            self.assertTrue(labels)
            self.assertFalse(labels & {"customer", "tenant", "endpoint", "subscription"}, labels)


class MasterKeyTest(SystemTest):
    """Another master key, while every role runs in a process of its own."""

    @classmethod
    def begin(cls, world):
        world.serve_apart()

    def test_another_key_seals_everything_while_all_processes_run(self):
        path = "/" + self.unique("hook")
        tenant = self.unique("t")
        customer = Customer(self.world, (tenant,))
        endpoint = customer.endpoint(path, auth={"kind": "bearer", "token": "tok"})
        key_file = pathlib.Path(self.world.env["POSTRIDER_SECRETS__KEY_FILE"])
        old = key_file.read_text()

        def rotate_once():
            return customer.ask("POST", f"/v1/endpoints/{endpoint['id']}/rotate-secret", {},
                                headers={"idempotency-key": "once"})
        rotated = rotate_once()
        self.assertEqual(rotated.status, 200, rotated)
        said = self.world.run_ok("secrets", "rotate", "--wait", "3s")
        self.assertRegex(said, r"sealed anew with k\d{8}-[0-9a-f]{4}: the secrets of 1 of 1 ")
        self.assertEqual(key_file.stat().st_mode & 0o777, 0o600)
        # Nothing needs the old one any more: who keeps it only because it stands in the file is
        # rid of it within seconds.
        key_file.write_text("".join(line for line in key_file.read_text().splitlines(True)
                                    if line not in old))
        for service in self.world.services:
            wait_until(f"{service.name} reads the keys", 30, lambda s=service: s.log_text().count(
                "other master keys were read") >= 3)
        self.world.settle()
        self.world.publish(self.events(1, tenant))
        got = wait_until("a delivery", ARRIVE_S, lambda: self.world.receiver.got(path))
        self.assertEqual({k.lower(): v for k, v in got[0].headers.items()}["authorization"],
                         "Bearer tok")
        shown = customer.ok("GET", f"/v1/endpoints/{endpoint['id']}")
        self.assertEqual(shown["generation"], endpoint["generation"] + 1)
        self.assertEqual(len(shown["public_keys"]), 2)
        # A kept answer, too: it is the first one, and no third secret.
        self.assertIn("and 1 of 1 kept answers", said)
        repeated = rotate_once()
        self.assertEqual((repeated.status, repeated.text, repeated.headers["Idempotency-Replayed"]),
                         (200, rotated.text, "true"))
        again = self.world.run_ok("secrets", "reseal")
        self.assertIn("of 0 of 1 endpoints", again)
        # By the steps of a fleet.
        added = self.world.run_ok("secrets", "add-key").split()[0]
        self.assertNotEqual(self.world.run("secrets", "use-key", "k0").returncode, 0)
        self.assertEqual(self.world.run_ok("secrets", "use-key", added), f"{added} seals")


class StopTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.serve(worker__stop_wait_max="30s")

    def setUp(self):
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, [self.tenant])
        self.path = "/" + self.unique("hook")
        self.receiver = self.world.receiver
        self.again = False

    def tearDown(self):
        if self.world.api.process is None:
            self.world.api.start().wait_ready()

    def publish_one(self):
        event = self.events(1, self.tenant)[0]
        self.world.publish(event)
        return event["id"]

    def restart_and_pass_an_event(self):
        """The process again; an event that came after all others has been through it."""
        self.world.api.start().wait_ready()
        self.world.settle()
        last = self.publish_one()
        self.world.wait_ids(self.path, [last])
        wait_until("nothing is pending", ARRIVE_S, lambda: self.world.api.metric(
            "postrider_stream_pending_records") == 0)
        return last

    def test_a_stop_finishes_the_request_in_flight_and_does_not_repeat_it(self):
        self.customer.endpoint(self.path)
        release = threading.Event()
        self.addCleanup(release.set)
        self.receiver.answer(
            self.path, lambda handler, _: release.wait(60) and handler.answer(200))
        self.world.settle()
        event = self.publish_one()
        wait_until("the request", ARRIVE_S, lambda: self.receiver.got(self.path))
        service = self.world.api
        service.process.send_signal(signal.SIGTERM)
        # Readiness goes first, while the request is still in flight.
        wait_until("it is not ready", 10, lambda: service.ask_probe("/readyz")[0] == 503, 0.01)
        self.assertEqual(service.ask_probe("/healthz")[0], 200)
        self.assertIsNone(service.process.poll())
        release.set()
        self.assertEqual(service.process.wait(30), 0)
        service.reap()
        last = self.restart_and_pass_an_event()
        self.assertEqual(self.receiver.event_ids(self.path), [event, last])

    def test_a_stop_leaves_an_open_batch_to_the_next_owner_who_sends_it_once(self):
        self.customer.endpoint(
            self.path, mode="batch", batch={"events_max": 1000, "wait_max_ms": 4000})
        self.world.settle()
        service = self.world.api
        events = self.events(3, self.tenant)
        self.world.publish(events)
        wait_until("the worker has them", ARRIVE_S, lambda: service.metric(
            "postrider_stream_pending_records", job="worker") >= 3, 0.01)
        self.assertEqual(self.receiver.got(self.path), [])
        service.stop()
        self.assertEqual(self.receiver.got(self.path), [])
        last = self.restart_and_pass_an_event()
        self.assertEqual(sorted(self.receiver.event_ids(self.path)),
                         sorted(self.ids(events) + [last]))

    def test_a_second_signal_stops_at_once(self):
        self.customer.endpoint(self.path, timeout_ms=30000)
        release = threading.Event()
        self.addCleanup(release.set)
        self.receiver.answer(
            self.path, lambda handler, _: release.wait(60) and handler.answer(200))
        self.world.settle()
        event = self.publish_one()
        wait_until("the request", ARRIVE_S, lambda: self.receiver.got(self.path))
        service = self.world.api
        service.process.send_signal(signal.SIGTERM)
        wait_until("it is not ready", 10, lambda: service.ask_probe("/readyz")[0] == 503, 0.01)
        begin = now()
        service.process.send_signal(signal.SIGTERM)
        self.assertEqual(service.process.wait(30), 1)
        self.assertLess(now() - begin, 2)
        service.reap()
        # What was in flight is not done: it comes again.
        release.set()
        self.receiver.answer(self.path, 200)
        self.restart_and_pass_an_event()
        self.assertGreaterEqual(self.receiver.event_ids(self.path).count(event), 2)

    def test_a_message_that_waits_for_its_retry_survives_a_stop_and_a_kill(self):
        for how in ("stop", "kill"):
            with self.subTest(how):
                path = "/" + self.unique("hook")
                endpoint = self.customer.endpoint(
                    path, retry={"first_delay_ms": 20000, "cap_ms": 20000})
                statuses = iter([500])
                self.receiver.answer(path, lambda handler, _, s=statuses: handler.answer(
                    next(s, 200)))
                self.world.settle()
                event = self.publish_one()
                wait_until("the first attempt", ARRIVE_S, lambda p=path: self.receiver.got(p))
                service = self.world.api
                if how == "stop":
                    service.stop()
                else:
                    service.kill()
                    service.reap()
                service.start().wait_ready()
                wait_until("it is tried again", ARRIVE_S + 30,
                           lambda p=path: len(self.receiver.got(p)) >= 2)
                first, second = self.receiver.got(path)[:2]
                self.assertEqual(second.event_ids(), [event])
                self.assertEqual(first.headers["webhook-id"], second.headers["webhook-id"])
                self.assertEqual(self.customer.letters(endpoint["id"]), [])


class KillTest(SystemTest):
    """Every role in a process of its own, killed in the middle of a run."""

    ROUNDS = 3
    EVENTS_PER_ROUND = 400

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()

    def setUp(self):
        tenant = self.unique("t")
        self.customer = Customer(self.world, [tenant])
        self.path = {kind: "/" + self.unique(kind) for kind in ("single", "batch", "failing")}
        self.customer.endpoint(self.path["single"])
        self.customer.endpoint(self.path["batch"], mode="batch",
                               batch={"events_max": 50, "wait_max_ms": 300})
        self.failing = self.customer.endpoint(self.path["failing"], retry={"attempts": 1})
        self.world.settle()
        self.proof = set(self.prove(self.path["failing"], tenant))
        self.world.receiver.answer(self.path["failing"], 400)  # takes nothing, and lives
        self.tenant = tenant
        self.published = []

    def publish_and_kill(self, services):
        services = list(dict.fromkeys(services))  # One process may have several roles.
        for _ in range(self.ROUNDS):
            ids = [self.unique("e") for _ in range(self.EVENTS_PER_ROUND)]
            self.published += ids
            seen = len(self.world.receiver.got(self.path["single"]))
            self.world.write("order.created", self.tenant, {i: {} for i in ids})
            # In the middle: some are delivered.
            wait_until("some are delivered", ARRIVE_S, lambda n=seen: len(
                self.world.receiver.got(self.path["single"])) > n + 20, 0.002)
            for service in services:
                service.kill()
            for service in services:
                service.reap()
            for service in services:
                service.start()
            for service in services:
                service.wait_ready()

    def check_deliveries(self):
        """Each event at each endpoint, repeats under the same id."""
        message_ids = {}
        for path in self.path.values():
            self.world.wait_ids(path, self.published)
            ids = self.world.receiver.event_ids(path)
            self.assertEqual(set(ids) - self.proof, set(self.published))
            print(f"{path}: {len(ids) - len(set(ids))} repeats of {len(set(ids))}", flush=True)
            for delivery in self.world.receiver.got(path):
                for message in delivery.messages():
                    known = message_ids.setdefault((path, message["event_id"]), message["id"])
                    self.assertEqual(known, message["id"], "a repeat has another id")

    def letters(self):
        """How many letters each event has, once every event has one.

        One that proved the endpoint may be sent again after a kill, and be refused then.
        """
        def dead():
            counts = collections.Counter(
                letter["event_id"] for letter in self.customer.letters(self.failing["id"])
                if letter["event_id"] not in self.proof)
            return counts if len(counts) >= len(self.published) else None
        counts = wait_until("all dead letters", ARRIVE_S, dead, 0.5)
        self.assertEqual(set(counts), set(self.published))
        return counts

    def test_nothing_is_lost_when_all_roles_are_killed_again_and_again(self):
        self.publish_and_kill(self.world.services)
        self.check_deliveries()
        # An event that was matched again is another dispatch record with an attempt and a letter of
        # its own; nothing else makes a second letter.
        # Attempts come before their letters, and are counted after them.
        counts = self.letters()
        attempts = collections.Counter(self.world.receiver.event_ids(self.path["failing"]))
        print(f"{counts.total() - len(counts)} letters more than one an event", flush=True)
        for event, count in counts.items():
            self.assertLessEqual(count, attempts[event], event)

    @kafka_only("the matcher is in their process and is killed with them")
    def test_a_letter_stands_once_when_worker_and_indexer_are_killed(self):
        self.publish_and_kill([self.roles["worker"], self.roles["indexer"]])
        self.check_deliveries()
        counts = self.letters()
        self.assertEqual({event for event, count in counts.items() if count > 1}, set())


class BacklogTest(SystemTest):
    """What waits for a retry, on disk."""

    OPTIONS = {"POSTRIDER_STATE__STORE": "rocksdb", "POSTRIDER_MEMORY__LIMIT": "320MB"}
    STORE = "rocksdb"

    def figure(self, name, **labels):
        return self.world.api.metric(f"postrider_delivery_{name}", **labels)

    def wait_backlog(self, messages):
        wait_until(f"{messages} messages in the backlog", ARRIVE_S, lambda: self.figure(
            "backlog_messages") == messages)

    def test_what_waits_takes_no_place_in_memory_and_is_there_after_a_kill(self):
        tenant = self.unique("t")
        customer = Customer(self.world, [tenant])
        path = "/" + self.unique("hook")
        endpoint = customer.endpoint(path, mode="batch", retry={"first_delay_ms": 20000},
                                     batch={"events_max": 100, "wait_max_ms": 100})
        self.world.receiver.answer(path, 500)
        self.world.settle()
        events = self.events(100, tenant)
        self.world.publish(events)
        self.wait_backlog(100)
        wait_until("nothing is pending", ARRIVE_S, lambda: self.world.api.metric(
            "postrider_stream_pending_records") == 0)
        wait_until("the store was looked at", ARRIVE_S, lambda: self.figure(
            "state_keys", store="backlog") >= 100)
        self.assertEqual(self.figure("state_stores", store="backlog"), 8)
        self.assertEqual(self.figure("state_stores", store="endpoint_state"), 8)
        self.assertGreater(self.figure("state_keys", store="endpoint_state"), 0)
        self.assertLess(self.figure("state_fullest_ratio", store="backlog"), 0.5)
        self.assertEqual(self.figure("memory_limit_bytes", part="all"), 320 << 20)
        # What the shards saw is summed up when they are asked again.
        wait_until("the stores' memory is known", ARRIVE_S, lambda: self.figure(
            "memory_used_bytes", part="backlog") > 0)
        self.assertGreater(self.figure("process_resident_bytes"), 1 << 20)
        state = pathlib.Path(self.world.api.env["POSTRIDER_DATA_DIR"]) / "state"
        self.assertEqual(state.exists(), self.STORE == "rocksdb")
        service = self.world.api
        service.kill()
        service.reap()
        service.start().wait_ready()
        self.wait_backlog(100)
        self.world.receiver.answer(path, 200)
        self.world.wait_ids(path, self.ids(events), ARRIVE_S + 30)
        self.wait_backlog(0)
        self.assertEqual(customer.letters(endpoint["id"]), [])


class HeapBacklogTest(BacklogTest):
    """The same in memory."""

    OPTIONS = {"POSTRIDER_STATE__STORE": "heap", "POSTRIDER_MEMORY__LIMIT": "320MB"}
    STORE = "heap"


@kafka_only("the embedded log's way is in embedded_log_test")
class UpgradeTest(SystemTest):
    """`state upgrade` beside the processes: what waited before it is there after it."""

    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/waits", retry={"first_delay_ms": 1000, "cap_ms": 1000,
                                               "attempts": 50})
        world.receiver.answer("/waits", 503)
        world.settle()

    def wait_for(self, count):
        """Until so many messages wait."""
        def backlog():
            self.roles["worker"].check()
            return self.roles["worker"].metric("postrider_delivery_backlog_messages") == count
        events = self.events(5, "t")
        self.world.publish(events)
        wait_until(f"{count} in the backlog", ARRIVE_S, backlog)
        return self.ids(events)

    def test_an_upgrade_is_finished_beside_the_workers_and_again(self):
        world, worker = self.world, self.roles["worker"]
        waiting = self.wait_for(5)
        listed = world.run_ok("state", "upgrade")
        self.assertRegex(listed, r"can be finished  \S.*: version [1-9]")
        self.assertIn("with --finish", listed)
        self.assertEqual(world.run_ok("state", "upgrade"), listed, "it has changed something")
        finished = world.run_ok("state", "upgrade", "--finish")
        states = set(re.findall(r"can be finished  (\S.*: version \d+)", listed))
        self.assertEqual(set(re.findall(r"finished  (\S.*: version \d+)", finished)), states)
        self.assertIn("nothing to finish", world.run_ok("state", "upgrade"))
        waiting += self.wait_for(10)
        # Once by a planned stop and once by a kill: each next owner writes the new versions.
        worker.stop()
        worker.start().wait_ready()
        waiting += self.wait_for(15)
        worker.kill()
        worker.reap()
        worker.start().wait_ready()
        waiting += self.wait_for(20)
        self.assertIn("nothing to finish", world.run_ok("state", "upgrade", "--finish"))
        world.receiver.answer("/waits", 200)
        world.wait_ids("/waits", waiting)
        wait_until("the backlog is empty", ARRIVE_S, lambda: worker.metric(
            "postrider_delivery_backlog_messages") == 0)
        self.assertEqual(self.customer.letters(), [])


class LogTest(SystemTest):
    """Secrets and payloads where they must not be (OPS-05)."""

    OPTIONS = {"POSTRIDER_LOG__LEVEL": "debug"}

    def test_secrets_payloads_and_query_strings_stay_where_they_belong(self):
        world, mark = self.world, self.unique("mark")
        customer = Customer(world, ["t"])
        made = []
        for path, rule in (("/fine", 200), ("/broken", 500), ("/gone", 410)):
            world.receiver.answer(path, rule)
            made.append(customer.endpoint(
                url=f"{world.receiver.url}{path}?token={mark}-query",
                headers={"authorization": f"Bearer {mark}-header"},
                retry={"attempts": 2, "first_delay_ms": 10}))
        made.append(customer.endpoint(url=f"http://127.0.0.1:9/refused?token={mark}-query",
                                      retry={"attempts": 2, "first_delay_ms": 10}))
        rotated = customer.ask("POST", f"/v1/endpoints/{made[0]['id']}/rotate-secret", {},
                               headers={"idempotency-key": mark}).json["secret"]
        world.settle()
        events = self.events(3, "t", data={"text": f"{mark}-payload"})
        world.publish(events)
        if not world.embedded:  # No JSON; the API takes no such thing.
            world.publish_to_kafka("order.created", [f"{mark}-payload".encode()], tenant="t")
        world.wait_ids("/fine", self.ids(events))
        letters = wait_until("the dead letters", ARRIVE_S, lambda: [
            all_of for all_of in [customer.letters()] if len(all_of) == 6])[0]
        polled = customer.ok("POST", "/v1/dead-letters/poll", {"limit": 1})["data"][0]
        # Faults with what must not be told in them.
        world.ask("POST", "/v1/endpoints", {"url": f"http://u:{mark}-password@h/"},
                  key=customer.key)
        world.ask("POST", "/v1/events", raw=f'{{"data": {mark}-payload'.encode(),
                  key=world.publisher)
        world.ask("GET", f"/v1/endpoints?token={mark}-query", key=customer.key)
        world.ask("GET", f"/v1/nothing?token={mark}-query", key=f"pr_{mark}-key")

        with open(world.env["POSTRIDER_SECRETS__KEY_FILE"]) as file:
            master = file.read().strip().partition(":")[2]
        keys = [world.operator, world.publisher, customer.key]
        secret = [rotated, *(one["secret"] for one in made), master, polled["receipt"],
                  f"{mark}-password", f"{mark}-key",
                  *(key[len("pr_") + 13:] for key in keys),
                  urllib.parse.urlsplit(world.url).password]
        secret += [one[len("whsec_"):] for one in secret if one.startswith("whsec_")]
        private = secret + [f"{mark}-payload", f"{mark}-query", f"{mark}-header"]

        def holds_none(where, text, of):
            for one in of:
                self.assertNotIn(one, text, where)
        # Every GET route, as each kind of key. A customer's own settings and payloads are its own.
        api = world.ok("GET", "/openapi.json", key="none")
        ids = {"customer": customer.id, "endpoint": made[0]["id"], "letter": letters[0]["id"],
               "subscription": customer.ok("GET", "/v1/subscriptions")["data"][0]["id"],
               "key": customer.key[3:15], "tenant": "t", "type": "order.created",
               "erasure": world.ok("POST", "/v1/erasures", {"tenant": self.unique("t")})["id"]}
        asked = 0
        for path, verbs in api["paths"].items():
            if "get" not in verbs:
                continue
            real = re.sub(r"{(\w+)}", lambda found: ids.get(found.group(1), "x"), path)
            answers = {}
            for key in (*keys, "none"):
                answer = world.ask("GET", real, key=key)
                if answer.status == 429:  # Of the wrong keys.
                    answer = wait_until("an answer", 10, lambda r=real, k=key: [
                        a for a in [world.ask("GET", r, key=k)] if a.status != 429])[0]
                answers[key] = answer.status
                asked += answer.status == 200
                holds_none(f"GET {real}", answer.text,
                           secret if key == customer.key else private)
            self.assertIn(200, answers.values(), f"GET {real}: {answers}")
        self.assertGreater(asked, 10)
        holds_none("/metrics", world.api.ask_probe("/metrics")[1], private)
        holds_none("/readyz", world.api.ask_probe("/readyz")[1], private)
        holds_none("config reference", world.run_ok("config", "reference"), private)
        log = world.api.log_text()
        self.assertIn("level=", log)
        holds_none("the log", log, private)
        # At rest only hashes and sealed bytes; the URL, headers and letters stand as they are.
        tables = world.psql_admin("select quote_ident(schemaname) || '.' || quote_ident(tablename) "
                                  "from pg_tables where schemaname = 'postrider'").splitlines()
        self.assertGreater(len(tables), 6)
        for table in tables:
            rows = world.psql_admin(f"select * from {table}")
            holds_none(table, rows, secret)
            for one in secret:
                holds_none(table, rows, [one.encode().hex()])
                if one.startswith("whsec_"):
                    raw = base64.b64decode(one[len("whsec_"):])
                    holds_none(table, rows, [raw.hex()])
        snapshot = (world.dir / "data-postrider0" / "snapshot").read_bytes()
        for one in secret:
            self.assertNotIn(one.encode(), snapshot)

    def test_every_line_of_the_log_is_logfmt(self):
        self.world.api.stop()
        text = self.world.api.log_text()
        value = r'(?:"(?:[^"\\\n]|\\.)*"|[^\s"=]*)'
        line = re.compile(rf"time=\S+ level=(?:debug|info|warn|error) msg={value}"
                          rf"(?: [\w.]+={value})*")
        lines = text.splitlines()
        self.assertGreater(len(lines), 5)
        for one in lines:
            self.assertTrue(line.fullmatch(one), one)
        self.assertIn("msg=stopped", lines[-1])
        self.world.api.start().wait_ready()


if __name__ == "__main__":
    unittest.main()
