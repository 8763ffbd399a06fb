"""Worker CPU per message under a steady load, with a profile."""
from profiling import Profile

WARM_UP_SECONDS = 5


def measure(stage, rate, most, **plan):
    rate = stage.args.rate or rate
    seconds = stage.args.seconds or 45
    stage.prepare(rate, **plan)
    worker = stage.role_of("worker")
    stage.generate(rate=rate, seconds=seconds)
    stage.wait_while_running(WARM_UP_SECONDS)
    profile = Profile(stage, worker, max(1, int(seconds - 2 * WARM_UP_SECONDS)))
    stage.generated(seconds * 10 + 120)
    stage.figures["worker_profile"] = profile.result()
    stage.drain()
    stage.settle(no_repeats=True)
    us = stage.figures["cpu_us_per_message"]["worker"]
    stage.figures["worker_us_per_message"] = us
    stage.check(f"at most {most} us of the worker's CPU per message", us <= most, f"{us}",
                fatal=False)
