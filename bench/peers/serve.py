# SPDX-License-Identifier: Apache-2.0
"""What peers.c, measure.c and faults.c do, for systems that are driven from Python: same blocks, sizes, commands.

A system is a class with `name`, `durability`, `checks`, `persistent`, `alone` (no other process works for it) and

    __init__(directory, size, count, source, window)    opens; blocks come from the source, gets fill the window
    put(first, n)                                       blocks first .. first + n
    get(first, n) -> list                               FOUND, MISS or ERROR for each
    empty()         of one with memory of its own: drops all blocks, keeps the memory
    close()
"""

import ctypes
import functools
import json
import mmap
import os
import pathlib
import shutil
import signal
import statistics
import sys
import time

FOUND, MISS, ERROR = 0, 1, -1
OTHER_BYTES = "other bytes came back"
BATCH = 8
LIMIT_BYTES, LIMIT_PASSES = 80 << 20, 6
FAULT_BLOCKS, VICTIM, FAULT_SIZE = 8, 3, 1 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.memcpy.argtypes = libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
libc.memcpy.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


class GiveUp(Exception):
    """The figure is missing, and why."""


class Memory:
    """Anonymous memory whose pages are there before any time is taken."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_HUGEPAGE)
        self.size = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc.memset(self.address, 1, size)

    def close(self):
        self.map.close()


def fill(memory, size, count):
    import numpy  # of the environment; nothing else needs it

    def mixed(x):
        x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
        return x ^ x >> numpy.uint64(31)

    words = numpy.frombuffer(memory.map, dtype=numpy.uint64)
    places = numpy.arange(0, size, 8, dtype=numpy.uint64)
    for number in range(count):
        words[number * size // 8 : (number + 1) * size // 8] = mixed(numpy.uint64(number << 32) | places)


# ---- What the kernel counts, and the page cache ----


def written_by(process):
    """None: not counted, or not for us."""
    try:
        lines = pathlib.Path("/proc/%d/io" % process).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), None)


def written_to_device(directory):
    device = os.stat(directory).st_dev
    path = pathlib.Path("/sys/dev/block/%d:%d/stat" % (os.major(device), os.minor(device)))
    return int(path.read_text().split()[6]) * 512 if path.exists() else None


def sync_file_system(directory):
    folder = os.open(directory, os.O_RDONLY)
    if libc.syncfs(folder) != 0:
        raise GiveUp("a sync failed")
    os.close(folder)


def files_below(directory):
    return [path for path in pathlib.Path(directory).rglob("*") if path.is_file()]


def make_cold(directory, in_memory):
    for path in [] if in_memory else files_below(directory):
        with open(path, "rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- One system, one block size, once ----


class Timer:
    """Seconds that went by, and that processors worked for this process, all threads together."""

    def __init__(self):
        self.wall = self.cpu = 0.0

    def __enter__(self):
        self.begin = time.perf_counter(), time.process_time()

    def __exit__(self, *_):
        self.wall += time.perf_counter() - self.begin[0]
        self.cpu += time.process_time() - self.begin[1]


class Measure:
    def __init__(self, system, size, source, directory, in_memory):
        self.system, self.size, self.source = system, size, source
        self.directory, self.in_memory = directory, in_memory
        self.count = source.size // size
        self.bytes = self.size * self.count
        self.answer, self.passes = {}, []

    def memcpy(self):
        """Half of the passes, put and get of each; a single one may meet whatever else the machine does."""
        count = min(self.source.size, LIMIT_BYTES) // self.size
        arena = Memory(count * self.size)
        for _ in range(LIMIT_PASSES // 2):
            put, get = Timer(), Timer()
            with put:
                for i in range(count):
                    libc.memcpy(arena.address + i * self.size, self.source.address + i * self.size, self.size)
            with get:
                for i in range(count):
                    libc.memcpy(self.window.address + i % BATCH * self.size, arena.address + i * self.size, self.size)
            self.passes.append((put, get))
        arena.close()

    def say_limits(self):
        size = min(self.source.size, LIMIT_BYTES) // self.size * self.size
        for name, timers in zip(("memcpy_put", "memcpy_get"), zip(*self.passes)):
            middle = Timer()
            middle.wall = statistics.median(timer.wall for timer in timers)
            middle.cpu = statistics.median(timer.cpu for timer in timers)
            self.say_rate(name, size, middle)

    def say_rate(self, name, size, taken):
        """Bytes a second, and processor seconds a GiB."""
        self.answer[name] = size / taken.wall
        self.say_cpu(name, size, taken)

    def say_cpu(self, name, size, taken):
        self.answer[name + "_cpu"] = taken.cpu / (size / 2**30)

    def open(self):
        self.peer = self.system(self.directory, self.size, self.count, self.source, self.window)

    def put_all(self):
        for first in range(0, self.count, BATCH):
            self.peer.put(first, min(BATCH, self.count - first))

    def get_all(self, count):
        """What the gets took; every block is compared, outside of that."""
        taken = Timer()
        for first in range(0, count, BATCH):
            n = min(BATCH, count - first)
            with taken:
                results = self.peer.get(first, n)
            if any(result != FOUND for result in results):
                raise GiveUp("a block that was put is not there")
            if libc.memcmp(self.window.address, self.source.address + first * self.size, n * self.size) != 0:
                raise GiveUp(OTHER_BYTES)
        return taken

    def put(self):
        sync_file_system(self.directory)
        written, device = written_by(os.getpid()), written_to_device(self.directory)
        both, put = Timer(), Timer()
        with both:
            with put:
                self.put_all()
            if self.system.persistent:
                sync_file_system(self.directory)
        self.answer["put"] = self.bytes / put.wall
        self.say_cpu("put", self.bytes, both)  # with what its threads still had to do when the put was back
        if not self.system.persistent:
            return
        self.answer["put_sync"] = self.bytes / both.wall
        if not self.in_memory:
            if written is not None:
                self.answer["written_bytes_per_payload_byte"] = (written_by(os.getpid()) - written) / self.bytes
            if device is not None:
                self.answer["device_bytes_per_payload_byte"] = (written_to_device(self.directory) - device) / self.bytes

    def reopened(self):
        self.peer.close()
        make_cold(self.directory, self.in_memory)
        opened = Timer()
        with opened:
            self.open()
        self.answer["restart_to_first_hit"] = opened.wall + self.get_all(1).wall
        self.peer.close()
        make_cold(self.directory, self.in_memory)
        self.open()
        self.answer["get_cold"] = self.bytes / self.get_all(self.count).wall

    def run(self):
        self.window = Memory(BATCH * self.size)
        self.memcpy()
        Memory(2 * self.source.size).close()  # warm_free_memory() in measure.c says why
        self.open()
        if hasattr(self.peer, "empty"):
            self.put_all()
            self.peer.empty()
        self.put()
        self.say_rate("get_warm", self.bytes, self.get_all(self.count))
        if self.system.persistent:
            self.reopened()
        self.peer.close()
        self.memcpy()
        self.say_limits()
        return self.answer


# ---- Faults ----


def harm(fault, path, at):
    size = path.stat().st_size
    with open(path, "r+b") as file:
        if fault == "flipped_byte":
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))
        else:
            file.truncate(at if fault == "truncated_file" else 0)
            if fault == "zeroed_file":
                file.truncate(size)
        file.flush()
        os.fsync(file.fileno())


def find_payload(directory, wanted):
    """The one file that has it and where; to harm one of two copies would prove nothing."""
    found = []
    for path in files_below(directory):
        if path.stat().st_size < len(wanted):
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            at = view.find(wanted)
            while at >= 0:
                found.append((path, at))
                at = view.find(wanted, at + 1)
    if len(found) != 1:
        raise GiveUp("the payload lies there twice" if found else "the payload lies in no file as it is")
    return found[0]


def write_and_end(system, directory, source, killed):
    peer = system(directory, FAULT_SIZE, FAULT_BLOCKS, source, Memory(BATCH * FAULT_SIZE))
    peer.put(0, FAULT_BLOCKS)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    sync_file_system(directory)
    peer.close()
    return {"ended": True}


def read_all(system, directory, source):
    outcome = {"blocks": FAULT_BLOCKS, "opened": False, "right": 0, "wrong": 0, "miss": 0, "error": 0, "signal": 0}
    window = Memory(BATCH * FAULT_SIZE)
    try:
        peer = system(directory, FAULT_SIZE, FAULT_BLOCKS, source, window)
    except Exception:
        return outcome
    outcome["opened"] = True
    for i in range(FAULT_BLOCKS):
        libc.memset(window.address, 0x11, FAULT_SIZE)
        result = peer.get(i, 1)[0]
        same = libc.memcmp(window.address, source.address + i * FAULT_SIZE, FAULT_SIZE) == 0
        kind = ("right" if same else "wrong") if result == FOUND else "miss" if result == MISS else "error"
        outcome[kind] += 1
    peer.close()
    return outcome


def fault(system, name, source, directory, in_memory):
    killed = name == "kill_after_put"
    written = in_child(lambda: write_and_end(system, directory, source, killed))
    if not (written.get("signal") == signal.SIGKILL if killed else written.get("ended")):
        raise GiveUp(written.get("missing", "the process that puts did not end as it should"))
    if not killed:
        middle = VICTIM * FAULT_SIZE + FAULT_SIZE // 2
        path, at = find_payload(directory, source.map[middle : middle + 64])
        harm(name, path, at)
        make_cold(directory, in_memory)
    outcome = in_child(lambda: read_all(system, directory, source))
    return {"blocks": FAULT_BLOCKS, "opened": True, "right": 0, "wrong": 0, "miss": 0, "error": 0, **outcome}


# ---- Commands ----

PR_SET_PDEATHSIG = 1


def in_child(call):
    """The call's answer, from a process of its own, since what it tries may die."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            answer = call()
        except Exception as error:  # whatever a system throws is its answer
            answer = {
                "missing": ("%s: %s" % (type(error).__name__, error) if not isinstance(error, GiveUp) else str(error))[
                    :200
                ]
            }
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"missing": "its process died of signal %d" % os.WTERMSIG(status), "signal": os.WTERMSIG(status)}
    return json.loads(text) if text else {"missing": "its process ended early"}


def serve(systems):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    source, filled, place = Memory(int(sys.argv[1]) << 20), None, None
    for system in systems:
        print(
            json.dumps(
                {
                    "system": system.name,
                    "durability": system.durability,
                    "checks": system.checks,
                    "persistent": system.persistent,
                    "alone": system.alone,
                }
            ),
            file=answers,
        )
    print(json.dumps({"ready": True}), file=answers, flush=True)
    by_name = {system.name: system for system in systems}
    for line in sys.stdin:
        verb, what, name = line.rstrip("\n").split(" ", 2)
        if verb == "place":
            place, in_memory = pathlib.Path(name), is_tmpfs(name)
            continue
        size = int(what) if verb == "measure" else FAULT_SIZE
        if filled != size:
            fill(source, size, source.size // size)
            filled = size
        shutil.rmtree(place, ignore_errors=True)  # what a process that was killed left
        place.mkdir()
        if verb == "measure":
            call = Measure(by_name[name], size, source, str(place), in_memory).run
        else:
            call = functools.partial(fault, by_name[name], what, source, str(place), in_memory)
        answer = in_child(call)
        shutil.rmtree(place, ignore_errors=True)  # before the answer: the next at this place may be another program's
        print(json.dumps(answer), file=answers, flush=True)


def is_tmpfs(directory):
    """By the longest mount point above it."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    above = [m for m in mounts if os.path.realpath(directory).startswith(m[1].rstrip("/") + "/")]
    return max(above, key=lambda m: len(m[1]))[2] == "tmpfs" if above else False
