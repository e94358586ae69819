#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce verify --repair: what is damaged goes, what is good stays, and nothing else changes.
Names that begin with b and a number are of public reports (docs/cases.md).

    repair_test.py KVONCE [TEST]
"""

import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "disk"))

from files import (CLEAN, KVONCE, PAGE, SEGMENT_UNITS, all_files, copy_of, flip, kvonce, listing, main,  # noqa: E402
                   offsets, patch, read_with_reader, replay, sealed, stat, super_copies, super_field, synth, verify)

BLOCK = 12000  # three pages, the last of them with 288 zeros at its end
SLOT = 4 * PAGE
ROUNDS = int(os.environ.get("KVO_TEST_ROUNDS", "8"))


def make_store(folder, requests=60, capacity="500blk"):
    directory, trace = folder / "disk", synth(folder, requests)
    report = replay(trace, "dram:64blk,disk:%s:%s" % (directory, capacity), "--block-bytes", BLOCK)
    assert report["wrong_reads"] == 0 and verify(directory)[:2] == (0, [])
    return directory, trace


def repair(directory, *options, code=0):
    """{offset: (what was wrong, what was done)}, the lines behind."""
    words = [KVONCE, "verify", directory, "--repair", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    said, rest = {}, []
    for line in done.stdout.splitlines():
        if line.startswith(str(directory / "data") + ":"):
            offset, what, *_, did = line[len(str(directory / "data")) + 1:].split(": ")
            assert int(offset) not in said, done.stdout
            said[int(offset)] = (what.split(" (block")[0], did)
        else:
            rest.append(line)
    return said, rest


def names(directory):
    return set(offsets(directory))


def check_clean(directory, good):
    """Verify, ls and a reader that shares no code agree that exactly `good` is there, whole."""
    assert verify(directory)[:2] == (0, []), directory
    assert names(directory) == good, (len(names(directory)), len(good))
    assert len(read_with_reader(directory)["blocks"]) == len(good)


def stopped_replay(folder, tiers, directory, written_out=False):
    """A process that has the store open, stopped in the middle; one that was too quick is followed by a longer one."""
    requests = 2000
    while True:
        words = [KVONCE, "replay", synth(folder, requests), "--tiers", tiers, "--block-bytes", str(BLOCK)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            ledger = directory / "ledger.a"
            if written_out and not (ledger.exists() and ledger.stat().st_size):
                time.sleep(0.01)
                continue
            process.send_signal(signal.SIGSTOP)
            done = subprocess.run([KVONCE, "stat", directory], capture_output=True, text=True)
            if "in use by process" in done.stderr:
                return process
            process.send_signal(signal.SIGCONT)
        requests *= 2


def random_damage(directory, seed):
    """Up to 30 places at random; the names whose blocks that costs."""
    source, lost = random.Random(seed), set()
    where = offsets(directory)
    segment = super_field(directory, SEGMENT_UNITS) * PAGE
    for name in source.sample(sorted(where), source.randrange(1, 30)):
        kind = source.choice(["header", "payload", "padding", "zeroed header", "torn", "misdirected"])
        at = where[name]
        if kind == "header":
            flip(directory / "data", at + source.randrange(PAGE), source.randrange(1, 256))
        elif kind == "payload":
            flip(directory / "data", at + PAGE + source.randrange(BLOCK), source.randrange(1, 256))
        elif kind == "padding":
            flip(directory / "data", at + PAGE + BLOCK + source.randrange(SLOT - PAGE - BLOCK),
                 source.randrange(1, 256))
        elif kind == "zeroed header":
            patch(directory / "data", at, bytes(PAGE))
        elif kind == "torn":
            patch(directory / "data", at + PAGE + 512 * source.randrange(BLOCK // 512), source.randbytes(700))
        else:  # another slot's header and payload, whole
            data = (directory / "data").read_bytes()
            other = where[source.choice(sorted(where))]
            patch(directory / "data", at, data[other:other + SLOT])
            lost |= {name} if other != at else set()
        lost |= {name} if kind not in ("padding", "misdirected") else set()
    for offset in {offset // segment * segment for offset in where.values()}:
        if source.random() < 0.3:
            flip(directory / "data", offset + source.randrange(PAGE), source.randrange(1, 256))
    return lost


def test_random_damage_goes_and_all_good_blocks_stay(folder):
    whole, trace = make_store(folder)
    all_names, lost_in_all, segments = names(whole), 0, 0
    for seed in range(ROUNDS):
        directory = copy_of(whole, "damaged-%d" % seed)
        lost = random_damage(directory, seed)
        bad = set(verify(directory)[1])
        said, rest = repair(directory)
        assert set(said) == bad and {did for _, did in said.values()} <= {"made void", "written again"}, (seed, said)
        assert not bad or "%d of them repaired" % len(bad) in rest[-1], (seed, rest)
        check_clean(directory, all_names - lost)
        before = all_files(directory)
        assert repair(directory)[0] == {} and all_files(directory) == before, seed  # twice is once
        report = replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", BLOCK)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0, seed
        lost_in_all += len(lost)
        segments += sum(what.startswith("segment") for what, _ in said.values())
        shutil.rmtree(directory)
    assert lost_in_all > ROUNDS and segments > 0
    print("%d damaged stores repaired: %d blocks lost to damage, none that was whole" % (ROUNDS, lost_in_all))


def payloads(directory, where):
    data = (directory / "data").read_bytes()
    return {name: data[at + PAGE:at + PAGE + BLOCK] for name, at in where.items()}


def killed_repair(directory, source):
    """A repair that is killed once it has begun to write; one that was quicker is not counted."""
    process = subprocess.Popen([KVONCE, "verify", directory, "--repair"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while super_field(directory, CLEAN) and process.poll() is None:
        time.sleep(0.0005)
    time.sleep(source.random() ** 2 * 0.02)  # where in it the kill comes is left to chance
    process.kill()
    return process.wait() == -signal.SIGKILL


def audit(*directories):
    where = ",".join(map(str, directories))
    done = subprocess.run([KVONCE, "audit", where, "--json"], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def test_b120_a_repair_that_is_killed_is_finished_by_the_next(folder):
    whole, trace = make_store(folder, 60, "250blk")
    where, source, kills, lost_in_all = offsets(whole), random.Random(10), 0, 0
    intact = payloads(whole, where)
    for seed in range(100, 100 + ROUNDS):
        directory = copy_of(whole, "killed")
        lost = random_damage(directory, seed)
        good = set(where) - lost
        for _ in range(3):  # the second one meets what the first one left, and so on
            kills += killed_repair(directory, source)
            assert names(directory) >= good, seed
        repair(directory)
        check_clean(directory, good)
        assert payloads(directory, {name: where[name] for name in good}) == {name: intact[name] for name in good}, seed
        figures = audit(directory)
        assert figures["verdict"] == "agrees" and figures["closed_in_order"], (seed, figures["checks"])
        before = all_files(directory)
        assert repair(directory)[0] == {} and all_files(directory) == before, seed
        report = replay(trace, "dram:64blk,disk:%s" % directory, "--block-bytes", BLOCK)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0, seed
        lost_in_all += len(lost)
    assert kills > 0 and lost_in_all > 0
    print("%d repairs killed, the next one finished: %d blocks lost to damage, none that was whole"
          % (kills, lost_in_all))


def test_a_directory_that_is_repaired_alone_is_entered_by_the_next_opening_of_all(folder):
    directories, trace = [folder / "first", folder / "second"], synth(folder, 60)
    tiers = "dram:16blk,disk:%s:60blk,disk:%s:150blk" % tuple(directories)
    replay(trace, tiers, "--block-bytes", BLOCK)
    assert audit(*directories)["verdict"] == "agrees"
    for number, directory in enumerate(directories):
        where = offsets(directory)
        for name in sorted(where)[:2]:
            flip(directory / "data", where[name] + PAGE, 1)
        assert len(repair(directory)[0]) == 2 and names(directory) == set(where) - set(sorted(where)[:2])
        # The ledger is in the first one: it knows nothing of two blocks that the second one lost.
        differs = {(c["tier"], c["check"]) for c in audit(*directories)["checks"] if c["verdict"] != "agrees"}
        assert differs == ({("disk2", "blocks"), ("disk2", "bytes")} if number else set()), differs
        report = replay(trace, tiers, "--block-bytes", BLOCK, "--limit", 1)
        assert report["wrong_reads"] == 0 and report["digest_misses"] == 0
        assert audit(*directories)["verdict"] == "agrees"


def test_the_next_opening_takes_the_checkpoint(folder):
    directory, _ = make_store(folder, 30)
    flip(directory / "data", min(offsets(directory).values()) + PAGE, 1)
    repair(directory)
    words = [KVONCE, "policy", directory, "--all", "--set", "priority=60"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done  # "reading all slot headers" would be there


def test_b120_a_healthy_store_stays_as_it_is_byte_for_byte(folder):
    directory, _ = make_store(folder, 30)
    before, times = all_files(directory), {p.name: p.stat().st_mtime_ns for p in directory.iterdir()}
    for options in [(), ("--dry-run",), ()]:
        said, rest = repair(directory, *options)
        assert said == {} and len(rest) == 1 and rest[0].endswith(" 0 bad"), rest
    assert all_files(directory) == before
    assert {p.name: p.stat().st_mtime_ns for p in directory.iterdir()} == times


def test_b120_dry_run_says_the_same_and_writes_nothing(folder):
    directory, _ = make_store(folder, 30)
    random_damage(directory, 3)
    before = all_files(directory)
    would, _ = repair(directory, "--dry-run", code=1)
    assert would and all_files(directory) == before
    did, _ = repair(directory)
    assert would == {offset: (what, "would be " + done) for offset, (what, done) in did.items()}


def test_b120_a_running_store_is_refused(folder):
    directory, _ = make_store(folder, 30)
    flip(directory / "data", min(offsets(directory).values()) + PAGE, 1)
    running = stopped_replay(folder, "dram:64blk,disk:%s" % directory, directory)
    before = all_files(directory)
    try:
        for options in [["--repair"], ["--repair", "--dry-run"]]:
            assert "in use by process %d" % running.pid in kvonce("verify", directory, *options, code=2)
            assert all_files(directory) == before
    finally:
        running.kill()
        running.wait()


def test_one_damaged_copy_of_the_spaces_is_told_and_written_again(folder):
    directory, _ = make_store(folder, 30)
    good = names(directory)
    for copy, other, offset in [("a", "b", 4100), ("b", "a", 4100), ("a", "b", 40), ("b", "a", None)]:
        path = directory / ("spaces." + copy)
        flip(path, offset, 1) if offset else path.write_bytes(b"")
        before = all_files(directory)
        line = "%s:0: one of two copies is damaged" % path
        done = subprocess.run([KVONCE, "verify", directory], capture_output=True, text=True)
        assert done.returncode == 1 and done.stdout.splitlines()[0] == line, done
        assert repair(directory, "--dry-run", code=1)[1][0] == line + ": would be written again"
        assert all_files(directory) == before
        assert repair(directory)[1][0] == line + ": written again"
        check_clean(directory, good)
        before = all_files(directory)
        assert repair(directory)[1][0].endswith(" 0 bad") and all_files(directory) == before
        whole = copy_of(directory, "whole")  # the other one is not needed any more
        flip(whole / ("spaces." + other), 4100, 1)
        assert names(whole) == good
        kvonce("policy", whole, "--all", "--set", "priority=60")  # any opening to write does it
        check_clean(whole, good)


def test_b120_what_it_does_not_understand_stays(folder):
    directory, _ = make_store(folder, 30)
    where = offsets(directory)
    first, second = sorted(where.values())[:2]
    segment = super_field(directory, SEGMENT_UNITS) * PAGE
    data = directory / "data"
    header = bytearray(data.read_bytes()[first:first + PAGE])
    header[8:12] = struct.pack("<I", 2)  # a slot of a later version
    patch(data, first, sealed(header))
    header = bytearray(data.read_bytes()[second // segment * segment:][:PAGE])
    header[0:8] = b"KVOSEGM2"
    patch(data, second // segment * segment, sealed(header))
    pages = [data.read_bytes()[at:at + PAGE] for at in (first, second // segment * segment)]
    said, rest = repair(directory, code=1)
    assert said == {first: ("header version", "left as it is"),
                    second // segment * segment: ("segment header version", "left as it is")}, said
    assert pages == [data.read_bytes()[at:at + PAGE] for at in (first, second // segment * segment)]
    # Files of others, and another version of the whole: refused, and nothing is touched.
    for name, page in [("notes.txt", b"mine"), ("super", None)]:
        other = copy_of(directory, "other")
        if page:
            (other / name).write_bytes(page)
        else:
            copies = [bytearray(copy) for copy in super_copies(other)]
            for copy in copies:
                copy[8:12] = struct.pack("<I", 2)
            patch(other / name, 0, b"".join(sealed(copy) for copy in copies))
        before = all_files(other)
        message = kvonce("verify", other, "--repair", code=2)
        assert ("notes.txt" if page else "format version 2") in message, message
        assert all_files(other) == before


def test_b120_on_a_read_only_file_system_it_says_so(folder):
    directory, _ = make_store(folder, 30)
    flip(directory / "data", min(offsets(directory).values()) + PAGE, 1)
    before = all_files(directory)
    words = ["mount", "--bind", directory, directory]
    if os.getuid() != 0 or subprocess.run(words, capture_output=True).returncode != 0:
        print("not root, or no mounts: a read-only file system is not tried")
        return
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", directory], check=True, capture_output=True)
        assert "Read-only file system" in kvonce("verify", directory, "--repair", code=2)
        assert repair(directory, "--dry-run", code=1)[0] != {}
    finally:
        subprocess.run(["umount", directory], check=True)
    assert all_files(directory) == before


def test_b120_files_that_may_only_be_read_stay_as_they_are(folder):
    directory, _ = make_store(folder, 30)
    flip(directory / "data", min(offsets(directory).values()) + PAGE, 1)
    before, whose = all_files(directory), {}
    if os.getuid() == 0:  # whom no mode holds back
        whose = {"user": 65534, "group": 65534}
        try:
            subprocess.run([KVONCE, "--version"], check=True, capture_output=True, **whose)
        except (PermissionError, subprocess.CalledProcessError):
            print("the command lies where only root may run it: files that may only be read are not tried")
            return
        os.chmod(folder, 0o711)
        for path in [directory, *directory.iterdir()]:
            os.chown(path, 65534, 65534)
    for name in ["lock", "super", "data", "policy", "ledger.a", "ledger.b", "spaces.a", "spaces.b"]:
        os.chmod(directory / name, 0o400)
        message = kvonce("verify", directory, "--repair", code=2, **whose)
        assert name + ": cannot open: Permission denied" in message and all_files(directory) == before, message
        os.chmod(directory / name, 0o600)


def crash(directory, folder):
    """A replay on it that is killed once its ledger was written."""
    process = stopped_replay(folder, "dram:64blk,disk:%s:300blk" % directory, directory, written_out=True)
    process.kill()
    process.wait()


def test_b010_after_a_crash_it_is_opened_and_closed(folder):
    directory = folder / "disk"
    crash(directory, folder)
    good = names(directory)
    assert good and verify(directory)[0] == 0
    before = all_files(directory)
    _, rest = repair(directory, "--dry-run", code=1)
    assert "not closed in order" in rest[0] and all_files(directory) == before
    _, rest = repair(directory)
    assert "opened and closed" in rest[0]
    assert names(directory) <= good and len(good) - len(names(directory)) <= 64  # what the crash left unfinished
    check_clean(directory, names(directory))
    assert repair(directory)[1][0].endswith(" 0 bad")
    # A zeroed newest extent costs its blocks, and no others; a damaged checkpoint costs nothing.
    where = offsets(directory)
    newest = sorted(where, key=where.get)[-5:]
    for name in newest:
        patch(directory / "data", where[name] + PAGE, bytes(SLOT - PAGE))
    patch(directory / "checkpoint", 0, bytes(PAGE))
    said, _ = repair(directory)
    assert sorted(said) == sorted(where[name] for name in newest)
    check_clean(directory, set(where) - set(newest))


def test_b009_policy_records_of_old_and_new_sectors_cost_no_block(folder):
    directory, _ = make_store(folder, 20, "200blk")
    all_names = names(directory)
    said = {block["name"]: block["policy"] for block in listing(directory)}
    old = (directory / "policy").read_bytes()
    kvonce("policy", directory, "--all", "--set", "priority=90,qos=3,tenant=7")
    new = (directory / "policy").read_bytes().ljust(len(old), b"\0")
    old = old.ljust(len(new), b"\0")
    source = random.Random(9)
    kept = changed = 0
    for _ in range(8):
        mixed = b"".join(source.choice([old, new, bytes(len(old))])[at:at + 512] for at in range(0, len(new), 512))
        (directory / "policy").write_bytes(mixed)
        (directory / "checkpoint").write_bytes(b"")  # it has the policies as well
        assert verify(directory)[:2] == (0, []) and names(directory) == all_names
        for block in listing(directory):
            policy = block["policy"]
            is_new = (policy["priority"], policy["qos"], policy["tenant"]) == (90, 3, 7)
            assert is_new or policy == said[block["name"]], policy
            changed, kept = changed + is_new, kept + (not is_new)
        assert repair(directory)[0] == {}
    assert changed > 0 and kept > 0


def test_b041_another_geometry_is_refused_with_both_values(folder):
    directory, trace = make_store(folder, 20, "200blk")
    before, all_names = all_files(directory), names(directory)
    for other in [BLOCK // 2, BLOCK * 2]:
        message = kvonce("replay", trace, "--tiers", "disk:%s" % directory, "--block-bytes", other, code=2)
        assert str(BLOCK) in message and str(other) in message, message
    assert names(directory) == all_names
    data = all_files(directory)["data"]
    assert data == before["data"] and repair(directory)[0] == {}


main(sys.modules[__name__])
