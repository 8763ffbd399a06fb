#!/usr/bin/env python3
"""Checks the rules of the tree that no compiler knows: who may include whom, which folder alone
may include a library, what a face may show, and what files may be called.

    check_layers.py [ROOT]        prints FILE:LINE: FAULT for each fault; exit status 1 if any
    check_layers.py --self-test   tries every rule on small trees, good and bad
"""

import os
import re
import sys
import tempfile
import unittest

CORE = ["core/base", "core/stream", "core/state", "core/embedded_log", "core/kafka", "core/http",
        "core/postgres", "core/crypto", "core/json", "core/compression"]

BELOW_SERVE = CORE + ["migrations", "subscriptions/registry", "subscriptions/dispatch",
                      "subscriptions/matching", "dlq", "dlq/letters", "dlq/reports", "delivery",
                      "api"]

# Folder -> the other folders of ours that it may include. The longest folder that holds a file
# is the file's own.
LAYERS = {
    "core/base": [],
    "core/stream": ["core/base"],
    "core/state": ["core/base", "core/stream", "core/crypto"],
    "core/embedded_log": ["core/base", "core/stream"],
    "core/kafka": ["core/base", "core/stream"],
    "core/http": ["core/base"],
    "core/postgres": ["core/base"],
    "core/crypto": ["core/base"],
    "core/json": ["core/base"],
    "core/compression": ["core/base"],
    "migrations": ["core/base", "core/postgres", "core/crypto"],
    "subscriptions/registry": CORE,
    "subscriptions/dispatch": CORE + ["subscriptions/registry"],
    "subscriptions/matching": CORE + ["subscriptions/registry", "subscriptions/dispatch"],
    "dlq/letters": CORE + ["subscriptions/registry", "dlq/reports"],
    "dlq/reports": CORE + ["subscriptions/registry", "dlq/letters"],
    "dlq": CORE + ["subscriptions/registry", "dlq/letters", "dlq/reports"],
    "delivery": CORE + ["subscriptions/registry", "subscriptions/dispatch", "dlq", "dlq/letters",
                        "dlq/reports"],
    "api": CORE + ["subscriptions/registry", "subscriptions/dispatch", "subscriptions/matching",
                   "dlq", "dlq/letters", "dlq/reports"],
    "loadtest": ["core/base"],
    "log_export": CORE,
    # They build the real parts and hand them on.
    "serve": BELOW_SERVE,
    "commands": BELOW_SERVE + ["serve", "log_export"],
}
# Above all folders: the command line.
MAIN = "main.cc"
# What plays the outside world or tests from within may use any library.
FREE_OF_LIBRARY_RULES = ("loadtest/", "tests/")

# Library, the includes that are its own, and the places that may have them.
LIBRARIES = [
    ("spdlog", r"spdlog/|fmt/", ["core/base/internal/"]),
    ("yaml-cpp", r"yaml-cpp/", ["core/base/internal/"]),
    ("CLI11", r"CLI/", ["core/base/internal/", "main.cc"]),
    ("prometheus-cpp", r"prometheus/", ["core/base/internal/"]),
    ("RocksDB", r"rocksdb/", ["core/state/internal/", "core/embedded_log/internal/"]),
    ("librdkafka", r"(librdkafka/)?rdkafka", ["core/kafka/"]),
    ("libcurl", r"curl/", ["core/http/internal/"]),
    ("libpq", r"libpq|postgresql/|pg_config|catalog/pg_type", ["core/postgres/internal/"]),
    ("OpenSSL", r"openssl/", ["core/crypto/internal/"]),
    ("simdjson", r"simdjson", ["core/json/internal/"]),
    ("Boost.JSON", r"boost/json", ["core/json/internal/"]),
    ("zlib", r"zlib\.h|zconf\.h", ["core/compression/internal/", "core/stream/"]),
    ("zstd", r"zstd|zdict\.h", ["core/compression/internal/"]),
    ("xxHash", r"xxhash|xxh3\.h", ["core/stream/"]),
    ("Boost.Asio and Beast", r"boost/(asio|beast)", ["api/internal/"]),
]

# Third-party includes that a face may not have, besides those above.
FACE_FORBIDDEN = re.compile(r"(boost|nlohmann|google|re2|c-ares|ares|nghttp2|gtest|gmock|"
                            r"snappy|lz4|uv|event2|asio|date|magic_enum)[/.]")
BANNED_STEMS = {"util", "utils", "common", "helper", "helpers", "misc"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
USING_NAMESPACE = re.compile(r"\busing\s+namespace\b")
PRAGMA_ONCE = re.compile(r"^\s*#\s*pragma\s+once\s*$")
TOP_FOLDERS = ("core", "migrations", "subscriptions", "dlq", "delivery", "api", "loadtest",
               "log_export", "serve", "commands", "tests")


def without_comments(text):
    """The text with comments blanked, its lines kept; strings are left as they are."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                       r"'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        found = match.group(0)
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return token.sub(blank, text)


def without_literals(line):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', line)


def folder_of(path):
    """The folder of LAYERS that holds `path`; None for main.cc and tests."""
    parts = path.split("/")[:-1]
    while parts:
        if "/".join(parts) in LAYERS:
            return "/".join(parts)
        parts.pop()
    return None


def internal_owner(path):
    """For delivery/internal/x.h "delivery/"; None when the path is not in an internal folder."""
    at = path.find("/internal/")
    return path[:at + 1] if at >= 0 else None


class Checker:
    def __init__(self, root):
        self.root = root
        self.faults = []

    def fault(self, path, line, what):
        self.faults.append("%s:%d: %s" % (path, line, what))

    def run(self):
        faces = {}
        for path in self.sources():
            if path.endswith((".h", ".cc")):
                self.check_file(path)
                folder = folder_of(path)
                if path.endswith(".h") and folder and not internal_owner(path):
                    faces.setdefault(folder, path)
            stem = os.path.basename(path).split(".")[0]
            words = BANNED_STEMS & {stem, stem.split("_")[-1] if stem.endswith(
                ("_util", "_utils", "_helpers", "_misc", "_common")) else stem}
            if words:
                self.fault(path, 1, "no file is named " + words.pop() + ": name what it holds")
        for folder, face in sorted(faces.items()):
            self.check_file_set(folder, face)
        return self.faults

    def sources(self):
        found = []
        for name in sorted(os.listdir(self.root)):
            if os.path.isfile(os.path.join(self.root, name)):
                found.append(name)
            elif name in TOP_FOLDERS:
                for folder, folders, files in os.walk(os.path.join(self.root, name)):
                    folders[:] = sorted(f for f in folders
                                        if not f.startswith(".") and f not in
                                        ("__pycache__", "node_modules", "target"))
                    relative = os.path.relpath(folder, self.root)
                    found += [relative + "/" + file for file in sorted(files)]
        return found

    def check_file(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            lines = without_comments(file.read()).split("\n")
        header = path.endswith(".h")
        face = header and not internal_owner(path) and not path.startswith("tests/")
        if folder_of(path) is None and not path.startswith("tests/") and path != MAIN:
            self.fault(path, 1, "stands in no folder that the layers know")
        if header and not any(PRAGMA_ONCE.match(line) for line in lines):
            self.fault(path, 1, "a header has #pragma once")
        for number, line in enumerate(lines, 1):
            if header and USING_NAMESPACE.search(without_literals(line)):
                self.fault(path, number, "no using namespace in a header")
            match = INCLUDE.match(line)
            if match:
                self.check_include(path, number, face, match.group(1) == '"', match.group(2))

    def check_include(self, path, number, face, quoted, target):
        ours = (os.path.isfile(os.path.join(self.root, target)) or target == MAIN
                or target.startswith(tuple(top + "/" for top in TOP_FOLDERS)))
        if ours:
            self.check_own_include(path, number, target)
            return
        beside = os.path.join(self.root, os.path.dirname(path), target)
        if quoted and (target.startswith(".") or os.path.isfile(beside)):
            self.fault(path, number, "include %s from the root of the tree" % target)
            return
        self.check_library(path, number, face, target)

    def check_own_include(self, path, number, target):
        if path.startswith("tests/"):
            self.check_internal(path[len("tests/"):], path, number, target)
            return
        if target.startswith("tests/"):
            self.fault(path, number, "nothing includes tests but tests")
            return
        self.check_internal(path, path, number, target)
        mine, other = folder_of(path), folder_of(target)
        if mine is None or other is None or mine == other:
            return
        if other not in LAYERS[mine]:
            self.fault(path, number, "%s may not include %s" % (mine, other))

    def check_internal(self, mirrored, path, number, target):
        """A test of delivery may look into delivery/internal, and so may nobody else but a fuzz
        target: it is a test too, of one decoder wherever that is, and a face made for it alone
        would show a form of bytes that nobody else may know. So all of them lie in one folder,
        built with the fuzzer, instead of one more program in the tests of each."""
        owner = internal_owner(target)
        if owner and not mirrored.startswith((owner, "fuzz/")):
            self.fault(path, number, "%s belongs to %s alone" % (target, owner.rstrip("/")))

    def check_library(self, path, number, face, target):
        if path.startswith(FREE_OF_LIBRARY_RULES):
            return
        for name, pattern, places in LIBRARIES:
            if not re.match(pattern, target):
                continue
            if not path.startswith(tuple(places)):
                self.fault(path, number, "%s is included in %s only" % (name, ", ".join(places)))
            elif face:
                self.fault(path, number, "no third-party header but Abseil's in a face: " + target)
            return
        if face and FACE_FORBIDDEN.match(target):
            self.fault(path, number, "no third-party header but Abseil's in a face: " + target)

    def check_file_set(self, folder, face):
        """postrider_library puts a folder's faces into its target's FILE_SET."""
        listing = folder + "/CMakeLists.txt"
        try:
            with open(os.path.join(self.root, listing), encoding="utf-8") as file:
                text = re.sub(r"#[^\n]*", "", file.read())
        except OSError:
            text = ""
        if not re.search(r"\bpostrider_library\s*\(|\bFILE_SET\s+HEADERS\b", text):
            self.fault(face, 1, "%s puts its headers into no FILE_SET (postrider_library)" % listing)


class RulesTest(unittest.TestCase):
    LIBRARY = {folder + "/CMakeLists.txt": "postrider_library(x)\n" for folder in LAYERS}

    def faults(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**self.LIBRARY, **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                if text is not None:
                    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                        file.write(text)
            return Checker(root).run()

    def good(self, path, text, **more):
        self.assertEqual(self.faults({path: text, **more.get("files", {})}), [])

    def bad(self, path, text, place, what):
        found = self.faults({path: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place + ": "), found[0])
        self.assertIn(what, found[0])

    def include(self, *targets):
        return "".join('#include "%s"\n' % target for target in targets)

    def test_core_base_includes_nothing_of_ours(self):
        self.good("core/base/a.cc", self.include("core/base/b.h", "core/base/internal/c.h"))
        self.bad("core/base/a.cc", self.include("core/stream/b.h"), "core/base/a.cc:1",
                 "core/base may not include core/stream")

    def test_core_folders_stand_beside_each_other(self):
        self.good("core/kafka/a.cc", self.include("core/base/b.h", "core/stream/b.h"))
        self.bad("core/http/a.cc", "\n" + self.include("core/stream/b.h"), "core/http/a.cc:2",
                 "core/http may not include core/stream")
        self.bad("core/stream/a.cc", self.include("core/kafka/b.h"), "core/stream/a.cc:1",
                 "may not include")

    def test_upper_floors_look_down_only(self):
        self.good("subscriptions/matching/a.cc",
                  self.include("subscriptions/dispatch/b.h", "subscriptions/registry/b.h"))
        self.good("dlq/a.cc", self.include("dlq/letters/b.h", "subscriptions/registry/b.h"))
        self.good("delivery/a.cc", self.include("dlq/reports/b.h", "subscriptions/dispatch/b.h"))
        self.good("api/a.cc", self.include("subscriptions/matching/b.h", "dlq/letters/b.h"))
        for path, target in [("subscriptions/registry/a.cc", "subscriptions/dispatch/b.h"),
                             ("subscriptions/dispatch/a.cc", "subscriptions/matching/b.h"),
                             ("subscriptions/matching/a.cc", "dlq/letters/b.h"),
                             ("dlq/letters/a.cc", "subscriptions/dispatch/b.h"),
                             ("dlq/letters/a.cc", "dlq/indexer_role.h"),
                             ("delivery/a.cc", "subscriptions/matching/b.h"),
                             ("loadtest/a.cc", "core/crypto/b.h"),
                             ("core/base/a.cc", "api/b.h")]:
            self.bad(path, self.include(target), path + ":1", "may not include")

    def test_delivery_and_api_never_include_each_other(self):
        self.bad("delivery/a.cc", self.include("api/b.h"), "delivery/a.cc:1", "may not include")
        self.bad("api/a.cc", self.include("delivery/b.h"), "api/a.cc:1", "may not include")

    def test_main_includes_every_face(self):
        self.good("main.cc", self.include("delivery/a.h", "api/b.h") + "#include <CLI/CLI.hpp>\n")

    def test_commands_and_what_serves_stand_above_the_roles(self):
        self.good("commands/a.cc", self.include("delivery/a.h", "api/b.h", "log_export/c.h",
                                                "serve/d.h"))
        self.good("serve/a.cc", self.include("delivery/a.h", "api/b.h", "core/kafka/c.h"))
        self.good("log_export/a.cc", self.include("core/kafka/a.h", "core/embedded_log/b.h"))
        for path, target in [("serve/a.cc", "commands/b.h"), ("serve/a.cc", "log_export/b.h"),
                             ("log_export/a.cc", "delivery/b.h"), ("delivery/a.cc", "serve/b.h"),
                             ("api/a.cc", "commands/b.h")]:
            self.bad(path, self.include(target), path + ":1", "may not include")
        self.bad("commands/a.cc", "#include <CLI/CLI.hpp>\n", "commands/a.cc:1", "only")

    def test_nothing_else_stands_at_the_root(self):
        self.bad("other.cc", "\n", "other.cc:1", "no folder")

    def test_each_library_has_its_home(self):
        for home, target in [("core/base/internal", "spdlog/spdlog.h"),
                             ("core/base/internal", "yaml-cpp/yaml.h"),
                             ("core/base/internal", "CLI/CLI.hpp"),
                             ("core/base/internal", "prometheus/registry.h"),
                             ("core/state/internal", "rocksdb/db.h"),
                             ("core/embedded_log/internal", "rocksdb/db.h"),
                             ("core/kafka/internal", "librdkafka/rdkafka.h"),
                             ("core/http/internal", "curl/curl.h"),
                             ("core/postgres/internal", "libpq-fe.h"),
                             ("core/postgres/internal", "postgresql/libpq-fe.h"),
                             ("core/crypto/internal", "openssl/evp.h"),
                             ("core/json/internal", "simdjson.h"),
                             ("core/json/internal", "boost/json.hpp"),
                             ("core/compression/internal", "zlib.h"),
                             ("core/compression/internal", "zstd.h"),
                             ("api/internal", "boost/asio.hpp"),
                             ("api/internal", "boost/beast/http.hpp")]:
            text = "#include <%s>\n" % target
            self.good(home + "/a.cc", text)
            self.good("loadtest/a.cc", text)
            self.good("tests/delivery/a.cc", text)
            self.bad("delivery/internal/a.cc", text, "delivery/internal/a.cc:1", "only")
        self.bad("core/base/log.cc", "#include <spdlog/spdlog.h>\n", "core/base/log.cc:1", "only")
        self.bad("main.cc", "#include <spdlog/spdlog.h>\n", "main.cc:1", "only")

    def test_core_stream_may_hash_in_its_sources(self):
        text = "#include <xxhash.h>\n#include <zlib.h>\n"
        self.good("core/stream/a.cc", text)
        self.bad("core/stream/a.h", "#pragma once\n#include <zlib.h>\n", "core/stream/a.h:2",
                 "in a face")
        self.bad("core/kafka/a.cc", "#include <xxhash.h>\n", "core/kafka/a.cc:1", "only")

    def test_a_face_shows_abseil_only(self):
        self.good("core/kafka/a.h", '#pragma once\n#include <string>\n#include <sys/socket.h>\n'
                  '#include "absl/status/status.h"\n')
        self.good("core/kafka/internal/a.h", "#pragma once\n#include <librdkafka/rdkafka.h>\n")
        self.bad("core/kafka/a.h", "#pragma once\n#include <librdkafka/rdkafka.h>\n",
                 "core/kafka/a.h:2", "in a face")
        self.bad("api/a.h", "#pragma once\n#include <boost/url.hpp>\n", "api/a.h:2", "in a face")

    def test_internal_belongs_to_its_folder(self):
        self.good("delivery/a.cc", self.include("delivery/internal/b.h"))
        self.good("tests/delivery/a_test.cc", self.include("delivery/internal/b.h"))
        self.good("tests/fuzz/a_fuzz.cc", self.include("delivery/internal/b.h"))
        self.bad("delivery/a.cc", self.include("core/http/internal/b.h"), "delivery/a.cc:1",
                 "belongs to core/http alone")
        self.bad("main.cc", self.include("api/internal/b.h"), "main.cc:1", "belongs to api alone")
        self.bad("tests/api/a_test.cc", self.include("delivery/internal/b.h"),
                 "tests/api/a_test.cc:1", "belongs to delivery alone")

    def test_nothing_includes_tests_but_tests(self):
        self.good("tests/api/a_test.cc", self.include("tests/fakes/manual_clock.h"))
        self.bad("api/a.cc", self.include("tests/fakes/manual_clock.h"), "api/a.cc:1", "tests")
        self.bad("loadtest/a.cc", self.include("tests/fakes/manual_clock.h"), "loadtest/a.cc:1",
                 "tests")

    def test_includes_are_root_relative(self):
        self.bad("api/a.cc", '#include "../core/base/b.h"\n', "api/a.cc:1", "root")
        found = self.faults({"api/a.cc": '#include "b.h"\n', "api/b.h": "#pragma once\n"})
        self.assertEqual(found, ["api/a.cc:1: include b.h from the root of the tree"])

    def test_no_using_namespace_in_headers(self):
        self.good("api/a.cc", "using namespace std::chrono_literals;\n")
        self.good("api/a.h", "#pragma once\n// using namespace std;\n")
        self.good("api/a.h", '#pragma once\n/* using\n namespace */ // x\nauto* t = "using '
                  'namespace";\n')
        self.bad("api/a.h", "#pragma once\n\nusing  namespace std;\n", "api/a.h:3", "using")
        self.bad("tests/fakes/a.h", "#pragma once\nusing namespace std;\n", "tests/fakes/a.h:2",
                 "using")

    def test_headers_have_pragma_once(self):
        self.good("api/a.h", "// A face.\n#pragma once\n")
        self.bad("api/a.h", "// #pragma once\n", "api/a.h:1", "#pragma once")
        self.bad("tests/fakes/a.h", "\n", "tests/fakes/a.h:1", "#pragma once")

    def test_files_are_named_by_what_they_hold(self):
        self.good("api/utility_meter.cc", "\n")
        self.good("api/common_name.cc", "\n")
        for name in ["util.cc", "common.cc", "helpers.cc", "misc.cc", "string_util.cc"]:
            self.bad("api/" + name, "\n", "api/" + name + ":1", "no file is named")

    def test_commented_includes_do_not_count(self):
        self.good("core/base/a.cc", '// #include "api/b.h"\n/*\n#include "api/b.h"\n*/\n')
        self.good("core/base/a.cc", 'const char* url = "http://x"; // "\n')

    def test_each_face_is_in_a_file_set(self):
        header = {"api/a.h": "#pragma once\n"}
        self.assertEqual(self.faults({**header, "api/CMakeLists.txt":
                                      "target_sources(api PUBLIC FILE_SET HEADERS FILES a.h)\n"}), [])
        for listing in ["add_library(api a.cc)\n", "# postrider_library(api)\n"]:
            found = self.faults({**header, "api/CMakeLists.txt": listing})
            self.assertEqual(len(found), 1)
            self.assertIn("FILE_SET", found[0])

    def test_sources_stand_in_a_known_folder(self):
        self.bad("subscriptions/a.cc", "\n", "subscriptions/a.cc:1", "no folder")
        self.bad("core/surprise/a.cc", "\n", "core/surprise/a.cc:1", "no folder")


def main(arguments):
    if arguments == ["--self-test"]:
        result = unittest.TextTestRunner().run(
            unittest.defaultTestLoader.loadTestsFromTestCase(RulesTest))
        return 0 if result.wasSuccessful() else 1
    here = os.path.dirname(os.path.abspath(__file__))
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(here))
    checker = Checker(root)
    faults = checker.run()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
