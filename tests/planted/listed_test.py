# SPDX-License-Identifier: Apache-2.0
"""The table of planted defects in docs/testing.md is what the build does.

Each defect of src/base/planted.h breaks something in src/, has a test in meson.build that must notice, and a row in
the table that names just these tests' programs."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def defects():
    """Of the header."""
    return re.findall(r"^    X\(([A-Z_]+)\)", (ROOT / "src/base/planted.h").read_text(), re.M)


def broken():
    """Defects that some place of the library asks for."""
    places = [path.read_text() for folder in ["src"] for path in (ROOT / folder).rglob("*.c")]
    return set(re.findall(r"KVO_PLANTED\(([A-Z_]+)\)", "\n".join(places)))


def noticed():
    """Programs by defect, as meson.build has them."""
    programs = {}
    text = (ROOT / "tests/planted/meson.build").read_text()
    for table, prefix in [("planted", ""), ("planted_disk", "disk_"), ("planted_cli", "cli_"),
                          ("planted_tools", "tools_")]:
        body = re.search(r"^%s = \{\n(.*?)^\}" % table, text, re.M | re.S).group(1)
        for defect, what in re.findall(r"'([A-Z_]+)': ([{\[].*?[}\]])", body, re.S):
            names = re.findall(r"'(\w+)':", what) if what[0] == "{" else [prefix + re.search(r"'(\w+)'", what).group(1)]
            programs.setdefault(defect, set()).update(names)
    for defect, name in re.findall(r"^  \['([A-Z_]+)', '(\w+)',", text, re.M):
        programs.setdefault(defect, set()).add(name)
    return programs


def documented():
    """Programs by defect, as the table has them: | `DEFECT` | what | `program`: test; ... |"""
    rows = re.findall(r"^\| `([A-Z_]+)` \| .*? \| (.*) \|$", (ROOT / "docs/testing.md").read_text(), re.M)
    return {defect: set(re.findall(r"`(\w+)`", tests)) for defect, tests in rows}


def main():
    known, wrong = defects(), []
    for what, there in [("src/", broken()), ("meson.build", noticed()), ("docs/testing.md", documented())]:
        wrong += ["%s is not in %s" % (defect, what) for defect in known if defect not in there]
        wrong += ["%s in %s is not in planted.h" % (defect, what) for defect in there if defect not in known]
    programs = noticed()
    for defect, told in documented().items():
        if told != programs.get(defect):
            wrong.append("%s: docs/testing.md names %s, meson.build %s" % (defect, told, programs.get(defect)))
    print("\n".join(wrong) or "%d defects" % len(known))
    sys.exit(1 if wrong or len(known) < 10 else 0)


main()
