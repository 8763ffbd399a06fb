#!/usr/bin/python3
"""What comes from outside and is wrong: events, requests, URLs, keys, options, servers."""
import base64
import json
import re
import secrets
import socket
import threading
import unittest

from broker import Broker
from harness import (ALL_ROLES, ARRIVE_S, Customer, SystemTest, World, kafka_only, now,
                     wait_until)

TYPES = ("order.created", "order.paid")


@kafka_only("it is what others write to a topic")
class BadEventTest(SystemTest):
    """Records that somebody writes to a source topic."""

    OPTIONS = {"POSTRIDER_EVENT__BYTES_MAX": "2KB"}

    @classmethod
    def begin(cls, world):
        world.serve(TYPES)
        cls.tenant = "mine"
        cls.path = "/events"
        cls.customer = Customer(world, [cls.tenant])
        cls.customer.endpoint(cls.path)
        world.settle()

    def rejected(self, reason):
        return self.world.api.metric("postrider_matching_rejected_events_total", reason=reason)

    def unmatched(self, reason):
        return self.world.api.metric("postrider_matching_unmatched_events_total", reason=reason)

    def rejected_records(self):
        lines = self.world.tool("consume", "--headers", "--brokers", self.world.brokers, "--topic",
                                self.world.prefix + "rejected").decode().splitlines()
        records = []
        for line in lines:
            *headers, value = line.split("\t")
            records.append((dict(header.split("=", 1) for header in headers),
                            base64.b64decode(value)))
        return records

    def good_event_arrives(self):
        """Behind what was written before in the same topic: the stream went on."""
        good = self.events(1, self.tenant)
        self.world.publish(good)
        self.world.wait_ids(self.path, self.ids(good))

    def refuse(self, value, reason, **headers):
        """The record is rejected for the reason, kept in the topic `rejected`, and delivered to
        nobody; what comes behind it is delivered."""
        before, records = self.rejected(reason), len(self.rejected_records())
        got = len(self.world.receiver.got(self.path))
        self.world.publish_to_kafka("order.created", [value], **headers)
        self.good_event_arrives()
        self.assertEqual(self.rejected(reason), before + 1)
        new = self.rejected_records()[records:]
        self.assertEqual(len(new), 1)
        said, kept = new[0]
        self.assertEqual(said["reason"], reason)
        self.assertEqual(said["source"].rsplit("/")[0],
                         self.world.source_prefix + "order.created")
        self.assertEqual(said["value_bytes"], str(len(value)))
        self.assertEqual(kept, value[:1024])
        self.assertEqual(len(self.world.receiver.got(self.path)), got + 1)

    def test_rejects_an_event_that_is_no_json(self):
        self.refuse(b"tenant=mine", "not_json")

    def test_rejects_an_event_that_is_cut_off(self):
        self.refuse(b'{"n": [1, 2', "not_json", tenant="mine")

    def test_rejects_an_event_that_is_no_utf8(self):
        self.refuse(b'{"text":"\xc3\x28"}', "not_utf8", tenant="mine")

    def test_rejects_an_event_over_the_size_limit_and_takes_one_at_it(self):
        limit = 2048
        at_limit = b'{"tenant":"mine","id":"at-the-limit","text":"'
        at_limit += b"x" * (limit - len(at_limit) - 2) + b'"}'
        self.assertEqual(len(at_limit), limit)
        self.world.publish_to_kafka("order.created", [at_limit])
        self.world.wait_ids(self.path, ["at-the-limit"])
        self.refuse(at_limit[:-2] + b'x"}', "too_large")

    def test_rejects_a_payload_that_would_break_out_of_the_envelope(self):
        for forged in (b'1},{"id":"forged"', b'1}\\n{"id":"forged"}', b'{"a":1},{"id":"forged"}',
                       b'{"a":1} {"id":"forged"}', b'"a","id":"forged"'):
            with self.subTest(forged):
                self.refuse(forged, "not_json", tenant="mine")
        for delivery in self.world.receiver.got():
            self.assertNotIn(b"forged", delivery.body)

    def test_refuses_such_a_payload_by_rest_too(self):
        raw = b'{"type":"order.created","tenant":"mine","data":1},{"id":"forged"}'
        answer = self.world.ask("POST", "/v1/events", raw=raw, key=self.world.publisher)
        self.assertEqual(answer.status, 400, answer)

    def test_rejects_an_event_whose_tenant_is_no_text(self):
        self.refuse(b'{"tenant": {"a": 1}}', "tenant_wrong_type")

    def test_rejects_an_event_with_a_bad_time(self):
        self.refuse(b'{"tenant":"mine","time":"yesterday"}', "bad_time")

    def test_rejects_a_line_break_in_a_tenant(self):
        self.refuse(b'{"tenant":"mine\\r\\nx-forged: 1"}', "bad_text")

    def test_delivers_events_of_an_unknown_tenant_to_nobody_and_counts_them(self):
        before = self.unmatched("no_subscription")
        stranger = self.events(1, "nobody-s-tenant")
        self.world.publish(stranger)
        self.good_event_arrives()
        self.assertEqual(self.unmatched("no_subscription"), before + 1)
        self.assertNotIn(stranger[0]["id"],
                         [e for d in self.world.receiver.got() for e in d.event_ids()])

    def test_delivers_events_without_a_tenant_to_nobody_and_counts_them(self):
        before = self.unmatched("no_tenant")
        self.world.publish_to_kafka("order.created", [b'{"n": 1}'])
        self.good_event_arrives()
        self.assertEqual(self.unmatched("no_tenant"), before + 1)


class BadRequestTest(SystemTest):
    """What customers and strangers send to the API."""

    @classmethod
    def begin(cls, world):
        world.serve(TYPES, roles=ALL_ROLES if world.embedded else "api")
        cls.customer = Customer(world, ["mine"])
        cls.stranger = Customer(world, ["theirs"])
        cls.url = "https://example.com/hook"
        cls.endpoint = cls.customer.ok("POST", "/v1/endpoints", {"url": cls.url})

    def refused(self, answer, status, pointer=None):
        self.assertEqual(answer.status, status, answer)
        self.assertEqual(answer.headers["content-type"], "application/problem+json")
        self.assertEqual(answer.json["status"], status)
        self.assertTrue(answer.json["title"])
        if pointer is not None:
            self.assertIn(pointer, answer.pointers(), answer)

    def endpoint_refused(self, pointer, **body):
        count = len(self.customer.ok("GET", "/v1/endpoints")["data"])
        answer = self.customer.ask("POST", "/v1/endpoints", {"url": self.url, **body})
        self.refused(answer, 422, pointer)
        where = f"/v1/endpoints/{self.endpoint['id']}"
        self.refused(self.customer.ask("PATCH", where, body), 422, pointer)
        self.assertEqual(self.customer.ok("GET", where)["url"], self.url)
        self.assertEqual(len(self.customer.ok("GET", "/v1/endpoints")["data"]), count)

    def test_refuses_a_url_with_another_scheme(self):
        for url in ("ftp://example.com/x", "file:///etc/passwd", "gopher://example.com/",
                    "javascript:alert(1)", "//example.com/x", "example.com/x", ""):
            with self.subTest(url):
                self.endpoint_refused("/url", url=url)

    def test_refuses_user_info_in_a_url(self):
        for url in ("https://user:secret@example.com/", "https://user@example.com/",
                    "https://example.com@127.0.0.1/", "https://:@example.com/"):
            with self.subTest(url):
                self.endpoint_refused("/url", url=url)

    def test_refuses_a_line_break_in_a_url(self):
        for url in ("https://example.com/a\r\nx-forged: 1", "https://example.com/a\nb",
                    "https://exa\tmple.com/", "https://example.com/a b"):
            with self.subTest(url):
                self.endpoint_refused("/url", url=url)

    def test_refuses_a_line_break_in_a_header(self):
        for value in ("a\r\nx-forged: 1", "a\nb", "a\rb", "a\0b"):
            with self.subTest(value):
                self.endpoint_refused("/headers/x-mine", headers={"x-mine": value})
        for name in ("x-mine\r\nx-forged", "x mine", "", "x:mine"):
            with self.subTest(name):
                answer = self.customer.ask("POST", "/v1/endpoints",
                                           {"url": self.url, "headers": {name: "1"}})
                self.refused(answer, 422)

    def test_refuses_headers_that_are_ours(self):
        for name in ("Host", "content-length", "Content-Type", "transfer-encoding", "connection",
                     "webhook-id", "Webhook-Signature"):
            with self.subTest(name):
                self.endpoint_refused(f"/headers/{name}", headers={name: "1"})

    def test_refuses_numbers_out_of_range(self):
        self.endpoint_refused("/batch/wait_max_ms", batch={"wait_max_ms": 60001})
        self.endpoint_refused("/batch/events_max", batch={"events_max": 0})
        self.endpoint_refused("/retry/attempts", retry={"attempts": 51})
        self.endpoint_refused("/retry/horizon_ms", retry={"horizon_ms": 604800001})
        self.endpoint_refused("/window_max", window_max=257)

    def test_refuses_unknown_fields(self):
        self.endpoint_refused("/colour", colour="red")

    def test_refuses_a_subscription_for_a_tenant_that_is_not_granted(self):
        def subscribe(scope):
            return self.customer.ask("POST", "/v1/subscriptions", {
                "endpoint_id": self.endpoint["id"], "event_types": ["order.*"], "scope": scope})
        self.refused(subscribe({"kind": "tenants", "tenants": ["mine", "theirs"]}), 422,
                     "/scope/tenants/1")
        self.refused(subscribe({"kind": "departments", "tenant": "theirs",
                                "departments": ["a"]}), 422, "/scope/tenant")
        made = subscribe({"kind": "tenants", "tenants": ["mine"]})
        self.assertEqual(made.status, 201, made)
        self.refused(self.customer.ask(
            "PATCH", f"/v1/subscriptions/{made.json['id']}",
            {"scope": {"kind": "tenants", "tenants": ["theirs"]}}), 422)

    def test_refuses_a_body_that_is_no_json(self):
        for raw in (b"", b"{", b'{"url":}', b'{"url":"https://example.com"}}', b"\xff\xfe",
                    b'{"url":"\xc3\x28"}', b"{'url':1}"):
            with self.subTest(raw):
                self.refused(self.world.ask("POST", "/v1/endpoints", raw=raw,
                                            key=self.customer.key), 400)
        deep = b"[" * 100_000 + b"]" * 100_000
        self.refused(self.world.ask("POST", "/v1/endpoints", raw=deep, key=self.customer.key), 400)
        self.refused(self.world.ask("POST", "/v1/events", raw=deep, key=self.world.publisher), 400)
        self.refused(self.world.ask("POST", "/v1/endpoints", raw=b"{}", key=self.customer.key,
                                    headers={"content-type": "text/plain"}), 415)

    def test_refuses_a_body_over_a_megabyte_and_takes_one_at_it(self):
        body = {"url": self.url, "description": "x"}
        text = json.dumps(body).encode()
        at_limit = text + b" " * ((1 << 20) - len(text))
        answer = self.world.ask("POST", "/v1/endpoints", raw=at_limit, key=self.customer.key)
        self.assertEqual(answer.status, 201, answer)
        self.refused(self.world.ask("POST", "/v1/endpoints", raw=at_limit + b" ",
                                    key=self.customer.key), 413)

    def test_refuses_a_body_over_a_megabyte_before_it_is_sent(self):
        for head in ("content-length: 1048577", "content-length: 9223372036854775807"):
            with self.subTest(head):
                self.assertIn(b" 413 ", self.raw_status(head))
        self.assertIn(b" 413 ", self.raw_status(
            "transfer-encoding: chunked", b"100001\r\n" + b" " * 0x100001 + b"\r\n0\r\n\r\n"))
        self.assertIn(b" 400 ", self.raw_status("content-length: 18446744073709551616"))
        # It is still well.
        self.assertEqual(self.customer.ask("GET", "/v1/endpoints").status, 200)

    def raw_status(self, head, body=b""):
        """The status line of the answer to a POST with this header line."""
        with socket.create_connection(("127.0.0.1", self.world.api.api_port), 30) as s:
            s.sendall(f"POST /v1/endpoints HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
                      f"{self.customer.key}\r\ncontent-type: application/json\r\n{head}\r\n\r\n"
                      .encode())
            try:
                s.sendall(body)
            except OSError:  # It need not read what it refuses.
                pass
            return s.makefile("rb").readline()

    @kafka_only("the embedded log takes every event that the API does")
    def test_names_the_event_that_its_topic_never_takes_and_stores_all_others(self):
        topic = self.world.source_prefix + "order.small"
        broker = Broker(self.world.brokers)
        broker.create_topic(topic, max_message_bytes=2000)
        self.world.ok("PUT", "/v1/event-types/order.small", {})
        # Kafka refuses the whole batch that it lies in.
        rows = self.events(30, "t", "order.small")
        rows[10]["data"] = secrets.token_hex(4000)
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        answer = self.world.ask("POST", "/v1/events", raw=lines, key=self.world.publisher,
                                headers={"content-type": "application/x-ndjson"})
        self.assertEqual(answer.status, 422, answer)
        self.assertEqual((answer.json["accepted"], answer.json["refused"],
                          answer.json["lines_settled"]), (29, 1, 30))
        self.assertEqual([error["line"] for error in answer.json["errors"]], [11])
        self.assertEqual(broker.end(topic, 0), 29)
        answer = self.world.ask("POST", "/v1/events", rows[5:15], key=self.world.publisher)
        self.assertEqual((answer.status, answer.pointers()), (422, ["/5"]), answer)
        self.assertEqual(broker.end(topic, 0), 38)
        # What is stored is told, each with the id that it has.
        stored = answer.json["data"]
        self.assertEqual(sorted(row["offset"] for row in stored), list(range(29, 38)))
        # A full array with one such event is through long before the time to answer is over.
        rows = self.events(1000, "t", "order.small")
        rows[500]["data"] = secrets.token_hex(4000)
        begin = now()
        answer = self.world.ask("POST", "/v1/events", rows, key=self.world.publisher)
        self.assertEqual((answer.status, answer.pointers()), (422, ["/500"]), answer)
        self.assertLess(now() - begin, 8)
        self.assertEqual(broker.end(topic, 0), 38 + 999)

    def test_refuses_a_missing_and_a_wrong_key(self):
        right = self.customer.key
        other = "a" if right[-1] != "a" else "b"
        for header in ({"authorization": ""}, {"authorization": right},
                       {"authorization": "Bearer " + right[:-1] + other},
                       {"authorization": "Bearer pr_"}, {"authorization": "Basic YTpi"}):
            with self.subTest(header):
                answer = wait_until("another answer than 429", 10, lambda h=header: [
                    a for a in [self.world.ask("GET", "/v1/endpoints", headers=h)]
                    if a.status != 429])[0]
                self.refused(answer, 401)
                self.assertEqual(answer.headers["www-authenticate"], "Bearer")
        self.world.ok("GET", "/openapi.json", key="none")

    def test_answers_429_after_ten_wrong_keys_in_a_second(self):
        def right():
            return self.customer.ask("GET", "/v1/endpoints").status == 200

        def burst():
            wait_until("a new second", 10, right)
            begin = now()
            statuses = [self.world.ask("GET", "/v1/endpoints", key="pr_wrong").status
                        for _ in range(11)]
            # Of no use when the machine was too slow for a second's window.
            return statuses if now() - begin < 1 else None
        statuses = wait_until("eleven requests within a second", ARRIVE_S, burst)
        self.assertEqual(statuses[-1], 429)
        self.assertEqual(set(statuses[:-1]) - {429}, {401})
        wait_until("the address may ask again", 10, right)

    def test_another_customers_ids_are_unknown(self):
        subscription = self.customer.subscribe(self.endpoint["id"])
        for path in (f"/v1/endpoints/{self.endpoint['id']}",
                     f"/v1/subscriptions/{subscription['id']}"):
            with self.subTest(path):
                self.assertEqual(self.customer.ask("GET", path).status, 200)
                self.refused(self.stranger.ask("GET", path), 404)
                self.refused(self.stranger.ask("PATCH", path, {}), 404)
                self.refused(self.stranger.ask("DELETE", path), 404)
                self.assertEqual(self.customer.ask("GET", path).status, 200)
        self.refused(self.stranger.ask(
            "POST", f"/v1/endpoints/{self.endpoint['id']}/rotate-secret", {}), 404)
        foreign = self.stranger.ask("POST", "/v1/subscriptions", {
            "endpoint_id": self.endpoint["id"], "event_types": ["*"],
            "scope": {"kind": "granted"}})
        self.refused(foreign, 422, "/endpoint_id")
        self.assertEqual(self.stranger.ok("GET", "/v1/endpoints")["data"], [])
        for odd in ("ep_1", "ep_" + "0" * 26, "sub_" + "0" * 26, "..", "'"):
            self.refused(self.customer.ask("GET", f"/v1/endpoints/{odd}"), 404)

    def test_scopes_keep_to_themselves(self):
        event = {"type": "order.created", "tenant": "mine", "data": {}}
        self.refused(self.customer.ask("POST", "/v1/events", event), 403)
        self.refused(self.world.ask("POST", "/v1/events", event), 403)
        self.refused(self.customer.ask("POST", "/v1/customers", {"name": "x"}), 403)
        self.refused(self.customer.ask("GET", "/v1/keys"), 403)
        self.refused(self.world.ask("GET", "/v1/endpoints"), 403)
        self.refused(self.world.ask("GET", "/v1/endpoints", key=self.world.publisher), 403)
        self.refused(self.world.ask("GET", "/v1/customers", key=self.world.publisher), 403)

    def test_a_publisher_publishes_its_types_and_tenants_only(self):
        made = self.world.ok("POST", "/v1/keys", {
            "scope": "publisher", "event_types": ["order.created"], "tenants": ["mine"]})

        def publish(event_type, tenant, **more):
            return self.world.ask("POST", "/v1/events", {
                "type": event_type, "tenant": tenant, "data": 1, **more}, key=made["key"])
        self.assertEqual(publish("order.created", "mine").status, 202)
        self.refused(publish("order.paid", "mine"), 403)
        self.refused(publish("order.created", "theirs"), 403)
        answer = self.world.ask("POST", "/v1/events", {
            "type": "never.registered", "tenant": "mine", "data": 1}, key=self.world.publisher)
        self.refused(answer, 422, "/type")
        self.refused(publish("order.created", "mine", time="yesterday"), 422, "/time")
        self.refused(publish("order.created", "mine", id="a\r\nb"), 422, "/id")


class GuardTest(SystemTest):
    """A process that may not reach private addresses."""

    OPTIONS = {"POSTRIDER_NETWORK__ALLOW": ""}

    def test_refuses_a_url_with_a_private_address(self):
        customer = Customer(self.world, ["mine"])
        port = self.world.receiver.url.rsplit(":", 1)[1]
        for host in (f"127.0.0.1:{port}", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1",
                     "169.254.169.254", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]",
                     "[::ffff:7f00:1]", "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]",
                     "192.0.2.1", "224.0.0.1"):
            with self.subTest(host):
                answer = customer.ask("POST", "/v1/endpoints", {"url": f"http://{host}/hook"})
                self.assertEqual(answer.status, 422, answer)
                self.assertEqual(answer.pointers(), ["/url"])
        for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1"):
            with self.subTest(host):
                answer = customer.ask("POST", "/v1/endpoints", {"url": f"http://{host}/hook"})
                self.assertEqual(answer.status, 422, answer)

    def test_connects_to_no_private_address_behind_a_name(self):
        customer = Customer(self.world, ["mine"])
        connected = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]

            def accept():
                try:
                    while True:
                        connection, peer = listener.accept()
                        connected.append(peer)
                        connection.close()
                except OSError:
                    pass
            threading.Thread(target=accept, daemon=True).start()
            endpoint = customer.endpoint(url=f"http://localhost:{port}/hook",
                                         retry={"attempts": 3, "first_delay_ms": 10})
            self.world.settle()
            event = self.events(1, "mine")[0]
            self.world.publish(event)
            letter = wait_until("its dead letter", ARRIVE_S,
                                lambda: customer.letters(endpoint["id"]))[0]
        self.assertEqual(letter["event_id"], event["id"])
        self.assertEqual((letter["attempts"], letter["last_status"]), (3, None))
        self.assertEqual(connected, [])


@kafka_only("they are options of Kafka, or no log plays a part")
class BadStartTest(unittest.TestCase):
    """Options and servers that are not what they must be. No process is left running."""

    def setUp(self):
        self.world = World("BadStartTest", {})
        self.addCleanup(lambda: self.world.close(keep=False))

    def bad_option(self, name, value, says, *flags):
        variable = "POSTRIDER_" + name.upper().replace(".", "__")
        done = self.world.run("serve", *flags, env={} if flags else {variable: value})
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(name, done.stderr)
        self.assertIn(value, done.stderr)
        self.assertIn(says, done.stderr)

    def test_a_bad_option_is_named_with_its_value_and_range(self):
        self.bad_option("worker.key_groups", "0", "1..4096")
        self.bad_option("worker.key_groups", "many", "1..4096")
        self.bad_option("worker.session_timeout", "1h", "2s..5m")
        self.bad_option("event.bytes_max", "1GB", "1KB..768KB")
        self.bad_option("log.level", "loud", "debug, info, warn, error")
        self.bad_option("network.allow", "localhost", "10.0.0.0/8")
        self.bad_option("api.listen", "localhost:80", "127.0.0.1:8080")
        self.bad_option("probes.listen", "127.0.0.1:65536", "127.0.0.1:8080")
        self.bad_option("source.topics", "^(", "regular expression")
        self.bad_option("source.topics", "events", "'^'")
        self.bad_option("kafka.prefix", "x.y.", "never sources",
                        "--kafka.prefix=x.", "--source.topic_prefix=x.y.")
        self.bad_option("secrets.key_file", "/nowhere/keys", "No such file")
        self.bad_option("roles", "cook", "api, matcher, worker, indexer")
        self.bad_option("worker.shards", "65", "1..64", "--worker.shards=65")
        self.bad_option("worker.shard", "--worker.shard", "worker.shards", "--worker.shard=1")

    def test_an_egress_proxy_that_is_none_is_refused_without_its_secrets(self):
        for url in ("http://user:s3cret@proxy:3128", "https://proxy:3128", "http://proxy/path"):
            done = self.world.run("serve", env={"POSTRIDER_NETWORK__EGRESS_PROXY": url})
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("network.egress_proxy", done.stderr)
            self.assertNotIn("s3cret", done.stderr)

    def test_a_data_directory_that_cannot_be_used_is_refused(self):
        self.world.migrate()
        file = self.world.dir / "a-file"
        file.write_text("")
        self.bad_option("data_dir", str(file), "Not a directory")
        self.bad_option("data_dir", str(file / "below"), "Not a directory")
        self.bad_option("data_dir", str(self.world.dir / "no" / "such"), "No such file")

    def test_a_memory_limit_that_is_too_small_for_the_shards_names_the_smallest(self):
        self.bad_option("memory.limit", "1MB", "64MB..1024GB")
        self.bad_option("memory.limit", "64MB", "smallest that works is")
        done = self.world.run("config", "check", env={"POSTRIDER_MEMORY__LIMIT": "300MB",
                                                      "POSTRIDER_WORKER__SHARDS": "4"})
        self.assertEqual(done.returncode, 2, done)
        smallest = re.search(r"worker.shards = 4 .* works is (\d+MB)", done.stderr)
        self.assertTrue(smallest, done.stderr)
        self.world.run_ok("config", "check", env={"POSTRIDER_MEMORY__LIMIT": smallest.group(1),
                                                  "POSTRIDER_WORKER__SHARDS": "4"})

    def refused_start(self, option, says, **options):
        done = self.world.run("serve", "--roles", "worker", timeout=60, env={
            f"POSTRIDER_{name.upper()}": str(value) for name, value in options.items()})
        self.assertEqual(done.returncode, 1, done)
        last = done.stderr.strip().splitlines()[-1]
        self.assertIn(option, last)
        self.assertIn(says, last)
        return last

    def test_a_directory_that_another_running_process_owns_is_refused_and_left_alone(self):
        service = self.world.serve(state__directory=str(self.world.dir / "spill"))
        data_dir = service.env["POSTRIDER_DATA_DIR"]
        last = self.refused_start("data_dir", "another running process", data_dir=data_dir)
        self.assertIn(data_dir, last)
        last = self.refused_start("state.directory", "another running process",
                                  data_dir=self.world.dir / "data-second",
                                  state__directory=self.world.dir / "spill")
        self.assertIn("spill", last)
        # One that was killed owns nothing any more.
        service.kill()
        service.reap()
        service.start().wait_ready()

    def test_a_state_directory_with_files_of_others_is_refused_and_left_alone(self):
        self.world.migrate()
        precious = self.world.dir / "documents"
        precious.mkdir()
        (precious / "thesis.txt").write_text("dear")
        self.refused_start("state.directory", "not ours", data_dir=self.world.dir / "data-first",
                           state__directory=precious)
        self.assertEqual((precious / "thesis.txt").read_text(), "dear")

    def test_a_changelog_with_another_number_of_partitions_is_refused_by_naming_it(self):
        self.world.migrate()
        topic = f"{self.world.prefix}backlog.default"
        self.world.make_topics(3, topic)
        done = self.world.run("serve", "--roles", "worker", timeout=60)
        self.assertEqual(done.returncode, 1, done)
        last = done.stderr.strip().splitlines()[-1]
        for part in (topic, "has 3 partitions", "not 8"):
            self.assertIn(part, last)

    def test_a_bad_options_file_is_named_with_its_line(self):
        path = self.world.dir / "options.yaml"
        path.write_text("api:\n  listen: 127.0.0.1:0\nworker:\n  shards: none\n")
        done = self.world.run("config", "check", "--config", str(path))
        self.assertEqual(done.returncode, 2, done)
        for part in ("worker.shards", "none", "1..64", f"{path}:4"):
            self.assertIn(part, done.stderr)
        path.write_text("kafka:\n  properties:\n    enable.auto.commit: true\n")
        done = self.world.run("config", "check", "--config", str(path))
        self.assertEqual(done.returncode, 2, done)
        for part in ("kafka.properties", "enable.auto.commit"):
            self.assertIn(part, done.stderr)

    def test_a_database_that_was_never_migrated_is_refused_by_naming_migrate(self):
        self.refused_schema()

    def test_an_older_and_a_newer_database_are_refused_by_naming_migrate(self):
        self.world.migrate()
        self.world.stack.psql(self.world.url,
                              "insert into postrider.schema_migrations (number, name, checksum) "
                              "values (9999, '9999_later', 'x')")
        self.refused_schema()
        done = self.world.run("migrate")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("newer", done.stderr)
        self.world.stack.psql(self.world.url, "delete from postrider.schema_migrations")
        self.refused_schema()

    def refused_schema(self):
        for roles in ("api", "matcher", "worker", "indexer"):
            with self.subTest(roles):
                done = self.world.run("serve", "--roles", roles, timeout=60)
                self.assertEqual(done.returncode, 1, done)
                self.assertIn("postrider migrate", done.stderr)

    def test_a_broker_that_is_not_there_ends_the_start_by_naming_it(self):
        self.world.migrate()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # Bound and not listening: refused, and nobody else's.
            brokers = f"127.0.0.1:{s.getsockname()[1]}"
            begin = now()
            done = self.world.run("serve", env={"POSTRIDER_KAFKA__BROKERS": brokers,
                                                "POSTRIDER_STARTUP_TIMEOUT": "3s"}, timeout=60)
            took = now() - begin
        self.assertEqual(done.returncode, 1, done)
        last = done.stderr.strip().splitlines()[-1]
        self.assertIn(brokers, last)
        self.assertIn("kafka", last.lower())
        self.assertLess(took, 20)


if __name__ == "__main__":
    unittest.main()
