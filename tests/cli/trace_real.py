#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public traces, read by the command's reader and by this script: the same references.

    trace_real.py TRACE_DUMP

The traces are no part of the repository: $KVONCE_TRACES names their folder, or else it is called `traces`
and lies in a folder beside the checkout. Without them the test is skipped (77).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from traces import traces

COMPACT = "agentic_kvct/kvct_agentic_compact.jsonl"
RAW = {"trace_0002": "sample_trace_0002", "trace_0006": "sample_trace_0006", "trace_0291": "sample_subagent_trace_0291"}


def dump(path):
    """(time, line, ids) of each request, in order of time."""
    out = subprocess.Popen([sys.argv[1], str(path)], stdout=subprocess.PIPE, text=True)
    for line in out.stdout:
        time, number, _, _, _, ids = line.rstrip("\n").split(" ")
        yield time, int(number[5:]), ids[4:]
    assert out.wait() == 0


def check_hash_ids(path):
    expected = sorted((json.loads(line) for line in open(path)), key=lambda request: request["timestamp"])
    got = [ids for _, _, ids in dump(path)]
    assert got == [",".join(map(str, request["hash_ids"])) for request in expected], path
    print("%s: %d requests" % (path.name, len(got)))


def expand_compact(path):
    """Line number to ids as text, by the rule of the form."""
    last, number = {}, 0
    for number, line in enumerate(open(path), 1):
        item = json.loads(line)
        if "conv" in item:
            last = {}
            continue
        ids = last.get(item.get("agent"), [])[:item["keep"]]
        for start, count in item["new"]:
            ids = ids + list(range(start, start + count))
        last[item.get("agent")] = ids
        yield number, ids


def check_compact(path):
    size = {number: (len(ids), sum(ids), tuple(ids[-5:])) for number, ids in expand_compact(path)}
    references = requests = 0
    for _, number, text in dump(path):
        requests += 1
        references += text.count(",") + (text != "")
        if requests % 50 == 0:  # parsing all of them back takes minutes
            ids = [int(i) for i in text.split(",")] if text else []
            assert (len(ids), sum(ids), tuple(ids[-5:])) == size[number], number
        else:
            assert text.count(",") + (text != "") == size[number][0], number
    assert requests == len(size) and references == sum(count for count, _, _ in size.values())
    print("%s: %d requests, %d references" % (path.name, requests, references))


def check_raw(folder, temporary):
    lines = {}
    for line in open(folder / COMPACT):
        name = json.loads(line)["conv"] if '"conv"' in line else name
        if name in RAW:
            lines.setdefault(name, []).append(line)
    for name, raw in RAW.items():
        compact = pathlib.Path(temporary) / "one.jsonl"
        compact.write_text("".join(lines[name]))
        source = folder / "agentic_kvct" / (raw + ".json")
        spread = pathlib.Path(temporary) / "spread.json"
        spread.write_text(json.dumps(json.loads(source.read_text()), indent=1))
        expected = [(time, ids) for time, _, ids in dump(compact)]
        assert [(time, ids) for time, _, ids in dump(source)] == expected, raw
        assert [(time, ids) for time, _, ids in dump(spread)] == expected, raw
        print("%s: raw and compact give the same %d requests" % (name, len(expected)))


folder = traces()
for path in sorted(folder.glob("*.jsonl")):
    check_hash_ids(path)
with tempfile.TemporaryDirectory() as temporary:
    check_raw(folder, temporary)
check_compact(folder / COMPACT)
