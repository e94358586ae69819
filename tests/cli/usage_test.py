#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments, help and output of the command.

    usage_test.py KVONCE [TEST]
"""

import re
import subprocess
import sys

from harness import KVONCE, kvonce, main, synth

COMMANDS = ["replay", "stat", "ls", "verify", "rm", "policy", "bench", "trace synth"]


def test_version_and_help(folder):
    assert re.fullmatch(r"kvonce \d+\.\d+\.\d+\n", kvonce("--version"))
    text = kvonce("--help")
    for command in COMMANDS:
        assert "  %s " % command in text
        own = kvonce(*command.split(), "--help")
        assert own.startswith("usage: kvonce %s" % command) and "example" in own and "  --help" in own


def test_mistakes_are_one_line_and_exit_2(folder):
    trace = synth(folder, 5)
    ghost = ["replay", trace, "--ghost", "--tiers", "dram:10blk"]
    assert "no command" in kvonce("replai", code=2)
    assert "no command" in kvonce("trace", code=2)
    for command in COMMANDS:
        assert "no option --nonsense" in kvonce(*command.split(), "--nonsense", code=2)
        assert "too many" in kvonce(*command.split(), "a", "b", code=2)
    for command in COMMANDS[:-2]:
        assert "is missing" in kvonce(command, code=2)
    assert "needs a value" in kvonce(*ghost, "--policy", code=2)
    assert "given twice" in kvonce(*ghost, "--ghost", code=2)
    assert "takes no value" in kvonce("replay", trace, "--ghost=1", code=2)
    assert "--tiers is missing" in kvonce("replay", trace, code=2)
    assert "credit or lru" in kvonce(*ghost, "--policy", "fifo", code=2)
    assert "needs --ghost" in kvonce("replay", trace, "--tiers", "dram:10blk", "--hierarchy", "exclusive", code=2)
    assert "only one of" in kvonce("rm", folder, "--tenant", 1, "--all", code=2)
    assert "which blocks" in kvonce("rm", folder, code=2)
    assert "in hex" in kvonce("rm", folder, "--name", "xyz", code=2)
    for change in ["", "priority", "priority=101", "qos=-1", "colour=1", "priority=1,priority=2", "intent=maybe",
                   "intent_seconds=5", "tenant=65536", "priority=50,"]:
        kvonce("policy", folder, "--all", "--set", change, code=2)


def test_numbers_and_sizes_are_strict(folder):
    trace = synth(folder, 5)
    for text in ["-5", "nan", "inf", "18446744073709551616", "10X", "1e9", "", " 5", "5 ", "0", "1.0000001", "129M"]:
        line = kvonce("replay", trace, "--ghost", "--tiers", "dram:10blk", "--block-bytes", text, code=2)
        assert "--block-bytes" in line
    for text in ["-5", "nan", "18446744073709551616", "10junk", "", "1.5"]:
        assert "--limit" in kvonce("replay", trace, "--ghost", "--tiers", "dram:10blk", "--limit", text, code=2)
        kvonce("replay", trace, "--ghost", "--tiers", "dram:" + text, code=2)
        kvonce("trace", "synth", "--requests", text, code=2)
    for text in ["64K", "64KiB", "64kb", "65536", "0.0625M"]:
        kvonce("replay", trace, "--ghost", "--tiers", "dram:10blk", "--block-bytes", text)


def test_output_that_cannot_be_written_is_an_error(folder):
    for words in [["--version"], ["--help"], ["trace", "synth"], ["replay", "--help"]]:
        with open("/dev/full", "w") as full:
            done = subprocess.run([KVONCE, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and done.stderr == "kvonce: standard output: No space left on device\n", done
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    done = subprocess.run([KVONCE, "trace", "synth", "--requests", "100000"], stdout=reader.stdin,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    reader.stdin.close()
    assert done.returncode == 2 and "Broken pipe" in done.stderr, done


main(sys.modules[__name__])
