#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which branches of block, index, store, ledger and the disk tier the tests take, with assertions compiled out.

    coverage.py [--builds DIRECTORY] [--no-run]

Prints covered and all branches a folder and what was not taken, line by line; ends with 1 if a test failed, if less
than 90 % was taken of all or of a folder, or if tests/coverage_unreachable.txt is not true. That list names the lines
with a branch that no test takes, with the reason; it takes nothing off the count.

A branch is one of gcov's, of a program without optimisation: each side of each condition within an expression counts.
Functions that are always inlined are not, so that each of their branches counts once. gcovr leaves out branches of
lines without code and of exceptions, of which C has none. Processes that are killed leave no counters.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ["src/block", "src/index", "src/store", "src/ledger", "src/tier/disk"]
SUITES = ["base", "block", "move", "store", "disk", "faults", "edges", "sim", "envs", "cases", "cli", "fuzz", "tools",
          "crash"]
LEFT_OUT = {
    "cli_figures": "minutes of replays, which take the branches of cli_replay",
    "crash_kill": "who is killed counts nothing",
}
LEAST = 90.0
UNREACHABLE = ROOT / "tests" / "coverage_unreachable.txt"
NOW_AND_THEN = ("race:", "rare:")  # reasons of lines that a run may take


def run(*command, **options):
    sys.stdout.flush()
    return subprocess.run([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL, **options)


def build(directory):
    if not (directory / "build.ninja").exists():
        # Counters are shared by threads; without optimisation each branch of the source is one of the program.
        run("meson", "setup", directory, "-Dchecks=false", "-Db_coverage=true", "-Dbuildtype=debug",
            "-Dc_args=-fprofile-update=atomic -Dalways_inline=unused", check=True, env=dict(os.environ, CC="gcc"))
    run("ninja", "-C", directory, check=True)


def test(directory):
    for counts in directory.rglob("*.gcda"):
        counts.unlink()
    there = run("meson", "test", "-C", directory, "--no-rebuild", "--list", capture_output=True, text=True).stdout
    names = [name for suites, name in re.findall(r"^\w+:(\S+) / (\w+)$", there, re.M)
             if set(suites.split("+")) & set(SUITES) and name not in LEFT_OUT]
    # Tests run the command as users without rights, who would say on stderr that they cannot write counters.
    os.umask(0)
    run("chmod", "-R", "a+rwX", directory, check=True)
    return run("meson", "test", "-C", directory, "--no-rebuild", "--timeout-multiplier", "6", "--print-errorlogs",
               *names).returncode == 0


def measure(directory):
    """{file: {line: [branches taken or not]}}"""
    filters = [word for folder in FOLDERS for word in ("--filter", str(ROOT / folder) + "/")]
    out = directory / "coverage.json"
    run("gcovr", "--root", ROOT, "--object-directory", directory, *filters, "--json", out,
        "--exclude-unreachable-branches", "--exclude-throw-branches", directory, check=True)
    files = {}
    for entry in json.loads(out.read_text())["files"]:
        lines = collections.defaultdict(list)
        for line in entry["lines"]:
            lines[line["line_number"]] += [branch["count"] > 0 for branch in line["branches"]]
        files[entry["file"]] = lines
    return files


def percent(taken, total):
    return 100.0 * taken / total if total else 100.0


def read_unreachable():
    """[(file, text of the line, reason)]"""
    entries = []
    for line in UNREACHABLE.read_text().splitlines() if UNREACHABLE.exists() else []:
        if line and not line.startswith("#"):
            file, _, rest = line.partition(" | ")  # a line of C may have a bar of its own
            text, _, reason = rest.rpartition(" | ")
            entries.append((file, text.strip(), reason.strip()))
    return entries


def check_unreachable(files):
    """What of the list is not true, and {(file, line): reason} of what it names."""
    wrong, named = [], {}
    for file, text, reason in read_unreachable():
        if not text or not reason:
            wrong.append("not FILE | LINE | REASON: %s" % file)
            continue
        source = (ROOT / file).read_text().splitlines() if (ROOT / file).exists() else []
        lines = [number for number, line in enumerate(source, 1) if line.strip() == text]
        if not lines:
            wrong.append("%s: no such line: %s" % (file, text))
        elif not reason.startswith(NOW_AND_THEN) and all(all(files.get(file, {}).get(n, [])) for n in lines):
            wrong.append("%s: every branch is taken: %s" % (file, text))
        named.update({(file, number): reason for number in lines})
    return wrong, named


def kind_of(reason):
    if reason is None:
        return "not listed"
    return reason.split(":")[0] if reason.startswith(NOW_AND_THEN) else "never"


def report(files, named):
    sums = {folder: [0, 0] for folder in FOLDERS}
    left = collections.Counter()
    for file, lines in sorted(files.items()):
        source = (ROOT / file).read_text().splitlines()
        folder = next(f for f in FOLDERS if file.startswith(f + "/"))
        for number, branches in sorted(lines.items()):
            sums[folder][0] += sum(branches)
            sums[folder][1] += len(branches)
            if not all(branches):
                reason = named.get((file, number))
                left[kind_of(reason)] += 1
                print("%s:%d: %d of %d%s: %s" % (file, number, sum(branches), len(branches),
                                                 " (listed)" if reason else "",
                                                 source[number - 1].strip()))
    sums["all"] = [sum(column) for column in zip(*sums.values())]
    for folder, (taken, total) in sums.items():
        print("%-14s %5d of %5d branches %5.1f %%" % (folder, taken, total, percent(taken, total)))
    print("%d lines have a branch that was not taken: %d where no call and no fault does, %d races, %d rare, "
          "%d not listed"
          % (sum(left.values()), left["never"], left["race"], left["rare"], left["not listed"]))
    return min(percent(*pair) for pair in sums.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=pathlib.Path, default=ROOT / "build", metavar="DIRECTORY")
    parser.add_argument("--no-run", action="store_true", help="measure what the last run left")
    arguments = parser.parse_args()
    directory = arguments.builds.resolve() / "coverage"
    passed = True
    if not arguments.no_run:
        build(directory)
        passed = test(directory)
    files = measure(directory)
    wrong, named = check_unreachable(files)
    reached = report(files, named)
    for what in wrong:
        print("%s: %s" % (UNREACHABLE.relative_to(ROOT), what))
    if not passed:
        print("tests failed")
    if reached < LEAST:
        print("less than %.0f %%" % LEAST)
    return 0 if passed and not wrong and reached >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
