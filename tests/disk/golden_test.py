#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores that earlier libraries wrote open, and hold exactly what they held; later ones' are left alone.

    golden_test.py KVONCE [TEST]
"""

import json
import pathlib
import struct
import sys
import tarfile

from files import all_files, copy_of, kvonce, listing, main, read_with_reader, replay, stat, super_set, synth, verify

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
VERSIONS = sorted(path.name.split(".")[0] for path in GOLDEN.glob("format-*.tar.gz"))


def unpack(folder, version="format-1"):
    with tarfile.open(GOLDEN / (version + ".tar.gz")) as archive:
        archive.extractall(folder)
    return folder / version


def test_golden_stores_hold_what_they_held(folder):
    assert VERSIONS == ["format-1"]
    for version in VERSIONS:
        directory = unpack(folder, version)
        expected = json.loads((GOLDEN / (version + ".json")).read_text())
        before = all_files(directory)
        numbers, blocks = stat(directory), listing(directory)
        assert blocks == expected.pop("list") and len(blocks) == expected["blocks"] > 10
        numbers["ledger"] = [row for row in numbers["ledger"] if row["direction"] == "written"]
        assert {key: numbers[key] for key in expected} == expected
        assert verify(directory)[:2] == (0, [])
        found = read_with_reader(directory)
        digests = sorted(b["digest"] for b in found["blocks"])
        assert found["bad"] == [] and digests == sorted(b["identity"]["digest"] for b in blocks)
        assert all_files(directory) == before


def test_golden_stores_can_be_written(folder):
    for version in VERSIONS:
        directory = unpack(folder, version)
        before = listing(directory)
        one = before[5]
        kvonce("policy", directory, "--name", one["name"], "--space", one["identity"]["space"], "--set", "priority=1")
        after = listing(directory)
        assert [(b["identity"], b["copies"]) for b in after] == [(b["identity"], b["copies"]) for b in before]
        assert after[5]["policy"]["priority"] == 1
        report = replay(synth(folder, 60), "dram:8blk,disk:%s" % directory, "--block-bytes", 12000)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0 and verify(directory)[:2] == (0, [])
        assert len(read_with_reader(directory)["blocks"]) == len(listing(directory))


def test_a_later_version_is_refused_and_left_as_it_is(folder):
    whole, trace = unpack(folder), synth(folder, 5)
    page = (whole / "super").read_bytes()[:4096]
    later = {"version": {8: struct.pack("<I", 2)}, "magic": {7: b"2"}, "both": {7: b"2", 8: struct.pack("<I", 2)}}
    for name, fields in later.items():
        for missing in ["", "ledger.b", "policy"]:  # nothing is created either
            directory = copy_of(whole, "later-%s%s" % (name, missing))
            super_set(directory, fields)
            if missing:
                (directory / missing).unlink()
            if name == "version":  # written by a later one in its turn, beside one of ours
                with open(directory / "super", "r+b") as file:
                    file.write(page)
            before = all_files(directory)
            for command in [["stat", directory], ["ls", directory], ["verify", directory], ["rm", directory, "--all"],
                            ["policy", directory, "--all", "--set", "qos=0"],
                            ["replay", trace, "--tiers", "disk:%s:10blk" % directory, "--block-bytes", 4096],
                            ["replay", trace, "--tiers", "disk:%s" % directory, "--block-bytes", 12000]]:
                message = kvonce(*command, code=2)
                assert "format version" in message and "open it with the kvonce that wrote it" in message, message
            assert all_files(directory) == before, (name, missing)


main(sys.modules[__name__])
