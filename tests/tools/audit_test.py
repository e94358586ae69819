#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvonce audit: what came less what left is what is there, whatever happened to the store; and one number that is
not so is told.

    audit_test.py KVONCE [TEST]
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "disk"))

import xxhash  # noqa: E402

from files import (KVONCE, PAGE, all_files, copy_of, flip, kvonce, main, offsets, patch, replay, sealed,  # noqa: E402
                   synth)

STORE = os.environ["KVO_AUDIT_STORE"]  # the program of audit_store.c
ROUNDS = int(os.environ.get("KVO_TEST_ROUNDS", "3"))
BLOCK = 12000
# A rewrite that cannot write its dead headers loses the copies on the medium, which are written again: repairs.
# Dead headers that fail early in a run: how many a run with a mover writes depends on time, and the close must not
# fail.
FAILS = "fault:remove=eio@2..9+"
TIERS = {"two": "dram:10blk," + FAILS + "disk:%s:40blk", "alone": "disk:%s:60blk",
         "three": "dram:8blk,disk:%s:30blk,disk:%s:70blk"}


def audit(*directories, code=0):
    """The figures of a store, which the words agree with."""
    where = ",".join(map(str, directories))
    tell = kvonce if code == 0 else run
    figures = json.loads(tell("audit", where, "--json", code=code))
    text = tell("audit", where, code=code)
    last = {"agrees": "balanced", "open": "balanced but for that", "differs": "not balanced"}[figures["verdict"]]
    assert text.splitlines()[-1] == last and (code == 1) == (figures["verdict"] == "differs"), text
    for check in figures["checks"]:
        words = "%-8s %s%s: " % (check["verdict"], check["tier"] + " " if check["tier"] else "", check["check"])
        assert words in text, (words, text)
    return figures


def run(*arguments, code):
    done = subprocess.run([KVONCE, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-1000:])
    return done.stdout


def work(folder, tiers, seed, how="stepped", steps=400, fails=True):
    directories = [folder / ("disk%d" % i) for i in range(TIERS[tiers].count("%s"))]
    folder.mkdir(exist_ok=True)
    text = TIERS[tiers] if fails else TIERS[tiers].replace(FAILS, "")
    done = subprocess.run([STORE, text % tuple(directories), str(seed), str(steps), how], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, (tiers, seed, how, done.stderr[-2000:])
    return directories, json.loads(done.stdout)


def found(figures):
    return {(check["tier"], check["check"]) for check in figures["checks"] if check["verdict"] != "agrees"}


def tier_of(figures, name):
    return next(tier for tier in figures["tiers"] if tier["name"] == name)


def test_a_replay_is_balanced_and_an_audit_writes_nothing(folder):
    directory, trace = folder / "disk", synth(folder, 120)
    for options in [(), ("--mover",), ()]:  # what is there is gone on with
        report = replay(trace, "dram:64blk,disk:%s:200blk" % directory, "--block-bytes", BLOCK, *options)
        before = all_files(directory)
        figures = audit(directory)
        assert all_files(directory) == before
        disk = tier_of(figures, "disk")
        assert figures["closed_in_order"] and found(figures) == set()
        assert disk["written"]["demote"]["bytes"] == disk["life_bytes"] and disk["left"]["evict"]["blocks"] > 0
        count = len(offsets(directory))
        assert disk["found"]["blocks"] == count and disk["found"]["bytes"] == BLOCK * count
        assert "recover" not in disk["written"] and report["digest_misses"] == 0
        assert sum(tenant["found"]["bytes"] for tenant in figures["tenants"]) == disk["found"]["bytes"]
        assert all(t["written"]["bytes"] - t["left"]["bytes"] == t["found"]["bytes"] for t in figures["tenants"])
        assert not tier_of(figures, "dram")["present"] and tier_of(figures, "dram")["found"] is None


def test_each_cause_is_balanced_over_openings(folder):
    sums = {"flips": 0, "rewrites": 0, "removes": 0, "repair_bytes": 0, "evicted": 0}
    for tiers in TIERS:
        for seed in range(ROUNDS):
            directories, done = work(folder / tiers, tiers, seed, "mover" if seed % 3 == 2 else "stepped")
            figures = audit(*directories)
            assert figures["verdict"] == "agrees", (tiers, seed, found(figures))
            disks = [tier for tier in figures["tiers"] if tier["present"]]
            assert sum(tier["written"].get("repair", {"bytes": 0})["bytes"] for tier in figures["tiers"]) \
                >= done["repair_bytes"]  # the close writes more
            assert all("recover" not in tier["written"] and "recover" not in tier["left"] for tier in disks)
            assert all(more["more"] == 0 for more in figures["delta"])
            for key in sums:
                last = key == "flips" or seed == ROUNDS - 1  # the others are totals since the store was made
                sums[key] += done[key] if last else 0
    # A repair needs a mover that has copied a block down ahead of need: whether there is one depends on time.
    assert all(count for key, count in sums.items() if key != "repair_bytes"), sums
    print("%d stores opened %d times, balanced: %s" % (len(TIERS), ROUNDS, sums))


def test_a_kill_is_told_apart_and_entered_by_the_next_opening(folder):
    kills, recovered = 0, 0
    for tiers in TIERS:
        directories = [folder / tiers / ("disk%d" % i) for i in range(TIERS[tiers].count("%s"))]
        (folder / tiers).mkdir()
        for seed in range(ROUNDS):
            words = [STORE, TIERS[tiers] % tuple(directories), str(seed), "0", "stepped", "for-ever"]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout.readline() == b"open\n"
            time.sleep(0.02 + 0.017 * seed)  # where in it the kill comes is left to chance
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            figures = audit(*directories)
            assert not figures["closed_in_order"], (tiers, seed)
            # Rows that belong together are written together: only what is there may differ.
            checks = {check for _, check in found(figures)}
            assert checks <= {"blocks", "bytes", "rewritten"}, (tiers, seed, found(figures))
            # So few headers are written that the close would fail.
            work(folder / tiers, tiers, seed, steps=20, fails=False)
            figures = audit(*directories)
            assert figures["verdict"] == "agrees" and figures["closed_in_order"], (tiers, seed, found(figures))
        recovered += sum("recover" in tier["written"] or "recover" in tier["left"] for tier in figures["tiers"])
    assert recovered > 0
    print("%d kills, each balanced after the next opening" % kills)


# ---- what is not so ----

HEAD, ACCOUNT, ROW = 24 + 8 * 12, 16 + 8 * 9, 24
COUNTERS = ["hits", "lives", "life_bytes", "clean_discards", "other_evictions", "orphans", "yields", "promotions",
            "io_errors"]
TOTAL_REWRITES = 10


def ledger_of(directory):
    """The copy that counts, its header and its content."""
    copies = []
    for name in ["ledger.a", "ledger.b"]:
        data = (directory / name).read_bytes()
        if len(data) >= PAGE and data[:8] == b"KVONOTE1":
            copies.append((struct.unpack_from("<Q", data, 32)[0], name, data))
    _, name, data = max(copies)
    size = struct.unpack_from("<Q", data, 40)[0]
    return name, bytearray(data[:PAGE]), bytearray(data[PAGE:PAGE + size])


def forge(directory, offset, form, change):
    """Another value in the ledger, under checksums that are right."""
    name, header, content = ledger_of(directory)
    value = struct.unpack_from(form, content, offset)[0]
    struct.pack_into(form, content, offset, value + change)
    struct.pack_into("<Q", header, 48, xxhash.xxh3_64_intdigest(bytes(content)))
    patch(directory / name, 0, sealed(header) + bytes(content))


def values(content):
    """(what, offset) of each number that an audit holds against another."""
    accounts, _, _, rows = struct.unpack_from("<4I", content, 8)
    names = [content[HEAD + i * ACCOUNT:][:16].rstrip(b"\0").decode() for i in range(accounts)]
    for i, name in enumerate(names):
        for counter in ["lives", "life_bytes", "clean_discards", "other_evictions", "promotions"]:
            yield "%s %s" % (name, counter), HEAD + i * ACCOUNT + 16 + 8 * COUNTERS.index(counter)
    yield "rewrites", 24 + 8 * TOTAL_REWRITES
    causes = {1: "put", 3: "demote", 4: "promote", 5: "rewrite", 6: "repair", 12: "remove", 7: "failed", 16: "evict"}
    for i in range(rows):
        at = HEAD + accounts * ACCOUNT + i * ROW
        where = struct.unpack_from("<I", content, at)[0]
        name, direction, cause = names[where & 255], where >> 8 & 255, causes.get(where >> 16)
        told = {0: {"demote", "promote", "repair"}, 1: {"put", "demote", "promote", "rewrite", "repair"},
                2: set(causes.values())}
        # What left memory is not recounted: it has no medium.
        if cause in told[direction] and not (direction == 2 and name == "dram" and cause != "evict"):
            what = "%s %s %s" % (name, ["read", "written", "left"][direction], cause)
            if not (name == "dram" and cause == "evict"):
                yield what + " bytes", at + 8
            # How often memory was written by a rewrite is known from the total.
            yield what + " blocks", at + 16


def test_each_forged_number_is_told(folder):
    directories, _ = work(folder, "three", 5)
    assert audit(*directories)["verdict"] == "agrees"
    whole = (directories[0] / "ledger.a").read_bytes(), (directories[0] / "ledger.b").read_bytes()
    told, kinds = 0, set()
    for what, offset in values(ledger_of(directories[0])[2]):
        if what == "dram written rewrite bytes":  # nothing else tells it
            continue
        forge(directories[0], offset, "<Q", 1)
        done = subprocess.run([KVONCE, "audit", ",".join(map(str, directories))], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 1 and "\ndiffers  " in done.stdout, what
        told += 1
        kinds.add(what)
        for name, content in zip(["ledger.a", "ledger.b"], whole):
            (directories[0] / name).write_bytes(content)
    assert audit(*directories)["verdict"] == "agrees" and len(kinds) > 25, kinds
    print("%d forged numbers of %d kinds told" % (told, len(kinds)))


def dead(header):
    page = bytearray(PAGE)
    page[:48] = header[:48]
    page[:8] = b"KVODEAD1"
    return sealed(page)


def test_a_header_that_goes_or_comes_behind_its_back_is_told(folder):
    directory, trace = folder / "disk", synth(folder, 60)
    replay(trace, "dram:64blk,disk:%s:900blk" % directory, "--block-bytes", BLOCK)
    where = sorted(offsets(directory).values())
    header = (directory / "data").read_bytes()[where[0]:where[0] + PAGE]
    gone = copy_of(directory, "gone")
    patch(gone / "data", where[0], dead(header))
    figures = audit(gone, code=1)
    assert found(figures) == {("disk", "blocks"), ("disk", "bytes")}
    disk = tier_of(figures, "disk")
    assert disk["told"]["blocks"] - disk["found"]["blocks"] == 1
    assert disk["told"]["bytes"] - disk["found"]["bytes"] == BLOCK
    # A block of another name in a slot that is free, the next one.
    page = bytearray(header)
    free = where[-1] + 4 * PAGE
    page[12:16] = struct.pack("<I", free // PAGE)
    page[128 + 64] ^= 1
    name_bytes, seed_field, kind = page[128 + 60], struct.unpack_from("<Q", page, 128 + 48)[0], page[128 + 61]
    name = bytes(page[128 + 64:128 + 64 + name_bytes])
    key = xxhash.xxh3_64_intdigest(name, seed=seed_field ^ name_bytes << 16 ^ kind << 24)
    page[128:136] = struct.pack("<Q", key or 1)
    more = copy_of(directory, "more")
    patch(more / "data", free, sealed(page))
    figures = audit(more, code=1)
    disk = tier_of(figures, "disk")
    assert disk["found"]["blocks"] - disk["told"]["blocks"] == 1, disk
    # One that says that its life came down twice.
    twice = copy_of(directory, "twice")
    page = bytearray(header)
    page[57] = 2
    patch(twice / "data", where[0], sealed(page))
    assert found(audit(twice, code=1)) == {(None, "delta")}
    # One of a later generation than anything that was written.
    later = copy_of(directory, "later")
    page = bytearray(header)
    page[48] = 1
    patch(later / "data", where[0], sealed(page))
    assert found(audit(later, code=1)) == {("disk", "rewritten")}


def test_damage_is_told_until_it_is_repaired(folder):
    directory, trace = folder / "disk", synth(folder, 60)
    replay(trace, "dram:64blk,disk:%s:900blk" % directory, "--block-bytes", BLOCK)
    where = sorted(offsets(directory).values())
    flip(directory / "data", where[3] + 200, 1)           # a header: its block is not found
    flip(directory / "data", where[5] + PAGE + 200, 1)    # a payload: its header is
    figures = audit(directory, code=1)
    assert figures["damaged_slots"] == 1 and found(figures) == {("disk", "blocks"), ("disk", "bytes")}
    kvonce("verify", directory, "--repair", says="does not match its digest")
    figures = audit(directory)
    disk = tier_of(figures, "disk")
    assert figures["verdict"] == "agrees" and disk["found"]["blocks"] == len(where) - 2
    assert disk["left"]["recover"] == disk["left"]["failed"] == {"blocks": 1, "bytes": BLOCK}
    assert audit(directory) == figures


def test_removes_and_tenants(folder):
    directory, trace = folder / "disk", synth(folder, 60)
    replay(trace, "dram:64blk,disk:%s:900blk" % directory, "--block-bytes", BLOCK)
    tenants = {tenant["tenant"]: tenant["found"]["blocks"] for tenant in audit(directory)["tenants"]}
    gone, moved = sorted(tenants)[:2]
    kvonce("rm", directory, "--tenant", gone)
    kvonce("policy", directory, "--tenant", moved, "--set", "tenant=77")
    figures = audit(directory)
    assert figures["verdict"] == "agrees"
    assert tier_of(figures, "disk")["left"]["remove"]["blocks"] == tenants[gone]
    now = {tenant["tenant"]: tenant for tenant in figures["tenants"]}
    assert now[gone]["left"] == now[gone]["written"] and now[gone]["found"]["blocks"] == 0
    # Bytes are counted as they are written: a block that changed hands is in one account and lies in another's.
    assert now[moved]["found"]["blocks"] == 0 and now[moved]["written"]["blocks"] == tenants[moved]
    assert now[77]["found"]["blocks"] == tenants[moved] and now[77]["written"]["blocks"] == 0


def test_a_ledger_that_is_lost_or_elsewhere_is_told(folder):
    directories, _ = work(folder, "three", 1)
    assert found(audit(directories[1], code=1)) >= {("disk", "blocks")}  # the second directory has no ledger
    for name in ["ledger.a", "ledger.b"]:
        flip(directories[0] / name, 60, 1)
    assert audit(*directories, code=1)["verdict"] == "differs"
    work(folder, "three", 1, steps=1)
    figures = audit(*directories)  # counted anew, with what was found
    assert figures["verdict"] == "agrees" and tier_of(figures, "disk")["written"]["recover"]["blocks"] > 0


def test_what_it_cannot_open_it_says(folder):
    assert str(folder / "nothing") in kvonce("audit", folder / "nothing", code=2)
    assert "at most 4" in kvonce("audit", "a,b,c,d,e", code=2)


main(sys.modules[__name__])
