#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and tests in several ways, one after the other, and ends with one line:

    N passed, N failed, N skipped

before which stands what the tests say they have done: lines `counted: N crash rounds, N wrong bytes` of
their output, summed. A wrong byte is a failure, and so is less in the plain build than LEAST asks for.

  plain         everything, with assertions, warnings are errors; suites `store` and
                `disk` once more with the I/O engine of threads
  asan, tsan    suite `sanitize` under address+undefined and, but for suite `slow`, thread sanitizer
  planted       a library with deliberate defects, one at a time: suite `planted` holds the tests that
                must notice. They are declared with should_fail, so noticing counts as passed.

    run.py [--builds DIRECTORY] [BUILD ...]         default: all of them
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Name: (options of meson setup, options of meson test, preferred compiler).
BUILDS = {
    "plain": (["--werror"], [], None),
    "asan": (["--werror", "-Db_sanitize=address,undefined", "-Db_lundef=false"],
             ["--suite", "sanitize", "--timeout-multiplier", "4"], "clang"),
    "tsan": (["-Db_sanitize=thread", "-Db_lundef=false"],
             ["--suite", "sanitize", "--no-suite", "slow", "--timeout-multiplier", "8"], None),
    "planted": (["--werror", "-Dplanted=true"], ["--suite", "planted"], None),
}
# Runs after the first one in the same build: (environment, options of meson test).
MORE = {"plain": [({"KVONCE_IO": "threads"}, ["--suite", "store", "--suite", "disk"])]}
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1"
                    ":suppressions=%s" % (ROOT / "tests" / "tsan.supp"),
}
# What `make test` does at the least, in the plain build.
LEAST = {
    "crash rounds": 200,
    "simulated crash states": 20000,
    "injected faults": 10000,
    "flipped bits of headers": 4096 * 8,
    "flipped bits of payloads": 10000,
}
COUNTED = re.compile(r"^counted: (\d+ [a-z ]+(?:, \d+ [a-z ]+)*)$", re.M)
WRONG = "wrong bytes"
PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def run(command, environment):
    sys.stdout.flush()
    return subprocess.run([str(word) for word in command], cwd=ROOT, env=environment).returncode


def environment_for(compiler):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **SANITIZER_OPTIONS)
    if compiler and "CC" not in os.environ and shutil.which(compiler):
        environment["CC"] = compiler
    return environment


def build(directory, options, environment):
    if not (directory / "build.ninja").exists():
        shutil.rmtree(directory, ignore_errors=True)
        if run(["meson", "setup", directory, *options], environment) != 0:
            return False
    return run(["ninja", "-C", directory], environment) == 0


class Outcome:
    """What a run of tests, or several, came to."""

    def __init__(self, counts=(0, 0, 0), failed=(), counted=()):
        self.counts = list(counts)  # passed, failed, skipped
        self.failed = list(failed)  # names of what failed
        self.counted = collections.Counter(counted)  # by what was counted

    def add(self, other):
        self.counts = [a + b for a, b in zip(self.counts, other.counts)]
        self.failed += other.failed
        self.counted.update(other.counted)

    def fail(self, what):
        self.counts[1] += 1
        self.failed.append(what)


def read_counted(text):
    """[(what, number)] of the lines `counted: NUMBER WHAT, NUMBER WHAT`."""
    pairs = [pair.split(" ", 1) for line in COUNTED.findall(text) for pair in line.split(", ")]
    return [(what, int(number)) for number, what in pairs]


def read_log(path):
    outcome = Outcome()
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        kind = 0 if entry["result"] in PASSED else 2 if entry["result"] in SKIPPED else 1
        outcome.counts[kind] += 1
        if kind == 1:
            outcome.failed.append("%s (%s)" % (entry["name"], entry["result"]))
        if entry["result"] != "EXPECTEDFAIL":  # what a planted defect did says nothing of the library
            for what, number in read_counted(entry.get("stdout", "")):
                outcome.counted[what] += number
    return outcome


def run_tests(name, directory, options, environment):
    """One run of meson test. No test at all is a failure."""
    log = directory / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    status = run(["meson", "test", "-C", directory, "--no-rebuild", "--print-errorlogs", *options], environment)
    outcome = read_log(log)
    if sum(outcome.counts) == 0:
        outcome.fail("no test ran")
    elif status != 0 and outcome.counts[1] == 0:
        outcome.fail("meson test ended with %d" % status)
    outcome.failed = ["%s: %s" % (name, what) for what in outcome.failed]
    return outcome


def test(name, builds):
    """One build. A build that fails is one failure."""
    setup, options, compiler = BUILDS[name]
    directory = builds / name
    environment = environment_for(compiler)

    if not build(directory, setup, environment):
        return Outcome((0, 1, 0), ["%s: does not build" % name])
    outcome = run_tests(name, directory, options, environment)
    for more, options in MORE.get(name, []):
        what = " ".join([name, *("%s=%s" % item for item in more.items())])
        outcome.add(run_tests(what, directory, options, dict(environment, **more)))
    for what, least in LEAST.items() if name == "plain" else []:
        if outcome.counted[what] < least:
            outcome.fail("%s: %d %s, less than %d" % (name, outcome.counted[what], what, least))
    if outcome.counted[WRONG]:
        outcome.fail("%s: %d %s" % (name, outcome.counted[WRONG], WRONG))
    return outcome


def counted_text(name, counted):
    order = [*LEAST, *sorted(set(counted) - set(LEAST) - {WRONG}), WRONG]
    return "counted, %s: %s" % (name, ", ".join("%d %s" % (counted[what], what) for what in order if what in counted))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=pathlib.Path, default=ROOT / "build", metavar="DIRECTORY")
    parser.add_argument("build", nargs="*", metavar="BUILD", help=" ".join(BUILDS))
    arguments = parser.parse_args()
    unknown = set(arguments.build) - set(BUILDS)
    if unknown:
        parser.error("no such build: %s" % ", ".join(sorted(unknown)))

    total, summary, counted = Outcome(), [], []
    for name in arguments.build or BUILDS:
        start = time.monotonic()
        print("==== %s" % name)
        outcome = test(name, arguments.builds.resolve())
        total.add(outcome)
        summary.append("%-13s %4d passed %3d failed %3d skipped %6.0f s"
                       % (name, *outcome.counts, time.monotonic() - start))
        counted += [counted_text(name, outcome.counted)] if outcome.counted else []
    counted += [counted_text("all", total.counted)] if len(counted) > 1 else []
    print("====")
    print("\n".join(summary + counted + ["FAILED " + what for what in total.failed]))
    print("%d passed, %d failed, %d skipped" % tuple(total.counts), flush=True)
    return 1 if total.counts[1] or not total.counts[0] else 0


if __name__ == "__main__":
    sys.exit(main())
