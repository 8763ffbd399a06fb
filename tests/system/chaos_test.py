#!/usr/bin/python3
"""A short run of loadtest/run chaos: a few kills of every kind, a cut network and a full disk, and
every message accounted for. The long one is run by hand."""
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
FAULTS = {"kafka": "kill_worker,kill_matcher,kill_all,network_cut,disk_full",
          "embedded": "kill_all,restart,postgres,disk_full"}
RATE = 60


class ChaosTest(unittest.TestCase):
    def test_loses_nothing_in_a_short_run(self):
        build = pathlib.Path(needed("POSTRIDER_BINARY")).parent
        with tempfile.TemporaryDirectory() as directory:
            figures = os.path.join(directory, "chaos.json")
            done = subprocess.run(
                [sys.executable, "-B", str(ROOT / "loadtest" / "run"), "chaos", "--log", LOG,
                 "--kills", str(KILLS), "--seed", str(SEED), "--faults", FAULTS[LOG], "--rate",
                 str(RATE), "--build", str(build), "--json", figures],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            print(done.stdout, flush=True)
            self.assertEqual(done.returncode, 0)
            with open(figures, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(result["lost"], 0)
        self.assertGreaterEqual(result["kills"], KILLS)
        self.assertGreater(result["messages"], 1000)


if __name__ == "__main__":
    unittest.main()
