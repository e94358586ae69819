#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/kvonce_read.py, written from docs/format.md alone, against stat, ls and verify.

    reader_test.py KVONCE [TEST]
"""

import random
import subprocess
import sys

from files import (CLEAN, READER, copy_of, disk_of, flip, kvonce, listing, main, patch, read_with_reader, replay,
                   sealed, stat, super_copies, super_set, synth, verify)

BLOCK = 12000  # not whole pages: there is padding


def agree(directory):
    """The reader, ls, stat and verify see the same blocks. How many."""
    found, listed = read_with_reader(directory), listing(directory)
    assert found["bad"] == [] and verify(directory)[:2] == (0, [])
    assert len(found["blocks"]) == disk_of(stat(directory))["resident_blocks"] == len(listed)
    theirs = sorted((b["name"], b["space"], b["bytes"], b["digest"], b["slot"], b["position"], b["positions"],
                     b["sequence"], b["generation"], b["format"]) for b in found["blocks"])
    ours = sorted((b["name"], b["identity"]["space"], b["bytes"], b["identity"]["digest"], b["copies"][0]["slot"],
                   b["identity"]["position"], b["identity"]["positions"], b["identity"]["sequence"], b["generation"],
                   b["copies"][0]["format"]) for b in listed)
    assert theirs == ours
    return len(ours)


def test_reader_agrees_after_a_replay(folder):
    directory = folder / "disk"
    report = replay(synth(folder, 200), "dram:64blk,disk:%s:2000blk" % directory, "--block-bytes", BLOCK)
    assert report["wrong_reads"] == 0 and agree(directory) == report["unique_blocks"]


def test_reader_agrees_after_churn_and_other_sizes(folder):
    directory, tiers = folder / "disk", "dram:64blk,disk:%s" % (folder / "disk")
    first, second = synth(folder, 150), synth(folder, 151, "--seed", 9)
    replay(first, tiers + ":300blk", "--block-bytes", BLOCK)
    assert agree(directory) == 300
    replay(second, tiers, "--block-bytes", BLOCK, "--space", "other")
    assert agree(directory) == 300
    # A smaller slot: segments change their stride and are filled in part only.
    replay(first, tiers, "--block-bytes", 4096, "--space", "small", "--limit", 3)
    assert agree(directory) > 300
    kvonce("rm", directory, "--tenant", 1)
    agree(directory)
    for capacity in ["400blk", "150blk", "350blk"]:
        replay(second, "dram:64blk,disk:%s:%s" % (directory, capacity), "--block-bytes", BLOCK, "--limit", 40)
        agree(directory)


def test_a_last_segment_that_cannot_hold_its_slots_any_more(folder):
    directory, trace = folder / "disk", synth(folder, 60)
    # Segments of 2 slots of 13 units; the last one then has room for one of 4 units at most.
    replay(trace, "disk:%s:64blk" % directory, "--block-bytes", 49152)
    assert agree(directory) == 64
    short = "3628736"  # 30 segments of 27 units and one of 5, after what the small files may take
    for capacity, block in [("63blk", 49152), ("62blk", 49152), (short, 4096), ("64blk", 49152), (short, 4096)]:
        replay(trace, "disk:%s:%s" % (directory, capacity), "--block-bytes", block, "--space", "of%d" % block)
        assert agree(directory)


def test_reader_finds_what_verify_finds(folder):
    directory, source = folder / "disk", random.Random(4)
    replay(synth(folder, 60), "dram:64blk,disk:%s:500blk" % directory, "--block-bytes", BLOCK)
    chosen = source.sample([b["copies"][0]["offset_bytes"] for b in listing(directory)], 12)
    for offset in chosen:
        flip(directory / "data", offset + source.randrange(4 * 4096), source.randrange(1, 256))
    code, bad, _ = verify(directory)
    assert code == 1 and sorted(bad) == sorted(chosen)
    assert [slot["offset_bytes"] for slot in read_with_reader(directory, 1)["bad"]] == bad


def test_reader_refuses_what_it_cannot_read(folder):
    directory = folder / "disk"
    replay(synth(folder, 20), "dram:64blk,disk:%s:200blk" % directory, "--block-bytes", BLOCK)
    assert "No such file" in read_with_reader(folder / "nowhere", 2)
    unclean = copy_of(directory, "unclean")
    super_set(unclean, {CLEAN: b"\0\0\0\0"})
    assert "not closed in order" in read_with_reader(unclean, 2)
    newer = copy_of(directory, "newer")
    super_set(newer, {8: b"\2\0\0\0"})
    assert "another version" in read_with_reader(newer, 2)
    damaged = copy_of(directory, "damaged")
    patch(damaged / "super", 0, b"\0" * 8 + super_copies(damaged)[0][8:] + b"x")
    assert "no superblock" in read_with_reader(damaged, 2)
    assert subprocess.run([sys.executable, READER], capture_output=True).returncode == 2
    assert sealed(super_copies(directory)[0]) == super_copies(directory)[0]


main(sys.modules[__name__])
