#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What stands where a store should be: another owner, another format, strange files, copies, locks; and permissions.
Names that begin with b and a number are of public reports (docs/cases.md).

    directory_test.py KVONCE [TEST] DRIVER
"""

import os
import shutil
import stat as modes
import struct
import sys

from envs import (BLOCK, NOBODY, OURS, READ_ONLY, Driver, all_files, copy_of, kvonce, listing, replay, root_only,
                  run_all, stat, super_copies, sealed, patch, synth, verify)

VERSION = 8  # of the superblock


def make_store(folder, name="d", blocks=40):
    with Driver() as driver:
        driver.open("disk:%s:16M" % (folder / name))
        assert driver("put", 0, blocks, BLOCK) == "KVO_STORED=%d wrong=0" % blocks
        assert driver("close") == "KVO_OK"
    return folder / name


def holds(directory, blocks=40, tiers="disk:%s"):
    with Driver() as driver:
        driver.open(tiers % directory)
        assert driver("get", 0, blocks, BLOCK) == "KVO_OK=%d wrong=0" % blocks
        assert driver("close") == "KVO_OK"


def test_two_processes_on_one_directory_the_second_is_told_which(folder):
    directory = folder / "d"
    with Driver() as first, Driver() as second, Driver() as reader:
        first.open("disk:%s:16M" % directory)
        first("put", 0, 10, BLOCK)
        holder = "process %d" % first.process.pid
        for other, flags in [(second, 0), (reader, READ_ONLY)]:
            other.refused("disk:%s" % directory, "KVO_E_IN_USE", directory, holder, flags=flags)
        said = kvonce("stat", directory, code=2)
        assert str(directory) in said and holder in said
        assert first("get", 0, 10, BLOCK) == "KVO_OK=10 wrong=0" and first("close") == "KVO_OK"
        second.open("disk:%s" % directory)
        assert second("get", 0, 10, BLOCK) == "KVO_OK=10 wrong=0"


def test_b119_many_at_once_one_opens_it(folder):
    directory, tiers = folder / "d", "disk:%s:16M" % (folder / "d")
    for _ in range(5):
        drivers = [Driver() for _ in range(8)]
        for driver in drivers:
            driver.process.stdin.write("open %s %d 0 0\n" % (tiers, BLOCK))
            driver.process.stdin.flush()
        said = [driver.process.stdout.readline().split()[0] for driver in drivers]
        assert sorted(said) == ["KVO_E_IN_USE"] * 7 + ["KVO_OK"], said
        winner = drivers[said.index("KVO_OK")]
        assert winner("space", "s", BLOCK, "m") == "KVO_OK"
        winner("put", 0, 5, BLOCK)
        assert winner("get", 0, 5, BLOCK) == "KVO_OK=5 wrong=0" and winner("close") == "KVO_OK"
        for driver in drivers:
            driver.__exit__()


def test_b143_a_deleted_lock_file_lets_nobody_in(folder):
    directory = folder / "d"
    with Driver() as first, Driver() as second, Driver() as reader:
        first.open("disk:%s:16M" % directory)
        first("put", 0, 10, BLOCK)
        for _ in range(2):  # the second opener has created another file, which is then deleted as well
            os.unlink(directory / "lock")
            for other, flags in [(second, 0), (reader, READ_ONLY)]:
                if flags == 0 or (directory / "lock").exists():
                    other.refused("disk:%s" % directory, "KVO_E_IN_USE", directory, "process %d" % first.process.pid,
                                  flags=flags)
        assert first("put", 10, 30, BLOCK) == "KVO_STORED=30 wrong=0" and first("close") == "KVO_OK"
    holds(directory)
    os.unlink(directory / "lock")  # of a closed store: nothing is lost
    holds(directory)


def test_b093_what_a_lock_file_says_means_nothing(folder):
    directory = make_store(folder)
    for content in [b"", b"garbage\0\xff" * 100, b"1\n", b"%d\n" % os.getpid(), b"%d\n" % os.getppid(), b"-1",
                    b"9" * 40]:
        (directory / "lock").write_bytes(content)
        os.utime(directory / "lock", (0, 0))
        holds(directory)
        assert (directory / "lock").read_bytes() == content


@root_only
def test_b093_a_lock_file_of_somebody_elses_is_refused_by_name(folder):
    directory = make_store(folder)
    folder.chmod(0o755)
    for path in [directory, *directory.iterdir()]:
        os.chown(path, NOBODY, NOBODY)
    os.chown(directory / "lock", 0, 0)
    with Driver(user=NOBODY) as driver:
        driver.refused("disk:%s" % directory, "KVO_E_PERMISSION", directory / "lock", "Permission denied")
        driver.open("disk:%s" % directory, flags=READ_ONLY, space=False)  # who only looks needs none
        assert driver.stat()["blocks"] == "40"
    (directory / "lock").unlink()
    with Driver(user=NOBODY) as driver:
        driver.open("disk:%s" % directory)
        assert driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"


def test_a_directory_copied_while_in_use_opens_after_recovery(folder):
    directory = folder / "d"
    with Driver() as first:
        first.open("disk:%s:16M" % directory)
        for round in range(8):
            first("put", 20 * round, 20, BLOCK, 2)
            copy = copy_of(directory, "copy-%d" % round)
            with Driver() as second:  # while the first one is open and goes on
                second.open("disk:%s" % copy)
                count = 20 * (round + 1)
                assert second("get", 0, count, BLOCK) == "KVO_OK=%d wrong=0" % count, round
                second("put", 1000, 10, BLOCK)
                assert first("get", 0, count, BLOCK) == "KVO_OK=%d wrong=0" % count
                assert second("close") == "KVO_OK"
        assert first("get", 1000, 10, BLOCK) == "KVO_MISS=10 wrong=0" and first("close") == "KVO_OK"


def test_a_directory_copied_in_the_middle_of_writes_serves_no_wrong_byte(folder):
    directory = folder / "d"
    with Driver() as first:
        first.open("disk:%s:4M" % directory)
        for round in range(10):
            # More than it holds: slots are used again.
            first.process.stdin.write("put %d 200 %d\n" % (200 * round, BLOCK))
            first.process.stdin.flush()
            copy = copy_of(directory, "copy")
            assert first.process.stdout.readline() == "KVO_STORED=200 wrong=0\n"
            with Driver() as second:
                second.open("disk:%s" % copy)
                assert second("get", 0, 200 * (round + 1), BLOCK).endswith("wrong=0")
                second("put", 0, 20, BLOCK)
                assert second("get", 0, 20, BLOCK) == "KVO_OK=20 wrong=0" and second("close") == "KVO_OK"


def test_b119_a_store_and_its_clone_are_two_stores(folder):
    directory = make_store(folder)
    clone = copy_of(directory, "clone")
    with Driver() as a, Driver() as b:
        a.open("disk:%s" % directory)
        b.open("disk:%s" % clone)
        assert a("put", 100, 50, BLOCK) == b("put", 200, 50, BLOCK) == "KVO_STORED=50 wrong=0"
        assert a("get", 200, 50, BLOCK) == b("get", 100, 50, BLOCK) == "KVO_MISS=50 wrong=0"
        assert a("get", 0, 40, BLOCK) == b("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
        assert a("close") == b("close") == "KVO_OK"
    with Driver() as both:  # two tiers of one store, by mistake: each name is served once, from one of them
        both.open("disk:%s,disk:%s" % (directory, clone))
        assert both("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
        both("put", 300, 20, BLOCK)
        assert both("get", 300, 20, BLOCK) == "KVO_OK=20 wrong=0" and both("close") == "KVO_OK"
    assert verify(directory)[0] == 0 and verify(clone)[0] == 0


def test_b040_another_models_blocks_are_misses_and_a_label_is_bound(folder):
    directory = make_store(folder)
    with Driver() as driver:
        driver.open("disk:%s" % directory, space=False)
        said = driver("space", "s", BLOCK, "other")
        assert said.startswith("KVO_E_MISMATCH ") and '"m"' in said and '"other"' in said, said
        said = driver("space", "s", BLOCK, "m", "fp8")
        assert said.startswith("KVO_E_MISMATCH ") and "fp8" in said, said
        for label, bytes, more in [("other", BLOCK, ["other"]), ("fp8", BLOCK, ["m", "fp8"]),
                                   ("half", BLOCK // 2, ["m"])]:
            assert driver("space", label, bytes, *more) == "KVO_OK"
            assert driver("get", 0, 40, bytes) == "KVO_MISS=40 wrong=0"
        assert driver("space", "s", BLOCK, "m") == "KVO_OK" and driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"


def test_b041_another_block_size_is_a_space_of_its_own_or_refused_with_both_sizes(folder):
    directory = make_store(folder)
    with Driver() as driver:
        before = all_files(directory)
        driver.refused("disk:%s:100blk" % directory, "KVO_E_MISMATCH", directory, BLOCK, 2 * BLOCK, block=2 * BLOCK)
        driver.refused("disk:%s:100blk" % directory, "KVO_E_MISMATCH", directory, BLOCK, BLOCK // 2, block=BLOCK // 2)
        assert all_files(directory) == before
        for block in (BLOCK // 2, 2 * BLOCK):
            driver.open("disk:%s" % directory, block=block, space=False)
            said = driver("space", "s", block, "m")
            assert said.startswith("KVO_E_MISMATCH ") and str(BLOCK) in said and str(block) in said, said
            assert driver("space", "t%d" % block, block, "m") == "KVO_OK"
            assert driver("put", 0, 5, block) == "KVO_STORED=5 wrong=0"
            assert driver("get", 0, 5, block) == "KVO_OK=5 wrong=0"
            assert driver("close") == "KVO_OK"
    holds(directory)


def with_version(directory, version, copies, magic=b""):
    pages = b""
    for number, page in enumerate(super_copies(directory)):
        page = bytearray(page)
        if number in copies:
            page[VERSION:VERSION + 4] = struct.pack("<I", version)
            page[:len(magic)] = magic
            page = sealed(page)
        pages += bytes(page)
    patch(directory / "super", 0, pages)


def test_b041_an_older_or_newer_format_is_refused_with_instructions_and_untouched(folder):
    directory = make_store(folder)
    with Driver() as driver:  # the second copy too
        driver.open("disk:%s" % directory)
    for version, copies, magic in [(0, (0, 1), b""), (2, (0, 1), b""), (2, (0,), b""), (2, (1,), b""),
                                   (99, (0, 1), b"KVOSUPR2"), (1, (0, 1), b"KVOSUPR9")]:
        other = copy_of(directory, "other")
        with_version(other, version, copies, magic)
        before, times = all_files(other), {path: path.stat().st_mtime_ns for path in other.iterdir()}
        with Driver() as driver:
            for flags in (0, READ_ONLY):
                driver.refused("disk:%s" % other, "KVO_E_VERSION", other, "format version %d" % version,
                               "this library reads version 1", "open it with the kvonce that wrote it", flags=flags)
                driver.refused("dram:1M,disk:%s:64M" % other, "KVO_E_VERSION", other, flags=flags)
        assert "format version %d" % version in kvonce("stat", other, code=2)
        assert all_files(other) == before
        assert {path: path.stat().st_mtime_ns for path in other.iterdir()} == times
    holds(directory)


def test_b079_foreign_files_are_named_and_left_alone(folder):
    directory = make_store(folder)
    for name in ["diary.txt", "super.tmp", "data.bak", ".nfs0001", "ledger.c", "LOCK", "x" * 255]:
        (directory / name).write_text("mine")
        before = all_files(directory)
        with Driver() as driver:
            driver.refused("disk:%s" % directory, "KVO_E_FOREIGN", directory, '"%s"' % name, "directory of its own")
        assert all_files(directory) == before
        (directory / name).unlink()
    (directory / "lost+found").mkdir()  # of a file system of its own
    holds(directory)


def test_b079_a_killed_writer_leaves_no_temporary_files(folder):
    directory, killed = folder / "d", 0
    for round in range(25):
        with Driver() as driver:
            driver.process.stdin.write("open disk:%s:8M %d 0 0\nspace s %d m\nput %d 60 %d\nclose\n"
                                       % (directory, BLOCK, BLOCK, 60 * round, BLOCK))
            driver.process.stdin.flush()
            for _ in range(round % 4):
                driver.process.stdout.readline()
            driver.kill()
            killed += driver.process.returncode < 0
        assert set(os.listdir(directory) if directory.exists() else []) <= OURS, os.listdir(directory)
    assert killed > 20
    with Driver() as driver:
        driver.open("disk:%s:8M" % directory)
        assert driver("get", 0, 1500, BLOCK).endswith("wrong=0") and driver("close") == "KVO_OK"


def test_b110_nobody_else_may_read_whatever_the_umask(folder):
    directory = folder / "d"
    with Driver(umask=0) as driver:
        driver.open("dram:4M,disk:%s:16M" % directory)
        driver("put", 0, 100, BLOCK)
        assert driver("close") == "KVO_OK"
    assert modes.S_IMODE(directory.stat().st_mode) == 0o700
    assert set(os.listdir(directory)) == OURS
    assert {modes.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_b110_links_and_hostile_files_in_our_places_are_refused(folder):
    directory = make_store(folder)
    victim = folder / "victim"
    for name in sorted(OURS - {"checkpoint"}):
        for kind, make in [("symbolic link", lambda path: path.symlink_to(victim)),
                           ("symbolic link", lambda path: path.symlink_to("nowhere")),
                           ("directory", lambda path: path.mkdir()), ("no regular file", os.mkfifo)]:
            victim.write_text("not to be touched")
            hostile = copy_of(directory, "hostile")
            (hostile / name).unlink()
            make(hostile / name)
            with Driver() as driver:
                for flags in (0, READ_ONLY):
                    driver.refused("disk:%s" % hostile, "KVO_E_FOREIGN", hostile / name, kind, flags=flags)
            assert victim.read_text() == "not to be touched" and not (hostile / "nowhere").exists()
            shutil.rmtree(hostile)
    # One that is not needed is not opened either, and the close writes none in its place.
    hostile = copy_of(directory, "hostile")
    (hostile / "checkpoint").unlink()
    (hostile / "checkpoint").symlink_to(victim)
    holds(hostile)
    assert victim.read_text() == "not to be touched"


def test_b107_paths_that_lead_nowhere_are_named(folder):
    (folder / "dangling").symlink_to("nowhere")
    (folder / "file").write_text("mine")
    make_store(folder)
    (folder / "link").symlink_to("d")
    cases = [("nope/d", "KVO_E_NOT_FOUND", "create the one that it is to be in"),
             ("dangling", "KVO_E_NOT_FOUND", "symbolic link to nothing"), ("file", "KVO_E_FOREIGN", "no directory"),
             ("file/x", "KVO_E_IO", "Not a directory"), ("n" * 190, "KVO_E_ARGUMENT", "1 to 200 bytes")]
    with Driver() as driver:
        for path, status, words in cases:
            named = [] if len(path) > 100 else [folder / path]
            driver.refused("disk:%s/%s:16M" % (folder, path), status, words, *named)
    assert (folder / "file").read_text() == "mine"
    assert not (folder / "nowhere").exists() and not (folder / "nope").exists()
    holds(folder / "link")  # a directory may be reached through one: only the names inside are ours


@root_only
def test_b107_a_directory_without_permission_is_refused_by_name_and_readers_go_on(folder):
    directory = make_store(folder)
    folder.chmod(0o755)
    with Driver(user=NOBODY) as driver:  # another's, 0700
        driver.refused("disk:%s" % directory, "KVO_E_PERMISSION", directory, "Permission denied")
        driver.refused("disk:%s:16M" % (folder / "new"), "KVO_E_PERMISSION", folder / "new", "Permission denied")
    for path in [directory, *directory.iterdir()]:
        os.chown(path, NOBODY, NOBODY)
    directory.chmod(0o555)  # what is there is ours: nothing has to be created
    with Driver(user=NOBODY) as driver:
        driver.open("disk:%s" % directory)
        assert driver("get", 0, 40, BLOCK) == "KVO_OK=40 wrong=0"
        assert driver("put", 40, 10, BLOCK) == "KVO_STORED=10 wrong=0" and driver("close") == "KVO_OK"
    (directory / "data").chmod(0o400)
    with Driver(user=NOBODY) as driver:
        driver.refused("disk:%s" % directory, "KVO_E_PERMISSION", directory / "data", "Permission denied")
        driver.open("disk:%s" % directory, flags=READ_ONLY)
        assert driver("get", 0, 50, BLOCK) == "KVO_OK=50 wrong=0"
    empty = folder / "empty"
    empty.mkdir(0o555)
    os.chown(empty, NOBODY, NOBODY)
    with Driver(user=NOBODY) as driver:
        driver.refused("disk:%s:16M" % empty, "KVO_E_PERMISSION", empty, "Permission denied")


run_all(sys.modules[__name__])
