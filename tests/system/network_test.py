#!/usr/bin/python3
"""Whom a worker may reach, and that this can be changed while it runs."""
import os
import re
import signal
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

RETRY = {"attempts": 50, "first_delay_ms": 200, "cap_ms": 500}


def attempts(customer, endpoint):
    return customer.ok("GET", f"/v1/endpoints/{endpoint['id']}/attempts?limit=1000")["data"]


class AddressListsTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.config = world.dir / "options.yaml"
        cls.write_deny()
        world.serve(config=str(cls.config))

    @classmethod
    def write_deny(cls, *networks):
        cls.config.write_text("network:\n  deny: [%s]\n" % ", ".join(f'"{n}"' for n in networks))

    def read_again(self, says):
        told = len(re.findall(says, self.world.api.log_text()))
        os.kill(self.world.api.process.pid, signal.SIGHUP)
        wait_until(f"the log says: {says}", ARRIVE_S,
                   lambda: len(re.findall(says, self.world.api.log_text())) > told, 0.02)

    def refused(self, endpoint):
        return [a for a in attempts(self.customer, endpoint) if a["outcome"] == "address_not_allowed"]

    def test_a_changed_list_is_in_force_at_once_and_a_bad_one_is_not_taken(self):
        tenant, path = self.unique("t"), "/" + self.unique("lists")
        self.customer = Customer(self.world, (tenant,))
        handlers = []

        def keep(handler, delivery):
            handlers.append(handler)
            handler.answer(200)
        endpoint = self.customer.endpoint(path, retry=RETRY)
        self.world.receiver.answer(path, keep)
        self.world.settle()
        for _ in range(2):
            one = self.events(1, tenant)
            self.world.publish(one)
            self.world.wait_ids(path, self.ids(one))
        self.assertEqual(handlers[0].client_address, handlers[1].client_address, "it is kept alive")
        self.assertFalse(handlers[1].rfile.closed)

        self.write_deny("127.0.0.1")
        self.read_again("address lists have changed")
        wait_until("the connection to what is denied is closed", ARRIVE_S,
                   lambda: handlers[1].rfile.closed, 0.02)
        late = self.events(1, tenant)
        self.world.publish(late)
        wait_until("its attempts are refused", ARRIVE_S, lambda: self.refused(endpoint), 0.1)
        told = self.refused(endpoint)[0]
        self.assertEqual((told["duration_ms"], told["status"], told["response"]), (0, None, None))
        self.assertEqual(self.customer.ask("POST", "/v1/endpoints", {
            "mode": "streaming", "url": self.world.receiver.url}).pointers(), ["/url"])

        self.write_deny("10.0.0.0/33")
        self.read_again("address lists are left as they were.*10.0.0.0/33")
        before = len(self.refused(endpoint))
        wait_until("the old list holds", ARRIVE_S, lambda: len(self.refused(endpoint)) > before, 0.1)
        self.assertEqual(len(handlers), 2, "nothing was sent")

        self.write_deny()
        self.read_again("address lists have changed")
        self.world.wait_ids(path, self.ids(late))
        self.read_again("they are as they were")
        self.assertIsNone(self.world.api.process.poll())


class EndpointTestTest(SystemTest):
    def test_a_test_is_a_signed_message_that_counts_for_nothing(self):
        tenant, path = self.unique("t"), "/" + self.unique("tested")
        customer = Customer(self.world, (tenant,))
        endpoint = customer.endpoint(path)
        got = lambda: self.world.receiver.got(path)
        self.world.receiver.answer(path, lambda handler, delivery: handler.answer(
            503, [("retry-after", "3600")], b"not now"))
        answer = customer.ok("POST", f"/v1/endpoints/{endpoint['id']}/test")
        self.assertEqual((answer["outcome"], answer["status"], answer["response"]),
                         ("throttled", 503, "not now"), answer)
        self.assertEqual(len(got()), 1)
        headers = {name.lower(): value for name, value in got()[0].headers.items()}
        self.assertEqual(headers["webhook-id"], answer["message_id"])
        self.assertTrue(headers["webhook-signature"].startswith("v1,"), headers)
        self.assertEqual(got()[0].messages()[0]["type"], "postrider.test")
        # Nothing is held for an hour, and no attempt is reported.
        self.world.receiver.answer(path, 200)
        self.world.settle()
        events = self.events(1, tenant)
        self.world.publish(events)
        self.world.wait_ids(path, self.ids(events))
        self.assertTrue(all(a["message_id"] != answer["message_id"]
                            for a in attempts(customer, endpoint)))
        refused = customer.endpoint(url=f"http://localhost:{self.world.api.probe}/")
        answer = customer.ok("POST", f"/v1/endpoints/{refused['id']}/test")
        self.assertEqual((answer["outcome"], answer["status"], answer["duration_ms"]),
                         ("address_not_allowed", None, 0))
        closed = customer.endpoint(url="http://127.0.0.1:9/")
        answer = customer.ok("POST", f"/v1/endpoints/{closed['id']}/test")
        self.assertEqual((answer["outcome"], answer["duration_ms"]), ("connect", 1000))


class OwnServersTest(SystemTest):
    """Named in the options as localhost, while all of loopback may be reached."""

    @classmethod
    def begin(cls, world):
        by_name = lambda text: text.replace("127.0.0.1", "localhost")
        world.serve(kafka__brokers=by_name(world.brokers), database__url=by_name(world.url))

    def test_what_is_ours_by_name_is_never_a_receiver(self):
        tenant = self.unique("t")
        customer = Customer(self.world, (tenant,))
        port = lambda text: int(re.search(r":(\d+)(/|$)", text).group(1))
        ours = {"database": port(self.world.url), "probes": self.world.api.probe,
                "api": self.world.api.api_port}
        if not self.world.embedded:
            ours["broker"] = port(self.world.brokers)
        made = {}
        for name, number in ours.items():
            self.assertEqual(customer.ask("POST", "/v1/endpoints", {
                "mode": "streaming", "url": f"http://127.0.0.1:{number}/"}).pointers(), ["/url"], name)
            made[name] = customer.endpoint(url=f"http://localhost:{number}/", retry=RETRY)
        other = self.world.receiver.url.replace("127.0.0.1", "localhost")
        path = "/" + self.unique("other")
        customer.endpoint(url=other + path)
        self.world.settle()
        events = self.events(1, tenant)
        self.world.publish(events)
        self.world.wait_ids(path, self.ids(events))
        for name, endpoint in made.items():
            wait_until(f"attempts at {name}", ARRIVE_S, lambda e=endpoint: attempts(customer, e), 0.1)
            outcomes = {a["outcome"] for a in attempts(customer, endpoint)}
            self.assertEqual(outcomes, {"address_not_allowed"}, name)


if __name__ == "__main__":
    unittest.main()
