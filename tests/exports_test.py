#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared library exports what the public header declares: all of it and nothing else.

    exports_test.py LIBRARY HEADER"""

import re
import subprocess
import sys


def main():
    library, header = sys.argv[1:]
    with open(header) as text:
        declared = set(re.findall(r"(?m)^KVO_API [\w *]*?\b(kvo_\w+)\(", text.read()))
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    for name in sorted(declared - exported):
        print("declared but not exported: " + name)
    for name in sorted(exported - declared):
        print("exported but not declared: " + name)
    print("%d functions" % len(declared))
    return 0 if declared and declared == exported else 1


if __name__ == "__main__":
    sys.exit(main())
