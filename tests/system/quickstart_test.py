#!/usr/bin/python3
"""The first command that a new user runs, with a stack of its own: a person sees webhooks arrive."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from harness import LOG, ROOT, needed


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = pathlib.Path(held.name)
        self.build = pathlib.Path(needed("POSTRIDER_BINARY")).parent
        # What the test command sets for its own stack is not for this one.
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("POSTRIDER_", "STACK_"))}

    def quickstart(self, *more):
        stack = self.dir / "stack"
        self.addCleanup(subprocess.run, [ROOT / "deploy" / "stack", "wipe", "--dir", stack],
                        stdout=subprocess.DEVNULL, check=False)
        done = subprocess.run([ROOT / "deploy" / "quickstart", "--once", "--dir", stack, "--build",
                               self.build, *more], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        for word in ("signature verified", "a verified batch", "a dead letter acknowledged"):
            self.assertIn(word, done.stdout)

    @unittest.skipIf(LOG == "kafka", "see the other")
    def test_shows_webhooks_without_java(self):
        """A `java` that is asked for all the same would be found here, and leave a trace."""
        fake = self.dir / "bin" / "java"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\ntouch {self.dir}/asked\nexit 1\n")
        fake.chmod(0o755)
        self.env["PATH"] = f"{fake.parent}:{self.env['PATH']}"
        self.quickstart()
        self.assertFalse((self.dir / "asked").exists())

    @unittest.skipIf(LOG == "embedded", "see the other")
    def test_shows_webhooks_on_kafka(self):
        self.quickstart("--kafka")


if __name__ == "__main__":
    unittest.main()
