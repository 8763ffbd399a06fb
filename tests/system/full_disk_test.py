#!/usr/bin/python3
"""The embedded log on a disk that another fills: 503 meanwhile, nothing acknowledged is lost, and it
goes on by itself when there is room, whether it ran or was started meanwhile."""
import json
import os
import secrets
import subprocess
import unittest

from harness import ARRIVE_S, Customer, SystemTest, wait_until

DISK_MB = 400


@unittest.skipUnless(os.geteuid() == 0, "only root may make a small disk")
class FullDiskTest(SystemTest):
    LOG = "embedded"

    @classmethod
    def begin(cls, world):
        cls.disk = world.dir / "disk"
        cls.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", cls.disk],
                       check=True)
        world.serve(data_dir=str(cls.disk / "data"))

    @classmethod
    def tearDownClass(cls):
        for service in cls.world.services:
            service.end()
        subprocess.run(["umount", cls.disk], check=True)
        super().tearDownClass()

    def setUp(self):
        self.tenant = self.unique("t")
        self.path = "/" + self.unique("hook")
        self.addCleanup(self.free)
        Customer(self.world, (self.tenant,)).endpoint(self.path)
        self.world.settle()

    def fill(self):
        with open(self.disk / "ballast", "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

    def free(self):
        (self.disk / "ballast").unlink(missing_ok=True)

    def post(self, event, **how):
        return self.world.ask("POST", "/v1/events", event, key=self.world.publisher, **how)

    def refused(self):
        """The answer, once what had room left is used up; ids of those that were taken before."""
        taken = []

        def one_more():
            event = self.events(1, self.tenant)[0]
            event["data"] = {"much": secrets.token_hex(200_000)}
            answer = self.post(event)
            if answer.status < 300:
                taken.append(event["id"])
                return None
            return answer
        return wait_until("an event is refused", ARRIVE_S, one_more), taken

    def test_answers_503_and_goes_on_when_there_is_room(self):
        self.fill()
        answer, ids = self.refused()
        self.assertEqual(answer.status, 503, answer)
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        lines = b"".join(json.dumps(event).encode() + b"\n"
                         for event in self.events(3, self.tenant))
        answer = self.post(None, raw=lines, headers={"content-type": "application/x-ndjson"})
        self.assertEqual(answer.status, 503, answer)
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        event = self.events(1, self.tenant)[0]
        waiting = subprocess.Popen(
            [self.world.postrider_binary, "publish", "--topic", "order.created", "--url",
             f"http://127.0.0.1:{self.world.api.api_port}"],
            env={**self.world.env, "POSTRIDER_API_KEY": self.world.publisher}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        waiting.stdin.write(json.dumps(event) + "\n")
        waiting.stdin.close()
        waiting.stdin = None
        self.free()
        _, told = waiting.communicate(timeout=ARRIVE_S)
        self.assertEqual(waiting.returncode, 0, told)
        self.world.wait_ids(self.path, {*ids, event["id"]})

    def test_a_start_waits_for_room(self):
        events = self.events(3, self.tenant)
        self.world.publish(events)
        self.world.api.process.kill()
        self.world.api.process.wait()
        self.fill()
        self.world.api.start()
        wait_until("it says that it waits", ARRIVE_S,
                   lambda: "waiting for the log" in self.world.api.log_text())
        self.assertIsNone(self.world.api.process.poll())
        self.free()
        self.world.api.wait_ready()
        more = self.events(3, self.tenant)
        self.world.publish(more)
        self.world.wait_ids(self.path, {event["id"] for event in events + more})


if __name__ == "__main__":
    unittest.main()
