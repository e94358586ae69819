#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the kernel says that a replay wrote (/proc/PID/io) is what the ledger says, within 2 %.

    kernel_bytes_test.py KVONCE
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from files import KVONCE, stat, synth

BLOCK = 60000


def skip(reason):
    print("skipped: %s" % reason)
    sys.exit(77)


def run_and_count(words):
    """Bytes that the process had sent to storage when it ended: read before it is reaped."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        lines = pathlib.Path("/proc/%d/io" % process.pid).read_text().splitlines()
    except OSError as error:
        process.wait()
        skip("/proc/PID/io: %s" % error)
    assert process.wait() == 0
    numbers = dict(line.split(": ") for line in lines)
    return int(numbers["write_bytes"]) - int(numbers["cancelled_write_bytes"])


def main():
    with tempfile.TemporaryDirectory(prefix="kvonce-test-") as name:
        folder = pathlib.Path(name)
        directory, trace = folder / "disk", synth(folder, 100)
        counted = run_and_count([KVONCE, "replay", str(trace), "--tiers", "dram:100blk,disk:%s:400blk" % directory,
                                 "--block-bytes", str(BLOCK)])
        numbers = stat(directory)
        disk = next(tier for tier in numbers["tiers"] if tier["name"] == "disk")
        if not disk["direct_io"]:
            skip("no direct I/O on this file system")
        rows = [row for row in numbers["ledger"] if row["tier"] == "disk" and row["direction"] == "written"]
        told = sum(row["bytes"] for row in rows)
        by_cause = {row["cause"]: sum(r["bytes"] for r in rows if r["cause"] == row["cause"]) for row in rows}
        print("kernel %d, ledger %d (%+.2f %%): %s" % (counted, told, 100.0 * (counted - told) / told, by_cause))
        if counted == 0:
            skip("the kernel counts no writes here")
        assert told >= 20 << 20 and {"demote", "metadata", "padding"} <= set(by_cause)
        assert abs(counted - told) <= 0.02 * told


main()
