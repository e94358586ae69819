#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce study: which rows there are and of what shape, what no noise can move, a report that needs nothing else.

    study_test.py KVONCE [TEST]
"""

import html.parser
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from harness import KVONCE, kvonce, main

NAMES = ["lookup", "update", "sram", "coherence", "link"]
SUMMARY = ["least", "p25", "median", "p75", "p99", "p999", "most"]


def study(folder, *options, **how):
    place = folder / "place"
    place.mkdir(exist_ok=True)
    text = kvonce("study", "--tiny", "--json", "-", "--dir", place, *options, **how)
    report = json.loads(text, parse_constant=lambda word: 1 / 0)  # NaN and Infinity are no JSON
    assert report["machine"]["command"] == " ".join(map(str, ("kvonce study --tiny",) + options)), report["machine"]
    assert os.listdir(place) == []
    assert list(report) == ["machine", "experiments"]
    for experiment in report["experiments"]:
        assert list(experiment) == ["name", "title", "method", "rows", "reading"]
        assert len(experiment["method"]) > 100 and experiment["rows"]
        for row in experiment["rows"]:
            check_row(row)
    return {e["name"]: e for e in report["experiments"]}


def check_row(row):
    if "missing" in row:
        assert row["missing"] and "median" not in row, row
        return
    assert row["sample_count"] >= 1 and 1 <= len(row["samples"]) <= min(1000, row["sample_count"]), row
    assert row["samples"] == sorted(row["samples"]), row
    assert (row["p99"] is None) == (row["sample_count"] < 100), row
    assert (row["p999"] is None) == (row["sample_count"] < 1000), row
    figures = [row[key] for key in SUMMARY if row[key] is not None]
    assert all(math.isfinite(f) and (f >= 0 or row["name"].startswith("balance")) for f in figures), row
    assert figures == sorted(figures), row
    assert (row["samples"][0], row["samples"][-1]) == (row["least"], row["most"]), row
    assert row["computed"] in (True, False) and row["oversubscribed"] in (True, False)


def rows(experiment, name, series=None):
    found = [r for r in experiment["rows"] if r["name"] == name and series in (None, r.get("series"))]
    assert found, (name, series)
    return found


def test_all_experiments_have_rows_and_a_reading(folder):
    report = study(folder)
    assert list(report) == NAMES
    for experiment in report.values():
        assert re.search(r"\d", experiment["reading"]) and len(experiment["reading"]) < 4000, experiment["reading"]
    match = rows(report["lookup"], "match")
    assert {r["parameters"]["batch"] for r in match} == {1, 8, 32, 128}
    assert all(r["median"] > 0 for r in match)
    cores = len(os.sched_getaffinity(0))
    assert {r["parameters"]["threads"] for r in match} >= {1, cores, 2 * cores}
    assert all(r["oversubscribed"] == (r["parameters"]["threads"] > cores) for r in match)
    assert {r["series"] for r in rows(report["update"], "table_update")} == \
        {"one line a block", "two lines a block", "packed words", "one lock"}
    assert {r["series"] for r in rows(report["update"], "policy_update")} == {"hot", "cold", "cold, no payloads"}
    check_which_form_is_said_to_win(report["update"])


def check_which_form_is_said_to_win(update):
    """One scheduler and a mover: what is said of each pair of forms must be what the rounds' medians say."""
    said = re.findall(r"Over (\d+) rounds (.*?), and packed words (.*?)\.", update["reading"])
    assert len(said) == 2, update["reading"]
    for name, (count, lines, packed) in zip(("table_rounds", "table_rounds_hot"), said):
        one, two, words = [max((r for r in rows(update, name, series) if r["parameters"]["movers"] == 1
                                and (not r["oversubscribed"] or r["parameters"]["schedulers"] == 1)),
                               key=lambda r: r["parameters"]["schedulers"])
                           for series in ("one line a block", "two lines a block", "packed words")]
        assert int(count) == one["sample_count"]
        assert (lines == "one line beats two") == (one["most"] < two["least"]), update["reading"]
        assert (lines == "two lines beat one") == (one["least"] > two["most"]), update["reading"]
        assert (packed == "beat both") == (words["most"] < min(one["least"], two["least"])), update["reading"]
        assert packed.startswith("are slower") == (words["least"] > one["most"]), update["reading"]


def test_what_a_link_carries_is_the_payload_and_what_the_ledger_says(folder):
    link = study(folder, "--only", "link")["link"]
    for row in rows(link, "payload_bytes"):
        if "missing" not in row:
            assert row["median"] == row["parameters"]["block_bytes"], row
    for row in rows(link, "operations"):
        assert row["median"] == 1, row
    kernel = {(r["series"], r["parameters"]["block_bytes"]): r["median"] for r in rows(link, "kernel_bytes")
              if "missing" not in r}
    for series, size in kernel:
        parts = [r["median"] for name in ("payload_bytes", "metadata_bytes", "padding_bytes")
                 for r in rows(link, name, series) if r["parameters"]["block_bytes"] == size]
        # The kernel's count is of the whole process and of what reached the device: no less than payload.
        assert len(parts) == 3 and (kernel[series, size] == 0 or kernel[series, size] >= 0.9 * parts[0]), (series, size)
    for row in rows(link, "calls"):  # by threads one a block, by io_uring none; and what is written once a segment
        fewest = 1 if "threads" in row["series"] else 0
        assert fewest <= row["median"] <= fewest + 1, row
    for row in rows(link, "balance"):
        assert ("missing" in row) == ((row["series"], row["parameters"]["block_bytes"]) not in kernel), row
    pairs = [(abs(r["median"]), abs(b["median"])) for r, b in zip(rows(link, "balance"), rows(link, "balance_bytes"))
             if "missing" not in r]
    same = all(p <= 0.1 or n <= 8192 for p, n in pairs)
    said = "No balance" if not pairs else "the accounts agree" if same else "DO NOT AGREE"
    assert said in link["reading"], (pairs, link["reading"])


def wire_bytes(payload):
    """The formulas of docs/study.md, by hand, for one block."""
    def up(x, y):
        return -(-x // y)

    def read(n):
        return n + 24 * up(n, 512) + 20 * up(n, 256)
    pcie = payload + 24 * up(payload, 256)
    nvme = 0
    for command in [1 << 20] * (payload >> 20) + ([payload % (1 << 20)] if payload % (1 << 20) else []):
        pages = up(command, 4096)
        nvme += command + 24 * up(command, 256) + read(64) + (read(8 * (pages - 1)) if pages > 2 else 0) + 3 * 28 + 40
    return {"PCI Express 5.0, 256-byte payloads": (pcie, up(payload, 256)),
            "CXL 3 memory, 256-byte flits": (256 * up(5 * up(payload, 64), 15), up(payload, 64)),
            "NVMe over PCI Express": (nvme, up(payload, 1 << 20)),
            "RDMA (RoCE v2), 4096-byte packets": (payload + 82 * up(payload, 4096) + 16 + 86, up(payload, 4096))}


def test_what_is_computed_is_what_the_formulas_say(folder):
    link = study(folder, "--only", "link")["link"]
    sizes = {int(r["parameters"]["block_bytes"]) for r in rows(link, "wire_overhead")}
    assert {16384, 65536, 100000} <= sizes
    for size in sizes:
        for name, (count, transactions) in wire_bytes(size).items():
            found = [next(r for r in rows(link, what, name) if r["parameters"]["block_bytes"] == size)
                     for what in ("wire_overhead", "wire_transactions")]
            assert all(r["computed"] for r in found)
            assert math.isclose(found[0]["median"], 100 * (count - size) / size), (name, size)
            assert found[1]["median"] == transactions, (name, size)


def test_a_kernel_that_counts_nothing_is_no_balance(folder):
    """On a file system in memory nothing reaches a device: not 0 bytes, but no figure."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        link = json.loads(kvonce("study", "--tiny", "--only", "link", "--json", "-", "--dir", place))["experiments"][0]
    for name in ("kernel_bytes", "balance"):
        assert all("reaches a device" in r["missing"] for r in rows(link, name)), rows(link, name)
    assert "No balance" in link["reading"], link["reading"]


def test_one_processor_is_told(folder):
    one = {min(os.sched_getaffinity(0))}
    coherence = study(folder, "--only", "coherence", preexec_fn=lambda: os.sched_setaffinity(0, one))["coherence"]
    assert "one processor" in rows(coherence, "line_transfer")[0]["missing"]
    said = coherence["reading"]
    assert "take turns on one processor" in said and "cache line" not in said, said
    assert all(r["oversubscribed"] for r in rows(coherence, "policy_age") if "missing" not in r)


def test_what_was_asked_for_and_what_was_done_are_two_rows(folder):
    coherence = study(folder, "--only", "coherence")["coherence"]
    asked = [r["parameters"]["updates_per_s"] for r in rows(coherence, "updates")]
    assert asked[:3] == [1e3, 1e4, 1e5] and len(asked) == 4
    assert all(r["median"] <= 1.01 * r["parameters"]["updates_per_s"] + 100 for r in rows(coherence, "updates"))
    for row in rows(coherence, "replaced"):
        assert row["median"] <= 100 and row["operations"] >= 1, row
        near = [r["median"] for r in rows(coherence, "replaced_over_link", row["series"])
                if r["parameters"]["updates_per_s"] == row["parameters"]["updates_per_s"]]
        assert len(near) == 6 and near == sorted(near), near  # a longer link knows less


def test_reuse_distances_are_exact(folder):
    """Three blocks in turn: after the first round each look-up finds its record 2 others ago, and gets and puts too."""
    trace = folder / "trace.jsonl"
    ids = [[1], [2], [3]] * 100
    trace.write_text("".join(json.dumps({"timestamp": i, "hash_ids": x}) + "\n" for i, x in enumerate(ids)))
    sram = study(folder, "--only", "sram", "--trace", trace)["sram"]
    first = rows(sram, "first_accesses")[0]
    accesses = first["operations"]
    assert "On trace.jsonl, " in sram["reading"] and "the accounts agree" in sram["reading"], sram["reading"]
    assert rows(sram, "replayed")[0]["median"] == 100 and rows(sram, "replayed")[0]["operations"] == 300
    for tier, count in [("memory", 3), ("disk", 0)]:
        assert {rows(sram, "resident", tier + by)[0]["median"] for by in (", by the store", ", by a walk")} == {count}
    assert accesses == 3 + 2 * 297, accesses  # a put each, then match and get
    assert math.isclose(first["median"], 100 * 3 / accesses)
    for row in rows(sram, "served"):  # the smallest cache holds 256 records
        assert math.isclose(row["median"], 100 * (accesses - 3) / accesses), row


def test_a_cache_too_small_serves_less(folder):
    """A cycle over more records than a cache holds is never served by it but for the get behind each match."""
    trace = folder / "trace.jsonl"
    count = 300
    with open(trace, "w") as file:
        for i in range(3 * count):
            file.write(json.dumps({"timestamp": i, "hash_ids": [i % count]}) + "\n")
    sram = study(folder, "--only", "sram", "--trace", trace)["sram"]
    served = {r["parameters"]["cache_bytes"]: r["median"] for r in rows(sram, "served", "whole records, 64 bytes")}
    accesses = count + 2 * 2 * count
    assert math.isclose(served[16384], 100 * 2 * count / accesses)      # 256 records: only the gets
    assert math.isclose(served[32768], 100 * 4 * count / accesses)      # 512 records: all but the first


def test_a_study_that_is_stopped_leaves_nothing_and_nobody(folder):
    """At its longest wait: a child counts for it. One that only writes and sleeps will do."""
    child, place = folder / "valgrind", folder / "place"
    place.mkdir()
    child.write_text("#!/bin/sh\n"
                     "for i; do case $i in --callgrind-out-file=*) echo $$ >${i#*=};; esac; done\n"
                     "exec sleep 300\n")
    child.chmod(0o755)
    environment = dict(os.environ, PATH="%s:%s" % (folder, os.environ["PATH"]))
    running = subprocess.Popen([KVONCE, "study", "--tiny", "--only", "lookup", "--dir", place], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for _ in range(2400):
        found = [path for path in place.glob("*/callgrind.out") if path.read_text().endswith("\n")]
        if found or running.poll() is not None:
            break
        time.sleep(0.05)
    pid = int(found[0].read_text())
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=120)[1]
    assert (running.returncode, os.listdir(place)) == (130, []), (running.returncode, os.listdir(place), said)
    try:
        os.kill(pid, 0)
        assert False, "the child runs on"
    except ProcessLookupError:
        pass


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = {}, []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.links += [v for k, v in attributes if k in ("src", "href")]


def test_the_report_has_plots_and_needs_nothing_else(folder):
    page, report = Page(), folder / "report.html"
    out = kvonce("study", "--tiny", "--only", "sram", "--html", report, "--dir", folder)
    text = report.read_text()
    page.feed(text)
    assert page.tags["svg"] == 2 and page.tags["polyline"] >= 4 and page.links == []
    assert "http" not in text and "nan" not in re.findall(r'[xy][12]?=(\S+)', text) and "NaN" not in text
    assert "served" in out


def test_what_cannot_run_says_why(folder):
    assert "all, lookup, update, sram, coherence or link" in kvonce("study", "--only", "nothing", code=2)
    # Before anything is measured: these would take minutes otherwise, and a trace that is none is found last.
    other = "--json=%s" % (folder / "left.json")
    for option, path, why, more in [("--json", "", "No such file", "--quick"),
                                    ("--html", folder, "Is a directory", other),
                                    ("--trace", os.devnull, "empty", other)]:
        line = kvonce("study", option, path, "--dir", folder, more, code=2)
        assert why in line and str(path) in line, line
    assert "both to" in kvonce("study", "--json", folder / "same", "--html", folder / "same", "--dir", folder, code=2)
    assert os.listdir(folder) == []
    # One report that cannot be written does not take the other with it.
    sram = ("study", "--tiny", "--only", "sram", "--dir", folder)
    assert "/dev/full" in kvonce(*sram, "--html", "/dev/full", "--json", folder / "x.json", code=2)
    assert json.loads((folder / "x.json").read_text())["experiments"][0]["name"] == "sram"
    (folder / "x.json").unlink()
    assert "/dev/full" in kvonce(*sram, "--json", "/dev/full", code=2)
    assert "none.jsonl" in kvonce(*sram, "--trace", folder / "none.jsonl", code=2)
    assert "none" in kvonce("study", "--tiny", "--dir", folder / "none", code=2)
    assert "x.html" in kvonce(*sram, "--html", folder / "none" / "x.html", code=2)
    assert os.listdir(folder) == []
    environment = dict(os.environ, PATH="/nonexistent")
    done = subprocess.run([KVONCE, "study", "--tiny", "--only", "lookup", "--json", "-", "--dir", folder],
                          env=environment, capture_output=True, check=True)
    lines = [r for e in json.loads(done.stdout)["experiments"] for r in e["rows"] if r["name"] == "lines"]
    assert lines and all("valgrind is not installed" in r["missing"] for r in lines)


main(sys.modules[__name__])
