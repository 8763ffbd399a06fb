"""How long a key group is silent when work moves between workers: a graceful stop, a join, a crash,
and the replacement of a worker by a new one that is started first. Whatever is not a crash may
repeat nothing, with receivers that answer in time."""
import time

import stage as stages
from ledgers import arrivals, count_between

KEY_GROUPS = 64
SESSION_MS = 6000  # worker.session_timeout
HEARTBEAT_MS = 200  # worker.heartbeat_interval
REVOKE_MS = 250  # what a handover waits for answers
ANSWER_MS = 50
SETTLE_SECONDS = 3
BEFORE_SECONDS = 1.5  # a silence begins with the last message before
COMMIT_SECONDS = 0.3
NOTED_SECONDS = 0.1


def median(values):
    values = sorted(values)
    return round(values[len(values) // 2], 1) if values else None


class Handover:
    def __init__(self, stage):
        self.stage = stage
        self.windows = {}
        self.crashes = []
        self.started = 0

    def worker(self):
        self.started += 1
        return self.stage.start("worker", f"worker-{self.started}")

    def window(self, kind, act):
        """Does it, and lets all come to rest; the silences in between are looked at later."""
        begin = time.time() - BEFORE_SECONDS
        value = act()
        time.sleep(SETTLE_SECONDS)
        self.stage.check_roles()
        self.windows.setdefault(kind, []).append((begin, time.time()))
        stages.say(f"{kind}: {len(self.windows[kind])}")
        return value

    def longest(self, window):
        """By key group, ms; those that were heard."""
        found = self.stage.run_tool(
            "gaps", "--state", self.stage.path("state"), "--received", self.stage.ledgers[0],
            "--key-groups", KEY_GROUPS, "--from-us", int(window[0] * 1e6), "--to-us",
            int(window[1] * 1e6))
        return [ms for ms in found["longest_ms"] if ms >= 0]

    def join(self):
        return self.worker().wait_ready()

    def replace(self, old):
        new = self.worker().wait_ready()
        old.stop()
        return new

    def crash(self, victim):
        victim.kill()
        self.crashes.append(time.time())
        victim.reap()
        time.sleep(SESSION_MS / 1000 + 2)

    def run(self):
        stage = self.stage
        rate = stage.args.rate or 1000
        rounds = stage.args.rounds or 5
        # Even tenants, single messages and hundreds of endpoints that are busy alike, so that every
        # key group is heard all the time.
        stage.prepare(rate, roles=["matcher", "indexer"], mode="streaming", tenant_skew=0,
                      topics=20, tenants=2000, customers=200, large_customers=200, endpoints=600,
                      subscriptions=0, addresses=200, departments=4)
        stage.rules(f"/ slow {ANSWER_MS}\n")
        self.worker().wait_ready()
        second = self.worker().wait_ready()
        stage.generate(rate=rate, seconds=300 + rounds * 60)
        time.sleep(2 * SETTLE_SECONDS)
        self.window("undisturbed", lambda: time.sleep(SETTLE_SECONDS))
        for _ in range(rounds):
            self.window("graceful", second.stop)
            second = self.window("join", self.join)
            second = self.window("replace", lambda old=second: self.replace(old))
        time.sleep(2)  # until the ledger of the receiver is written
        clean = stage.account()["repeats"]
        for _ in range(rounds):
            self.window("crash", lambda victim=second: self.crash(victim))
            second = self.join()
            time.sleep(SETTLE_SECONDS)
        stage.generator.stop()
        stage.generated(120)
        stage.drain()
        account = stage.settle()
        self.report(rounds, clean, account["repeats"] - clean)

    def report(self, rounds, clean, crashed):
        figures = self.stage.figures
        gaps = {kind: [self.longest(window) for window in windows]
                for kind, windows in self.windows.items()}
        # Only those of the killed one wait for its session to end.
        gaps["crash"] = [[ms for ms in found if ms > SESSION_MS / 2] for found in gaps["crash"]]
        for kind, found in gaps.items():
            every = [ms for one in found for ms in one]
            figures[f"{kind}_ms"] = {"median": median(every), "max": median([max(every)])
                                     if every else None}
            stages.say(f"{kind}: by round, median/max: " + " ".join(
                f"{median(one)}/{max(one, default=0):.0f}" for one in found))
        rejoin = 2 * HEARTBEAT_MS + REVOKE_MS
        figures["protocol_allows_ms"] = {
            "graceful": rejoin, "join": rejoin, "replace": rejoin,
            "crash": SESSION_MS + rejoin, "session_timeout": SESSION_MS,
            "heartbeat": HEARTBEAT_MS, "wait_for_answers": REVOKE_MS}
        heard = arrivals(self.stage.ledgers)
        noted = NOTED_SECONDS + ANSWER_MS / 1000
        allowed = sum(count_between(heard, at - COMMIT_SECONDS, at) +
                      count_between(heard, at - noted, at + NOTED_SECONDS) for at in self.crashes)
        figures["rounds"] = rounds
        figures["gap_ms"] = figures["replace_ms"]["max"]
        figures["repeats"] = clean
        figures["repeats_allowed"] = 0
        figures["crash_repeats"] = crashed
        figures["crash_repeats_allowed"] = allowed
        check = self.stage.check
        check("nothing repeated when none crashed", clean == 0, f"{clean}")
        check("repeats of the crashes within what is allowed", crashed <= allowed,
              f"{crashed} of {allowed}")
        check("every crash was heard as a silence", all(gaps["crash"]), "none")
        replaced = figures["replace_ms"]["median"]
        check("a replacement is silent for at most 500 ms, median",
              replaced is not None and replaced <= 500, f"{replaced}", fatal=False)


def run(stage):
    Handover(stage).run()
