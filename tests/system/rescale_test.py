#!/usr/bin/python3
"""A pool gets another number of key groups under load, with a backlog: nothing is lost, what waits
keeps its batches and its attempts, and a command that is killed anywhere is run again."""
import collections
import os
import random
import secrets
import signal
import subprocess
import time
import unittest

from harness import ARRIVE_S, Customer, Stream, SystemTest, wait_until

LEASE_S = 5


class RescaleFixture(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/single")
        cls.customer.endpoint("/batch", mode="batch", batch={"events_max": 50, "wait_max_ms": 200})
        # Several endpoints, so that they lie in several key groups before and after.
        cls.waiting = [f"/waiting{i}" for i in range(6)]
        for path in cls.waiting:
            cls.customer.endpoint(
                path, mode="batch", batch={"events_max": 20, "wait_max_ms": 100},
                retry={"attempts": 50, "first_delay_ms": 4000, "cap_ms": 8000})
        cls.customer.endpoint("/gone")
        world.settle()

    def setUp(self):
        self.world.receiver.answer("/gone", 410)
        for path in self.waiting:
            self.world.receiver.answer(path, 503)

    def rescale(self, *arguments, **how):
        return self.world.run("rescale", "--lease", f"{LEASE_S}s", *arguments, timeout=240, **how)

    def rescale_ok(self, *arguments):
        done = self.rescale(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def stream(self):
        stream = Stream(self.world, "order.created", "t", per_second=50)
        self.addCleanup(stream.abandon)
        return stream

    def arrived(self, path, count):
        wait_until(f"{count} events at {path}", ARRIVE_S,
                   lambda: len(set(self.world.receiver.event_ids(path))) >= count)

    def ready(self):
        for service in self.world.services:
            service.wait_ready()

    def taken(self, path):
        """How often each event was taken."""
        return collections.Counter(
            event for delivery in self.world.receiver.got(path) if delivery.status == 200
            for event in delivery.event_ids())

    def expect_all(self, acknowledged):
        receiver = self.world.receiver
        for path in self.waiting:
            receiver.answer(path, 200)
        for path in ("/single", "/batch"):
            self.world.wait_ids(path, acknowledged)
        for path in self.waiting:
            wait_until(f"what waited for {path} is delivered", ARRIVE_S,
                       lambda path=path: set(acknowledged) <= set(self.taken(path)))


class RescaleUnderLoadTest(RescaleFixture):
    # A world of its own: what repeats on purpose elsewhere does not count here.
    def test_nothing_is_lost_and_attempts_are_kept(self):
        receiver = self.world.receiver
        lives = [service.lives for service in self.world.services]
        stream = self.stream()
        self.arrived("/single", 100)
        for path in self.waiting:
            self.arrived(path, 60)
        self.arrived("/gone", 1)
        for key_groups in (3, 12, 12):
            before = len(set(receiver.event_ids("/single")))
            text = self.rescale_ok("--key-groups", str(key_groups))
            self.assertIn(f"{key_groups} key groups", text)
            self.ready()
            self.arrived("/single", before + 50)
        self.assertIn("already", text)
        for service in self.world.services:
            service.check()
        self.assertEqual([service.lives for service in self.world.services], lives)
        acknowledged = stream.end()
        self.expect_all(acknowledged)
        repeated = [event for path in ("/single", "/batch")
                    for event, count in self.taken(path).items() if count > 1]
        self.assertEqual(repeated, [])
        # What was disabled stays so.
        self.assertEqual(len(receiver.got("/gone")), 1)
        # A batch is tried again as it was, and its tries are counted on.
        tries = collections.defaultdict(list)
        for path in self.waiting:
            for delivery in receiver.got(path):
                tries[path, delivery.headers["webhook-id"]].append(
                    (int(delivery.headers["webhook-attempt"]), tuple(delivery.event_ids())))
        self.assertTrue(any(len(seen) > 1 for seen in tries.values()))
        for name, seen in tries.items():
            self.assertEqual([attempt for attempt, _ in seen], list(range(1, len(seen) + 1)), name)
            self.assertEqual(len({events for _, events in seen}), 1, name)
        # A later start takes the number from the control topic, whatever its options say.
        worker = self.roles["worker"]
        worker.stop()
        worker.start().wait_ready()
        new = self.events(5, "t")
        self.world.publish(new)
        self.world.wait_ids("/single", self.ids(new))


class RescaleTest(RescaleFixture):
    def test_a_command_that_is_killed_is_finished_by_running_it_again(self):
        seed = secrets.randbits(32)
        print(f"seed {seed}")
        rng = random.Random(seed)
        stream = self.stream()
        start = len(set(self.world.receiver.event_ids("/single")))
        self.arrived("/single", start + 100)
        key_groups = 5
        killed = 0
        for _ in range(6):
            process = subprocess.Popen(
                [self.world.postrider_binary, "rescale", "--lease", f"{LEASE_S}s",
                 "--key-groups", str(key_groups)],
                env=self.world.env, cwd=self.world.dir, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(rng.uniform(0.1, 5.0))
                key_groups = 9 if key_groups == 5 else 5
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
            time.sleep(rng.choice([0.0, LEASE_S + 1.0]))
        self.assertGreater(killed, 0)

        def finished():
            done = self.rescale("--key-groups", "7")
            if done.returncode == 0:
                return done.stdout
            self.assertIn("being rescaled already", done.stderr)
            return None
        wait_until("the rescale", 60, finished, 1.0)
        self.ready()
        self.expect_all(stream.end())

    def test_a_savepoint_from_before_is_put_back_into_the_key_groups_of_now(self):
        new = self.events(40, "t")
        self.world.publish(new)
        for path in self.waiting:
            self.world.wait_ids(path, self.ids(new))
        directory = self.world.dir / self.unique("savepoint")
        self.world.run_ok("savepoint", "create", "--to", str(directory))
        self.assertIn("needs it", self.rescale_ok("--key-groups", "2"))
        self.ready()
        self.expect_all(self.ids(new))
        refused = self.world.run("savepoint", "restore", str(directory))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is running", refused.stderr)
        worker = self.roles["worker"]
        worker.stop()
        once = {path: self.taken(path) for path in self.waiting}
        self.assertIn("into the pool's 2 key groups",
                      self.world.run_ok("savepoint", "restore", str(directory)))
        worker.start().wait_ready()
        for path in self.waiting:
            wait_until(f"what waited for {path} is delivered again", ARRIVE_S,
                       lambda path=path: all(self.taken(path)[event] > once[path][event]
                                             for event in self.ids(new)))

    def test_processes_that_hang_or_die_meanwhile_lose_nothing(self):
        stream = self.stream()
        start = len(set(self.world.receiver.event_ids("/single")))
        self.arrived("/single", start + 50)
        matcher, worker = self.roles["matcher"], self.roles["worker"]
        # Both hang with work in hand; their sessions end, the pool moves, and they come back.
        for hung in (matcher, worker):
            os.kill(hung.process.pid, signal.SIGSTOP)
        try:
            text = self.rescale_ok("--key-groups", "6")
        finally:
            for hung in (matcher, worker):
                os.kill(hung.process.pid, signal.SIGCONT)
        self.assertIn("6 key groups", text)
        self.ready()
        before = len(set(self.world.receiver.event_ids("/single")))
        self.arrived("/single", before + 50)
        # A worker and a matcher are killed while it goes on, and started again.
        process = subprocess.Popen(
            [self.world.postrider_binary, "rescale", "--lease", f"{LEASE_S}s", "--key-groups", "11"],
            env=self.world.env, cwd=self.world.dir, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for killed in (worker, matcher):
            time.sleep(0.4)
            killed.kill()
            killed.reap()
            killed.start()
        _, told = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, told)
        self.ready()
        self.expect_all(stream.end())

    def test_refuses_what_cannot_be_and_lets_a_drained_pool_go_on(self):
        for arguments, status, why in (
                (("--key-groups", "0"), 2, "either"), (("--key-groups", "4097"), 2, "1 to 4096"),
                (("--key-groups", "4", "--pool", "none"), 1, "no pool 'none'"),
                (("--abort",), 1, "not being rescaled")):
            done = self.rescale(*arguments)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(why, done.stderr)
        # A matcher that stands still: the pool does not come to rest, and works on as before.
        matcher = self.roles["matcher"]
        os.kill(matcher.process.pid, signal.SIGSTOP)
        try:
            done = self.rescale("--key-groups", "4", "--drain-wait", "2s")
        finally:
            os.kill(matcher.process.pid, signal.SIGCONT)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("works on as before", done.stderr)
        new = self.events(5, "t")
        self.world.publish(new)
        self.world.wait_ids("/single", self.ids(new))
        self.ready()


if __name__ == "__main__":
    unittest.main()
