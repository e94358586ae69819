#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks block.pml with spin, exhaustively, and that it fails where it must.

Each set of calls that run beside each other is searched to the end, in all interleavings. Then each defect that the
model has a switch for is switched on in a set where it shows, and has to be found. Every step of the model is taken
in some set, and the functions of the library that it names exist.

    model_test.py [--wide] [--only NAME]      environment: KVO_TEST_MODEL_WIDE=1 as --wide

The wide sets take minutes and a GiB."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "block.pml"
SOURCES = HERE.parent / "src"

# Which calls run beside each other, and how many of each; what is not named: one writer, none of the rest.
SETS = {
    "puts": "WRITERS=2 READERS=1 MOVERS=1 EVICTORS=2",
    "gets": "READERS=3 MOVERS=1 EVICTORS=1 ROT=1",
    "life": "WRITERS=2 MOVERS=2 EVICTORS=2 SYNCERS=1 HOLDERS=1",
    "remove": "WRITERS=2 READERS=1 MOVERS=1 REMOVERS=1 SYNCERS=1",
    "remove_read": "READERS=2 MOVERS=1 EVICTORS=1 REMOVERS=1 ROT=1",
    "remove_twice": "MOVERS=1 EVICTORS=1 REMOVERS=2 ROT=1",
    "rewrite": "WRITERS=2 READERS=1 MOVERS=1 EVICTORS=1 REWRITERS=1",
    "rewrite_read": "READERS=2 MOVERS=1 EVICTORS=1 REWRITERS=1 ROT=1",
    "rewrite_remove": "READERS=1 MOVERS=1 EVICTORS=1 REMOVERS=1 REWRITERS=1",
}
WIDE = {
    "wide_remove": "WRITERS=2 READERS=2 MOVERS=1 EVICTORS=1 REMOVERS=1",
    "wide_remove_rot": "WRITERS=2 READERS=2 MOVERS=1 REMOVERS=1 ROT=1",
    "wide_remove_twice": "WRITERS=2 MOVERS=1 REMOVERS=2 SYNCERS=1",
}

# The switches of the model: a set where each shows, and what of the failed assertion says that it is the one meant.
DEFECTS = {
    "ANCHOR": ("MOVERS=2 EVICTORS=2", "delta<=1"),
    "CLOSE": ("READERS=1 REWRITERS=1", "pins==0"),
    "DIGEST": ("READERS=1 MOVERS=1 EVICTORS=1 ROT=1", "bytes==version"),
    "EARLY_DEMOTE": ("MOVERS=1", "found==written"),
    "EARLY_PROMOTE": ("READERS=2 MOVERS=1 EVICTORS=1", "bytes==version"),
    "ERASURE": ("MOVERS=1 REMOVERS=2", "gone_safe"),
    "FIRST_SEAL": ("WRITERS=2", "current==0"),
    "FLUSH": ("MOVERS=1 SYNCERS=1", "found==safe"),
    "HIDE": ("READERS=1 REWRITERS=1", "pins==0"),
    "HOLD": ("MOVERS=1 EVICTORS=2 HOLDERS=1", "incarnation==before"),
    "INCARNATION": ("WRITERS=2 MOVERS=2 EVICTORS=2 SYNCERS=1", "found==safe"),
    "KNOWN": ("READERS=1 MOVERS=1 EVICTORS=1 REMOVERS=1 REWRITERS=1", "gone_"),
    "NOTE": ("MOVERS=1 REMOVERS=2", "gone_"),
    "PIN": ("WRITERS=2 READERS=1 REMOVERS=1", "bytes==version"),
    "REMOVE": ("MOVERS=1 REMOVERS=1", "gone_"),
    "REWRITE": ("MOVERS=1 REWRITERS=1", "gone_written"),
    "STALE": ("MOVERS=1 EVICTORS=2 REMOVERS=1", "gone_"),
    "TRANSFER": ("MOVERS=1 REMOVERS=1", "moving"),
    "UNSURE": ("MOVERS=1", "whole"),
    "WRITE_NUMBER": ("WRITERS=2 MOVERS=2 EVICTORS=2", "found==written"),
}


class Failure(Exception):
    pass


def run(command, where):
    result = subprocess.run([str(word) for word in command], cwd=where, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode < 0:
        raise Failure("%s ended by signal %d" % (command[0], -result.returncode))
    return result.returncode, result.stdout


def verify(words, where, memory_mib=1000, depth=20000):
    """What the verifier says about the model with these definitions."""
    options = ["-D" + word for word in words.split()]
    status, out = run(["spin", "-a", *options, MODEL], where)
    if status != 0 or re.search("error", out, re.I):
        raise Failure("spin -a %s:\n%s" % (" ".join(options), out))
    # COLLAPSE: states are compressed without loss.
    flags = ["-w", "-O0", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=%d" % memory_mib]
    status, out = run(["gcc", *flags, "-o", "pan", "pan.c"], where)
    if status != 0:
        raise Failure("gcc: %s" % out)
    return run(["./pan", "-m%d" % depth], where)[1]


def bodies():
    """The lines of each process."""
    lines, process = {}, None
    for number, line in enumerate(MODEL.read_text().splitlines(), 1):
        start = re.match(r"proctype (\w+)", line)
        process = start.group(1) if start else None if line == "}" else process
        lines[number] = process
    return lines


def steps_missed(out):
    """The steps that were not taken, of what is not an inline's: (process, number): line."""
    lines = bodies()
    missed, process = {}, None
    for line in out.splitlines():
        start = re.match(r"unreached in (?:proctype )?(\S+)", line)
        step = re.match(r"\t\S+:(\d+), state (\d+), (.*)", line)
        process = start.group(1) if start else process
        if step and lines.get(int(step.group(1))) == process:
            missed[process, int(step.group(2))] = "line %s: %s" % (step.group(1), step.group(3))
    return missed


def check_set(name, words, where, memory_mib):
    """(states, transitions, steps not taken) of a set in which nothing is wrong."""
    start = time.monotonic()
    out = verify(words, where, memory_mib)
    count = re.search(r"(\d+) states, stored\n.*\n\s*(\d+) transitions", out)
    errors = re.search(r"errors: (\d+)", out)
    # A search that ends early says so in one of these ways.
    cut = re.search("max search depth too small|out of memory|Search not completed|aborting|hash-table overflow", out)
    if not count or not errors or int(errors.group(1)) or cut or "+ Partial Order Reduction" not in out:
        steps = run(["./pan", "-r", "-n"], where)[1] if (where / "block.pml.trail").exists() else ""
        raise Failure("%s (%s):\n%s%s" % (name, words, out, steps))
    states, transitions = int(count.group(1)), int(count.group(2))
    print("%-20s %9d states %9d transitions %6.1f s   %s"
          % (name, states, transitions, time.monotonic() - start, words), flush=True)
    return states, transitions, steps_missed(out)


def check_defect(name, where):
    words, meant = DEFECTS[name]
    out = verify("BREAK_%s %s" % (name, words), where)
    found = re.search(r"assertion violated (.*) \(at depth", out)
    if not found or meant not in found.group(1):
        raise Failure("BREAK_%s (%s) is not found:\n%s" % (name, words, out))


def check_names():
    """How many functions the model names, all of which the library defines."""
    text = MODEL.read_text()
    comments = re.findall(r"/\*.*?\*/", text, re.S)
    named = {name for comment in comments for part in re.findall(r"C: (.*)", comment, re.S)
             for name in re.findall(r"(\w+)\(\)", part)}
    source = "\n".join(path.read_text() for path in SOURCES.rglob("*.c"))
    lacking = [name for name in sorted(named) if not re.search(r"^\w[^;\n]*\b%s\((?!.*;$)" % name, source, re.M)]
    if lacking or not named:
        raise Failure("named in %s, and not in src: %s" % (MODEL.name, ", ".join(lacking)))
    switches = set(re.findall(r"BREAK_([A-Z_]+)\b", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))
    if switches != set(DEFECTS):
        raise Failure("switches of the model and of this test differ: %s" % ", ".join(switches ^ set(DEFECTS)))
    return len(named)


def check_all(where, wide, only):
    functions = check_names()
    sets = {**SETS, **(WIDE if wide else {})}
    sets = {name: words for name, words in sets.items() if not only or name == only}
    states = transitions = 0
    missed = None
    for name, words in sets.items():
        more = check_set(name, words, where, 4000 if name in WIDE else 1000)
        states, transitions = states + more[0], transitions + more[1]
        missed = more[2] if missed is None else {step: missed[step] for step in missed if step in more[2]}
    if missed and not only:
        raise Failure("no set takes these steps:\n%s" % "\n".join("%s %s" % (step[0], missed[step]) for step in missed))
    defects = [name for name in DEFECTS if not only or name == only]
    for name in defects:
        check_defect(name, where)
    print("model: %d sets, %d states, %d transitions, no error; %d of %d defects found; %d functions named"
          % (len(sets), states, transitions, len(defects), len(defects), functions))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wide", action="store_true", default=os.environ.get("KVO_TEST_MODEL_WIDE") == "1")
    parser.add_argument("--only", metavar="NAME", help="of a set, or of a defect")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        try:
            check_all(pathlib.Path(where), arguments.wide, arguments.only)
        except Failure as failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
