#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and tests in several ways, one after the other, and ends with one line:

    N passed, N failed, N skipped

  plain         everything, with assertions, warnings are errors; suites `store` and
                `disk` once more with the I/O engine of threads
  asan, tsan    suite `sanitize` under address+undefined and, but for suite `slow`, thread sanitizer
  planted       a library with deliberate defects, one at a time: suite `planted` holds the tests that
                must notice. They are declared with should_fail, so noticing counts as passed.

    run.py [--builds DIRECTORY] [BUILD ...]         default: all of them
"""

import argparse
import json
import os
import pathlib
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


def read_log(path):
    """Counts of passed, failed and skipped; names of what failed."""
    counts, failed = [0, 0, 0], []
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        kind = 0 if entry["result"] in PASSED else 2 if entry["result"] in SKIPPED else 1
        counts[kind] += 1
        if kind == 1:
            failed.append("%s (%s)" % (entry["name"], entry["result"]))
    return counts, failed


def run_tests(name, directory, options, environment):
    """Counts and failures of one run of meson test. No test at all is a failure."""
    log = directory / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    status = run(["meson", "test", "-C", directory, "--no-rebuild", "--print-errorlogs", *options], environment)
    counts, failed = read_log(log)
    if sum(counts) == 0:
        return [0, 1, 0], ["%s: no test ran" % name]
    if status != 0 and counts[1] == 0:
        counts[1], failed = 1, ["meson test ended with %d" % status]
    return counts, ["%s: %s" % (name, what) for what in failed]


def test(name, builds):
    """Counts and failures of one build. A build that fails is one failure."""
    setup, options, compiler = BUILDS[name]
    directory = builds / name
    environment = environment_for(compiler)

    if not build(directory, setup, environment):
        return [0, 1, 0], ["%s: does not build" % name]
    counts, failed = run_tests(name, directory, options, environment)
    for more, options in MORE.get(name, []):
        what = " ".join([name, *("%s=%s" % item for item in more.items())])
        again, again_failed = run_tests(what, directory, options, dict(environment, **more))
        counts, failed = [a + b for a, b in zip(counts, again)], failed + again_failed
    return counts, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=pathlib.Path, default=ROOT / "build", metavar="DIRECTORY")
    parser.add_argument("build", nargs="*", metavar="BUILD", help=" ".join(BUILDS))
    arguments = parser.parse_args()
    unknown = set(arguments.build) - set(BUILDS)
    if unknown:
        parser.error("no such build: %s" % ", ".join(sorted(unknown)))

    total, failures, summary = [0, 0, 0], [], []
    for name in arguments.build or BUILDS:
        start = time.monotonic()
        print("==== %s" % name)
        counts, failed = test(name, arguments.builds.resolve())
        total = [a + b for a, b in zip(total, counts)]
        failures += failed
        summary.append("%-13s %4d passed %3d failed %3d skipped %6.0f s"
                       % (name, *counts, time.monotonic() - start))
    print("====")
    print("\n".join(summary + ["FAILED " + what for what in failures]))
    print("%d passed, %d failed, %d skipped" % tuple(total), flush=True)
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
