# SPDX-License-Identifier: Apache-2.0
"""A store's files in tests, by docs/format.md: pages, slots, what verify says of them; and the runner of tests/cli."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))

from harness import KVONCE, kvonce, listing, main, replay, synth  # noqa: E402,F401

try:
    import xxhash
except ImportError:
    print("skipped: python3-xxhash is not installed")
    sys.exit(77)

PAGE = 4096
READER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "kvonce_read.py"
CLEAN, SEQUENCE, SEGMENT_UNITS, WRITE_NUMBER, MARK_WRITTEN, MARK_FLUSHED = 12, 32, 48, 64, 72, 80  # of the superblock


def stat(directory):
    return json.loads(kvonce("stat", directory, "--json"))


def disk_of(numbers):
    return next(tier for tier in numbers["tiers"] if tier["name"] == "disk")


def all_files(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def copy_of(directory, name):
    copy = directory.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    return pathlib.Path(shutil.copytree(directory, copy))


def read_with_reader(directory, code=0):
    """What the reader that shares no code finds: blocks, and (slot, what is wrong)."""
    done = subprocess.run([sys.executable, READER, "--json", directory], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout[-500:], done.stderr)
    return json.loads(done.stdout) if code != 2 else done.stderr


def verify(directory):
    """Exit code, offsets of bad slots in the order told, the last line."""
    done = subprocess.run([KVONCE, "verify", directory], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    data = str(directory / "data")
    assert done.returncode in (0, 1) and done.stderr == "" and lines, done
    assert all(line.startswith(data + ":") for line in lines[:-1]), done.stdout
    return done.returncode, [int(line[len(data) + 1:].split(":")[0]) for line in lines[:-1]], lines[-1]


def offsets(directory):
    """Name of each block: the offset of its slot in `data`."""
    return {block["name"]: block["copies"][0]["offset_bytes"] for block in listing(directory)}


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset, value):
    """One byte, by `value` (not 0)."""
    with open(path, "rb") as file:
        file.seek(offset)
        byte = file.read(1)[0]
    patch(path, offset, bytes([byte ^ value]))


def sealed(page):
    page = bytes(page[:PAGE - 8])
    return page + struct.pack("<Q", xxhash.xxh3_64_intdigest(page))


def super_copies(directory):
    data = (directory / "super").read_bytes().ljust(2 * PAGE, b"\0")
    return data[:PAGE], data[PAGE:2 * PAGE]


def super_field(directory, offset, form="<I"):
    page = max(super_copies(directory), key=lambda copy: struct.unpack_from("<Q", copy, SEQUENCE)[0])
    return struct.unpack_from(form, page, offset)[0]


def super_set(directory, fields):
    """Both copies with other values: {offset: bytes}."""
    pages = b""
    for page in super_copies(directory):
        page = bytearray(page)
        for offset, value in fields.items():
            page[offset:offset + len(value)] = value
        pages += sealed(page)
    patch(directory / "super", 0, pages)
