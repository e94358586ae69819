#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flipped bytes, damaged headers, superblocks and notes: found, named, and never served.

    damage_test.py KVONCE [TEST]
"""

import random
import shutil
import struct
import sys

from files import (PAGE, SEQUENCE, SEGMENT_UNITS, WRITE_NUMBER, all_files, copy_of, disk_of, flip, kvonce, listing,
                   main, offsets, patch, read_with_reader, replay, sealed, stat, super_copies, super_field, super_set,
                   synth, verify)

BLOCK = 12000  # three pages, the last of them with 288 zeros at its end
SLOT = 4 * PAGE


def make_store(folder, requests=80, capacity="800blk"):
    directory, trace = folder / "disk", synth(folder, requests)
    report = replay(trace, "dram:64blk,disk:%s:%s" % (directory, capacity), "--block-bytes", BLOCK)
    assert report["wrong_reads"] == 0 and verify(directory)[:2] == (0, [])
    return directory, trace


def again(directory, trace, **how):
    return replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", BLOCK, **how)


def flip_in_slots(directory, chosen, source):
    """One byte in each slot: in its header, its payload or its padding. Which slots in which."""
    parts = {"header": set(), "payload": set(), "padding": set()}
    bounds = [("header", 0, PAGE), ("payload", PAGE, PAGE + BLOCK), ("padding", PAGE + BLOCK, SLOT)]
    for number, offset in enumerate(chosen):
        part, first, end = bounds[number % 3]
        flip(directory / "data", offset + source.randrange(first, end), source.randrange(1, 256))
        parts[part].add(offset)
    return parts


def test_twenty_flipped_bytes_are_named_and_not_served(folder):
    whole, trace = make_store(folder)
    slots = list(offsets(whole).values())
    for seed in range(3):
        source = random.Random(seed)
        directory = copy_of(whole, "flipped-%d" % seed)
        chosen = source.sample(slots, 20)
        parts = flip_in_slots(directory, chosen, source)
        code, bad, last = verify(directory)
        assert code == 1 and sorted(bad) == sorted(chosen) and ", 20 bad" in last, (seed, last)
        assert stat(directory)["damaged_slots"] == len(parts["header"]), seed
        report = again(directory, trace, says="does not match its digest")
        # Bad are still headers that cannot be read, until their slots are used, and what was not read: a
        # request's blocks after the first that is missing.
        left = set(verify(directory)[1])
        assert report["wrong_reads"] == 0 and left <= set(chosen), seed
        assert report["digest_misses"] == len(parts["payload"] - left) >= 4, (seed, report["digest_misses"])
        shutil.rmtree(directory)


def test_flips_are_named_in_segments_that_had_another_slot_size(folder):
    directory, trace = make_store(folder, 60, "300blk")
    replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", 4096, "--space", "small", "--limit", 6)
    small = [b["copies"][0]["offset_bytes"] for b in listing(directory, "--space", "small")]
    assert len(small) >= 20 and verify(directory)[:2] == (0, [])
    source = random.Random(5)
    chosen = source.sample(small, 20)
    for offset in chosen:
        flip(directory / "data", offset + source.randrange(2 * PAGE), source.randrange(1, 256))
    code, bad, _ = verify(directory)
    assert code == 1 and sorted(bad) == sorted(chosen)


def test_a_damaged_segment_header_is_named_and_its_blocks_are_served(folder):
    directory, trace = make_store(folder)
    before, blocks = offsets(directory), len(listing(directory))
    segment = super_field(directory, SEGMENT_UNITS) * PAGE
    used = sorted({offset // segment * segment for offset in before.values()})
    for number, offset in enumerate(used[:3]):
        flip(directory / "data", offset + [0, 33, 4000][number], 1 << number)
    code, bad, _ = verify(directory)
    assert code == 1 and bad == used[:3] and offsets(directory) == before
    report = again(directory, trace)
    assert report["wrong_reads"] == 0 and report["digest_misses"] == 0 and len(listing(directory)) == blocks
    # The next slot that is written there brings its segment's header with it.
    kvonce("rm", directory, "--all")
    again(directory, trace)
    assert verify(directory)[:2] == (0, []) and len(listing(directory)) == blocks


def test_a_segment_header_of_zeros_before_blocks_was_lost(folder):
    directory, trace = make_store(folder)
    before = offsets(directory)
    segment = super_field(directory, SEGMENT_UNITS) * PAGE
    used = sorted({offset // segment * segment for offset in before.values()})
    for offset in used:
        patch(directory / "data", offset, bytes(PAGE))
    (directory / "checkpoint").unlink()
    code, bad, _ = verify(directory)
    assert code == 1 and bad == used and offsets(directory) == before
    assert [b["offset_bytes"] for b in read_with_reader(directory, 1)["bad"]] == used
    report = again(directory, trace)
    assert report["wrong_reads"] == 0 and len(listing(directory)) == len(before)
    kvonce("verify", directory, "--repair")
    assert verify(directory)[:2] == (0, [])
    # Before slots that hold nothing any more it is as damaged: old headers must not count under a new one.
    kvonce("rm", directory, "--all")
    for offset in used:
        patch(directory / "data", offset, bytes(PAGE))
    (directory / "checkpoint").unlink()
    assert verify(directory)[1] == used and listing(directory) == []


def test_what_was_removed_stays_away_when_a_segment_header_is_damaged(folder):
    directory, trace = make_store(folder, 60, "300blk")
    replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", 4096, "--space", "small", "--limit", 3)
    segment = super_field(directory, SEGMENT_UNITS) * PAGE
    used = sorted({b["copies"][0]["offset_bytes"] // segment * segment for b in listing(directory, "--space", "small")})
    kvonce("rm", directory, "--all")
    assert listing(directory) == [] and len(used) > 1
    for offset in used:  # headers of an earlier slot size lie in them, void by the epoch
        flip(directory / "data", offset + 36, 1)
    code, bad, _ = verify(directory)
    assert code == 1 and bad == used and listing(directory) == []


def test_one_copy_of_the_superblock_is_enough(folder):
    directory, trace = make_store(folder, 30)
    before = offsets(directory)
    for copy in range(2):
        for offset in [0, 9, SEQUENCE, 2000, 4090]:
            damaged = copy_of(directory, "damaged")
            flip(damaged / "super", copy * PAGE + offset, 64)
            assert offsets(damaged) == before and verify(damaged)[:2] == (0, []), (copy, offset)
        report = again(damaged, trace)
        assert report["wrong_reads"] == 0 and verify(damaged)[:2] == (0, []), copy
        assert all(sealed(page) == page for page in super_copies(damaged)), copy


def refused(directory, trace, word, but=()):
    before = all_files(directory)
    for command in [["stat", directory], ["verify", directory], ["rm", directory, "--all"],
                    ["replay", trace, "--tiers", "disk:%s:100blk" % directory, "--block-bytes", BLOCK]]:
        message = kvonce(*command, code=2)
        assert word in message, message
    after = all_files(directory)
    assert [name for name in before | after if before.get(name) != after.get(name)] == []


def test_a_store_without_superblock_is_refused_not_wiped(folder):
    directory, trace = make_store(folder, 30)
    for number, change in enumerate([lambda f: (flip(f, 100, 1), flip(f, PAGE + 100, 1)),
                                     lambda f: f.write_bytes(b""),
                                     lambda f: f.write_bytes(b"\0" * 2 * PAGE),
                                     lambda f: f.write_bytes(b"x" * 2 * PAGE),
                                     lambda f: patch(f, 8, b"\0" * (2 * PAGE - 8))]):
        damaged = copy_of(directory, "damaged")
        change(damaged / "super")
        refused(damaged, trace, "damaged")
        assert number >= 0
    shutil.copyfile(directory / "super", damaged / "super")
    assert offsets(damaged) == offsets(directory)


def test_counts_that_no_store_reaches_are_damage(folder):
    """They would go round: what is written next would count as older than what it replaces."""
    directory, trace = make_store(folder, 30)
    before = offsets(directory)
    for count in [(1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1]:
        most = struct.pack("<Q", count)
        for field in [SEQUENCE, WRITE_NUMBER]:
            damaged = copy_of(directory, "damaged")
            super_set(damaged, {field: most})
            refused(damaged, trace, "damaged")
        damaged = copy_of(directory, "damaged")
        chosen = sorted(before.values())[:3]
        data = (damaged / "data").read_bytes()
        for offset in chosen:
            page = data[offset:offset + 32] + most + data[offset + 40:offset + PAGE]
            patch(damaged / "data", offset, sealed(page))
        code, bad, _ = verify(damaged)
        assert code == 1 and sorted(bad) == chosen, (count, bad)
        for which in "ab":
            note = (damaged / ("ledger." + which)).read_bytes()
            if len(note) >= PAGE:
                patch(damaged / ("ledger." + which), 0, sealed(note[:32] + most + note[40:PAGE]))
        report = again(damaged, trace)
        assert report["wrong_reads"] == 0 and set(verify(damaged)[1]) <= set(chosen), count
        assert sorted(offsets(damaged)) == sorted(before), count


def test_a_creation_cut_short_is_an_empty_store(folder):
    trace = synth(folder, 20)
    whole = make_store(folder, 20)[0]
    torn = super_copies(whole)[1][:1000].ljust(PAGE, b"\0")
    steps = {"lock": {"lock": b""}, "super": {"lock": b"", "super": b""},
             "files": {name: b"" for name in all_files(whole)},
             "room": {name: b"\0" * (1 << 20 if name == "data" else 0) for name in all_files(whole)},
             "torn": {name: {"data": b"\0" * (1 << 20), "super": b"\0" * PAGE + torn}.get(name, b"")
                      for name in all_files(whole)}}
    for step, made in steps.items():
        directory = folder / step
        directory.mkdir()
        for name, content in made.items():
            (directory / name).write_bytes(content)
        before = all_files(directory)
        assert verify(directory)[:2] == (0, []) and listing(directory) == [] and stat(directory)["blocks"] == 0, step
        assert all_files(directory) == before, step
        report = replay(trace, "disk:%s:500blk" % directory, "--block-bytes", BLOCK)
        assert report["wrong_reads"] == 0 and verify(directory)[:2] == (0, []), step
        assert len(listing(directory)) == report["unique_blocks"], step


def test_notes_and_policies_in_two_copies(folder):
    directory, trace = make_store(folder, 30)
    kvonce("policy", directory, "--all", "--set", "priority=90")
    before, numbers = listing(directory), stat(directory)
    for copy in "ab":
        damaged = copy_of(directory, "damaged")
        flip(damaged / ("spaces." + copy), 4100, 1)
        assert listing(damaged) == before, copy
    flip(damaged / "spaces.a", 40, 1)
    refused(damaged, trace, "damaged")
    # The ledger and the policies are not needed to read a block.
    damaged = copy_of(directory, "damaged")
    flip(damaged / "ledger.a", 0, 1)
    flip(damaged / "ledger.b", 5000, 1)
    assert listing(damaged) == before and disk_of(stat(damaged))["lives"] == 0 < disk_of(numbers)["lives"]
    (damaged / "policy").write_bytes(b"\xff" * (damaged / "policy").stat().st_size)
    without = listing(damaged)
    assert [b["identity"] for b in without] == [b["identity"] for b in before]
    assert {b["policy"]["priority"] for b in without} == {50} and {b["policy"]["priority"] for b in before} == {90}
    assert again(damaged, trace)["wrong_reads"] == 0 and verify(damaged)[:2] == (0, [])


main(sys.modules[__name__])
