#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays of a generated trace: figures against the events, ghost against bytes, unclean traces.

    replay_test.py KVONCE [TEST]
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import events_check
from harness import KVONCE, decisions, kvonce, listing, main, replay, synth

BLOCK = 8192
KEYS = ["requests", "references", "unique_blocks", "block_bytes", "hits", "hit_ratio", "bound_hits", "bound_ratio",
        "wrong_reads", "digest_misses", "put_busy", "put_waits", "movement_amplification", "metadata_written_bytes",
        "seconds", "latency_us", "tiers"]
TIER_KEYS = ["name", "capacity_blocks", "hits", "read_bytes", "written_bytes", "repair_bytes", "lives",
             "distinct_names_written", "write_amplification", "clean_discards", "other_evictions", "orphans",
             "anchor_yields", "promotions", "resident_blocks", "max_delta", "injected"]


def check(folder, trace, tiers, *options):
    """A replay whose every figure must follow from its events."""
    events = folder / "events"
    report = replay(trace, tiers, "--block-bytes", BLOCK, "--events", events, *options)
    assert events_check.check(trace, events, report, BLOCK, "exclusive" in options), (tiers, options)
    return report


def test_json_has_exactly_the_documented_members(folder):
    report = replay(synth(folder, 50), "dram:100blk,disk:/nowhere:inf", "--ghost")
    assert list(report) == KEYS
    assert [list(tier) for tier in report["tiers"]] == [TIER_KEYS] * 2
    assert list(report["latency_us"]) == ["match", "get", "put"]
    assert all(list(row) == ["p50", "p99"] for row in report["latency_us"].values())
    assert report["block_bytes"] == 5 << 20
    assert report["tiers"][0]["capacity_blocks"] == 100 and report["tiers"][1]["capacity_blocks"] is None
    assert not os.path.exists("/nowhere")


def test_every_figure_follows_from_the_events(folder):
    trace = synth(folder, 600)
    for policy in ["credit", "lru"]:
        for tiers in ["dram:300blk", "dram:300blk,disk:/x:1500blk", "dram:300blk,disk:/x:300blk",
                      "dram:1500blk,disk:/x:1200blk", "dram:200blk,dram:400blk,disk:/x:2000blk", "dram:inf",
                      "dram:200blk,disk:/x:inf"]:
            report = check(folder, trace, tiers, "--ghost", "--policy", policy)
            assert all(tier["max_delta"] <= 1 and tier["orphans"] == 0 for tier in report["tiers"]), report
            assert all(tier["write_amplification"] == 1.0 for tier in report["tiers"][1:]), report
            assert all(tier["other_evictions"] == 0 for tier in report["tiers"][:-1]), report
            if "dram:inf" in tiers or "disk:/x:inf" in tiers:
                assert report["hits"] == report["bound_hits"]


def test_an_exclusive_hierarchy_obeys_its_law(folder):
    report = check(folder, synth(folder, 600), "dram:300blk,disk:/x:2000blk", "--ghost", "--hierarchy", "exclusive")
    computed = report["references"] - report["hits"]
    first, second = report["tiers"]
    assert second["written_bytes"] == BLOCK * (computed + second["promotions"] - first["resident_blocks"])


def test_bytes_and_ghost_agree_to_the_block(folder):
    trace = synth(folder, 400)
    for number, (dram, disk) in enumerate([(300, 1500), (300, 300), (900, 700)]):
        tiers = "dram:%dblk,disk:%s:%dblk" % (dram, folder / str(number), disk)
        ghost = replay(trace, tiers, "--ghost", "--block-bytes", BLOCK)
        assert not (folder / str(number)).exists()
        real = check(folder, trace, tiers)
        assert real["wrong_reads"] == real["digest_misses"] == real["put_busy"] == 0
        assert decisions(real) == decisions(ghost)
        assert real["metadata_written_bytes"] > 0
        assert oct((folder / str(number)).stat().st_mode)[-4:] == "0700"


def test_each_tier_alone_works(folder):
    trace = synth(folder, 300)
    for tiers in ["dram:400blk", "disk:%s:400blk" % (folder / "disk")]:
        real = check(folder, trace, tiers)
        assert real["wrong_reads"] == real["put_busy"] == 0
        assert decisions(real) == decisions(replay(trace, tiers, "--ghost", "--block-bytes", BLOCK))


def test_capacities_in_bytes_are_kept(folder):
    trace = synth(folder, 300)
    directory = folder / "disk"
    real = replay(trace, "dram:4M,disk:%s:16M" % directory, "--block-bytes", BLOCK)
    assert real["wrong_reads"] == 0 and real["tiers"][0]["resident_blocks"] * BLOCK < 4 << 20
    assert sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) <= 16 << 20


def test_unclean_traces_give_what_the_clean_one_gives(folder):
    trace = synth(folder, 200)
    clean = decisions(replay(trace, "dram:300blk", "--ghost"))
    lines = trace.read_text().splitlines()
    other = folder / "other.jsonl"
    for text in ["\r\n".join(lines) + "\r\n", "\n".join(lines), "\ufeff" + "\n".join(lines),
                 "\n\n  \n".join(lines) + "\n \n",
                 "\n".join(sorted(lines, key=lambda line: hash(json.loads(line)["timestamp"] * 7919 % 10007)))]:
        other.write_bytes(text.encode())
        assert decisions(replay(other, "dram:300blk", "--ghost")) == clean
    with open(trace) as file:
        report = json.loads(kvonce("replay", "-", "--tiers", "dram:300blk", "--ghost", "--json", stdin=file))
    assert decisions(report) == clean


def test_broken_traces_name_the_line(folder):
    lines = synth(folder, 20).read_text().splitlines()
    other = folder / "other.jsonl"
    good = lines[12]
    for broken in ["{", "{}", good.replace("hash_ids", "hash_idz"), good[:-9], good.replace(": [", ": [-"),
                   good.replace(": [", ": [{}, "), good.replace('"input_length": ', '"input_length": 2748 ')]:
        other.write_text("\n".join(lines[:12] + [broken] + lines[13:]) + "\n")
        assert "other.jsonl:13: " in kvonce("replay", other, "--tiers", "dram:9blk", "--ghost", code=2), broken
    kvonce("replay", folder, "--tiers", "dram:9blk", "--ghost", code=2)
    kvonce("replay", "/dev/null", "--tiers", "dram:9blk", "--ghost", code=2)


def test_a_second_replay_finds_what_the_first_left(folder):
    trace, tiers = synth(folder, 200), "dram:300blk,disk:%s:30000blk" % (folder / "disk")
    first = replay(trace, tiers, "--block-bytes", BLOCK)
    again = replay(trace, tiers, "--block-bytes", BLOCK)
    assert first["hits"] == first["bound_hits"] and again["hits"] == again["references"] == first["references"]
    assert again["wrong_reads"] == 0 and again["tiers"][1]["written_bytes"] == 0
    for size in (2 * BLOCK, BLOCK // 2):
        said = kvonce("replay", trace, "--tiers", tiers, "--block-bytes", size, code=2)
        assert "made with blocks of %d" % BLOCK in said
        in_bytes = "dram:64M,disk:%s" % (folder / "disk")
        assert 'space "replay"' in kvonce("replay", trace, "--tiers", in_bytes, "--block-bytes", size, code=2)
    other = replay(trace, tiers, "--block-bytes", BLOCK, "--space", "other", "--limit", 3)
    assert other["hits"] == other["bound_hits"]


def start(trace, tiers, *options, **popen):
    return subprocess.Popen([KVONCE, "replay", trace, "--tiers", tiers, *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **popen)


def wait_for_events(path, process):
    """Until the replay is well on its way."""
    end = time.monotonic() + 200
    while process.poll() is None and not (path.exists() and path.stat().st_size > 1 << 18):
        assert time.monotonic() < end, "no events"
        time.sleep(0.005)
    assert process.poll() is None, "it was over before it could be stopped: " + process.communicate()[1]


def test_interrupt_prints_the_figures_so_far(folder):
    trace, events, tiers = synth(folder, 40000), folder / "e", "dram:500blk,disk:%s:9000blk" % (folder / "disk")
    process = start(trace, tiers, "--json", "--block-bytes", "4096", "--events", events)
    wait_for_events(events, process)
    line = kvonce("stat", folder / "disk", code=2)
    assert str(process.pid) in line, line
    assert str(process.pid) in kvonce("verify", folder / "disk", code=2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "", err
    report = json.loads(out)
    assert 0 < report["requests"] < 40000 and report["wrong_reads"] == 0
    assert "0 bad" in kvonce("verify", folder / "disk")


def test_kill_and_go_on(folder):
    trace, events, tiers = synth(folder, 40000), folder / "e", "dram:500blk,disk:%s:9000blk" % (folder / "disk")
    process = start(trace, tiers, "--block-bytes", "4096", "--events", events)
    wait_for_events(events, process)
    process.kill()
    process.communicate()
    assert ", 0 bad" in kvonce("verify", folder / "disk")
    left = len(listing(folder / "disk"))
    assert left > 0
    report = replay(trace, tiers, "--block-bytes", 4096, "--limit", 500)
    assert report["wrong_reads"] == report["digest_misses"] == 0 and report["hits"] > report["bound_hits"] / 2


def test_progress_is_for_terminals(folder):
    trace = synth(folder, 3000)
    outer, inner = pty.openpty()
    done = subprocess.run([KVONCE, "replay", trace, "--tiers", "dram:90blk", "--ghost"], stderr=inner,
                          stdout=subprocess.PIPE, text=True)
    os.close(inner)
    shown = os.read(outer, 1 << 16).decode()
    assert done.returncode == 0 and "%" in shown and "left" in shown and "\n" not in shown
    assert "hits" in done.stdout and "%" in done.stdout


def test_events_that_cannot_be_written_are_an_error(folder):
    trace = synth(folder, 50)
    assert "--events" in kvonce("replay", trace, "--tiers", "dram:90blk", "--ghost", "--events", "/dev/full", code=2)
    assert "--events" in kvonce("replay", trace, "--tiers", "dram:90blk", "--ghost", "--events", folder, code=2)


main(sys.modules[__name__])
