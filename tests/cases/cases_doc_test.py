#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/cases.md: each of the 120 ids once, each function that it names is a test, each test of tests/cases is named,
and where tests bear an id its row names one of them."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAPS = {2, 7, 8, 11, 16, 17, 19, 21, 24, 25, 35, 37, 39, 48, 49, 52, 57, 58, 70, 75, 80, 89, 90, 102, 125}
IDS = ["B%03d" % n for n in range(1, 146) if n not in GAPS]
DEFINED = re.compile(r"\b(?:void|def)\s+(\w+)\s*\(")


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".py"):
                yield path.read_text(errors="replace")


def rows(text):
    for line in text.splitlines():
        if re.match(r"\| B\d", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def main():
    wrong = []
    table = list(rows((ROOT / "docs" / "cases.md").read_text()))
    ids = [row[0] for row in table]
    if ids != IDS:
        wrong.append("ids missing, twice, unknown or out of order: %s" % sorted(set(IDS) ^ set(ids)))
    tests = {name for text in sources("tests", "fuzz") for name in DEFINED.findall(text)}
    library = "\n".join(sources("src"))
    for row in table:
        if len(row) != 4 or not all(row):
            wrong.append("%s: not four cells" % row[0])
        for name in re.findall(r"`([^`]+)`", " ".join(row[1:])):
            there = name[:-2] + "(" in library if name.endswith("()") else name in tests
            if not there:
                wrong.append("%s: %s is nowhere" % (row[0], name))
        own = {name for name in tests if row[0].lower() in name.lower().split("_")}
        if own and not own & set(re.findall(r"`(\w+)`", " ".join(row))):
            wrong.append("%s: has tests, and none is named: %s" % (row[0], ", ".join(sorted(own))))
    named = set(re.findall(r"`(\w+)`", " ".join(" ".join(row) for row in table)))
    here = {name for text in sources("tests/cases") for name in DEFINED.findall(text) if re.match(r"B\d{3}_", name)}
    wrong += ["%s: not in docs/cases.md" % name for name in sorted(here - named)]
    print("\n".join(wrong) if wrong else "%d reports, %d tests named" % (len(table), len(named)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
