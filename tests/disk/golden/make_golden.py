#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden store of today's format: format-N.tar.gz, and format-N.json, what is in it. Run it
once for a version of the format, never over a file that is committed: the old bytes are the point.

    make_golden.py KVONCE VERSION
"""

import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KVONCE, VERSION = sys.argv[1], sys.argv[2]


def kvonce(*words):
    return subprocess.run([KVONCE, *map(str, words)], check=True, capture_output=True, text=True).stdout


def what_is_in(directory):
    """All that must never read otherwise. What opening reads is counted too, so reads are left out."""
    blocks = json.loads(kvonce("ls", directory, "--json"))["blocks"]
    stat = json.loads(kvonce("stat", directory, "--json"))
    expected = {key: stat[key] for key in ["blocks", "references", "puts", "gets", "removes", "spaces", "tenants"]}
    expected["ledger"] = [row for row in stat["ledger"] if row["direction"] == "written"]
    expected["list"] = blocks
    return expected


def make(folder):
    """Two sizes, so two strides and a padded one; evicted, removed, void and dead headers; policies."""
    directory = folder / ("format-%s" % VERSION)
    for name, seed, size, options in [("a", 1, ":16blk", ["--block-bytes", 12000, "--limit", 12]),
                                      ("b", 2, "", ["--block-bytes", 4096, "--space", "small", "--limit", 2])]:
        trace = folder / name
        trace.write_text(kvonce("trace", "synth", "--requests", 40, "--seed", seed))
        kvonce("replay", trace, "--tiers", "dram:8blk,disk:%s%s" % (directory, size), *options)
    first = json.loads(kvonce("ls", directory, "--json"))["blocks"]
    kvonce("rm", directory, "--name", first[0]["name"], "--space", first[0]["identity"]["space"])
    kvonce("policy", directory, "--tenant", first[1]["policy"]["tenant"], "--set", "priority=77,qos=2")
    kvonce("policy", directory, "--name", first[2]["name"], "--space", first[2]["identity"]["space"], "--set",
           "reuse=33,intent=keep")
    return directory


def pack(directory, path):
    assert not path.exists(), "%s is there already" % path
    with tarfile.open(path, "w:gz", compresslevel=9) as archive:
        for file in sorted(directory.iterdir()):
            entry = tarfile.TarInfo("%s/%s" % (directory.name, file.name))
            entry.size, entry.mode = file.stat().st_size, 0o600
            archive.addfile(entry, io.BytesIO(file.read_bytes()))


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = make(pathlib.Path(name))
        expected = what_is_in(directory)
        pack(directory, HERE / ("format-%s.tar.gz" % VERSION))
        (HERE / ("format-%s.json" % VERSION)).write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
