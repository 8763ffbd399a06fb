"""The same load on Kafka and on the embedded log, one run after the other, in one table: latency at
1,000 events/s to streaming endpoints, the CPU of the whole path per message at the mission's load,
memory and CPU of a service of 10,000 endpoints that has nothing to do.

On Kafka it runs twice: with events written to Kafka, and with events by the API, which is the only
way into the embedded log."""
import json
import pathlib
import subprocess
import sys

import stage as stages

RUN = stages.ROOT / "loadtest" / "run"
WAYS = {"embedded": ["--log", "embedded"], "kafka": [], "kafka by API": ["--publish", "api"]}
ROWS = [  # name, scenario, figure, unit
    ("latency p50, 1,000/s", "latency", lambda f: f["p50_ms"], "ms"),
    ("latency p99, 1,000/s", "latency", lambda f: f["p99_ms"], "ms"),
    ("CPU per message, 1,000/s, a request each", "latency",
     lambda f: f["path_us_per_message"], "us"),
    ("CPU per message, 5,000/s in batches", "seed", lambda f: f["path_us_per_message"], "us"),
    ("of it the broker", "seed", lambda f: f["cpu_us_per_message"].get("broker"), "us"),
    ("memory at 5,000/s, 10,000 endpoints", "seed", lambda f: sum(f["rss_mb"].values()), "MB"),
    ("memory of 10,000 idle endpoints", "idle", lambda f: f["rss_whole_mb"], "MB"),
    ("CPU when idle, without the broker", "idle", lambda f: f["cpu_percent_whole"], "%"),
]


def main(args):
    directory = pathlib.Path(args.build).resolve() / "loadtest-runs" / "both-logs"
    directory.mkdir(parents=True, exist_ok=True)
    flags = ["--build", args.build, "--seed", str(args.seed)]
    for name in ("stack", "rate", "seconds"):
        if getattr(args, name) is not None:
            flags += [f"--{name}", str(getattr(args, name))]
    for name in ("plan", "option"):
        flags += [flag for value in getattr(args, name) for flag in (f"--{name}", value)]
    figures, failed = {}, []
    for way, more in WAYS.items():  # The embedded log first: no broker runs beside it then.
        for scenario in ("latency", "seed", "idle"):
            if scenario == "idle" and way == "kafka by API":
                continue
            out = directory / f"{scenario}-{way.replace(' ', '-')}.json"
            out.unlink(missing_ok=True)
            stages.say(f"{scenario} on {way}")
            done = subprocess.run([sys.executable, "-B", str(RUN), scenario, *flags, *more,
                                   "--json", str(out)], check=False)
            if done.returncode != 0:
                failed.append(f"{scenario} on {way}")
            if out.exists():
                figures[scenario, way] = json.loads(out.read_text())
    table = [[row, *(shown(figures.get((scenario, way)), value, unit) for way in WAYS)]
             for row, scenario, value, unit in ROWS]
    table.insert(0, ["both-logs", *WAYS])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip())
    for row, scenario, value, _ in ROWS[:2]:
        ways = {way: figures.get((scenario, way)) for way in WAYS}
        if any(one is None for one in ways.values()):
            continue  # it has failed already
        mine = value(ways.pop("embedded"))
        least = min(value(one) for one in ways.values())
        print(f"{'ok    ' if mine < least else 'MISSED'}  {row}: below Kafka's")
        if mine >= least and args.strict:
            failed.append(row)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({
            "scenario": "both-logs", "table": table, "failed": failed,
            "runs": {" on ".join(key): one for key, one in figures.items()}}, indent=2) + "\n")
    for what in failed:
        print(f"FAILED  {what}")
    return 1 if failed else 0


def shown(figures, value, unit):
    number = value(figures) if figures is not None else None
    return "-" if number is None else f"{number:g} {unit}"
