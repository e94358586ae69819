#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's program compiles, warning-free, and does what the README says: stores, then finds.

    readme_test.py README INCLUDE LIBRARY COMPILER...
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

readme, include, library = map(pathlib.Path, sys.argv[1:4])
compiler = sys.argv[4:]

source = re.search(r"```c\n(.*?)```", readme.read_text(), re.S).group(1)
with tempfile.TemporaryDirectory(prefix="kvonce-readme-") as work:
    work = pathlib.Path(work)
    (work / "example.c").write_text(source.replace("/tmp/kvonce-example", str(work / "store")))
    subprocess.run([*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(include),
                    str(work / "example.c"), "-o", str(work / "example"), str(library)], check=True)
    environment = dict(os.environ, LD_LIBRARY_PATH=str(library.parent))
    runs = [subprocess.run([str(work / "example")], env=environment, check=True, capture_output=True, text=True).stdout
            for _ in range(2)]

for text in runs:
    assert text.splitlines()[1].endswith(": K and V"), text
assert "stored" in runs[0].splitlines()[0] and "stored before" in runs[1].splitlines()[0], runs
