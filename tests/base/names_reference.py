#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes every vector of docs/names.md from its text alone, with hashlib, and checks that
the document and the unit test hold the same values. With --print, prints the tables' rows."""

import hashlib
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

STRING, U32, U64, BYTES = 1, 2, 3, 4
FIELDS = [
    ("model", STRING), ("revision", STRING), ("dtype", STRING), ("layout", STRING),
    ("quantisation", STRING), ("position_encoding", STRING), ("engine", STRING),
    ("engine_version", STRING), ("block_positions", U32), ("layers", U32), ("kv_heads", U32),
    ("head_size", U32), ("block_bytes_max", U64), ("extra", BYTES),
]


def encode_space(**values):
    body = b""
    for number, (name, kind) in enumerate(FIELDS, 1):
        value = values.get(name)
        if not value:
            continue
        if kind == STRING:
            value = value.encode()
        elif kind != BYTES:
            value = struct.pack("<I" if kind == U32 else "<Q", value)
        body += struct.pack("<BBH", number, kind, len(value)) + value
    return b"KVS1" + struct.pack("<I", len(body)) + body


def sha(data):
    return hashlib.sha256(data).digest()


def chain(tokens, block, space=None, seed=0, salt=b"", parent=None):
    names = []
    for start in range(0, len(tokens) - block + 1, block):
        if parent is None:
            head = b"KVF1" + struct.pack("<I", block) + space + struct.pack("<QI", seed, len(salt)) + salt
        else:
            head = b"KVN1" + struct.pack("<I", block) + parent
        parent = sha(head + struct.pack("<%dI" % block, *tokens[start:start + block]))
        names.append(parent)
    return names


LLAMA = dict(model="meta-llama/Llama-3.1-70B", revision="1d54af3", dtype="bf16", layout="LBHNC",
             position_encoding="rope:500000", engine="vllm", engine_version="0.9.1",
             block_positions=16, layers=80, kv_heads=8, head_size=128, block_bytes_max=5242880)


def vectors():
    """Name of the vector: hex digest."""
    spaces = {
        "S1": dict(block_bytes_max=1),
        "S2": LLAMA,
        "S3": dict(LLAMA, dtype="fp8_e4m3", quantisation="awq"),
        "S4": dict(model="ab", block_bytes_max=65536),
        "S5": dict(model="a", revision="b", block_bytes_max=65536),
        "S6": dict(model="\u30e2\u30c7\u30eb", block_bytes_max=1 << 27, extra=b"\x00\x01\x02\x03"),
    }
    result = {name: sha(encode_space(**values)).hex() for name, values in spaces.items()}
    space = sha(encode_space(**LLAMA))
    base = chain(list(range(40)), 16, space)
    result["C1"], result["C2"] = (name.hex() for name in base)
    assert len(base) == 2
    result["C3"] = chain(list(range(16)), 16, space, salt=b"tenant-1")[0].hex()
    result["C4"] = chain(list(range(16)), 16, space, seed=1)[0].hex()
    result["C5"] = chain(list(range(32, 48)), 16, parent=base[1])[0].hex()
    result["C6"] = chain([0xffffffff], 1, space)[0].hex()
    result["C7"] = chain(list(range(16)), 16, space, salt=b"\x00")[0].hex()
    result["C8"] = chain(list(range(300)), 300, space, seed=2**64 - 1, salt=b"\xff" * 255)[0].hex()
    return result


def golden():
    """50 lists of tokens, as tests/base/names_test.c makes them: number, count of names, digest of all names."""
    lines = []
    for i in range(50):
        count, block, x, tokens = (0 if i == 0 else 1 if i <= 5 else 8 * (i - 1)), 1, i, []
        for _ in range(count):
            x = (x * 1664525 + 1013904223) % 2**32
            tokens.append([0, 1, 2**31 - 1, 2**31, -1 % 2**32][i - 1] if i <= 5 else x)
        if i > 5:
            block = [16, 7, 1][i % 3]
        names = chain(tokens, block, space=sha(encode_space(**LLAMA)), seed=i)
        lines.append("%d %d %s\n" % (i, len(names), sha(b"".join(names)).hex()))
    return "".join(lines)


def check(path, pattern, expected):
    found = dict(re.findall(pattern, (ROOT / path).read_text()))
    bad = [name for name, value in expected.items() if found.get(name) != value]
    for name in bad:
        print("%s: %s is %s, computed %s" % (path, name, found.get(name), expected[name]))
    return not bad


def main():
    expected = vectors()
    if sys.argv[1:] == ["--print"]:
        for name, value in expected.items():
            print(name, value)
        return 0
    if sys.argv[1:] == ["--golden"]:
        print(golden(), end="")
        return 0
    good = (ROOT / "tests/base/names_golden.txt").read_text() == golden()
    if not good:
        print("tests/base/names_golden.txt: not what --golden prints")
    good &= check("docs/names.md", r"(?m)^\| ([SC]\d) \|.*\| `([0-9a-f]{64})` \|$", expected)
    good &= check("tests/base/names_test.c", r'\{"([SC]\d)",\s+"([0-9a-f]{64})"\}', expected)
    encoded = re.search(r"(?s)S4's encoding.*?```\n(.*?)```", (ROOT / "docs/names.md").read_text()).group(1)
    if bytes.fromhex(re.sub(r"(?m)\s{2,}\S.*$", "", encoded)) != encode_space(model="ab", block_bytes_max=65536):
        print("docs/names.md: the example encoding is wrong")
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
