#!/usr/bin/env python3
"""Checks that every test which the table of cases (tests/cases.md) names is there, and that every
case of its list has a row.

    check_cases.py [ROOT]        prints FILE:LINE: FAULT for each fault; exit status 1 if any
    check_cases.py --self-test   tries the rules on small trees, good and bad

What stands between backticks in a row is `Suite.Name` of GoogleTest (`*` for anything; `.Name`
means the suite named before it), `Name` with an underscore and a number, as `KAFKA_01_*`, for a test
of any suite, or `file_test Class` of tests/system. Anything else is not looked at.
"""

import os
import re
import sys
import tempfile
import unittest

TABLE = os.path.join("tests", "cases.md")
CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
PYTHON_CLASS = re.compile(r"^class (\w+)", re.M)
SUITE_TEST = re.compile(r"^([A-Z]\w*)?\.([\w*]+)$")
ANY_SUITE = re.compile(r"^[A-Z]+_[0-9]+_[\w*]*$")
SYSTEM_TEST = re.compile(r"^(\w+_test)(?: ([\w*]+))?$")
ROW = re.compile(r"^\| ([A-Z]+-[0-9]+(?:, -?[A-Z0-9-]+)*) \|(.*)\|$")


def pattern(text):
    return re.compile("^" + re.escape(text).replace(r"\*", ".*") + "$")


def cases_of(cell):
    """'SSRF-04, -06' are SSRF-04 and SSRF-06."""
    kind = ""
    cases = []
    for part in cell.split(", "):
        if not part.startswith("-"):
            kind = part.split("-")[0]
        cases.append(kind + "-" + part.rsplit("-", 1)[1])
    return cases


class Checker:
    def __init__(self, root):
        self.root = root
        self.faults = []
        self.tests = set()    # of GoogleTest: (suite, name)
        self.system = {}      # file without ending -> names of classes

    def read(self):
        for folder, _, files in os.walk(os.path.join(self.root, "tests")):
            for name in files:
                path = os.path.join(folder, name)
                if name.endswith((".cc", ".h")):
                    with open(path, encoding="utf-8") as file:
                        self.tests.update(CPP_TEST.findall(file.read()))
                elif name.endswith("_test.py"):
                    with open(path, encoding="utf-8") as file:
                        self.system[name[:-3]] = PYTHON_CLASS.findall(file.read())

    def run(self):
        self.read()
        wanted = set()
        seen = set()
        with open(os.path.join(self.root, TABLE), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                listed = re.match(r"^Kinds and cases: (.*)$", line)
                if listed:
                    for kind in listed.group(1).rstrip(".\n").split("; "):
                        name, *numbers = kind.replace(",", "").split(" ")
                        wanted.update(name + "-" + each for each in numbers)
                row = ROW.match(line.rstrip("\n"))
                if row:
                    for case in cases_of(row.group(1)):
                        if case in seen:
                            self.fault(number, case + " has a row already")
                        seen.add(case)
                    self.check_row(number, row.group(2))
        for case in sorted(wanted - seen):
            self.fault(1, case + " has no row")
        for case in sorted(seen - wanted):
            self.fault(1, case + " is not in the list of cases")
        return self.faults

    def fault(self, line, what):
        self.faults.append("%s:%d: %s" % (TABLE, line, what))

    def check_row(self, number, text):
        suite = ""
        named = 0
        for token in re.findall(r"`([^`]+)`", text):
            in_suite = SUITE_TEST.match(token)
            if in_suite:
                suite = in_suite.group(1) or suite
                named += 1
                wanted = pattern(in_suite.group(2))
                if not any(s == suite and wanted.match(name) for s, name in self.tests):
                    self.fault(number, "no test is called %s.%s" % (suite, in_suite.group(2)))
            elif ANY_SUITE.match(token):
                named += 1
                if not any(pattern(token).match(name) for _, name in self.tests):
                    self.fault(number, "no test is called " + token)
            else:
                named += self.check_system_test(number, token)
        if named == 0 and "not built" not in text:
            self.fault(number, "the row names no test")

    def check_system_test(self, number, token):
        match = SYSTEM_TEST.match(token)
        if not match:
            return 0
        if match.group(1) not in self.system:
            self.fault(number, "there is no tests/system/%s.py" % match.group(1))
        elif match.group(2) and not any(pattern(match.group(2)).match(name)
                                        for name in self.system[match.group(1)]):
            self.fault(number, "%s has no class %s" % (match.group(1), match.group(2)))
        return 1


class RulesTest(unittest.TestCase):
    def faults(self, rows, listed="Kinds and cases: URL 01."):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "tests", "system"))
            for name, text in {"tests/a_test.cc": "TEST_F(UrlTest, TakesAUrlApart) {\n"
                                                  "TYPED_TEST(AnyTest,\n     KAFKA_01_Holds) {\n",
                               "tests/system/life_test.py": "class StopTest(SystemTest):\n",
                               TABLE: listed + "\n\n" + "\n".join(rows) + "\n"}.items():
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return Checker(root).run()

    def good(self, text):
        self.assertEqual(self.faults(["| URL-01 | %s |" % text]), [])

    def bad(self, text, what):
        found = self.faults(["| URL-01 | %s |" % text])
        self.assertEqual(len(found), 1, found)
        self.assertIn(what, found[0])

    def test_a_row_names_tests_that_are_there(self):
        self.good("`UrlTest.TakesAUrlApart`")
        self.good("`UrlTest.*`, `.Takes*`; `KAFKA_01_*`; by hand `loadtest/run backlog`")
        self.good("`life_test` and `life_test Stop*`")
        self.good("HTTP/2 is not built")
        self.bad("`UrlTest.Takes`", "UrlTest.Takes")
        self.bad("`UrlTest.*`, `.Drops*`", "UrlTest.Drops*")
        self.bad("`OtherTest.*`", "OtherTest")
        self.bad("`KAFKA_02_*`", "KAFKA_02_")
        self.bad("`life_test StartTest`", "StartTest")
        self.bad("`death_test`", "death_test")
        self.bad("see above", "names no test")

    def test_every_case_has_one_row(self):
        row = "| URL-01, -03, SIGN-01 | `UrlTest.*` |"
        listed = "Kinds and cases: URL 01, 03; SIGN 01."
        self.assertEqual(self.faults([row], listed), [])
        self.assertIn("URL-05 has no row", self.faults([row], listed[:-1] + "; URL 05.")[0])
        self.assertIn("URL-01 has a row already",
                      self.faults([row, "| URL-01 | `UrlTest.*` |"], listed)[0])
        self.assertIn("not in the list", self.faults([row], "Kinds and cases: URL 01, 03.")[0])


def main(arguments):
    if arguments == ["--self-test"]:
        result = unittest.TextTestRunner().run(
            unittest.defaultTestLoader.loadTestsFromTestCase(RulesTest))
        return 0 if result.wasSuccessful() else 1
    here = os.path.dirname(os.path.abspath(__file__))
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(here))
    faults = Checker(root).run()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
