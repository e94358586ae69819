#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checkpoint, read by docs/format.md alone, says what the headers say; and nothing needs it.

    checkpoint_test.py KVONCE [TEST]
"""

import os
import struct
import sys

from files import (CLEAN, PAGE, SEQUENCE, all_files, copy_of, kvonce, listing, main, read_with_reader, replay, sealed,
                   stat, super_field, synth, verify)

BLOCK = 12000
WRITE_NUMBER, IDENT = 64, "<16s"


def pages_of(directory):
    data = (directory / "checkpoint").read_bytes()
    pages = [data[at:at + PAGE] for at in range(0, len(data), PAGE)]
    for number, page in enumerate(pages):
        magic, version, own, ident = struct.unpack_from("<8sII16s", page)
        assert page == sealed(page) and (magic, version, own) == (b"KVOCKPT1", 1, number), number
        assert ident == super_field(directory, 16, IDENT) and page[32:48] == pages[0][32:48], number
    return pages


def read_checkpoint(directory):
    """Strides and epochs of segments; (slot, rewrites, format, generation, identity) of slots."""
    pages = pages_of(directory)
    directories, _, sequence, write_number, slots, changed = struct.unpack_from("<IIQQQQ", pages[0], 64)
    assert struct.unpack_from("<II", pages[0], 48) == (0, 0) and directories == 1
    assert sequence == super_field(directory, SEQUENCE, "<Q") and super_field(directory, CLEAN) == 1
    assert write_number == super_field(directory, WRITE_NUMBER, "<Q")
    assert changed == os.stat(directory / "data").st_mtime_ns
    segments, found = [], []
    for page in pages[1:]:
        kind, entries = struct.unpack_from("<II", page, 48)
        if kind == 1:
            segments += struct.iter_unpack("<II", page[64:64 + 8 * entries])
        else:
            for at in range(64, 64 + 152 * entries, 152):
                found.append((*struct.unpack_from("<IHBB", page, at), page[at + 24:at + 152].hex()))
    assert len(found) == slots and len(segments) == super_field(directory, 52)
    assert len(pages) == 1 + -(-len(segments) // 503) + -(-slots // 26)
    return segments, found


def agrees(directory):
    """As many blocks as there are, after comparing all that the checkpoint says with the headers."""
    segments, found = read_checkpoint(directory)
    written = {block["slot"]: block["write_number"] for block in read_with_reader(directory)["blocks"]}
    headers = [(b["copies"][0]["slot"], b["generation"] - 1, b["copies"][0]["format"],
                written[b["copies"][0]["slot"]] & 255) for b in listing(directory)]
    assert [slot[:4] for slot in found] == sorted(headers)
    units = super_field(directory, 48)
    with open(directory / "data", "rb") as data:
        for number, segment in enumerate(segments):
            data.seek(number * units * PAGE)
            assert struct.unpack_from("<II", data.read(PAGE), 32) == segment, number
        for slot in found:
            data.seek(slot[0] * PAGE + 128)
            assert data.read(128).hex() == slot[4], slot[0]
    return len(found)


def test_it_says_what_the_headers_say(folder):
    directory, tiers = folder / "disk", "dram:64blk,disk:%s" % (folder / "disk")
    first, second = synth(folder, 150), synth(folder, 151, "--seed", 9)
    replay(first, tiers + ":300blk", "--block-bytes", BLOCK)
    assert agrees(directory) == 300
    replay(first, tiers, "--block-bytes", 4096, "--space", "small", "--limit", 3)
    assert agrees(directory) > 300
    kvonce("rm", directory, "--tenant", 1)
    agrees(directory)
    for capacity in ["400blk", "150blk", "350blk"]:
        replay(second, tiers + ":" + capacity, "--block-bytes", BLOCK, "--limit", 40)
        agrees(directory)
    kvonce("rm", directory, "--all")
    assert agrees(directory) == 0


def test_nothing_needs_it_and_reading_leaves_it(folder):
    directory, trace = folder / "disk", synth(folder, 80)
    replay(trace, "dram:64blk,disk:%s:300blk" % directory, "--block-bytes", BLOCK)
    without = copy_of(directory, "without")
    (without / "checkpoint").unlink()
    before = [all_files(directory), all_files(without)]
    assert listing(directory) == listing(without) and verify(directory)[:2] == verify(without)[:2] == (0, [])
    assert read_with_reader(directory) == read_with_reader(without) and stat(without)["blocks"] == 300
    assert [all_files(directory), all_files(without)] == before
    report = replay(trace, "dram:64blk,disk:%s" % without, "--block-bytes", BLOCK)
    assert report["wrong_reads"] == 0 and report["digest_misses"] == 0
    assert agrees(without) == 300


main(sys.modules[__name__])
