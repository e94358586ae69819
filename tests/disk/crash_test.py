#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9, and what a crash leaves: unfinished is not damage, also after another crash and after a clean close.

    crash_test.py KVONCE [TEST]
"""

import random
import signal
import struct
import subprocess
import sys
import time

from files import (CLEAN, KVONCE, MARK_FLUSHED, MARK_WRITTEN, PAGE, SEGMENT_UNITS, copy_of, flip, kvonce, listing, main,
                   offsets, patch, read_with_reader, replay, sealed, stat, super_field, super_set, synth, verify)

BLOCK = 12000


def replay_killed(trace, tiers, seconds):
    """Whether it was still running."""
    process = subprocess.Popen([KVONCE, "replay", trace, "--tiers", tiers, "--block-bytes", str(BLOCK), "--json"],
                               stdout=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() == -signal.SIGKILL


def test_kill_in_the_middle_of_a_replay(folder):
    trace, source = synth(folder, 300), random.Random(11)
    start = time.monotonic()
    replay(trace, "dram:64blk,disk:%s:400blk" % (folder / "whole"), "--block-bytes", BLOCK)
    whole, killed = time.monotonic() - start, 0
    for moment in range(3):
        directory = folder / ("killed-%d" % moment)
        tiers = "dram:64blk,disk:%s:400blk" % directory
        for _ in range(source.randrange(1, 4)):  # and some again, over what the last one left
            killed += replay_killed(trace, tiers, whole * source.uniform(0.1, 0.8))
            if not (directory / "super").exists():
                continue
            code, bad, last = verify(directory)
            assert (code, bad) == (0, []), (moment, last, bad)
        report = replay(trace, tiers, "--block-bytes", BLOCK)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0 and report["tiers"][1]["max_delta"] <= 1
        assert verify(directory)[:2] == (0, []) and len(read_with_reader(directory)["blocks"]) == 400
    assert killed >= 3, "too fast to kill"


def crashed_store(folder):
    """A store whose last 12 writes a crash may have cut short: name and offset of each, oldest first; and the rest."""
    directory = folder / "disk"
    trace = synth(folder, 60)
    replay(trace, "dram:64blk,disk:%s:1000blk" % directory, "--block-bytes", BLOCK)
    blocks = sorted(read_with_reader(directory)["blocks"], key=lambda block: block["write_number"])
    mark = struct.pack("<Q", blocks[-13]["write_number"])
    super_set(directory, {CLEAN: struct.pack("<I", 0), MARK_WRITTEN: mark, MARK_FLUSHED: mark})
    return directory, trace, blocks[-12:], blocks[:-12]


def cut_short(directory, blocks):
    """Half of them: payload not there, or header not whole."""
    for number, block in enumerate(blocks[:6]):
        offset = block["slot"] * PAGE
        if number % 2:
            patch(directory / "data", offset + 2 * PAGE, b"\xa5" * PAGE)
        else:
            patch(directory / "data", offset + 512, b"\xa5" * (PAGE - 512))


def test_unfinished_is_not_damage(folder):
    directory, trace, last, rest = crashed_store(folder)
    cut_short(directory, last)
    code, bad, line = verify(directory)
    assert (code, bad) == (0, []) and "6 unfinished" in line, line
    assert stat(directory)["unfinished_slots"] == 6 and stat(directory)["damaged_slots"] == 0
    assert set(offsets(directory)) == {block["name"] for block in last[6:] + rest}
    # What was complete before the mark has no excuse.
    damaged = copy_of(directory, "damaged")
    flip(damaged / "data", rest[3]["slot"] * PAGE + 100, 1)
    flip(damaged / "data", rest[7]["slot"] * PAGE + 2 * PAGE, 1)
    code, bad, line = verify(damaged)
    assert code == 1 and sorted(bad) == sorted(rest[i]["slot"] * PAGE for i in (3, 7)) and "6 unfinished" in line


def test_unfinished_stays_no_damage_after_a_clean_close(folder):
    directory, trace, last, rest = crashed_store(folder)
    cut_short(directory, last)
    kvonce("policy", directory, "--name", rest[0]["name"], "--set", "priority=60")
    assert super_field(directory, CLEAN) == 1
    code, bad, line = verify(directory)
    assert (code, bad) == (0, []) and "unfinished" not in line, line
    there = {block["name"] for block in read_with_reader(directory)["blocks"]}
    assert there == {block["name"] for block in last[6:] + rest}
    report = replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", BLOCK)
    assert report["wrong_reads"] == 0 and report["digest_misses"] == 0
    assert len(listing(directory)) == len(last) + len(rest)


def test_unfinished_stays_no_damage_after_another_crash(folder):
    directory, _, last, _ = crashed_store(folder)
    cut_short(directory, last)
    other = synth(folder, 400, "--seed", 5)
    for moment in range(4):
        copy = copy_of(directory, "again")
        was_killed = replay_killed(other, "dram:64blk,disk:%s" % copy, 0.02 + 0.08 * moment)
        code, bad, line = verify(copy)
        assert (code, bad) == (0, []), (moment, was_killed, line, bad)


def test_the_later_write_of_a_name_counts_also_alone_in_its_segment(folder):
    directory, trace = folder / "disk", synth(folder, 20)
    replay(trace, "disk:%s:200blk" % directory, "--block-bytes", BLOCK)
    one = next(b for b in read_with_reader(directory)["blocks"] if b["slot"] == 1)
    for block in read_with_reader(directory)["blocks"]:
        if block["slot"] != 1 and block["slot"] < super_field(directory, SEGMENT_UNITS):
            kvonce("rm", directory, "--name", block["name"])
    mark = struct.pack("<Q", 1 << 40)
    super_set(directory, {CLEAN: bytes(4), MARK_WRITTEN: mark, MARK_FLUSHED: mark})
    slot = bytearray((directory / "data").read_bytes()[PAGE:5 * PAGE])
    for other, number, stays in [(9, one["write_number"] + 1, 9), (9, one["write_number"] - 1, 1)]:
        copy = copy_of(directory, "twice")
        slot[12:16], slot[32:40] = struct.pack("<I", other), struct.pack("<Q", number)
        patch(copy / "data", other * PAGE, sealed(slot[:PAGE]) + slot[PAGE:])
        for _ in range(2):  # as found, and after it was opened to write and closed in order
            found = listing(copy, "--name", one["name"])
            assert len(found) == 1 and [c["slot"] for c in found[0]["copies"]] == [stays], found
            assert stat(copy)["damaged_slots"] == 0 and stat(copy)["blocks"] == stat(directory)["blocks"]
            kvonce("policy", copy, "--name", one["name"], "--set", "priority=70")
        assert len([b for b in read_with_reader(copy)["blocks"] if b["name"] == one["name"]]) == 1
        report = replay(trace, "disk:%s" % copy, "--block-bytes", BLOCK)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0 and verify(copy)[:2] == (0, [])


def test_another_boot_trusts_only_what_was_flushed(folder):
    directory, _, last, rest = crashed_store(folder)
    written = struct.pack("<Q", last[-1]["write_number"])
    cut_short(directory, last)
    super_set(directory, {MARK_WRITTEN: written})
    assert verify(directory)[0] == 1  # a process that dies loses nothing that was complete
    for boot in [b"another machine!", bytes(16)]:
        super_set(directory, {88: boot})
        code, bad, line = verify(directory)
        assert (code, bad) == (0, []) and "6 unfinished" in line, (boot, line)
    assert len(listing(directory)) == len(rest) + 6


main(sys.modules[__name__])
