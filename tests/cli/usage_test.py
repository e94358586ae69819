#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments, help and output of the command.

    usage_test.py KVONCE [TEST]
"""

import re
import subprocess
import sys

from harness import KVONCE, kvonce, main, synth

COMMANDS = ["replay", "stat", "ls", "verify", "audit", "rm", "policy", "bench", "trace synth"]


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
    assert "goes with --repair" in kvonce("verify", folder, "--dry-run", code=2)
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


def options_of(command):
    """(name, placeholder or None) of each option in a command's help."""
    return re.findall(r"(?m)^  (--[a-z-]+)(?: ([A-Z][A-Z=,.]*))? ", kvonce(*command.split(), "--help"))


def test_B026_sizes_of_options_follow_the_one_rule(folder):
    trace, ghost = synth(folder, 5), ["--ghost", "--tiers", "dram:10blk"]
    for text in ["64K", "64KB", "64KiB", "64k", "0.0625M", "65536"]:
        kvonce("replay", trace, *ghost, "--block-bytes", text)
        kvonce("replay", trace, *ghost, "--block-bytes=" + text)
    for text in ["16 MB", "1.5", "1e9", "0", "-5", "-0", "", " ", "0x10", "10GX", "50%", "18446744073709551615",
                 "18446744073709551616", "99999999T", "nan", "inf"]:
        for words in (["--block-bytes", text], ["--block-bytes=" + text]):
            line = kvonce("replay", trace, *ghost, *words, code=2)
            assert "--block-bytes" in line and text in line


def test_B108_options_that_are_none_or_twice_are_refused(folder):
    seen = 0
    for command in COMMANDS:
        for name, placeholder in options_of(command):
            if name == "--help":
                continue
            seen += 1
            once = [name] + (["1"] if placeholder else [])
            assert "given twice" in kvonce(*command.split(), *once, *once, code=2), (command, name)
            assert "no option" in kvonce(*command.split(), name[:-1] + "_", code=2), (command, name)
            assert "no option" in kvonce(*command.split(), name.upper(), code=2), (command, name)
    assert seen > 30


def test_B137_numbers_that_are_none_are_refused(folder):
    trace, seen = synth(folder, 5), 0
    before = {"replay": [trace, "--ghost", "--tiers", "dram:10blk"]}
    for command in COMMANDS:
        for name, placeholder in options_of(command):
            if placeholder not in ("N", "SIZE"):
                continue
            seen += 1
            for text in ["nan", "inf", "-inf", "-1", "1e400", "1e3", "0x7", "1.5.5", "", " 7", "7 ", "101%",
                         "99999999999999999999"]:
                line = kvonce(*command.split(), *before.get(command, [folder] if "trace" not in command else []), name,
                              text, code=2)
                assert name in line, (command, name, text, line)
    assert seen > 10


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
