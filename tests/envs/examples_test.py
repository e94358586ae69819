#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""B138: every example of the manual pages and of README's "The command" runs as it is printed, but for the folders.
(The C example is compiled and run by tests/install_test.py, kvonce-llama's are by tests/chat/command_test.py; what a
bench takes minutes for, it is only asked whether it may.)

    examples_test.py KVONCE [TEST] DRIVER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from envs import KVONCE, kvonce, replay, run_all, synth

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks_of(path):
    return re.findall(r"^```\n(.*?)^```", path.read_text(), re.M | re.S)


def commands(text):
    """One each line, or several with a run of blanks between; a line that ends in | or a backslash goes on."""
    text = re.sub(r"\\\\\n\s*", " ", re.sub(r"\|\n\s*", "| ", text))
    for line in text.splitlines():
        yield from (word.strip() for word in re.split(r"\s{3,}", line.split("   #")[0].split("  #")[0]) if word.strip())


def run(folder, command):
    line = command
    for path in ["/var/lib/kvonce", "/tmp/kvonce-demo", "/tmp/kv", "/mnt/nvme", "/x"]:
        line = re.sub(re.escape(path) + r"(?![\w/-])", str(folder / path.replace("/", "_")), line)
    if shutil.which("jq") is None:
        line = re.sub(r"\| jq .*", "| cat", line)
    path = "%s:%s" % (folder / "bin", os.environ["PATH"])
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, cwd=folder,
                          timeout=120, env=dict(os.environ, PATH=path))
    assert done.returncode == 0, "%s: exit %d\n%s" % (command, done.returncode, done.stderr[-1000:])


def prepare(folder):
    (folder / "bin").mkdir()
    (folder / "bin" / "kvonce").symlink_to(KVONCE)
    trace = synth(folder, 200, "--tenants", 16)
    trace.rename(folder / "trace.jsonl")
    replay(folder / "trace.jsonl", "disk:%s:256M" % (folder / "_var_lib_kvonce"), "--block-bytes", "4K",
           "--space", "llama")


def test_b138_every_example_of_the_manual_pages_runs(folder):
    prepare(folder)
    count = 0
    for page in sorted((ROOT / "docs" / "man").glob("*.scd")):
        if page.stem == "kvonce-llama.1":
            continue
        for command in (c for block in blocks_of(page) for c in commands(block)):
            if command.startswith("kvonce bench"):
                assert all(word in kvonce("bench", "--help") for word in re.findall(r"--[a-z]+", command)), command
            else:
                run(folder, command)
            count += 1
    assert count >= 15, count
    print("%d examples" % count)


def test_b138_the_commands_of_the_readme_run(folder):
    prepare(folder)
    text = (ROOT / "README.md").read_text()
    block = re.search(r"## The command\n+```\n(.*?)```", text, re.S).group(1)
    ran = [command for command in commands(block) if "..." not in command]
    assert len(ran) >= 5, ran
    for command in ran:
        run(folder, command)


run_all(sys.modules[__name__])
