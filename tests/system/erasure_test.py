#!/usr/bin/python3
"""What is deleted, and what is to be forgotten: backlogs, letters, attempts."""
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

# An erasure is not called done within ten seconds.
ERASED_S = 60


class ErasureTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.serve()

    def setUp(self):
        self.tenant, self.other = self.unique("t"), self.unique("t")
        self.customer = Customer(self.world, (self.tenant, self.other))
        self.path = "/" + self.unique("hook")

    def paused(self, events):
        """A paused endpoint with a backlog of so many events of each tenant."""
        endpoint = self.customer.endpoint(self.path)
        self.customer.ok("POST", f"/v1/endpoints/{endpoint['id']}/pause")
        self.world.settle()
        sent = {tenant: self.events(events, tenant) for tenant in (self.tenant, self.other)}
        for some in sent.values():
            self.world.publish(some)
        self.wait_backlog(endpoint, 2 * events)
        return endpoint, sent

    def wait_backlog(self, endpoint, messages):
        wait_until(f"a backlog of {messages}", ARRIVE_S, lambda: self.customer.ok(
            "GET", f"/v1/endpoints/{endpoint['id']}/status")["backlog"]["messages"] == messages)

    def erased(self, erasure):
        return wait_until("it is erased", ERASED_S, lambda: (
            lambda now: now["state"] == "erased" and now)(
                self.world.ok("GET", f"/v1/erasures/{erasure['id']}")))

    def test_a_tenant_is_forgotten_in_backlogs_letters_and_attempts(self):
        self.world.receiver.answer(self.path, lambda handler, _: handler.answer(400))
        rejecting = self.customer.endpoint(self.path)
        self.world.settle()
        self.world.publish(self.events(3, self.tenant) + self.events(2, self.other))
        wait_until("letters", ARRIVE_S, lambda: len(self.customer.letters()) == 5)
        self.customer.ask("DELETE", f"/v1/endpoints/{rejecting['id']}")
        self.path = "/" + self.unique("hook")
        endpoint, sent = self.paused(4)

        erasure = self.world.ok("POST", "/v1/erasures", {"tenant": self.tenant})
        self.assertEqual(erasure["state"], "erasing")
        self.wait_backlog(endpoint, 4)
        done = self.erased(erasure)
        self.assertEqual(done["letters"], 3)
        self.assertGreaterEqual(done["attempts"], 3)
        self.assertEqual([letter["tenant"] for letter in self.customer.letters()],
                         [self.other] * 2)
        self.customer.ok("POST", f"/v1/endpoints/{endpoint['id']}/resume")
        self.world.wait_ids(self.path, [event["id"] for event in sent[self.other]])
        # What comes now is delivered.
        fresh = self.events(1, self.tenant)
        self.world.publish(fresh)
        self.world.wait_ids(self.path, [fresh[0]["id"]])
        arrived = str([one.body for one in self.world.receiver.got(self.path)])
        self.assertFalse([e for e in sent[self.tenant] if f'"{e["id"]}"' in arrived])

    def test_refuses_a_wish_about_nothing_or_nobody(self):
        for body in ({}, {"tenant": ""}, {"customer_id": "cus_x"}, {"event": "e"}):
            answer = self.world.ask("POST", "/v1/erasures", body)
            self.assertEqual(answer.status, 422, (body, answer))
        answer = self.customer.ask("POST", "/v1/erasures", {"tenant": self.tenant})
        self.assertEqual(answer.status, 403, answer)

    def test_a_deleted_endpoints_backlog_becomes_letters_when_asked_for(self):
        endpoint, sent = self.paused(3)
        answer = self.customer.ask("DELETE", f"/v1/endpoints/{endpoint['id']}?backlog=keep")
        self.assertEqual(answer.status, 422, answer)
        self.customer.ask("DELETE", f"/v1/endpoints/{endpoint['id']}?backlog=dead_letter")
        letters = wait_until("letters", ARRIVE_S, lambda: (
            lambda all_of_it: len(all_of_it) == 6 and all_of_it)(self.customer.letters()))
        self.assertEqual({letter["reason"] for letter in letters}, {"endpoint_deleted"})
        self.assertEqual({letter["event_id"] for letter in letters},
                         {event["id"] for some in sent.values() for event in some})

    def test_a_deleted_customer_is_erased(self):
        self.world.receiver.answer(self.path, lambda handler, _: handler.answer(400))
        self.customer.endpoint(self.path)
        self.world.settle()
        self.world.publish(self.events(3, self.tenant))
        wait_until("letters", ARRIVE_S, lambda: len(self.customer.letters()) == 3)
        self.world.ask("DELETE", f"/v1/customers/{self.customer.id}")
        erasure = self.world.ok("GET", "/v1/erasures")["data"][0]
        self.assertEqual(erasure["customer_id"], self.customer.id)
        self.assertEqual(self.erased(erasure)["letters"], 3)


if __name__ == "__main__":
    unittest.main()
