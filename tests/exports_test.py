#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The libraries export what the public header declares: all of it and nothing else.

    exports_test.py SHARED [ARCHIVE] HEADER"""

import re
import subprocess
import sys


def exported(library, *options):
    listed = subprocess.run(["nm", "--defined-only", *options, library], check=True, capture_output=True, text=True)
    return {words[2] for words in map(str.split, listed.stdout.splitlines()) if len(words) == 3}


def main():
    shared, *archives, header = sys.argv[1:]
    with open(header) as text:
        declared = set(re.findall(r"(?m)^KVO_API [\w *]*?\b(kvo_\w+)\(", text.read()))
    wrong = 0
    listed = [(shared, exported(shared, "--dynamic"))] + [(a, exported(a, "--extern-only")) for a in archives]
    for library, names in listed:
        for name in sorted(declared ^ names):
            print("%s: %s" % (library, name), "is not exported" if name in declared else "is not declared")
        wrong += len(declared ^ names)
    print("%d functions" % len(declared))
    return 0 if declared and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
