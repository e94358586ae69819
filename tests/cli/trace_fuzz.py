#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated lines of a trace against another JSON reader: what one takes the other takes, with the
same ids; what is refused is refused with one line and exit code 2.

    trace_fuzz.py TRACE_DUMP [SEED [ROUNDS]]
"""

import json
import os
import random
import subprocess
import sys
import tempfile

IDS = [0, 1, 2, 7, 511, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
PIECES = ['"', "\\", "{", "}", "[", "]", ",", ":", "-", "0", "1e5", ".", " ", "\t", "\r", "null", "true", "\x00",
          "\x01", "\u00e9", "\ud7ff", "\U0001f600", "\\u0041", "\\ud800", "\\ud83d\\ude00", "\\x", "2748 610",
          "18446744073709551616"]


def whole(value):
    return type(value) is int and 0 <= value < 2**64


def refuse_constant(text):
    raise ValueError(text)


def no_twins(pairs):
    keys = [key for key, _ in pairs]
    known = {"hash_ids", "timestamp", "tenant", "session_id", "input_length", "output_length"}
    if any(keys.count(key) > 1 for key in keys if key in known):
        raise ValueError("twice")
    return dict(pairs)


def label(value):
    return value is None or whole(value) or (type(value) is str and len(value.encode()) < 256 and "\0" not in value)


def deep(value, depth=0):
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return depth > 30 or any(deep(item, depth + 1) for item in items)


def has_nul_or_half(value):
    if isinstance(value, dict):
        return any(has_nul_or_half(key) or has_nul_or_half(item) for key, item in value.items())
    if isinstance(value, list):
        return any(map(has_nul_or_half, value))
    return isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value))


def reference(line):
    """The ids, or None where the line must be refused, or a reason why it is not compared."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=no_twins)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "hash_ids" not in value:
        return "not compared"
    if has_nul_or_half(value) or deep(value):
        return None
    ids = value["hash_ids"]
    good = isinstance(ids, list) and all(map(whole, ids))
    good = good and label(value.get("tenant")) and label(value.get("session_id"))
    good = good and all(whole(value.get(key, 0)) for key in ("input_length", "output_length"))
    time = value.get("timestamp", 0)
    good = good and type(time) in (int, float) and abs(time) < 2**63 and time != -(2**63)
    return [str(i) for i in ids] if good else None


def make_line(dice):
    request = {"timestamp": dice.choice([0, 5, 2.5, -1, 1e10]), "input_length": dice.randrange(10000),
               "output_length": dice.randrange(100), "hash_ids": [dice.choice(IDS) for _ in range(dice.randrange(6))]}
    if dice.random() < 0.5:
        request["tenant"] = dice.choice(["a", "\u00e9\n\"", 4, None])
    if dice.random() < 0.3:
        request["other"] = {"x": [1, {"y": [None, True, -1.5e-3]}]}
    items = list(request.items())
    dice.shuffle(items)
    return json.dumps(dict(items), ensure_ascii=dice.random() < 0.5)


def mutate(dice, text):
    for _ in range(dice.choice([0, 1, 1, 1, 2, 4])):
        at = dice.randrange(len(text) + 1)
        kind = dice.randrange(3)
        if kind == 0:
            text = text[:at] + dice.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + dice.randrange(1, 4):]
        else:
            text = text[:at] + text[at:at + 8][::-1] + text[at + 8:]
    line = text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    if dice.random() < 0.05 and line:
        at = dice.randrange(len(line))
        line = line[:at] + bytes([dice.randrange(256)]) + line[at + 1:]
    return line.replace(b"\n", b" ")


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1500
    dice = random.Random(seed)
    taken = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.jsonl")
        for number in range(rounds):
            line = mutate(dice, make_line(dice))
            expected = reference(line)
            if expected == "not compared" or not line.strip(b" \t\r"):
                continue
            with open(path, "wb") as file:
                file.write(line + dice.choice([b"\n", b"", b"\r\n"]))
            done = subprocess.run([program, path], capture_output=True)
            where = "seed %d round %d: %r\n%r %r" % (seed, number, line, done.stdout, done.stderr)
            if done.returncode == 0:
                got = [i for i in done.stdout.decode().split(" ids=")[1].strip().split(",") if i]
                assert expected is not None, "taken, but should not be: " + where
                assert got == expected, where
                taken += 1
            else:
                assert done.returncode == 2 and done.stderr.count(b"\n") == 1, where
                assert expected is None, "refused, but should not be: " + where
                refused += 1
    print("%d lines taken, %d refused, all as another reader says" % (taken, refused))
    assert taken > rounds / 10 and refused > rounds / 10


main()
