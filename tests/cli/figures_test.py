#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Known figures of the public traces (another simulator's), from ghosts and from real bytes.

    figures_test.py KVONCE [TEST]

The traces are no part of the repository: $KVONCE_TRACES names their folder, or else it is called `traces`
and lies in a folder beside the checkout. Without them the test is skipped (77).
"""

import resource
import sys
import time

import events_check
from harness import decisions, main, replay
from traces import traces

FOLDER = traces()
CONVERSATION = FOLDER / "mooncake_conversation_trace.jsonl"
SYNTHETIC = FOLDER / "mooncake_synthetic_trace.jsonl"
AGENTIC = FOLDER / "agentic_kvct" / "kvct_agentic_compact.jsonl"

# DRAM, disk: percent of hits, blocks written to disk.
TWO_TIERS = {(2000, 10000): (22.73, 221269), (2000, 2000): (8.47, 262217), (10000, 8000): (27.04, 201502)}


def near(value, expected, within):
    assert abs(value - expected) <= within, "%r is not within %r of %r" % (value, within, expected)


def two_tiers(report, blocks_bytes, percent, written):
    first, second = report["tiers"]
    near(100 * report["hit_ratio"], percent, 0.3)
    near(second["written_bytes"] / blocks_bytes, written, written / 100)
    assert report["put_busy"] == report["wrong_reads"] == report["digest_misses"] == 0
    assert first["other_evictions"] == 0 and second["max_delta"] == 1 and second["write_amplification"] == 1.0
    assert first["anchor_yields"] == second["anchor_yields"] == first["orphans"] == second["orphans"] == 0


def ghost_of(dram, disk):
    report = replay(CONVERSATION, "dram:%dblk,disk:/x:%dblk" % (dram, disk), "--ghost", "--policy", "lru")
    two_tiers(report, 5 << 20, *TWO_TIERS[dram, disk])


def bytes_of(folder, dram, disk):
    tiers = "dram:%dblk,disk:%s:%dblk" % (dram, folder / "disk", disk)
    options = ["--policy", "lru", "--block-bytes", "64K"]
    real = replay(CONVERSATION, tiers, *options)
    two_tiers(real, 65536, *TWO_TIERS[dram, disk])
    assert decisions(real) == decisions(replay(CONVERSATION, tiers, *options, "--ghost"))


def test_ghost_of_2000_10000(folder):
    ghost_of(2000, 10000)


def test_ghost_of_2000_2000(folder):
    ghost_of(2000, 2000)


def test_ghost_of_10000_8000(folder):
    ghost_of(10000, 8000)


def test_bytes_of_2000_10000(folder):
    bytes_of(folder, 2000, 10000)


def test_bytes_of_2000_2000(folder):
    bytes_of(folder, 2000, 2000)


def test_bytes_of_10000_8000(folder):
    bytes_of(folder, 10000, 8000)


def test_infinite_caches(folder):
    for trace, hits, references in [(CONVERSATION, 105710, 288500), (SYNTHETIC, 77953, 121877)]:
        start = time.monotonic()
        report = replay(trace, "dram:inf", "--ghost")
        assert (report["hits"], report["bound_hits"], report["references"]) == (hits, hits, references)
        print("  %d references in %.2f s" % (references, time.monotonic() - start))


def test_one_tier(folder):
    for trace, blocks, percent in [(CONVERSATION, 10000, 21.2), (CONVERSATION, 50000, 35.5), (SYNTHETIC, 5000, 27.9),
                                   (SYNTHETIC, 20000, 57.2)]:
        near(100 * replay(trace, "dram:%dblk" % blocks, "--ghost", "--policy", "lru")["hit_ratio"], percent, 0.3)
    for trace, blocks, percent in [(CONVERSATION, 5000, 14.2), (CONVERSATION, 10000, 23.0), (SYNTHETIC, 5000, 28.7)]:
        ratio = 100 * replay(trace, "dram:%dblk" % blocks, "--ghost")["hit_ratio"]
        assert ratio >= percent, (trace.name, blocks, ratio)


def test_an_exclusive_hierarchy(folder):
    report = replay(CONVERSATION, "dram:2000blk,disk:/x:50000blk", "--ghost", "--policy", "lru",
                    "--hierarchy", "exclusive")
    computed = report["references"] - report["hits"]
    promoted, top = report["tiers"][1]["promotions"], report["tiers"][0]["resident_blocks"]
    written = report["tiers"][1]["written_bytes"] // (5 << 20)
    assert written == computed + promoted - top
    for value, expected in [(computed, 186005), (promoted, 86830), (top, 2000), (written, 270835)]:
        near(value, expected, expected / 100)


def test_every_figure_of_the_conversations_follows_from_the_events(folder):
    for policy in ["lru", "credit"]:
        report = replay(CONVERSATION, "dram:2000blk,disk:/x:10000blk", "--ghost", "--policy", policy,
                        "--events", folder / "e")
        assert events_check.check(CONVERSATION, folder / "e", report, 5 << 20)


def test_the_agentic_trace_in_two_minutes_and_two_gib(folder):
    start = time.monotonic()
    report = replay(AGENTIC, "dram:inf", "--ghost", "--block-bytes", "64K")
    seconds = time.monotonic() - start
    gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
    print("  %d references, %d blocks: %.0f s, %.2f GiB"
          % (report["references"], report["unique_blocks"], seconds, gib))
    assert report["references"] == 94310647 and report["hits"] == report["bound_hits"]
    assert gib < 2


main(sys.modules[__name__])
