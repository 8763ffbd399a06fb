#!/usr/bin/env python3
"""Checks deploy/alerts.yaml against the code: every series that it names is registered there, what
is counted by rate or increase is no gauge, and every alert says what it is and what to do.

    check_alerts.py [ROOT]        exit status 1 when something is wrong
    check_alerts.py --self-test
"""

import pathlib
import re
import sys
import unittest

FOLDERS = ["api", "core", "delivery", "dlq", "migrations", "subscriptions"]
REGISTERED = re.compile(r'\b(?:\w*(Counter|Gauge|Histogram))\s*\(\s*"(postrider_[a-z0-9_]+)"')
SERIES = re.compile(r"\bpostrider_[a-z0-9_]+")


def registered(sources):
    """Series -> kind, from the texts of the sources."""
    series = {}
    for text in sources:
        for kind, name in REGISTERED.findall(text):
            series[name] = kind
            if kind == "Histogram":
                series.update({name + end: kind for end in ("_bucket", "_sum", "_count")})
    return series


def faults(rules, series):
    if not series:
        return ["no series are registered: is the root right?"]
    found = []
    for name in sorted(set(SERIES.findall(rules))):
        if name not in series:
            found.append(f"{name} is registered nowhere")
    alerts = re.split(r"(?m)^ *- alert: ", rules)[1:]
    if not alerts:
        found.append("there are no alerts")
    names = [alert.split("\n", 1)[0].strip() for alert in alerts]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(f"{name} is there twice")
    for name, alert in zip(names, alerts):
        for part in ("expr", "labels", "summary", "description"):
            if not re.search(rf"(?m)^ +{part}: \S", alert):
                found.append(f"{name} has no {part}")
        if not re.search(r"severity: (page|ticket)\b", alert):
            found.append(f"{name}: severity is page or ticket")
        expression = re.search(r"(?m)^ +expr: (.*)$", alert)
        for counted in re.findall(r"\b(?:rate|increase)\((\w+)", expression[1] if expression else ""):
            if series.get(counted) == "Gauge":
                found.append(f"{name}: {counted} is no counter")
    return found


class SelfTest(unittest.TestCase):
    CODE = ['m.AddCounter("postrider_a_total", "x"); m.MakeGauge("postrider_b", "y");\n'
            'metrics.AddHistogram(\n    "postrider_c_seconds", "z", {1});']
    RULE = ('groups:\n  - rules:\n    - alert: One\n      expr: EXPR\n'
            '      labels: {severity: page}\n      annotations:\n'
            '        summary: "s"\n        description: "d"\n')

    def faults(self, expression):
        return faults(self.RULE.replace("EXPR", expression), registered(self.CODE))

    def test_takes_what_is_registered(self):
        self.assertEqual(self.faults("rate(postrider_a_total[1m]) > postrider_b"), [])
        self.assertEqual(self.faults("rate(postrider_c_seconds_count[1m]) > 1"), [])

    def test_finds_a_series_that_is_not(self):
        self.assertEqual(self.faults("postrider_d > 1"), ["postrider_d is registered nowhere"])

    def test_finds_the_rate_of_a_gauge(self):
        self.assertEqual(self.faults("rate(postrider_b[1m]) > 1"),
                         ["One: postrider_b is no counter"])

    def test_finds_an_alert_that_does_not_say_what_to_do(self):
        rules = self.RULE.replace('        description: "d"\n', "").replace("EXPR", "postrider_b")
        self.assertEqual(faults(rules, registered(self.CODE)), ["One has no description"])

    def test_finds_a_name_twice_and_no_alert_at_all(self):
        rules = self.RULE.replace("EXPR", "postrider_b")
        self.assertEqual(faults(rules + rules, registered(self.CODE)), ["One is there twice"])
        self.assertEqual(faults("groups:\n", registered(self.CODE)), ["there are no alerts"])


def main(arguments):
    if arguments == ["--self-test"]:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    root = pathlib.Path(arguments[0] if arguments else ".")
    sources = (file.read_text() for folder in FOLDERS for file in (root / folder).rglob("*.cc"))
    found = faults((root / "deploy" / "alerts.yaml").read_text(), registered(sources))
    for fault in found:
        print(f"deploy/alerts.yaml: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
