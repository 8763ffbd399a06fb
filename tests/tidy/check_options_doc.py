#!/usr/bin/env python3
"""Checks that doc/options.md is what `postrider config reference` prints.

    check_options_doc.py PROGRAM FILE           exit status 1, and the difference, when it is not
    check_options_doc.py --write PROGRAM FILE   writes FILE
"""

import difflib
import pathlib
import subprocess
import sys

HEADING = """# Options

What `postrider config reference` prints. Not written by hand: `tests/tidy/check_options_doc.py --write
build/release/postrider doc/options.md` brings it up to date, and a test compares the two.

"""


def main(arguments):
    write = arguments[:1] == ["--write"]
    if len(arguments) != 2 + write:
        print(__doc__, file=sys.stderr)
        return 2
    program, file = arguments[write:]
    reference = subprocess.run([program, "config", "reference"], check=True, timeout=60,
                               stdout=subprocess.PIPE, text=True).stdout
    if "| `kafka.brokers` |" not in reference:
        print("`postrider config reference` does not print the options", file=sys.stderr)
        return 1
    wanted = HEADING + reference
    path = pathlib.Path(file)
    if write:
        path.write_text(wanted)
        return 0
    found = path.read_text()
    if found == wanted:
        return 0
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True),
                                               "doc/options.md", "postrider config reference"))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
