#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No line of C or Python is longer than 120 columns."""

import sys

from spdx_test import ROOT, files

COLUMNS = 120
KINDS = {".c", ".h", ".py"}


def long_lines(text):
    return [number for number, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS]


def main():
    assert long_lines("x" * 120 + "\n" + "x" * 121) == [2]
    checked = [path for path in files() if path.suffix in KINDS and path.is_file()]
    wrong = ["%s:%d: longer than %d columns" % (path.relative_to(ROOT), number, COLUMNS)
             for path in checked for number in long_lines(path.read_text(errors="replace"))]
    print("\n".join(wrong) if wrong else "%d files" % len(checked))
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
