#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/peers finds out a system that gives back other bytes, and damages what it says it damages."""

import ctypes
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))

import serve  # noqa: E402

SIZE, COUNT, BAD = 1 << 20, 11, 9


class Files:
    """A file a block; `lie` is what it does to block BAD, `twice` a second copy of each."""

    name, durability, checks = "files", "the page cache", "nothing"
    persistent = alone = True
    lie, twice = None, False

    def __init__(self, directory, size, count, source, window):
        self.directory, self.size, self.source, self.window = pathlib.Path(directory), size, source, window

    def put(self, first, n):
        for i in range(first, first + n):
            block = ctypes.string_at(self.source.address + i * self.size, self.size)
            for copy in ("", "copy")[: 1 + self.twice]:
                (self.directory / (str(i) + copy)).write_bytes(block)

    def get(self, first, n):
        results = []
        for i in range(first, first + n):
            block = bytearray((self.directory / str(i)).read_bytes())
            if i == BAD and self.lie == "flip":
                block[-1] ^= 1
            if len(block) == self.size and not (i == BAD and self.lie == "stale"):
                ctypes.memmove(self.window.address + (i - first) * self.size, bytes(block), self.size)
            lost = i == BAD and self.lie == "miss"
            results.append(serve.MISS if lost else serve.FOUND if len(block) == self.size else serve.ERROR)
        return results

    def close(self):
        pass


class Harness(unittest.TestCase):
    def setUp(self):
        self.source = serve.Memory(COUNT * SIZE)
        self.source.map[:] = random.Random(1).randbytes(COUNT * SIZE)
        Files.lie, Files.twice = None, False

    def measured(self):
        with tempfile.TemporaryDirectory() as place:
            return serve.in_child(serve.Measure(Files, SIZE, self.source, place, False).run)

    def damaged(self, name):
        with tempfile.TemporaryDirectory() as place:
            return serve.in_child(lambda: serve.fault(Files, name, self.source, place, False))

    def test_right_bytes_are_measured(self):
        answer = self.measured()
        for figure in ("put", "put_sync", "get_warm", "get_cold", "restart_to_first_hit", "memcpy_put", "put_cpu"):
            self.assertGreater(answer[figure], 0)

    def test_other_bytes_and_lost_blocks_are_found(self):
        said = {"flip": serve.OTHER_BYTES, "stale": serve.OTHER_BYTES, "miss": "a block that was put is not there"}
        for Files.lie, why in said.items():
            self.assertEqual(self.measured(), {"missing": why})

    def test_each_fault_meets_one_block(self):
        for name, counts in {
            "flipped_byte": (7, 1, 0),
            "truncated_file": (7, 0, 1),
            "zeroed_file": (7, 1, 0),
            "kill_after_put": (8, 0, 0),
        }.items():
            answer = self.damaged(name)
            self.assertEqual((answer["right"], answer["wrong"], answer["error"]), counts, name)

    def test_one_of_two_copies_is_not_damaged(self):
        Files.twice = True
        self.assertEqual(self.damaged("flipped_byte")["missing"], "the payload lies there twice")

    def test_what_a_system_says_when_it_fails_is_kept(self):
        def fails(*_):
            raise OSError("no room")

        real, Files.put = Files.put, fails
        try:
            for answer in (self.damaged("zeroed_file"), self.damaged("kill_after_put"), self.measured()):
                self.assertEqual(answer, {"missing": "OSError: no room"})
        finally:
            Files.put = real


unittest.main()
