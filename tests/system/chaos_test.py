#!/usr/bin/python3
"""A short run of loadtest/run chaos: each fault that it knows at least once, and every message
accounted for. The long one is run by hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import LOG, ROOT, needed

SEED = 4
KILLS = 3
FAULTS = {"kafka": {"kill_worker", "kill_matcher", "kill_all", "stop_worker", "restart", "broker",
                    "postgres", "disk_full", "network_cut", "network_stall", "savepoint", "restore"},
          "embedded": {"kill_all", "stop_worker", "restart", "postgres", "disk_full"}}
RATE = 60


class ChaosTest(unittest.TestCase):
    def test_loses_nothing_in_a_short_run(self):
        build = pathlib.Path(needed("POSTRIDER_BINARY")).parent
        with tempfile.TemporaryDirectory() as directory:
            figures = os.path.join(directory, "chaos.json")
            done = subprocess.run(
                [sys.executable, "-B", str(ROOT / "loadtest" / "run"), "chaos", "--log", LOG,
                 "--kills", str(KILLS), "--seed", str(SEED), "--rate", str(RATE), "--build", str(build),
                 "--json", figures],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            print(done.stdout, flush=True)
            self.assertEqual(done.returncode, 0)
            with open(figures, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(result["lost"], 0)
        self.assertGreaterEqual(result["kills"], KILLS)
        self.assertGreater(result["messages"], 1000)
        skipped = set(result.get("skipped") or {})  # Without root no small disk is mounted.
        self.assertEqual(set(result["faults"]), FAULTS[LOG] - skipped)


if __name__ == "__main__":
    unittest.main()
