#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the README's table: what replays hit and write, beside a hierarchy that moves blocks.

    replay_figures.py KVONCE        KVONCE_TRACES=DIRECTORY adds the public traces found there

Decisions are the same with bytes and without (--ghost), so these rows come from ghosts, except the
last, which moves real bytes through a disk in $TMPDIR.
"""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

KVONCE = sys.argv[1]
CONVERSATION = "mooncake_conversation_trace.jsonl"


def replay(trace, tiers, *options):
    command = [KVONCE, "replay", str(trace), "--tiers", tiers, "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def row(name, trace, top, bottom, policy):
    tiers = "dram:%dblk,disk:none:%dblk" % (top, bottom)
    inclusive = replay(trace, tiers, "--ghost", "--policy", policy)
    exclusive = replay(trace, tiers, "--ghost", "--policy", policy, "--hierarchy", "exclusive")
    written = [sum(t["written_bytes"] for t in r["tiers"][1:]) // r["block_bytes"] for r in (inclusive, exclusive)]
    print("| %s | %s/%s | %s | %.2f %% | %.2f %% | %s | %.2f | %s (%.2fx) |" % (
        name, f"{top:,}", f"{bottom:,}", policy, 100 * inclusive["hit_ratio"], 100 * inclusive["bound_ratio"],
        f"{written[0]:,}", inclusive["tiers"][1]["write_amplification"], f"{written[1]:,}", written[1] / written[0]))


def main():
    with tempfile.TemporaryDirectory(prefix="kvonce-figures-") as work:
        work = pathlib.Path(work)
        trace = work / "synth.jsonl"
        synth = [KVONCE, "trace", "synth", "--seed", "7", "--requests", "5000", "--tenants", "8"]
        trace.write_bytes(subprocess.run(synth, check=True, capture_output=True).stdout)
        print("| trace | DRAM/disk, blocks | policy | hits | infinite cache | blocks written to disk | write ampl. "
              "| a moving hierarchy writes |")
        print("|---|---|---|---|---|---|---|---|")
        traces = [("generated", trace)]
        public = pathlib.Path(os.environ.get("KVONCE_TRACES", "none")) / CONVERSATION
        if public.exists():
            traces.append(("conversation", public))
        for name, path in traces:
            for top, bottom in [(500, 5000)] if name == "generated" else [(2000, 10000), (2000, 50000), (10000, 50000)]:
                for policy in ("lru", "credit"):
                    row(name, path, top, bottom, policy)
        real = replay(trace, "dram:500blk,disk:%s:5000blk" % (work / "store"), "--block-bytes", "64K")
        moved = sum(t["read_bytes"] + t["written_bytes"] for t in real["tiers"])
        print("\nReal bytes, generated trace, 64 KiB blocks: %s references in %.1f s, %.1f GiB through the tiers, "
              "%d wrong reads; %s." % (f"{real['references']:,}", real["seconds"], moved / 2**30, real["wrong_reads"],
                                       platform.machine()))


main()
