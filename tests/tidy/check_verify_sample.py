#!/usr/bin/env python3
"""Runs the sample of doc/webhooks.md that verifies signatures of HMAC as a receiver would (case
SIGN-07): what it must refuse, and what it must take.

    check_verify_sample.py [ROOT]
"""

import os
import re
import sys
import unittest
from unittest import mock

# The vectors of the specification's own reading: keys of 32 bytes counting up, one id and time.
SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
OTHER = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A="
TIME = 1_700_000_000
BODY = '{"b":1,"a":[1.0,2],"n":"\u00e9"}'.encode()
GOOD = "v1,wGhDvneXPOgxOLI9+Nl2Atyu7CukZmfMoObzScX1cjM="
OF_OTHER = "v1,+tTXtmo9jlwf/yaq0fFz9wdPwPrmFp40yCDWv9iTSWw="

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sample():
    with open(os.path.join(root, "doc", "webhooks.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
    text, = [block for block in blocks if "def verify_hmac(" in block]
    names = {}
    exec(compile(text, "doc/webhooks.md", "exec"), names)
    return names["verify_hmac"]


class SampleTest(unittest.TestCase):
    def verify(self, now=TIME, secret=SECRET, body=BODY, **headers):
        lines = {"webhook-id": "msg_t1", "webhook-timestamp": str(TIME),
                 "webhook-signature": GOOD}
        lines.update({"webhook-" + name: value for name, value in headers.items()})
        with mock.patch("time.time", return_value=now):
            return sample()(secret, lines, body)

    def test_takes_what_was_signed(self):
        self.assertTrue(self.verify())
        self.assertTrue(self.verify(now=TIME - 300))
        self.assertTrue(self.verify(now=TIME + 300))
        self.assertTrue(self.verify(signature="v1,bm9uZQ== v2,x " + GOOD))
        both = OF_OTHER + " " + GOOD
        self.assertTrue(self.verify(signature=both))
        self.assertTrue(self.verify(signature=both, secret=OTHER))

    def test_refuses_everything_else(self):
        self.assertFalse(self.verify(now=TIME - 301))
        self.assertFalse(self.verify(now=TIME + 301))
        self.assertFalse(self.verify(timestamp=str(TIME * 1000)))
        self.assertFalse(self.verify(timestamp=str(TIME + 1)))
        for odd in ["-" + str(TIME), str(TIME) + ".0", "", "soon"]:
            self.assertFalse(self.verify(timestamp=odd), odd)
        self.assertFalse(self.verify(id="msg_t2"))
        self.assertFalse(self.verify(body=BODY[:-1] + b"]"))
        self.assertFalse(self.verify(body=b""))
        self.assertFalse(self.verify(secret=OTHER))
        for odd in [GOOD[:-1], "v2," + GOOD[3:], GOOD[3:], "", "v1,", "v1a," + GOOD[3:]]:
            self.assertFalse(self.verify(signature=odd), odd)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        root = sys.argv.pop(1)
    unittest.main()
