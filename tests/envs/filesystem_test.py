#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a file system can and cannot: direct I/O, large sectors, layers, read-only, full, read-only all of a sudden.

    filesystem_test.py KVONCE [TEST] DRIVER
"""

import os
import subprocess
import sys

from envs import (AUTO, BLOCK, READ_ONLY, THREADS, Driver, Skipped, all_files, kvonce, mount, remount, root_only,
                  run_all, unmount, verify)

ENGINES = (AUTO, THREADS)
SIZES = (1, 512, 4095, 4096, 4097, 100000, 1000001, 3098112, (1 << 20) + 1)


class Loop:
    """A file as a device, with a file system on it."""

    def __init__(self, folder, megabytes, sector=512, kind=("mkfs.ext4", "-q", "-F")):
        self.image, self.folder = folder / "image", folder / "mounted"
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        words = ["losetup", "-f", "--show", "-b", str(sector), self.image]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped("losetup: " + done.stderr.strip())
        self.device = done.stdout.strip()
        try:
            subprocess.run([*kind, self.device], check=True, capture_output=True)
            mount(self.folder, self.device)
        except BaseException:
            self.detach()
            raise

    def detach(self):
        subprocess.run(["losetup", "-d", self.device], check=True)

    def __enter__(self):
        return self.folder

    def __exit__(self, *_):
        unmount(self.folder)
        self.detach()


class Mounted:
    def __init__(self, folder, *words):
        self.folder = mount(folder, *words)

    def __enter__(self):
        return self.folder

    def __exit__(self, *_):
        unmount(self.folder)


def all_sizes_are_exact(directory, engine):
    """Put, read, read again after a restart. Did `data` go past the page cache, as told and as the kernel says?"""
    with Driver() as driver:
        driver.open("disk:%s:64M" % directory, engine=engine, block=4 << 20)
        for number, bytes in enumerate(SIZES):
            assert driver("put", 100 * number, 3, bytes, 3) == "KVO_STORED=3 wrong=0", bytes
            assert driver("get", 100 * number, 3, bytes) == "KVO_OK=3 wrong=0", bytes
        told, real = driver.stat()["disk.direct"] == "1", is_direct(driver, directory / "data")
        assert told == real, "stat says %s and the kernel %s" % (told, real)
        assert driver("close") == "KVO_OK"
        said = [line for line in driver.end() if "O_DIRECT" in line]
        assert len(said) == (0 if real else 1), said
        assert all(str(directory) in line and "page cache" in line for line in said), said
    with Driver() as driver:
        driver.open("disk:%s" % directory, engine=engine, block=4 << 20)
        for number, bytes in enumerate(SIZES):
            assert driver("get", 100 * number, 3, bytes) == "KVO_OK=3 wrong=0", bytes
    assert verify(directory)[:2] == (0, [])
    return real


def is_direct(driver, path):
    for fd in os.listdir("/proc/%d/fd" % driver.process.pid):
        if os.path.realpath("/proc/%d/fd/%s" % (driver.process.pid, fd)) == str(path):
            info = open("/proc/%d/fdinfo/%s" % (driver.process.pid, fd)).read()
            flags = int(next(line.split()[1] for line in info.splitlines() if line.startswith("flags:")), 8)
            return bool(flags & os.O_DIRECT)
    raise AssertionError("%s is not open" % path)


def test_b072_b122_odd_sizes_are_exact_here_and_the_mode_is_told_truly(folder):
    for engine in ENGINES:
        all_sizes_are_exact(folder / ("d%d" % engine), engine)


@root_only
def test_b014_odd_sizes_are_exact_on_4_kib_sectors(folder):
    with Loop(folder, 200, sector=4096) as mounted:
        assert open("/sys/class/block/%s/queue/logical_block_size" % os.path.basename(
            os.path.realpath(next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == str(mounted)))
        )).read() == "4096\n"
        for engine in ENGINES:
            assert all_sizes_are_exact(mounted / ("d%d" % engine), engine), "ext4 takes O_DIRECT"


@root_only
def test_b014_odd_sizes_are_exact_without_direct_io(folder):
    """ext4 that journals data has no direct I/O, whatever open() says."""
    with Loop(folder, 300, kind=("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1")) as mounted:
        subprocess.run(["umount", mounted], check=True)
        words = ["losetup", "-j", folder / "image", "-O", "NAME", "-n"]
        mount(mounted, "-o", "data=journal", subprocess.run(words, capture_output=True, text=True).stdout.strip())
        for engine in ENGINES:
            all_sizes_are_exact(mounted / ("d%d" % engine), engine)


def engine_of(*directories, block, engine=AUTO):
    with Driver() as driver:
        driver.open(",".join("disk:%s:16M" % directory for directory in directories), engine=engine, block=block)
        driver("put", 0, 3, block, 3)
        assert driver("get", 0, 3, block) == "KVO_OK=3 wrong=0"
        engine = int(driver.stat()["engine"])
        assert driver("close") == "KVO_OK"
    return engine


@root_only
def test_threads_copy_large_blocks_where_all_disks_are_memory(folder):
    usual = engine_of(folder / "usual", block=BLOCK)  # io_uring, if the kernel allows it
    here = engine_of(folder / "here", block=1 << 20)  # the same, unless this is memory too
    for kind in ("tmpfs", "ramfs"):
        with Mounted(folder / kind, "-t", kind, "-o", "size=200m", "none") as mounted:
            for _ in range(2):  # the directory is not there at first
                assert engine_of(mounted / "large", block=1 << 20) == THREADS, kind
            assert engine_of(mounted / "small", block=BLOCK) == usual, kind
            assert engine_of(mounted / "a", mounted / "b", block=1 << 20) == THREADS, kind
            for two in [(mounted / "c", folder / ("c-" + kind)), (folder / ("d-" + kind), mounted / "d")]:
                assert engine_of(*two, block=1 << 20) == here, "all have to be"
            assert engine_of(mounted / "asked", block=1 << 20, engine=usual) == usual, "a caller who chooses is obeyed"


@root_only
def test_b014_odd_sizes_are_exact_on_tmpfs_and_on_layers(folder):
    with Mounted(folder / "tmpfs", "-t", "tmpfs", "-o", "size=300m", "none") as mounted:
        for engine in {engine_of(folder / "usual", block=BLOCK), *ENGINES}:
            all_sizes_are_exact(mounted / ("d%d" % engine), engine)
    for name in ["lower", "upper", "work"]:
        (folder / name).mkdir()
    layers = "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(folder / name for name in ["lower", "upper", "work"])
    with Driver() as driver:  # in the lower layer: each file is copied up when it is first written
        driver.open("disk:%s:16M" % (folder / "lower" / "old"))
        driver("put", 0, 40, BLOCK)
        assert driver("close") == "KVO_OK"
    before = all_files(folder / "lower" / "old")
    with Mounted(folder / "layers", "-t", "overlay", "-o", layers, "none") as mounted:
        for engine in ENGINES:
            all_sizes_are_exact(mounted / ("d%d" % engine), engine)
        for count in (40, 60):
            with Driver() as driver:
                driver.open("disk:%s" % (mounted / "old"))
                assert driver("get", 0, count, BLOCK) == "KVO_OK=%d wrong=0" % count
                driver("put", 40, 20, BLOCK)
                assert driver("close") == "KVO_OK"
    assert all_files(folder / "lower" / "old") == before


@root_only
def test_a_read_only_file_system_is_named_and_readers_go_on(folder):
    directory = folder / "rw" / "d"
    directory.parent.mkdir()
    with Driver() as driver:
        driver.open("disk:%s:16M" % directory)
        driver("put", 0, 40, BLOCK)
        assert driver("close") == "KVO_OK"
    before = all_files(directory)
    with Mounted(folder / "ro", "--bind", folder / "rw") as mounted:
        assert remount(mounted, "bind,ro")
        with Driver() as driver:
            driver.refused("disk:%s" % (mounted / "d"), "KVO_E_PERMISSION", mounted / "d", "Read-only file system")
            driver.refused("disk:%s:16M" % (mounted / "new"), "KVO_E_PERMISSION", mounted / "new",
                           "Read-only file system")
            driver.open("disk:%s" % (mounted / "d"), flags=READ_ONLY)
            assert driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
            assert driver("put", 100, 1, BLOCK) == "KVO_E_STATE=1 wrong=0"
        assert "40 blocks" in kvonce("stat", mounted / "d") and verify(mounted / "d")[0] == 0
        assert all_files(directory) == before
        with Driver() as writer, Driver() as reader:  # who may write elsewhere keeps readers out here
            writer.open("disk:%s" % directory)
            reader.refused("disk:%s" % (mounted / "d"), "KVO_E_IN_USE", "process %d" % writer.process.pid,
                           flags=READ_ONLY)
            assert writer("close") == "KVO_OK"
            reader.open("disk:%s" % (mounted / "d"), flags=READ_ONLY, space=False)
            writer.refused("disk:%s" % directory, "KVO_E_IN_USE", "process %d" % reader.process.pid)


def turn_read_only(device):
    """As the kernel does after an error, though files are open for writing."""
    trigger = "/sys/fs/ext4/%s/trigger_fs_error" % os.path.basename(device)
    if not os.path.exists(trigger):
        raise Skipped("no " + trigger)
    with open(trigger, "w") as file:
        file.write("a test")


@root_only
def test_b107_a_file_system_that_turns_read_only_while_open_is_told_and_loses_nothing(folder):
    loop = Loop(folder, 100)
    with loop as mounted:
        subprocess.run(["mount", "-o", "remount,errors=remount-ro", mounted], check=True)
        with Driver() as driver:
            driver.open("dram:8M,disk:%s:32M" % (mounted / "d"))
            assert driver("put", 0, 40, BLOCK, 3) == "KVO_STORED=40 wrong=0"
            turn_read_only(loop.device)
            assert driver("put", 100, 20, BLOCK, 2) == "KVO_SHORT=20 wrong=0"  # in memory, and not further
            assert driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
            assert driver("get", 100, 20, BLOCK) == "KVO_OK=20 wrong=0"
            assert int(driver.stat()["disk.errors"]) >= 20 and driver("close") == "KVO_SHORT"
            said = driver.end()
            assert said, "nothing is said"
            assert all(str(mounted / "d") in line and "Read-only file system" in line for line in said), said[:3]
        unmount(mounted)
        mount(mounted, loop.device)
        with Driver() as driver:
            driver.open("dram:8M,disk:%s" % (mounted / "d"))
            assert driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
            assert driver("get", 100, 20, BLOCK) == "KVO_MISS=20 wrong=0"
            assert driver("put", 100, 20, BLOCK, 2) == "KVO_STORED=20 wrong=0" and driver("close") == "KVO_OK"


@root_only
def test_b073_a_file_system_without_room_undoes_what_it_took_and_opens_once_there_is(folder):
    with Loop(folder, 40) as mounted:
        directory = mounted / "d"
        with Driver() as driver:
            for _ in range(3):
                before = os.statvfs(mounted).f_bfree
                driver.refused("disk:%s:64M" % directory, "KVO_E_NO_SPACE", directory, "no room for", "bytes of slots",
                               "free some or give the tier less")
                assert before - os.statvfs(mounted).f_bfree < 64
            driver.open("disk:%s:16M" % directory)
            assert driver("put", 0, 100, BLOCK, 2) == "KVO_STORED=100 wrong=0" and driver("close") == "KVO_OK"
            driver.refused("disk:%s:64M" % directory, "KVO_E_NO_SPACE", directory, "no room for")  # to grow
            driver.open("disk:%s" % directory)
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0" and driver("close") == "KVO_OK"


def test_b100_large_capacities_are_exact(folder):
    for gib in (3, 5):
        directory = folder / ("d%d" % gib)
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < (gib + 4) << 30:
            raise Skipped("less than %d GiB free" % (gib + 4))
        with Driver() as driver:
            driver.open("disk:%s:%dG" % (directory, gib), block=1 << 20)
            capacity = int(driver.stat()["disk.capacity"])
            assert (gib << 30) * 126 // 128 < capacity <= gib << 30 and capacity == (directory / "data").stat().st_size
            assert driver("put", 0, 20, 1 << 20) == "KVO_STORED=20 wrong=0"
            assert driver("get", 0, 20, 1 << 20) == "KVO_OK=20 wrong=0" and driver("close") == "KVO_OK"
        with Driver() as driver:
            driver.open("disk:%s" % directory, block=1 << 20)
            assert int(driver.stat()["disk.capacity"]) == capacity
            assert driver("get", 0, 20, 1 << 20) == "KVO_OK=20 wrong=0"


def test_b050_b051_sizes_over_the_limits_are_refused_by_their_limit(folder):
    with Driver() as driver:
        for block in ((4 << 30) + 4096, 6 << 30, (128 << 20) + 1):
            driver.refused("dram:1G", "KVO_E_RANGE", "options.block_bytes: %d is over the limit of 134217728" % block,
                           block=block)
        driver.open("dram:300M,disk:%s:300M" % (folder / "d"), block=16 << 20, space=False)
        for bytes in ((4 << 30) + 4096, 5 << 29, (128 << 20) + 1):
            said = driver("space", "big", bytes, "m")
            assert said.startswith("KVO_E_RANGE ") and "block_bytes_max" in said and "134217728" in said, said
        assert driver("space", "s", 2 << 20, "m") == "KVO_OK"
        assert driver("put", 0, 1, (2 << 20) + 1) == "KVO_REFUSED=1 wrong=0"


run_all(sys.modules[__name__])
