#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce trace synth: the same bytes everywhere, and what its man page says of them.

    synth_test.py KVONCE
"""

import collections
import hashlib
import json
import subprocess
import sys


def synth(*options):
    return subprocess.run([sys.argv[1], "trace", "synth", *options], check=True, capture_output=True).stdout


def check(requests, block):
    prefix, session_tokens, seen, references, hits = {}, {}, set(), 0, 0
    for request in requests:
        ids, tokens = request["hash_ids"], request["input_length"]
        assert len(ids) == -(-tokens // block)
        for at, block_id in enumerate(ids):
            # An id means this block behind exactly this prefix, of one tenant.
            here = (ids[at - 1] if at else None, request["tenant"])
            assert prefix.setdefault(block_id, here) == here
        session = request["session_id"]
        assert tokens > session_tokens.get(session, 0)
        session_tokens[session] = tokens + request["output_length"]
        known = next((at for at, block_id in enumerate(ids) if block_id not in seen), len(ids))
        hits, references = hits + known, references + len(ids)
        seen.update(ids)
    return hits / references, len(session_tokens)


def main():
    text = synth()
    assert text == synth("--seed", "1", "--requests", "1000", "--tenants", "4", "--block-tokens", "512")
    assert text != synth("--seed", "2")
    digest = hashlib.sha256(text).hexdigest()
    assert digest == "d4c0311cd66f18cd1ebbc6519e424b34b6d59f8f349cd85372da80e7872aba35", digest

    requests = [json.loads(line) for line in synth("--requests", "4000", "--tenants", "8").splitlines()]
    assert len(requests) == 4000
    times = [request["timestamp"] for request in requests]
    assert times == sorted(times)
    ratio, sessions = check(requests, 512)
    assert 0.5 < ratio < 0.98, ratio
    assert 4 < 4000 / sessions < 7
    tenants = collections.Counter(request["tenant"] for request in requests)
    assert set(tenants) == {"tenant-%d" % (k + 1) for k in range(8)} and tenants.most_common(1)[0][0] == "tenant-1"

    check([json.loads(line) for line in synth("--block-tokens", "16", "--requests", "200").splitlines()], 16)
    one = [json.loads(line) for line in synth("--turns", "1", "--requests", "300", "--sessions", "60").splitlines()]
    assert len({request["session_id"] for request in one}) == 300
    assert 200 < one[-1]["timestamp"] / 60000 < 450
    assert synth("--requests", "0") == b""
    print("synth: %.2f of references repeat, %d sessions" % (ratio, sessions))


main()
