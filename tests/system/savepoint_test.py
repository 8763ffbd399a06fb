#!/usr/bin/python3
"""Savepoints: made under load, verified, restored after everything was killed; damaged and foreign
ones are refused and change nothing."""
import collections
import shutil
import subprocess
import unittest

from harness import ARRIVE_S, Customer, Stream, SystemTest, wait_until

# A worker that was killed is a member of its group for so long; the slack is for busy cores.
SESSION_S = 6
GONE_S = SESSION_S + 30


class SavepointTest(SystemTest):
    @classmethod
    def begin(cls, world):
        cls.roles = world.serve_apart()
        cls.customer = Customer(world, ["t"])
        cls.customer.endpoint("/single")
        cls.customer.endpoint("/batch", mode="batch", batch={"events_max": 50, "wait_max_ms": 200})
        cls.customer.endpoint("/waiting", mode="batch", batch={"events_max": 50, "wait_max_ms": 100},
                              retry={"attempts": 5, "first_delay_ms": 2000})
        world.settle()

    def setUp(self):
        self.addCleanup(self.start_all)
        self.world.receiver.answer("/waiting", 200)

    def savepoint(self, *arguments, **how):
        return self.world.run("savepoint", *arguments, **how)

    def savepoint_ok(self, *arguments, **how):
        return self.world.run_ok("savepoint", *arguments, **how)

    def directory(self):
        return self.world.dir / self.unique("savepoint")

    def stream(self):
        stream = Stream(self.world, "order.created", "t", per_second=50)
        self.addCleanup(stream.abandon)
        return stream

    def arrived(self, path, count):
        wait_until(f"{count} events at {path}", ARRIVE_S,
                   lambda: len(set(self.world.receiver.event_ids(path))) >= count)

    def delivered(self):
        """How often each event was taken at /waiting."""
        return collections.Counter(
            event for delivery in self.world.receiver.got("/waiting") if delivery.status == 200
            for event in delivery.event_ids())

    def kill_all(self):
        for service in self.world.services:
            service.kill()
        for service in self.world.services:
            service.reap()

    def start_all(self):
        for service in self.world.services:
            if service.process is None:
                service.start()
        for service in self.world.services:
            service.wait_ready()
        self.world.api = self.roles["api"]

    def restore(self, directory, *more):
        """When the group has noticed that its members are gone."""
        def restored():
            done = self.savepoint("restore", str(directory), *more)
            if done.returncode == 0:
                return done.stdout
            if "is running" not in done.stderr:
                raise AssertionError(f"restore: status {done.returncode}: {done.stderr}")
            return None
        return wait_until("the restore", GONE_S, restored, 0.5)

    def test_nothing_is_lost_when_everything_is_killed_and_restored(self):
        receiver = self.world.receiver
        receiver.answer("/waiting", 503)
        stream = self.stream()
        self.arrived("/single", 100)
        self.arrived("/waiting", 50)

        directory = self.directory()
        lives = [service.lives for service in self.world.services]
        made = self.savepoint_ok("create", "--to", str(directory))
        self.assertIn("key groups  8", made)
        identity = made.split()[1]
        self.assertIn(identity, self.savepoint_ok("list"))
        self.assertIn(identity, self.savepoint_ok("inspect", str(directory)))
        self.assertIn("every file is whole", self.savepoint_ok("verify", str(directory)))
        # Nobody was disturbed.
        for service in self.world.services:
            service.check()
        self.assertEqual([service.lives for service in self.world.services], lives)
        before = len(set(receiver.event_ids("/single")))
        self.arrived("/single", before + 50)

        # It is refused while the pool runs.
        refused = self.savepoint("restore", str(directory))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is running", refused.stderr)

        # What waits is delivered after the savepoint, and again after its restore.
        waiting = set(receiver.event_ids("/waiting")) - set(self.delivered())
        self.assertGreaterEqual(len(waiting), 20)
        receiver.answer("/waiting", 200)
        acknowledged = stream.end()
        for path in ("/single", "/batch"):
            self.world.wait_ids(path, acknowledged)
        wait_until("what waited is delivered", ARRIVE_S,
                   lambda: waiting | set(acknowledged) <= set(self.delivered()))
        once = self.delivered()
        self.kill_all()
        text = self.restore(directory)
        self.assertIn("restored", text)
        self.start_all()
        wait_until("what waited is delivered again", ARRIVE_S,
                   lambda: all(self.delivered()[event] > once[event] for event in waiting))
        # And it goes on.
        new = self.events(5, "t")
        self.world.publish(new)
        for path in ("/single", "/batch", "/waiting"):
            self.world.wait_ids(path, acknowledged + self.ids(new))
        self.savepoint_ok("drop", identity)
        self.assertNotIn(identity, self.savepoint_ok("list"))
        self.assertEqual(self.savepoint("drop", identity).returncode, 1)

    def test_what_is_damaged_or_foreign_is_refused_and_nothing_is_changed(self):
        receiver = self.world.receiver
        new = self.events(20, "t")
        self.world.publish(new)
        for path in ("/single", "/batch", "/waiting"):
            self.world.wait_ids(path, self.ids(new))
        directory = self.directory()
        self.savepoint_ok("create", "--to", str(directory))
        self.assertEqual(self.savepoint("create", "--to", str(directory)).returncode, 1)
        # What is done after it would come again if it were restored.
        later = self.events(20, "t")
        self.world.publish(later)
        for path in ("/single", "/batch", "/waiting"):
            self.world.wait_ids(path, self.ids(later))
        # Those were committed: the last commit of a planned stop covers them.
        worker = self.roles["worker"]
        worker.stop()

        def refused(place, why, *more, **env):
            done = self.savepoint("restore", str(place), *more, env=env)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn(why, done.stderr)

        def changed(name, change):
            copy = self.directory()
            shutil.copytree(directory, copy)
            path = copy / name
            path.write_bytes(change(bytearray(path.read_bytes())))
            return copy

        def flip(data, at):
            data[at] ^= 1
            return data
        for name in ("manifest", "0-00003", "1-00000"):
            for at in (0, -1, len((directory / name).read_bytes()) // 2):
                copy = changed(name, lambda data, at=at: flip(data, at))
                refused(copy, name)
                self.assertEqual(self.savepoint("verify", str(copy)).returncode, 1)
            refused(changed(name, lambda data: data[:-3]), name)
        newer = changed("manifest", lambda data: data[:20] + b"\x02" + data[21:])
        refused(newer, "newer version")
        unfinished = self.directory()
        shutil.copytree(directory, unfinished)
        (unfinished / "manifest").unlink()
        refused(unfinished, "never finished")
        refused(self.directory(), "no manifest")
        refused(directory, "of pool 'default'", "--pool", "other")
        refused(directory, "another installation", POSTRIDER_KAFKA__PREFIX="foreign.")

        worker.start().wait_ready()
        last = self.events(5, "t")
        self.world.publish(last)
        for path in ("/single", "/batch", "/waiting"):
            self.world.wait_ids(path, self.ids(last))
            repeats = [event for event, count in
                       collections.Counter(receiver.event_ids(path)).items()
                       if count > 1 and event in self.ids(later)]
            self.assertEqual(repeats, [], path)

    def test_a_restore_that_is_killed_is_finished_by_running_it_again(self):
        receiver = self.world.receiver
        receiver.answer("/waiting", 503)
        new = self.events(30, "t")
        self.world.publish(new)
        self.world.wait_ids("/waiting", self.ids(new))
        directory = self.directory()
        self.savepoint_ok("create", "--to", str(directory))
        worker = self.roles["worker"]
        worker.kill()
        worker.reap()
        self.restore(directory)
        delay = 0.02
        while "being restored" not in self.savepoint_ok("list"):
            process = subprocess.Popen(
                [self.world.postrider_binary, "savepoint", "restore", str(directory)],
                env=self.world.env, cwd=self.world.dir, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(delay)
                self.fail("no restore was killed while it changed something")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            delay += 0.02
        # As long as it is not finished, the pool's worker does not start.
        worker.start().wait_probes()
        wait_until("the worker waits", 30,
                   lambda: "being restored" in worker.ask_probe("/readyz")[1])
        self.restore(directory)
        worker.wait_ready()
        receiver.answer("/waiting", 200)
        self.start_all()
        self.world.wait_ids("/waiting", self.ids(new))
        wait_until("what waited is delivered", ARRIVE_S,
                   lambda: set(self.ids(new)) <= set(self.delivered()))


if __name__ == "__main__":
    unittest.main()
