#!/usr/bin/python3
"""A backlog on a disk that is too small for it: it makes room before the disk is full."""
import json
import os
import secrets
import subprocess
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

DISK_MB = 120
SHARE = 0.25
# Memtables are of 16 MB: twice that is more than the share.
EVENTS = 130
DATA_BYTES = 300_000


@unittest.skipUnless(os.geteuid() == 0, "only root may make a small disk")
class DiskTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.disk = world.dir / "disk"
        cls.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", cls.disk],
                       check=True)
        world.serve(state__directory=str(cls.disk / "state"), state__disk_share_max=str(SHARE))

    @classmethod
    def tearDownClass(cls):
        for service in cls.world.services:
            service.end()
        subprocess.run(["umount", cls.disk], check=True)
        super().tearDownClass()

    def publish(self, count, tenant):
        ids = [self.unique("e") for _ in range(count)]
        self.world.publish_to_kafka("order.created", [
            json.dumps({"id": event, "noise": secrets.token_hex(DATA_BYTES // 2)}).encode()
            for event in ids], tenant=tenant)
        return ids

    def used(self):
        return self.world.api.metric("postrider_delivery_state_disk_used_ratio")

    def given_up(self):
        return self.world.api.metric("postrider_delivery_dead_letters_total",
                                     reason="backlog_full")

    def test_the_oldest_become_dead_letters_beyond_the_share_of_the_disk(self):
        tenant, path = self.unique("t"), "/" + self.unique("hook")
        customer = Customer(self.world, (tenant,))
        endpoint = customer.endpoint(path)
        customer.ok("POST", f"/v1/endpoints/{endpoint['id']}/pause")
        self.world.settle()
        ids = self.publish(EVENTS, tenant)

        def waiting():
            return customer.ok(
                "GET", f"/v1/endpoints/{endpoint['id']}/status")["backlog"]["messages"]

        wait_until("room is made", ARRIVE_S, lambda: self.given_up() > 0)
        wait_until("each is in the backlog or given up", ARRIVE_S,
                   lambda: self.given_up() + waiting() == len(ids))
        # The files may hold 30 MB, contents 85% of that.
        self.assertGreater(waiting(), 70, "and no more than was needed")
        # What was removed leaves the files when they are compacted, as more is written. Files are
        # somewhat larger than what they hold.
        def written_on():
            ids.extend(self.publish(5, tenant))
            return self.used() < 1.1 * SHARE
        wait_until("the files have shrunk", ARRIVE_S, written_on, 1)
        wait_until("each is in the backlog or given up", ARRIVE_S,
                   lambda: self.given_up() + waiting() == len(ids))

        customer.ok("POST", f"/v1/endpoints/{endpoint['id']}/resume")
        wait_until("letters", ARRIVE_S, lambda: len(customer.letters()) == self.given_up(), 1)
        given_up = {letter["event_id"] for letter in customer.letters()}
        self.world.wait_ids(path, set(ids) - given_up)
        self.assertFalse(given_up & set(self.world.receiver.event_ids(path)))


if __name__ == "__main__":
    unittest.main()
