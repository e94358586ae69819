#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce bench: which rows there are and of what shape, what no noise can move, and that nothing stays.

    bench_test.py KVONCE [TEST]
"""

import json
import math
import os
import signal
import subprocess
import sys
import time

from harness import KVONCE, kvonce, main

SIZES = [65536, 1 << 20, 5 << 20]
CONTROL = ["match", "match_miss", "match_single", "exists_random", "exists_miss", "policy_word", "policy_masked"]
DRAM = ["dram_put", "dram_put_2t", "dram_get", "dram_get_2t"]
DISK = ["disk_%s%s" % (side, what) for side in ("put", "get")
        for what in ("", "_cpu", "_submissions", "_copies", "_copies_unaligned", "_extra_bytes")]
DISK += ["disk_put_write_out_bytes"]
LATENCY = ["%s_%s" % (what, part) for part in ("p50", "p99")
           for what in ("put_sealed", "put_sealed_full", "latency_dram_get", "latency_disk_get")]
REOPEN = [("reopen_scan", 65536), ("reopen_checkpoint", 65536), ("metadata_bytes_per_block", 65536),
          ("metadata_resident_bytes_per_block", 65536), ("control_record_bytes", 0), ("policy_word_mover", 0),
          ("policy_masked_mover", 0)]
KEYS = ["name", "block_bytes", "value", "unit", "limit", "ratio", "control", "rounds"]
MEASURED_LIMITS = set(DRAM + LATENCY + ["disk_put", "disk_get", "disk_put_cpu", "disk_get_cpu", "reopen_scan",
                                        "policy_masked", "policy_word_mover", "policy_masked_mover"])
RATES = ("names/s", "updates/s", "bytes/s")


def is_positive(number):
    return isinstance(number, (int, float)) and math.isfinite(number) and number > 0


def bench(folder, *options):
    report = json.loads(kvonce("bench", "--quick", "--json", "--dir", folder, *options))
    assert list(report) == ["machine", "rows"]
    assert os.listdir(folder) == []
    rows = {(row["name"], row["block_bytes"]): row for row in report["rows"]}
    assert len(rows) == len(report["rows"]), "a name occurs twice"
    for row in report["rows"]:
        check_row(row)
    return report["machine"], rows


def check_row(row):
    assert [key for key in row if key != "noisy"] == KEYS, row
    assert row["rounds"] >= 1, row
    control = row["control"]
    assert row.get("noisy", False) is (control is not None and not 0.95 <= control <= 1.05), row
    if row["name"] in MEASURED_LIMITS:
        assert is_positive(row["value"]) and is_positive(row["limit"]) and is_positive(row["control"]), row
        assert is_positive(row["ratio"]), row
    if row["unit"] in RATES or row["unit"] == "s":
        assert is_positive(row["value"]), row


def test_each_row_is_there_once_in_a_known_shape(folder):
    machine, rows = bench(folder)
    wanted = {(name, 0) for name in CONTROL} | set(REOPEN)
    wanted |= {(name, size) for name in DRAM + DISK + LATENCY for size in SIZES}
    assert set(rows) == wanted, set(rows) ^ wanted
    for key in ["cpu", "kernel", "file_system", "io_engine", "raw_engine", "compiler", "flags", "command", "version"]:
        assert machine[key], key
    assert machine["cores"] >= 1 and machine["memory_bytes"] > 0
    assert machine["direct_io"] in ("yes", "no")

    assert rows["control_record_bytes", 0]["value"] == 64
    for size in SIZES:
        for side in ("put", "get"):
            assert rows["disk_%s_extra_bytes" % side, size]["value"] == 4096
            assert rows["disk_%s_copies" % side, size]["value"] <= 1
            assert rows["disk_%s_copies_unaligned" % side, size]["value"] <= 1


def test_one_part_alone_and_a_table_for_people(folder):
    _, rows = bench(folder, "--only", "control")
    assert set(rows) == {(name, 0) for name in CONTROL}
    text = kvonce("bench", "--quick", "--only=control", "--dir", folder)
    lines = text.splitlines()
    for name in CONTROL:
        assert sum(line.startswith(name + " ") for line in lines) == 1, text
    assert "kernel" in text and "quick" in text and "2 bars" not in text and "3 bars" in lines[-1], text


def test_headers_alone_are_a_store_of_as_many_blocks(folder):
    _, rows = bench(folder, "--only", "growth")
    assert set(rows) == {("reopen_%s_%d" % (how, count), 65536) for how in ("scan", "checkpoint")
                         for count in (10000, 100000, 1000000)}


def test_what_cannot_run_is_one_line(folder):
    assert "cannot make a directory" in kvonce("bench", "--dir", folder / "none", code=2)
    assert "comma" in kvonce("bench", "--dir", "a,b", code=2)
    assert "--only" in kvonce("bench", "--only", "nothing", code=2)
    assert os.listdir(folder) == []


def test_interrupted_it_leaves_nothing(folder):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([KVONCE, "bench", "--quick", "--only", "disk", "--dir", str(folder)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while not list(folder.glob("*/disk/data")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        process.communicate(timeout=120)
        assert process.returncode == 130
        assert os.listdir(folder) == []


main(sys.modules[__name__])
