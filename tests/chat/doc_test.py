#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat loop of docs/llama.md compiles without a warning, before and after its diff, as C and as C++; and the files
and functions that the page names exist."""

import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "llama.md").read_text()
FOLDERS = ["tests/chat", "include", "engines/llama"]


def compile_as(work, name, text):
    (work / name).write_text(text)
    compiler = ["g++", "-std=c++17"] if name.endswith("cc") else ["gcc", "-std=c11"]
    done = subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", "-c", name,
                           *("-I%s" % (ROOT / folder) for folder in FOLDERS)], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def main():
    lines = re.search(r"```diff\n(.*?)```", PAGE, re.S).group(1).splitlines()
    assert all(line == "" or line[0] in " +-" for line in lines)
    before = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
    after = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
    calls = ["kvo_llama_restore(", "kvo_llama_save(", "kvo_llama_close("]
    assert all(call in after and call not in before for call in calls)
    with tempfile.TemporaryDirectory(prefix="kvonce-test-") as work:
        for name in ["loop.c"] + (["loop.cc"] if shutil.which("g++") else []):
            compile_as(pathlib.Path(work), name, before)
            compile_as(pathlib.Path(work), name, after)
    for path in re.findall(r"`((?:engines|tools|docs)/[\w./-]+)`", PAGE):
        assert (ROOT / path).exists(), path
    header = (ROOT / "engines" / "llama" / "kvonce_llama.h").read_text()
    for word in re.findall(r"`(kvo_llama_\w+)", PAGE):
        assert word in header, word


if __name__ == "__main__":
    main()
