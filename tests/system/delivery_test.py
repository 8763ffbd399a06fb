#!/usr/bin/python3
"""From an event to a verified webhook, and to a dead letter that is polled and acknowledged."""
import base64
import ctypes
import gzip
import hashlib
import hmac
import json
import pathlib
import subprocess
import tempfile
import threading
import unittest

from harness import (ARRIVE_S, EFFECTIVE_S, SLACK_S, Customer, SystemTest, kafka_only, now,
                     wait_until)

try:
    from standardwebhooks.webhooks import Webhook, WebhookVerificationError
except ImportError as error:
    raise SystemExit(f"{error}: run the system tests by tests/run --ring system, which installs "
                     "what tests/requirements.txt names") from None

TYPES = ("order.created", "order.paid", "invoice.sent")


class DeliveryTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.serve(TYPES)

    def setUp(self):
        self.receiver = self.world.receiver
        self.tenant = self.unique("t")

    def customer(self, *tenants):
        return Customer(self.world, tenants or (self.tenant,))

    def path(self):
        return "/" + self.unique("hook")

    def verify(self, delivery, *secrets):
        """Each of the secrets verifies it, by the package of PyPI."""
        for secret in secrets:
            Webhook(secret).verify(delivery.body, delivery.headers)

    def refuses(self, delivery, secret):
        try:
            Webhook(secret).verify(delivery.body, delivery.headers)
        except WebhookVerificationError:
            return True
        return False

    def letter_of(self, customer, endpoint_id):
        def one():
            letters = customer.letters(endpoint_id)
            return letters[0] if letters else None
        return wait_until("a dead letter", ARRIVE_S, one)

    def publish_one(self, **more):
        event = self.events(1, self.tenant, **more)[0]
        self.world.publish(event)
        return event

    # --- To the receiver ---------------------------------------------------------------------

    def test_delivers_an_event_published_by_rest_as_a_verified_webhook(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, headers={"x-mine": "yes"})
        self.world.settle()
        event = {"type": "order.created", "tenant": self.tenant, "department": "sales",
                 "id": self.unique("e"), "time": "2026-01-02T03:04:05.678Z"}
        # The payload is delivered byte for byte, odd spaces and all.
        raw = json.dumps({**event, "data": 0}).encode()
        data = b'{ "a" :1.00,"b":[ ],"c":"\\u00e9\\n" }'
        raw = raw.replace(b'"data": 0', b'"data": ' + data)
        answer = self.world.ask("POST", "/v1/events", raw=raw, key=self.world.publisher)
        self.assertEqual(answer.status, 202, answer)
        place = answer.json["data"][0]
        self.assertEqual(place["id"], event["id"])
        self.assertEqual(place["topic"], self.world.source_prefix + "order.created")
        self.world.wait_ids(path, [event["id"]])
        delivery = self.receiver.got(path)[0]
        self.verify(delivery, endpoint["secret"])
        message = json.loads(delivery.body)
        self.assertEqual(list(message), ["id", "event_id", "type", "timestamp", "tenant",
                                         "department", "data"])
        self.assertRegex(message["id"], r"^msg_[0-9a-z]{26}$")
        self.assertEqual(message["event_id"], event["id"])
        self.assertEqual(message["type"], "order.created")
        self.assertEqual(message["timestamp"], event["time"])
        self.assertEqual(message["tenant"], self.tenant)
        self.assertEqual(message["department"], "sales")
        self.assertIn(b'"data":' + data, delivery.body)
        headers = {name.lower(): value for name, value in delivery.headers.items()}
        self.assertEqual(headers["webhook-id"], message["id"])
        self.assertEqual(headers["webhook-attempt"], "1")
        self.assertEqual(headers["webhook-batch-size"], "1")
        self.assertEqual(headers["content-type"], "application/json")
        self.assertRegex(headers["user-agent"], r"^Postrider/\d")
        self.assertEqual(headers["x-mine"], "yes")

    def test_SSRF_11_an_event_that_is_published_again_and_again_is_stopped(self):
        customer, path = self.customer(), self.path()
        customer.endpoint(path)
        self.world.settle()
        came, again = [], {}
        for _ in range(3):
            event = self.events(1, self.tenant)[0]
            answer = self.world.ask("POST", "/v1/events", event, self.world.publisher,
                                    headers=again)
            self.assertEqual(answer.status, 202, answer)
            came.append(event["id"])
            self.world.wait_ids(path, came)
            delivery = next(d for d in self.receiver.got(path)
                            if json.loads(d.body)["event_id"] == event["id"])
            again = {name: value for name, value in delivery.headers.items()
                     if name.lower().startswith("webhook-")}
        before = self.loops()
        looped, fresh = self.events(2, self.tenant)
        self.world.ask("POST", "/v1/events", looped, self.world.publisher, headers=again)
        self.world.publish(fresh)  # Of the same tenant, so behind it.
        self.world.wait_ids(path, [fresh["id"]])
        self.assertNotIn(looped["id"], self.receiver.event_ids(path))
        self.assertEqual(self.loops(), before + 1)

    def loops(self):
        return sum(service.metric("postrider_matching_rejected_events_total", reason="loop")
                   for service in self.world.services if "matcher" in service.role)

    @kafka_only("nobody else writes to the embedded log")
    def test_delivers_events_written_to_kafka_by_somebody_else(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, event_types=["invoice.sent"])
        self.world.settle()
        by_pointer, by_header = self.unique("e"), self.unique("e")
        line = json.dumps({"tenant": self.tenant, "id": by_pointer, "department": "d"}).encode()
        self.world.publish_to_kafka("invoice.sent", [line])
        self.world.publish_to_kafka("invoice.sent", [b"[1,2]"], tenant=self.tenant, id=by_header)
        self.world.wait_ids(path, [by_pointer, by_header])
        messages = {}
        for delivery in self.receiver.got(path):
            self.verify(delivery, endpoint["secret"])
            message = json.loads(delivery.body)
            messages[message["event_id"]] = message
        self.assertEqual(messages[by_pointer]["department"], "d")
        self.assertEqual(messages[by_pointer]["data"], json.loads(line))
        self.assertEqual(messages[by_header]["data"], [1, 2])
        self.assertIsNone(messages[by_header]["department"])

    def test_delivers_the_first_events_of_a_type_that_has_no_topic_yet(self):
        customer, path = self.customer(), self.path()
        customer.endpoint(path)
        event_type = self.unique("new").replace("-", ".")
        self.world.ok("PUT", f"/v1/event-types/{event_type}", {})
        self.world.settle()
        # They are written before the matcher has found the topic.
        events = self.events(3, self.tenant, event_type)
        for event in events:
            self.world.publish(event)
        self.world.wait_ids(path, self.ids(events))
        self.assertEqual(sorted(self.receiver.event_ids(path)), sorted(self.ids(events)))

    def test_sends_a_batch_when_it_is_full_and_when_its_time_is_over(self):
        customer, full, late = self.customer(), self.path(), self.path()
        by_count = customer.endpoint(full, mode="batch",
                                     batch={"events_max": 10, "wait_max_ms": 4000})
        by_time = customer.endpoint(late, mode="batch",
                                    batch={"events_max": 1000, "wait_max_ms": 500})
        self.world.settle()
        events = self.events(20, self.tenant)
        self.world.publish(events)
        self.world.wait_ids(full, self.ids(events))
        self.world.wait_ids(late, self.ids(events))
        for path, endpoint in ((full, by_count), (late, by_time)):
            got = self.receiver.got(path)
            for delivery in got:
                self.verify(delivery, endpoint["secret"])
                self.assertIsInstance(json.loads(delivery.body), list)
                self.assertRegex(delivery.headers["webhook-id"], r"^bat_[0-9a-z]{26}$")
                self.assertEqual(delivery.headers["webhook-batch-size"],
                                 str(len(delivery.messages())))
            self.assertEqual(sorted(self.receiver.event_ids(path)), sorted(self.ids(events)))
        self.assertEqual([len(d.messages()) for d in self.receiver.got(full)], [10, 10])
        # They were published by one request: far fewer requests than messages.
        self.assertLessEqual(len(self.receiver.got(late)), 4)

    def verify_bytes(self, delivery, secret):
        headers = {name.lower(): value for name, value in delivery.headers.items()}
        signed = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.'.encode() + delivery.body
        mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256)
        self.assertIn("v1," + base64.b64encode(mac.digest()).decode(),
                      headers["webhook-signature"].split())

    def verify_by_openssl(self, delivery, public_key):
        """A v1a of the delivery, by the command openssl."""
        headers = {name.lower(): value for name, value in delivery.headers.items()}
        # RFC 8410: what stands before the 32 bytes of a public key of ed25519.
        der = bytes.fromhex("302a300506032b6570032100") + base64.b64decode(
            public_key.removeprefix("whpk_"))
        signed = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.'.encode() + delivery.body
        signatures = [one.removeprefix("v1a,") for one in headers["webhook-signature"].split()
                      if one.startswith("v1a,")]
        with tempfile.TemporaryDirectory() as directory:
            def place(name, data):
                path = pathlib.Path(directory, name)
                path.write_bytes(data)
                return str(path)
            key, text = place("key", der), place("text", signed)
            return any(subprocess.run(
                ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", key,
                 "-rawin", "-in", text, "-sigfile", place("signature", base64.b64decode(one))],
                capture_output=True, check=False).returncode == 0 for one in signatures)

    def plain(self, delivery):
        """The body before compression."""
        encoding = {name.lower(): value for name, value in delivery.headers.items()}.get(
            "content-encoding")
        if encoding == "gzip":
            return gzip.decompress(delivery.body)
        if encoding == "zstd":
            zstd = ctypes.CDLL("libzstd.so.1")
            zstd.ZSTD_decompress.restype = ctypes.c_size_t
            out = ctypes.create_string_buffer(1 << 20)
            size = zstd.ZSTD_decompress(out, ctypes.c_size_t(len(out)), delivery.body,
                                        ctypes.c_size_t(len(delivery.body)))
            return out.raw[:size]
        self.assertIsNone(encoding)
        return delivery.body

    def test_sends_each_format_compressed_and_signed_by_both_schemes(self):
        customer = self.customer()
        made = {}
        for body_format in ("envelope", "cloudevents", "ndjson", "raw", "cloudevents_binary"):
            for mode in ("streaming", "batch"):
                if mode == "batch" and body_format in ("raw", "cloudevents_binary"):
                    continue
                compression = "none" if mode == "streaming" else (
                    "gzip" if body_format == "envelope" else "zstd")
                path = self.path()
                made[body_format, mode] = path, customer.endpoint(
                    path, mode=mode, signature="both",
                    body={"format": body_format, "compression": compression},
                    batch={"events_max": 2, "wait_max_ms": 30000})
        self.world.settle()
        data = b'{ "a" :1.00,\n"b":[ ],"c":"\\u00e9\\n"\r\n }'
        in_a_line = data.replace(b"\n", b" ").replace(b"\r", b" ")
        events = self.events(2, self.tenant, department="d\u00e9 1")
        for event in events:
            raw = json.dumps({**event, "data": 0}).encode()
            raw = raw.replace(b'"data": 0', b'"data": ' + data)
            self.assertEqual(self.world.ask("POST", "/v1/events", raw=raw,
                                            key=self.world.publisher).status, 202)
        media = {"envelope": "application/json", "ndjson": "application/x-ndjson",
                 "raw": "application/json", "cloudevents_binary": "application/json",
                 "cloudevents": "application/cloudevents+json"}
        for (body_format, mode), (path, endpoint) in made.items():
            with self.subTest(format=body_format, mode=mode):
                count = 1 if mode == "batch" else 2
                got = wait_until("the webhooks", ARRIVE_S, lambda p=path, n=count: (
                    self.receiver.got(p) if len(self.receiver.got(p)) >= n else None))
                ids = []
                for delivery in got:
                    if mode == "streaming":
                        self.verify(delivery, endpoint["secret"])
                    else:  # The package takes text alone.
                        self.verify_bytes(delivery, endpoint["secret"])
                    self.assertTrue(self.verify_by_openssl(delivery, endpoint["public_key"]))
                    headers = {name.lower(): value for name, value in delivery.headers.items()}
                    body = self.plain(delivery)
                    if (body_format, mode) == ("cloudevents", "batch"):
                        self.assertEqual(headers["content-type"],
                                         "application/cloudevents-batch+json")
                    else:
                        self.assertEqual(headers["content-type"], media[body_format])
                    self.assertEqual(body.count(in_a_line if body_format == "ndjson" else data),
                                     2 if mode == "batch" else 1)
                    if body_format == "raw":
                        self.assertEqual(body, data)
                        ids.append(None)
                    elif body_format == "cloudevents_binary":
                        self.assertEqual(body, data)
                        self.assertEqual(headers["ce-department"], "d%C3%A9%201")
                        self.assertEqual(headers["ce-id"], headers["webhook-id"])
                        self.assertEqual(headers["ce-source"], f"/tenants/{self.tenant}")
                        ids.append(headers["ce-eventid"])
                    elif body_format == "ndjson":
                        self.assertTrue(body.endswith(b"\n"))
                        ids += [json.loads(line)["event_id"] for line in body.splitlines()]
                    else:
                        messages = json.loads(body)
                        self.assertEqual(isinstance(messages, list), mode == "batch")
                        for message in messages if mode == "batch" else [messages]:
                            ids.append(message["eventid" if body_format == "cloudevents"
                                               else "event_id"])
                            self.assertEqual(message["department"], "d\u00e9 1")
                if body_format != "raw":
                    self.assertEqual(sorted(ids), sorted(self.ids(events)))

    def test_a_rotation_signs_with_the_old_key_pair_too(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, signature="ed25519")
        where = f"/v1/endpoints/{endpoint['id']}"
        second = customer.ok("POST", where + "/rotate-secret", {"overlap_s": 600})["public_key"]
        self.assertNotEqual(second, endpoint["public_key"])
        self.assertEqual(customer.ok("GET", where)["public_keys"],
                         [second, endpoint["public_key"]])
        self.world.settle()
        self.world.wait_ids(path, [self.publish_one()["id"]])
        delivery = self.receiver.got(path)[-1]
        for key in (endpoint["public_key"], second):
            self.assertTrue(self.verify_by_openssl(delivery, key))
        self.assertTrue(self.refuses(delivery, endpoint["secret"]), "there is no v1")

    # --- Who gets what -----------------------------------------------------------------------

    def test_matches_by_type_prefix_and_the_three_scopes(self):
        other, foreign = self.unique("t"), self.unique("t")
        customer = self.customer(self.tenant, other)
        path = {name: self.path() for name in
                ("granted", "listed", "departments", "prefix", "type")}
        listed = {"kind": "tenants", "tenants": [other]}
        departments = {"kind": "departments", "tenant": self.tenant, "departments": ["a", "b"]}
        customer.endpoint(path["granted"], ["*"])
        customer.endpoint(path["listed"], ["*"], listed)
        customer.endpoint(path["departments"], ["*"], departments)
        customer.endpoint(path["prefix"], ["order.*"])
        customer.endpoint(path["type"], ["order.paid", "invoice.sent"])
        self.world.settle()
        events = [event for event_type in TYPES for tenant in (self.tenant, other, foreign)
                  for department in (None, "a", "c")
                  for event in self.events(1, tenant, event_type,
                                           **({"department": department} if department else {}))]
        self.world.publish(events)
        mine = [e for e in events if e["tenant"] != foreign]
        expected = {
            "granted": mine,
            "listed": [e for e in mine if e["tenant"] == other],
            "departments": [e for e in mine
                            if e["tenant"] == self.tenant and e.get("department") == "a"],
            "prefix": [e for e in mine if e["type"].startswith("order.")],
            "type": [e for e in mine if e["type"] in ("order.paid", "invoice.sent")],
        }
        for name, wanted in expected.items():
            self.world.wait_ids(path[name], self.ids(wanted))
        self.quiesce(*TYPES)
        for name, wanted in expected.items():
            self.assertEqual(sorted(self.receiver.event_ids(path[name])),
                             sorted(self.ids(wanted)), name)

    def quiesce(self, *event_types):
        """Until all that was published before has been matched and sent: events published now, to
        an endpoint of another customer, come behind them in their topics; and nothing is held."""
        tenant = self.unique("t")
        other, path = self.customer(tenant), self.path()
        other.endpoint(path)
        self.world.settle()
        last = [event for name in event_types or TYPES for event in self.events(1, tenant, name)]
        self.world.publish(last)
        self.world.wait_ids(path, self.ids(last))
        wait_until("nothing is pending", ARRIVE_S, lambda: self.world.api.metric(
            "postrider_stream_pending_records") == 0)

    # --- Retries and dead letters ------------------------------------------------------------

    def test_keeps_the_message_id_over_a_retry(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"first_delay_ms": 50})
        statuses = iter([500, 503, 200])
        self.receiver.answer(path, lambda handler, _: handler.answer(next(statuses)))
        self.world.settle()
        event = self.publish_one()
        wait_until("three attempts", ARRIVE_S, lambda: len(self.receiver.got(path)) == 3)
        self.quiesce("order.created")
        got = self.receiver.got(path)
        self.assertEqual(len(got), 3)
        self.assertEqual([d.headers["webhook-attempt"] for d in got], ["1", "2", "3"])
        self.assertEqual(len({d.headers["webhook-id"] for d in got}), 1)
        self.assertEqual(len({d.body for d in got}), 1)
        self.assertEqual(got[0].event_ids(), [event["id"]])
        for delivery in got:
            self.verify(delivery, endpoint["secret"])
        self.assertEqual(customer.letters(endpoint["id"]), [])

    def test_gives_up_into_a_dead_letter_that_is_polled_returned_and_acknowledged(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"attempts": 2, "first_delay_ms": 20})
        self.receiver.answer(path, 500)
        self.world.settle()
        event = self.publish_one(department="returns")
        poll = {"endpoint_id": endpoint["id"], "lease_s": 30, "wait_s": 20}

        def polled():
            return customer.ok("POST", "/v1/dead-letters/poll", poll)["data"]
        letters = wait_until("a letter to poll", ARRIVE_S, polled)
        self.assertEqual(len(letters), 1)
        letter = letters[0]
        receipt = letter.pop("receipt")
        self.assertRegex(letter["id"], r"^dl_[0-9a-z]{26}$")
        first = self.receiver.got(path)[0]
        self.assertEqual(letter["message_id"], first.headers["webhook-id"])
        wanted = {"endpoint_id": endpoint["id"], "event_id": event["id"], "type": event["type"],
                  "tenant": self.tenant, "department": "returns", "reason": "attempts_exhausted",
                  "attempts": 2, "last_status": 500, "state": "leased", "data": event["data"]}
        self.assertEqual({key: letter[key] for key in wanted}, wanted)
        self.assertEqual(len(self.receiver.got(path)), 2)

        where = f"/v1/dead-letters/{letter['id']}"
        poll["wait_s"] = 0
        self.assertEqual(polled(), [], "a leased letter was given to a second poll")
        self.assertEqual(customer.ask("POST", where + "/ack", {"receipt": "0" * 32}).status, 409)
        extended = customer.ask("POST", where + "/extend", {"receipt": receipt, "lease_s": 60})
        self.assertEqual(extended.status, 200, extended)
        self.assertEqual(customer.ask("POST", where + "/nack", {"receipt": receipt}).status, 204)
        self.assertEqual(customer.ok("GET", where)["state"], "open")
        again = polled()
        self.assertEqual([one["id"] for one in again], [letter["id"]])
        self.assertNotEqual(again[0]["receipt"], receipt)
        # The first lease is over: its receipt no longer counts.
        self.assertEqual(customer.ask("POST", where + "/ack", {"receipt": receipt}).status, 409)
        receipt = again[0]["receipt"]
        self.assertEqual(customer.ask("POST", where + "/ack", {"receipt": receipt}).status, 204)
        self.assertEqual(polled(), [])
        self.assertEqual(customer.ok("GET", where)["state"], "closed")

        stranger = self.customer()
        self.assertEqual(stranger.ask("GET", where).status, 404)
        self.assertEqual(stranger.letters(), [])
        self.assertEqual(
            stranger.ask("POST", where + "/ack", {"receipt": receipt}).status in (404, 409), True)

    def test_a_receiver_that_is_gone_is_left_alone_and_its_message_kept(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"first_delay_ms": 10, "cap_ms": 10})
        self.receiver.answer(path, 410)
        self.world.settle()
        self.publish_one()
        url = f"/v1/endpoints/{endpoint['id']}/attempts"
        wait_until("the attempt to be listed", ARRIVE_S, lambda: customer.ok("GET", url)["data"])
        attempt, = customer.ok("GET", url)["data"]
        self.assertEqual((attempt["outcome"], attempt["status"]), ("gone", 410))
        self.assertEqual(customer.ok("GET", "/v1/dead-letters")["data"], [])
        self.assertEqual(len(self.receiver.got(path)), 1)

    def test_a_message_that_the_receiver_rejects_is_not_retried(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path)
        self.receiver.answer(path, 422)
        self.world.settle()
        self.publish_one()
        letter = self.letter_of(customer, endpoint["id"])
        self.assertEqual((letter["reason"], letter["attempts"]), ("rejected_by_receiver", 1))
        self.assertEqual(len(self.receiver.got(path)), 1)

    def test_a_retry_after_is_kept_to_a_quarter_of_the_horizon_which_ends_it(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"horizon_ms": 4000, "first_delay_ms": 10})
        self.receiver.answer(path, lambda handler, _: handler.answer(
            429, [("retry-after", "3600")]))
        self.world.settle()
        self.publish_one()
        letter = self.letter_of(customer, endpoint["id"])
        self.assertEqual((letter["reason"], letter["last_status"]), ("horizon", 429))
        self.assertIn(len(self.receiver.got(path)), range(2, 8))

    def test_attempts_that_failed_are_listed_with_what_the_receiver_said(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"attempts": 2, "first_delay_ms": 10})
        self.receiver.answer(path, lambda handler, _: handler.answer(503, (), b"come back later"))
        self.world.settle()
        self.publish_one()
        self.letter_of(customer, endpoint["id"])
        url = f"/v1/endpoints/{endpoint['id']}/attempts"
        wait_until("both attempts to be listed", ARRIVE_S,
                   lambda: len(customer.ok("GET", url)["data"]) == 2)
        second, first = customer.ok("GET", url)["data"]
        self.assertEqual((first["attempt"], second["attempt"]), (1, 2))
        for attempt in (first, second):
            self.assertEqual(
                (attempt["outcome"], attempt["status"], attempt["response"], attempt["messages"]),
                ("temporary_status", 503, "come back later", 1))
            self.assertEqual(attempt["message_id"],
                             self.receiver.got(path)[0].headers["webhook-id"])

    # --- Hostile receivers -------------------------------------------------------------------

    def test_follows_no_redirect(self):
        customer, path, target = self.customer(), self.path(), self.path()
        endpoint = customer.endpoint(path, retry={"attempts": 5, "first_delay_ms": 10,
                                                  "cap_ms": 100})
        statuses = iter([301, 302, 303, 307, 308])
        self.receiver.answer(path, lambda handler, _: handler.answer(
            next(statuses), [("location", self.receiver.url + target)]))
        self.world.settle()
        self.publish_one()
        letter = self.letter_of(customer, endpoint["id"])
        self.assertEqual((letter["reason"], letter["attempts"], letter["last_status"]),
                         ("attempts_exhausted", 5, 308))
        self.assertEqual(len(self.receiver.got(path)), 5)
        self.assertEqual(self.receiver.got(target), [])

    def test_takes_a_2xx_whose_body_never_ends_as_success_and_reads_little_of_it(self):
        customer, path = self.customer(), self.path()
        customer.endpoint(path)
        sent, ended = [0], threading.Event()

        def bomb(handler, _):
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header("content-encoding", "gzip")
            handler.send_header("content-length", str(10 << 30))
            handler.end_headers()
            try:
                while sent[0] < 1 << 30:
                    handler.wfile.write(b"\0" * 65536)
                    sent[0] += 65536
            finally:
                ended.set()
        self.receiver.answer(path, bomb)
        self.world.settle()
        self.publish_one()
        self.assertTrue(ended.wait(ARRIVE_S), "the body was read on and on")
        # What the sockets' buffers hold on both sides, far from what was offered.
        self.assertLess(sent[0], 64 << 20)
        self.quiesce("order.created")
        self.assertEqual(len(self.receiver.got(path)), 1)

    def test_a_receiver_that_hangs_does_not_delay_another(self):
        customer, slow, quick = self.customer(), self.path(), self.path()
        hanging = customer.endpoint(slow, timeout_ms=1000,
                                    retry={"attempts": 2, "first_delay_ms": 10})
        customer.endpoint(quick)
        release = threading.Event()
        self.addCleanup(release.set)
        self.receiver.answer(slow, lambda handler, _: release.wait(60) and handler.answer(200))
        self.world.settle()
        self.publish_one()
        wait_until("the slow receiver is asked", ARRIVE_S, lambda: self.receiver.got(slow))
        event = self.publish_one()
        self.world.wait_ids(quick, [event["id"]], 5)
        letters = wait_until("both letters", ARRIVE_S, lambda: [
            each for each in [customer.letters(hanging["id"])] if len(each) == 2])[0]
        self.assertEqual({(one["reason"], one["last_status"]) for one in letters},
                         {("attempts_exhausted", None)})

    # --- Changes in effect -------------------------------------------------------------------

    def stream(self, until):
        """Publishes an event about every 30 ms until `until()`; [(time before, event id)]."""
        sent = []
        deadline = now() + ARRIVE_S
        pause = threading.Event()
        while not until():
            self.assertLess(now(), deadline, "the change did not become effective")
            before = now()
            sent.append((before, self.publish_one()["id"]))
            pause.wait(0.03)
        return sent

    def test_signs_with_both_secrets_during_the_overlap_and_revokes_at_once_without_one(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path)
        self.world.settle()
        rotate = f"/v1/endpoints/{endpoint['id']}/rotate-secret"
        second = customer.ok("POST", rotate, {"overlap_s": 600})["secret"]
        self.assertNotEqual(second, endpoint["secret"])
        self.world.settle()
        event = self.publish_one()
        self.world.wait_ids(path, [event["id"]])
        delivery = self.receiver.got(path)[-1]
        self.assertEqual(len(delivery.headers["webhook-signature"].split()), 2)
        self.verify(delivery, endpoint["secret"], second)

        third = customer.ok("POST", rotate, {"overlap_s": 0})["secret"]
        revoked = now()

        def over():
            got = self.receiver.got(path)
            return got and now() - revoked > EFFECTIVE_S + SLACK_S and \
                got[-1].at - revoked > EFFECTIVE_S + SLACK_S
        self.stream(over)
        late = [d for d in self.receiver.got(path) if d.at - revoked > EFFECTIVE_S + SLACK_S]
        self.assertTrue(late)
        for delivery in late:
            self.verify(delivery, third)
            self.assertTrue(self.refuses(delivery, endpoint["secret"]))
            self.assertTrue(self.refuses(delivery, second))

    def test_a_new_url_is_used_within_two_seconds(self):
        customer, old, new = self.customer(), self.path(), self.path()
        endpoint = customer.endpoint(old)
        self.world.settle()
        customer.ok("PATCH", f"/v1/endpoints/{endpoint['id']}", {"url": self.receiver.url + new})
        changed = now()
        sent = self.stream(lambda: now() - changed > EFFECTIVE_S + SLACK_S + 1)
        self.world.wait_ids(new, [sent[-1][1]])
        at_old = set(self.receiver.event_ids(old))
        late = [event for at, event in sent
                if at - changed > EFFECTIVE_S + SLACK_S and event in at_old]
        self.assertEqual(late, [])
        self.quiesce("order.created")
        # None was lost on the way, and none sent to both.
        both = self.receiver.event_ids(old) + self.receiver.event_ids(new)
        self.assertEqual(sorted(both), sorted(event for _, event in sent))

    def test_a_deleted_endpoint_gets_nothing_more_after_two_seconds(self):
        customer, doomed, other = self.customer(), self.path(), self.path()
        endpoint = customer.endpoint(doomed)
        customer.endpoint(other)
        self.world.settle()
        where = f"/v1/endpoints/{endpoint['id']}"
        self.assertEqual(customer.ask("DELETE", where).status, 204)
        deleted = now()
        self.assertEqual(customer.ask("GET", where).status, 404)
        sent = self.stream(lambda: now() - deleted > EFFECTIVE_S + SLACK_S + 1)
        self.world.wait_ids(other, [event for _, event in sent])
        self.quiesce("order.created")
        late = [d for d in self.receiver.got(doomed) if d.at - deleted > EFFECTIVE_S + SLACK_S]
        self.assertEqual(late, [])
        self.assertEqual(customer.letters(endpoint["id"]), [])

    def test_a_withdrawn_grant_holds_for_messages_and_letters(self):
        other = self.unique("t")
        customer, path, broken = self.customer(self.tenant, other), self.path(), self.path()
        customer.endpoint(path)
        endpoint = customer.endpoint(broken, retry={"attempts": 1})
        self.receiver.answer(broken, 500)
        self.world.settle()
        self.publish_one()
        letter = self.letter_of(customer, endpoint["id"])
        grant = f"/v1/customers/{customer.id}/grants/{self.tenant}"
        self.assertEqual(self.world.ask("DELETE", grant).status, 204)
        withdrawn = now()
        # Letters are hidden with the answer: the API reads the grants themselves.
        self.assertEqual(customer.letters(), [])
        self.assertEqual(customer.ask("GET", f"/v1/dead-letters/{letter['id']}").status, 404)
        self.assertEqual(customer.ok("POST", "/v1/dead-letters/poll", {})["data"], [])
        sent = self.stream(lambda: now() - withdrawn > EFFECTIVE_S + SLACK_S + 1)
        # The other grant still counts.
        kept = self.events(1, other)
        self.world.publish(kept)
        self.world.wait_ids(path, self.ids(kept))
        self.quiesce("order.created")
        got = set(self.receiver.event_ids(path))
        late = [event for at, event in sent
                if at - withdrawn > EFFECTIVE_S + SLACK_S and event in got]
        self.assertEqual(late, [])

    def test_a_message_that_waits_for_its_retry_is_withheld_when_its_grant_goes(self):
        customer, path = self.customer(), self.path()
        endpoint = customer.endpoint(path, retry={"first_delay_ms": 10000, "cap_ms": 20000})
        self.receiver.answer(path, lambda handler, _: handler.answer(503, [("retry-after", "6")]))
        self.world.settle()
        withheld = self.world.api.metric("postrider_delivery_refused_total")
        self.publish_one()
        wait_until("the first attempt", ARRIVE_S, lambda: self.receiver.got(path))
        grant = f"/v1/customers/{customer.id}/grants/{self.tenant}"
        self.assertEqual(self.world.ask("DELETE", grant).status, 204)
        wait_until("it is withheld", ARRIVE_S, lambda: self.world.api.metric(
            "postrider_delivery_refused_total") == withheld + 1)
        self.assertEqual(len(self.receiver.got(path)), 1)
        self.assertEqual(customer.letters(endpoint["id"]), [])


class FirstTopicTest(SystemTest):
    """An installation that has no source topic yet."""

    @classmethod
    def begin(cls, world):
        world.migrate()
        # Ready all the same: behind a gate on readiness nobody could publish the first event.
        world.api = world.service().start().wait_ready()
        world.api.api_port = world.api.port_of("api")
        world.register_types(["order.created"])

    def test_delivers_the_first_event_of_all(self):
        customer = Customer(self.world, ["t"])
        customer.endpoint("/first")
        self.world.settle()
        events = self.events(2, "t")
        self.world.publish(events)
        self.world.wait_ids("/first", self.ids(events))


if __name__ == "__main__":
    unittest.main()
