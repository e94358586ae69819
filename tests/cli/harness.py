# SPDX-License-Identifier: Apache-2.0
"""Runs the command in tests: kvonce() and what most tests need of a trace and a directory."""

import json
import os
import subprocess
import sys

from runner import run_tests

KVONCE = os.path.abspath(sys.argv[1])
# What an opening or a close says without a checkpoint, after a crash or with damage: tests/store/checkpoint_test.c.
SLOW_OPENING = ["; reading all slot headers", ": no checkpoint is written: "]
# What it says on a machine without io_uring, or without enough memory that may be locked: tests/envs/limits_test.c.
MACHINE = ["io_uring is not to be had here", "staging memory cannot be registered"]
FIGURES_OF_TIME = {"seconds", "latency_us", "metadata_written_bytes", "put_waits"}


def kvonce(*arguments, code=0, says="", **options):
    """Runs it; stdout on success, the one error line if `code` says that it fails. `says`: what each
    other line on standard error must hold; without it there may be none."""
    words = [KVONCE, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, **options)
    context = "%s: exit %d\n%s\n%s" % (" ".join(words), done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    assert done.returncode == code, context
    if code == 2:
        assert done.stderr.startswith("kvonce: ") and done.stderr.count("\n") == 1, context
        return done.stderr
    expected = SLOW_OPENING + MACHINE
    lines = [line for line in done.stderr.splitlines() if not any(words in line for words in expected)]
    assert all(line.startswith("kvonce: ") and says and says in line for line in lines), context
    return done.stdout


def replay(trace, tiers, *options, **how):
    return json.loads(kvonce("replay", trace, "--tiers", tiers, "--json", *options, **how))


def synth(folder, requests=400, *options):
    path = folder / ("trace-%d.jsonl" % requests)
    path.write_text(kvonce("trace", "synth", "--requests", requests, *options))
    return path


def decisions(report):
    """What does not depend on time, nor on whether bytes were kept."""
    return {key: value for key, value in report.items() if key not in FIGURES_OF_TIME}


def listing(directory, *options):
    return json.loads(kvonce("ls", directory, "--json", *options))["blocks"]


def main(module):
    run_tests(module, *sys.argv[2:3])
