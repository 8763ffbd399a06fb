#!/usr/bin/python3
"""A worker that is stopped for much longer than its session, under load and with a backlog, while
another takes its work over, and that then goes on: it must neither send nor commit before it is
assigned again, undo nothing of its successor's, and lose nothing."""
import collections
import datetime
import os
import re
import signal
import threading
import time
import unittest

from crash_points import Positions, sender_of
from harness import ARRIVE_S, Customer, Stream, SystemTest, wait_until

KEY_GROUPS = 8
WELL = 12  # as many as that each of two workers has one of them, whichever key groups they are in
ILL = 4
STOPPED_S = 20
FLIGHT_S = 1.5  # what came this long before the stop may not have been committed
RETRY = {"attempts": 5, "first_delay_ms": 1000, "cap_ms": 3000}


class ZombieTest(SystemTest):
    @classmethod
    def begin(cls, world):
        world.migrate()
        world.create_topics(["order.created"])
        world.api = world.service("api,matcher,indexer", "front").start().wait_ready()
        world.register_types(["order.created"])
        cls.dispatch = world.prefix + "dispatch.default"
        cls.group = world.prefix + "deliver.default"

    def setUp(self):
        self.receiver = self.world.receiver
        self.customer = Customer(self.world, ["t"])
        self.came = []  # (time, process, path, event ids, status)
        self.lock = threading.Lock()
        self.workers = [self.world.service("worker", f"worker-{n}") for n in (1, 2)]
        self.well = [f"/well{n}" for n in range(WELL)]
        self.ill = [f"/ill{n}" for n in range(ILL)]
        self.endpoints = {path: self.customer.endpoint(path, retry=RETRY)["id"]
                          for path in self.well + self.ill}
        for path in self.well:
            self.answer(path, 200)
        for path in self.ill:
            self.answer(path, 500)

    def answer(self, path, status):
        def rule(handler, delivery):
            pids = [w.process.pid for w in self.workers if w.process is not None]
            entry = (time.time(), sender_of(handler, pids), path, delivery.event_ids(), status)
            with self.lock:
                self.came.append(entry)
            handler.answer(status)
        self.receiver.answer(path, rule)

    def arrived(self):
        with self.lock:
            return list(self.came)

    def accepted(self, path):
        return collections.Counter(event for _, _, at, events, status in self.arrived()
                                   if at == path and status == 200 for event in events)

    def ended(self, path):
        """The events that are delivered or given up."""
        letters = self.customer.letters(self.endpoints[path])
        return set(self.accepted(path)) | {letter["event_id"] for letter in letters}

    def assigned(self, worker, since):
        """When, since then, the worker said that it was assigned something, and how many."""
        for found in re.finditer(r'time=(\S+)Z level=info msg="shard assigned" .*?partitions=(\d+)',
                                 worker.log_text()):
            at = datetime.datetime.fromisoformat(found.group(1)).replace(
                tzinfo=datetime.timezone.utc).timestamp()
            if at >= since:
                return at, int(found.group(2))
        return None

    def watch_commits(self, ending, fell):
        """Notes every position that ever goes back."""
        positions = Positions(self.world.brokers)
        last = [-1] * KEY_GROUPS
        while not ending.wait(0.02):
            offsets = positions.committed(self.group, self.dispatch, KEY_GROUPS)
            for number, (before, offset) in enumerate(zip(last, offsets)):
                if offset < before:
                    fell.append((number, before, offset))
            last = offsets
        positions.close()

    def all_committed(self, positions):
        return (positions.committed(self.group, self.dispatch, KEY_GROUPS) ==
                positions.ends(self.dispatch, KEY_GROUPS))

    def test_a_worker_that_comes_back_from_the_dead_undoes_nothing_of_its_successors(self):
        zombie, successor = self.workers
        zombie.start().wait_ready()
        successor.start().wait_ready()
        wait_until("both have work", ARRIVE_S, lambda: all(
            worker.metric("postrider_stream_tasks", job="worker") > 0 for worker in self.workers))
        self.world.settle()
        stream = Stream(self.world, "order.created", "t", per_second=20)
        self.addCleanup(stream.abandon)
        fell, ending = [], threading.Event()
        watcher = threading.Thread(target=self.watch_commits, args=(ending, fell), daemon=True)
        watcher.start()
        self.addCleanup(ending.set)
        wait_until("both deliver", ARRIVE_S, lambda: {w.process.pid for w in self.workers} <=
                   {pid for _, pid, _, _, status in self.arrived() if status == 200})
        wait_until("there is a backlog", ARRIVE_S, lambda: len(
            [1 for *_, status in self.arrived() if status == 500]) >= 10 * ILL)

        os.kill(zombie.process.pid, signal.SIGSTOP)
        stopped = time.time()
        self.addCleanup(zombie.process.send_signal, signal.SIGCONT)
        wait_until("the other has all", ARRIVE_S, lambda: (
            self.assigned(successor, stopped) or (0, 0))[1] == KEY_GROUPS)
        # What the zombie remembers as failing is delivered by its successor.
        for path in self.ill[:ILL // 2]:
            self.answer(path, 200)
        wait_until("it has been stopped for long", STOPPED_S + 5,
                   lambda: time.time() - stopped > STOPPED_S)
        before = {path: self.accepted(path) for path in self.well + self.ill}
        os.kill(zombie.process.pid, signal.SIGCONT)
        resumed = time.time()
        back, _ = wait_until("it is assigned again", ARRIVE_S,
                             lambda: self.assigned(zombie, resumed), 0.02)
        wait_until("it delivers again", ARRIVE_S, lambda: any(
            pid == zombie.process.pid and at > back for at, pid, *_ in self.arrived()))
        for path in self.ill:
            self.answer(path, 200)
        acknowledged = stream.end()
        for path in self.well + self.ill:
            wait_until(f"all of {path}", ARRIVE_S,
                       lambda p=path: set(acknowledged) <= self.ended(p))
        positions = Positions(self.world.brokers)
        self.addCleanup(positions.close)
        wait_until("all is committed", ARRIVE_S, lambda: self.all_committed(positions))
        ending.set()
        watcher.join()

        self.assertEqual(fell, [], "a position went back")
        print(f"stopped for {resumed - stopped:.1f} s, assigned {back - resumed:.3f} s later",
              flush=True)
        early = [(at - stopped, path, events) for at, pid, path, events, _ in self.arrived()
                 if pid == zombie.process.pid and resumed < at < back]
        self.assertEqual(early, [], "it sent before it was assigned again")
        # What came twice was tried just before the stop, or was on its way then.
        about = collections.Counter()
        for at, pid, path, events, _ in self.arrived():
            if pid == zombie.process.pid and stopped - FLIGHT_S < at < resumed:
                about.update((path, event) for event in events)
        repeated = {(path, event): count for path in self.well + self.ill
                    for event, count in self.accepted(path).items() if count > 1}
        print(f"{len(repeated)} repeats, {len(about)} were under way at the stop", flush=True)
        strange = [(path, event, [(round(at - stopped, 3), pid == zombie.process.pid, status)
                                  for at, pid, came, events, status in self.arrived()
                                  if came == path and event in events])
                   for path, event in repeated if (path, event) not in about]
        self.assertEqual(strange, [])
        self.assertTrue(any(before.values()))

        # Nothing comes back when all begin anew from what is stored.
        counts = {path: self.accepted(path) for path in self.well + self.ill}
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.reap()
        zombie.start().wait_ready()
        new = self.events(1, "t")
        self.world.publish(new)
        for path in self.well + self.ill:
            wait_until(f"the last of {path}", ARRIVE_S,
                       lambda p=path: new[0]["id"] in self.accepted(p))
        end = time.time() + 2 * RETRY["cap_ms"] / 1000
        wait_until("retries would have come", ARRIVE_S, lambda: time.time() > end)
        for path in self.well + self.ill:
            after = self.accepted(path)
            del after[new[0]["id"]]
            self.assertEqual(after, counts[path], path)


if __name__ == "__main__":
    unittest.main()
