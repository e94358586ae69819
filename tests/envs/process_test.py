#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a process may and has: io_uring, locked memory, address space, sizes of files, descriptors, shared memory,
children.

    process_test.py KVONCE [TEST] DRIVER
"""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys

from envs import AUTO, BLOCK, NOBODY, THREADS, URING, Driver, Skipped, root_only, run_all

UNUSED = {"KVONCE_IO": ""}
CGROUP = pathlib.Path("/sys/fs/cgroup/memory")


def works(driver, first=0, count=100):
    assert driver("put", first, count, BLOCK, 2) == "KVO_STORED=%d wrong=0" % count
    assert driver("get", first, count, BLOCK) == "KVO_OK=%d wrong=0" % count


def needs_uring():
    with Driver(**UNUSED) as driver:
        if driver("open", "dram:4M", BLOCK, URING, 0) != "KVO_OK":
            raise Skipped("io_uring is forbidden here already")


def test_b022_a_sandbox_from_the_start_means_threads_one_line_and_the_same_bytes(folder):
    needs_uring()
    for error in (errno.EPERM, errno.ENOSYS):
        with Driver(**UNUSED) as driver:
            assert driver("sandbox", error) == "0"
            driver.refused("disk:%s:16M" % (folder / "d"), "KVO_E_UNSUPPORTED", "io_uring is not to be had here",
                           os.strerror(error), "use KVO_IO_AUTO or threads", engine=URING)
            driver.open("disk:%s:32M" % (folder / str(error)))
            works(driver)
            assert driver.stat()["engine"] == str(THREADS) and driver("close") == "KVO_OK"
            said = driver.end()
            assert len(said) == 1 and os.strerror(error) in said[0] and "using threads" in said[0], said
        with Driver(**UNUSED) as driver:  # and back
            driver.open("disk:%s" % (folder / str(error)))
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0" and driver.stat()["engine"] == str(URING)


def test_b022_a_sandbox_put_up_while_open_breaks_nothing(folder):
    needs_uring()
    for error in (errno.EPERM, errno.ENOSYS):
        directory = folder / str(error)
        with Driver(**UNUSED) as driver:
            driver.open("dram:4M,disk:%s:32M" % directory)
            works(driver)
            assert driver("sandbox", error) == "0"
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0"
            works(driver, 100)
            assert driver("close") == "KVO_OK"
            said = [line for line in driver.end() if "io_uring stopped working" in line]
            assert len(said) == 1 and os.strerror(error) in said[0], said
        with Driver(**UNUSED) as driver:
            driver.open("disk:%s" % directory)
            assert driver("get", 0, 200, BLOCK) == "KVO_OK=200 wrong=0"


@root_only
def test_b023_little_locked_memory_is_said_with_both_numbers_and_does_without(folder):
    needs_uring()
    folder.chmod(0o755)
    for allowed in (65536, 0):
        directory = folder / str(allowed)
        directory.mkdir(mode=0o700)
        os.chown(directory, NOBODY, NOBODY)
        with Driver(user=NOBODY, limits={resource.RLIMIT_MEMLOCK: allowed}, **UNUSED) as driver:
            driver.open("disk:%s:16M" % directory)
            assert driver("put", 0, 50, 60001, 2) == "KVO_STORED=50 wrong=0"  # through staging: no whole pages
            assert driver("get", 0, 50, 60001) == "KVO_OK=50 wrong=0"
            numbers = driver.stat()
            assert numbers["registered"] == "0" and driver("close") == "KVO_OK", numbers
            said = driver.end()
            assert len(said) == 1 and "ulimit -l" in said[0], said
            if numbers["engine"] == str(URING):
                assert "67108864 bytes" in said[0] and "with %d that may be locked" % allowed in said[0], said
            else:  # a kernel that charges the ring itself
                assert allowed == 0 and "Cannot allocate memory" in said[0] and "using threads" in said[0], said
    many = []  # of one user, whose limit they share
    for number in range(20):
        path = folder / ("many-%d" % number)
        path.mkdir(mode=0o700)
        os.chown(path, NOBODY, NOBODY)
        many.append(Driver(user=NOBODY, limits={resource.RLIMIT_MEMLOCK: 65536}, **UNUSED).open("disk:%s:4M" % path))
    for driver in many:
        assert driver("put", 0, 10, 60001, 2) == "KVO_STORED=10 wrong=0"
        assert driver("get", 0, 10, 60001) == "KVO_OK=10 wrong=0"
        assert driver("close") == "KVO_OK"
        driver.__exit__()


def test_b094_no_address_space_is_a_refusal_with_the_bytes_and_nothing_later(folder):
    with Driver(limits={resource.RLIMIT_AS: 600 << 20}) as driver:
        driver.refused("dram:1G", "KVO_E_MEMORY", "dram", "cannot map an arena of 10", "Cannot allocate memory",
                       "give the tier less")
        driver.open("dram:16M,disk:%s:32M" % (folder / "e"))
        works(driver)
        assert driver("close") == "KVO_OK"
    with Driver(limits={resource.RLIMIT_AS: 160 << 20}) as driver:
        driver.refused("disk:%s:8G" % (folder / "f"), "KVO_E_MEMORY", "no memory for 1", "control records (", block=512)
        assert (folder / "f" / "data").stat().st_size == 0  # before a byte of the disk was taken
        works(driver.open("disk:%s:16M" % (folder / "f")))


def test_b094_more_memory_than_the_machine_has_is_refused_with_both_numbers(folder):
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    with Driver() as driver:
        driver.refused("dram:15T", "KVO_E_MEMORY", "needs an arena of 16", "give the tier less")
        said = driver("open", "dram:15T", BLOCK, AUTO, 0)
        swap = sum(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("SwapTotal"))
        assert int(said.split(" has ")[1].split(":")[0]) <= have + swap, said


@root_only
def test_b094_a_cgroup_with_less_memory_refuses_instead_of_being_killed_later(folder):
    if not (CGROUP / "memory.limit_in_bytes").exists():
        raise Skipped("no memory controller of cgroup v1 here")
    outer = CGROUP / ("kvonce-test-%d" % os.getpid())
    inner = outer / "inner"
    try:
        inner.mkdir(parents=True)
        (outer / "memory.limit_in_bytes").write_text("67108864")
        with Driver() as driver:
            (inner / "cgroup.procs").write_text(str(driver.process.pid))
            driver.refused("dram:100M", "KVO_E_MEMORY", "needs an arena of 10", "has 67108864: give the tier less")
            driver.open("dram:16M")
            works(driver.open("dram:8M,disk:%s:32M" % (folder / "d")))
    finally:
        for group in (inner, outer):
            if group.exists():
                group.rmdir()


@root_only
def test_b094_the_size_of_dev_shm_does_not_matter(folder):
    """The arena has no name in a file system: nothing to outgrow, to leave behind or to be read by others."""
    for what in ["mount -t tmpfs -o size=64k none /dev/shm", "mount -t tmpfs -o size=64k,ro none /dev/shm",
                 "mount -t tmpfs none /dev && test ! -e /dev/shm"]:
        wrap = ["unshare", "-m", "--propagation", "private", "sh", "-c", what + ' && exec "$0"']
        with Driver(wrap=wrap) as driver:
            driver.open("dram:64M")
            assert driver("put", 0, 900, BLOCK) == "KVO_STORED=900 wrong=0"
            assert driver("get", 0, 900, BLOCK) == "KVO_OK=900 wrong=0"


def test_b015_killed_ten_times_it_leaves_no_memory_behind(folder):
    def shared():
        return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("Shmem:"))
    before, names = shared(), os.listdir("/dev/shm")
    for _ in range(10):
        with Driver() as driver:
            driver.open("dram:64M")
            assert driver("put", 0, 900, BLOCK) == "KVO_STORED=900 wrong=0"
            driver.kill()
    assert os.listdir("/dev/shm") == names and shared() < before + 5 * 64 * 1024, "ten arenas are 640 MiB"


def test_b095_no_huge_page_is_reserved_that_may_be_lacking(folder):
    with Driver() as driver:
        driver.open("dram:64M")
        driver("put", 0, 900, BLOCK)
        maps = pathlib.Path("/proc/%d/smaps" % driver.process.pid).read_text()
        arena = [block for block in maps.split("VmFlags:") if "memfd:kvonce" in block]
        assert len(arena) == 2, maps  # to write and to read
        assert " ht" not in "".join(line for line in maps.splitlines() if line.startswith("VmFlags"))
        assert all("KernelPageSize:        4 kB" in block for block in arena)


def test_a_limit_of_file_sizes_refuses_instead_of_killing(folder):
    directory, limit = folder / "d", {resource.RLIMIT_FSIZE: 1 << 20}
    with Driver(limits=limit) as driver:
        for tiers, status, words in [("disk:%s:16M" % directory, "KVO_E_NO_SPACE", [directory / "data"]),
                                     ("dram:16M", "KVO_E_MEMORY", ["dram", "shared memory"])]:
            driver.refused(tiers, status, *words, "of 1048576 (ulimit -f)", "give the tier less")
    with Driver() as driver:
        works(driver.open("disk:%s:16M" % directory))
    with Driver(limits=limit) as driver:
        driver.refused("disk:%s" % directory, "KVO_E_NO_SPACE", directory / "data", "ulimit -f")
    with Driver() as driver:
        driver.open("disk:%s" % directory)
        assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0"


def test_b126_misses_errors_and_refused_openings_keep_no_descriptor(folder):
    (folder / "file").write_text("mine")
    with Driver() as driver:
        for _ in range(200):
            driver.refused("disk:%s:4M" % (folder / "file"), "KVO_E_FOREIGN")
            driver.refused("disk:%s" % (folder / "none"), "KVO_E_ARGUMENT", "no store yet")
        driver.open("dram:4M,disk:%s:4M" % (folder / "d"))
        works(driver, 0, 30)
        files = driver.stat()["files"]
        assert driver("get", 1000, 20000, 100) == "KVO_MISS=20000 wrong=0"
        assert driver("get", 0, 30, 77) == "KVO_SIZE=30 wrong=0"
        driver.refused("disk:%s" % (folder / "file"), "KVO_E_FOREIGN")
        assert driver.stat()["status"] == "KVO_E_ARGUMENT"  # the failed opening left no store
    with Driver() as driver:
        numbers = []
        for _ in range(20):
            driver.open("dram:4M,disk:%s:4M" % (folder / "d"))
            driver("get", 0, 30, BLOCK)
            numbers.append(driver.stat()["files"])
            assert driver("close") == "KVO_OK"
        assert len(set(numbers[1:])) == 1 and int(numbers[1]) - int(files) <= 1, (files, numbers)  # a checkpoint's


def test_too_few_descriptors_are_an_answer_that_names_the_file(folder):
    works_from = None
    for allowed in range(4, 40):
        with Driver(limits={resource.RLIMIT_NOFILE: allowed}) as driver:
            said = driver("open", "disk:%s:4M" % (folder / "d"), BLOCK, AUTO, 0)
            if said == "KVO_OK":
                assert driver("space", "s", BLOCK, "m") == "KVO_OK"
                works(driver, 0, 10)
                works_from = allowed
                break
            assert said.startswith("KVO_E_IO ") and "Too many open files" in said, (allowed, said)
            assert str(folder / "d") in said, (allowed, said)
    assert works_from and works_from > 10


def child_ends(pid):
    """A grandchild of ours: it is gone when it is no more, or a zombie of the driver's."""
    try:
        return pathlib.Path("/proc/%s/stat" % pid).read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_b071_children_that_exit_close_or_crash_cost_the_parent_nothing(folder):
    with Driver() as driver:
        driver.open("dram:8M,disk:%s:32M" % (folder / "d"))
        works(driver)
        assert driver("pin", 1) == "KVO_OK"
        for what, end in [("exit", "exit=0"), ("close", "exit=0"), ("crash", "signal=9"), ("exit", "exit=0")]:
            assert driver("fork", what) == end  # exit=1: some call did not say KVO_E_FORKED
            assert driver.stat()["pinned"] == "1"
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0"
        children = [driver("fork", "idle") for _ in range(4)]  # as a server that forks its workers
        works(driver, 100)
        with Driver() as other:
            other.refused("disk:%s" % (folder / "d"), "KVO_E_IN_USE", "process %d" % driver.process.pid)
        assert not any(child_ends(child) for child in children)
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        assert driver("get", 0, 200, BLOCK) == "KVO_OK=200 wrong=0" and driver("close") == "KVO_OK"


def test_b071_a_child_that_outlives_a_killed_parent_holds_no_lock(folder):
    directory = folder / "d"
    for engine in (AUTO, THREADS):
        with Driver() as driver:
            driver.open("dram:4M,disk:%s:32M" % directory, engine=engine)
            works(driver)
            child = int(driver("fork", "idle"))
            driver.kill()
            try:
                with Driver() as other:
                    other.open("dram:4M,disk:%s" % directory)
                    assert other("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0"
                    works(other, 1000 * (1 + engine))
                    assert other("close") == "KVO_OK"
                assert not child_ends(child)
            finally:
                os.kill(child, signal.SIGKILL)
        with Driver() as driver:
            driver.open("disk:%s" % directory)
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0"
        for path in directory.iterdir():
            path.unlink()


@root_only
def test_b091_another_monotonic_clock_is_only_another_clock(folder):
    """A time namespace: the machine seems to run for 142 years, or to have just been started."""
    directory = folder / "d"
    for offset in (9000000000 // 2, 0):
        wrap = ["unshare", "--fork", "--kill-child", "--time", "--monotonic", str(offset)]
        if subprocess.run([*wrap, "true"], capture_output=True).returncode != 0:
            raise Skipped("no time namespaces here")
        with Driver(wrap=wrap) as driver:
            driver.open("dram:4M,disk:%s:32M" % directory)
            driver("put", 0, 100, BLOCK, 2)
            assert driver("get", 0, 100, BLOCK) == "KVO_OK=100 wrong=0" and driver("close") == "KVO_OK"


run_all(sys.modules[__name__])
