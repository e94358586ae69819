# SPDX-License-Identifier: Apache-2.0
"""Where the public traces are, which are no part of the repository."""

import os
import pathlib
import sys

NEEDED = ["mooncake_conversation_trace.jsonl", "agentic_kvct/kvct_agentic_compact.jsonl"]


def traces():
    """$KVONCE_TRACES, or else a folder `traces` in one beside the checkout. Without them the test is skipped."""
    given = os.environ.get("KVONCE_TRACES")
    beside = pathlib.Path(__file__).resolve().parents[3].glob("*/traces")
    for folder in [pathlib.Path(given)] if given else sorted(beside):
        if all((folder / name).exists() for name in NEEDED):
            return folder
    print("skipped: no traces in %s (set KVONCE_TRACES)" % (given or "a folder beside the checkout"))
    sys.exit(77)
