#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each file of source, build and documentation has one SPDX line, near its top, of one licence.
Data that a test reads byte by byte, and files of one form that has no comments, are exempt."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TAG = "SPDX-License-" + "Identifier:"
CHECKED = {".c", ".h", ".cc", ".cpp", ".hpp", ".py", ".sh", ".build", ".map", ".scd", ".yml", ".yaml", ".toml"}
CHECKED_NAMES = {"Makefile", "meson_options.txt", ".clang-format", ".gitignore"}


def files():
    try:
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True).stdout
        return [ROOT / name.decode() for name in listed.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        return [p for p in ROOT.rglob("*") if not {".git", "build"} & set(p.relative_to(ROOT).parts)]


def is_checked(path):
    if path.suffix in CHECKED or path.name in CHECKED_NAMES:
        return True
    with path.open("rb") as start:
        return path.suffix == "" and start.read(2) == b"#!"


def problem(text):
    lines = [number for number, line in enumerate(text.splitlines(), 1) if TAG in line]
    if len(lines) != 1:
        return "%d SPDX lines" % len(lines)
    if lines[0] > 5:
        return "the SPDX line is line %d" % lines[0]
    line = text.splitlines()[lines[0] - 1]
    if line.split(TAG)[1].split()[0] != "Apache-2.0":
        return "another licence"
    return None


def main():
    assert problem("int x;") and problem(TAG + " MIT") and problem((TAG + " Apache-2.0\n") * 2)
    assert problem("/* " + TAG + " Apache-2.0 */\n") is None
    checked = [path for path in files() if path.is_file() and is_checked(path)]
    wrong = ["%s: %s" % (path.relative_to(ROOT), what) for path in checked
             if (what := problem(path.read_text(errors="replace")))]
    print("\n".join(wrong) if wrong else "%d files" % len(checked))
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
