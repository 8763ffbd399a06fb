#!/usr/bin/python3
"""What a customer is told of an endpoint, by signed webhooks to another one."""
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

try:
    from standardwebhooks.webhooks import Webhook
except ImportError as error:
    raise SystemExit(f"{error}: run the system tests by tests/run --ring system, which installs "
                     "what tests/requirements.txt names") from None

TYPES = ("order.created",)


class OperationalEventsTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.serve(TYPES, operational__dead_letters="5")

    def setUp(self):
        self.receiver = self.world.receiver
        self.tenant = self.unique("t")
        self.customer = Customer(self.world, (self.tenant,))
        self.other = Customer(self.world, (self.tenant,))
        self.path, self.told, self.foreign, self.all = (
            "/" + self.unique(word) for word in ("hook", "told", "foreign", "all"))
        self.endpoint = self.customer.endpoint(self.path, TYPES)
        # It would be told of itself.
        self.customer.subscribe(self.endpoint["id"], ("endpoint.*", "dead_letters.*"))
        self.watching = self.customer.endpoint(
            self.told, ("endpoint.*", "dead_letters.*"),
            {"kind": "tenants", "tenants": [f"customer:{self.customer.id}"]})
        self.customer.endpoint(self.all)
        self.other.endpoint(self.foreign, ("endpoint.*", "dead_letters.*"))
        self.world.settle()

    def messages(self, path):
        """Each once, in the order of their coming."""
        return list({message["id"]: message for d in self.receiver.got(path)
                     for message in d.messages()}.values())

    def wait_told(self, count):
        wait_until(f"{count} operational events", ARRIVE_S,
                   lambda: len(self.messages(self.told)) >= count)
        self.assertEqual(len(self.messages(self.told)), count)
        return self.messages(self.told)

    def publish(self, count):
        self.world.publish(self.events(count, self.tenant))

    def prove_nobody_else_was_told(self):
        mine = [m["type"] for m in self.messages(self.path) + self.messages(self.all)]
        self.assertEqual(set(mine), set(TYPES))
        self.assertEqual(self.messages(self.foreign), [])

    def test_tells_of_an_endpoint_that_is_gone_and_of_its_recovery(self):
        self.receiver.answer(self.path, 410)
        self.publish(1)
        message = self.wait_told(1)[0]
        self.assertEqual(message["type"], "endpoint.disabled")
        self.assertEqual(message["tenant"], f"customer:{self.customer.id}")
        data = message["data"]
        self.assertEqual((data["endpoint_id"], data["reason"], data["last_status"]),
                         (self.endpoint["id"], "gone", 410))
        delivery = self.receiver.got(self.told)[0]
        Webhook(self.watching["secret"]).verify(delivery.body, delivery.headers)
        # A restart does not tell it again.
        self.world.api.end()
        self.world.api.start().wait_ready()
        self.receiver.answer(self.path, 200)
        self.customer.ok("POST", f"/v1/endpoints/{self.endpoint['id']}/enable", {})
        recovered = self.wait_told(2)[1]
        self.assertEqual((recovered["type"], recovered["data"]["was"]),
                         ("endpoint.recovered", "disabled"))
        self.prove_nobody_else_was_told()

    def test_tells_once_of_an_endpoint_that_fails_and_of_its_recovery(self):
        self.prove(self.path, self.tenant)
        self.receiver.answer(self.path, 500)
        self.publish(20)
        message = self.wait_told(1)[0]
        self.assertEqual(message["type"], "endpoint.degraded")
        self.assertEqual((message["data"]["percent"], message["data"]["last_status"]), (0, 500))
        wait_until("more probes", ARRIVE_S, lambda: len(self.receiver.got(self.path)) >= 13)
        self.receiver.answer(self.path, 200)
        self.assertEqual(self.wait_told(2)[1]["type"], "endpoint.recovered")
        self.prove_nobody_else_was_told()

    def test_tells_of_many_dead_letters(self):
        self.prove(self.path, self.tenant)
        self.receiver.answer(self.path, 422)
        self.publish(12)
        message = self.wait_told(1)[0]
        self.assertEqual(message["type"], "dead_letters.threshold")
        self.assertGreaterEqual(message["data"]["dead_letters"], 5)
        wait_until("all letters", ARRIVE_S, lambda: len(self.customer.letters()) == 12)
        self.wait_told(1)
        self.prove_nobody_else_was_told()


if __name__ == "__main__":
    unittest.main()
