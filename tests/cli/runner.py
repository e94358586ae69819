# SPDX-License-Identifier: Apache-2.0
"""Runs the test_* functions of a module."""

import pathlib
import sys
import tempfile
import time
import traceback


def run_tests(module, only=""):
    """Those with `only` in their names, each with a folder of its own; then ends the process, with 1 if one failed."""
    failed = 0
    for name, test in [item for item in vars(module).items() if item[0].startswith("test_") and only in item[0]]:
        with tempfile.TemporaryDirectory(prefix="kvonce-test-") as folder:
            begin = time.monotonic()
            try:
                test(pathlib.Path(folder))
                print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print("FAILED %s" % name, flush=True)
    sys.exit(1 if failed else 0)
