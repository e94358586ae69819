#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stat, ls, verify, rm and policy on a store that a replay left.

    store_test.py KVONCE [TEST]
"""

import json
import os
import re
import sys

from harness import kvonce, listing, main, replay, synth

BLOCK = 8192


def make_store(folder, name="disk", **options):
    directory = folder / name
    tiers = "dram:200blk,disk:%s:%s" % (directory, options.get("capacity", "5000blk"))
    return directory, replay(synth(folder, 150), tiers, "--block-bytes", BLOCK)


def stat(directory):
    return json.loads(kvonce("stat", directory, "--json"))


def all_files(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_stat_and_ls_agree_and_write_nothing(folder):
    directory, report = make_store(folder)
    before = all_files(directory)
    numbers, blocks = stat(directory), listing(directory)
    kvonce("stat", directory)
    text = kvonce("ls", directory)
    assert all_files(directory) == before
    disk = next(tier for tier in numbers["tiers"] if tier["name"] == "disk")
    assert len(blocks) == disk["resident_blocks"] == report["unique_blocks"] == len(text.splitlines())
    assert disk["written_bytes"] == BLOCK * len(blocks) and disk["write_amplification"] == 1.0
    assert [tier["name"] for tier in numbers["tiers"] if not tier["present"]] == ["dram"]
    assert [space["label"] for space in numbers["spaces"]] == ["replay"]
    assert sum(tenant["blocks"] for tenant in numbers["tenants"]) == len(blocks)
    assert len(numbers["tenants"]) == 4
    demoted = {"tier": "disk", "direction": "written", "cause": "demote"}
    assert sum(row["bytes"] for row in numbers["ledger"] if demoted.items() <= row.items()) == disk["written_bytes"]


def test_ls_shows_the_whole_object(folder):
    directory, _ = make_store(folder)
    blocks = listing(directory)
    names = {block["name"] for block in blocks}
    for block in blocks:
        assert re.fullmatch("[0-9a-f]{32}", block["name"]) and block["bytes"] == BLOCK and block["generation"] == 1
        identity = block["identity"]
        assert identity["space"] == "replay" and identity["kind"] == "range" and identity["positions"] == 512
        assert identity["position"] % 512 == 0 and identity["sequence"] >= 1
        assert identity["has_parent"] == (identity["position"] > 0)
        assert identity["parent"] is None or identity["parent"] in names
        assert len(identity["digest"]) == 32 and len(identity["record"]) == 256
        assert block["policy"]["priority"] == 50 and block["policy"]["qos"] == 1 and 1 <= block["policy"]["tenant"] <= 4
        assert len(block["copies"]) == 1 and len(block["delta"]) == 4
    assert listing(directory, "--limit", 3) == blocks[:3]
    one = blocks[7]
    assert listing(directory, "--name", one["name"].upper()) == [one]
    tenant = one["policy"]["tenant"]
    assert listing(directory, "--tenant", tenant) == [b for b in blocks if b["policy"]["tenant"] == tenant]
    assert listing(directory, "--space", "replay") == blocks
    assert "no space" in kvonce("ls", directory, "--space", "x", code=2)


def damage(directory, blocks):
    """One bit in each block's payload. Returns the file they lie in."""
    data = max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with open(data, "r+b") as file:
        for number, block in enumerate(blocks):
            file.seek(block["copies"][0]["offset_bytes"] + 4096 + 37 * number)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1 << number % 8]))
    return data


def test_verify_names_what_was_damaged(folder):
    directory, _ = make_store(folder)
    assert ", 0 bad" in kvonce("verify", directory)
    blocks = listing(directory)
    chosen = blocks[:: len(blocks) // 20][:20]
    data = damage(directory, chosen)
    out = kvonce("verify", directory, code=1)
    lines = [line for line in out.splitlines() if line.startswith(str(data) + ":")]
    assert len(lines) == 20 and ", 20 bad" in out, out
    assert {block["copies"][0]["offset_bytes"] for block in chosen} == {int(line.split(":")[1]) for line in lines}
    assert all(block["name"] in out for block in chosen)


def test_damage_is_never_served(folder):
    directory, _ = make_store(folder)
    blocks = listing(directory)
    damage(directory, blocks[:: len(blocks) // 20][:20])
    report = replay(folder / "trace-150.jsonl", "dram:200blk,disk:%s" % directory, "--block-bytes", BLOCK,
                    says="does not match its digest")
    assert report["wrong_reads"] == 0 and report["digest_misses"] == 20
    assert ", 0 bad" in kvonce("verify", directory)


def test_rm_removes_for_good(folder):
    directory, _ = make_store(folder)
    blocks = listing(directory)
    name = blocks[3]["name"]
    assert kvonce("rm", directory, "--name", name) == "removed 1 block\n"
    assert "no block is named" in kvonce("rm", directory, "--name", name, code=2)
    assert [b["name"] for b in listing(directory)] == [b["name"] for b in blocks if b["name"] != name]
    tenant = blocks[0]["policy"]["tenant"]
    kvonce("rm", directory, "--tenant", tenant)
    left = listing(directory)
    others = {b["name"] for b in blocks if b["name"] != name and b["policy"]["tenant"] != tenant}
    assert {b["name"] for b in left} == others
    assert "no space" in kvonce("rm", directory, "--space", "x", code=2)
    assert kvonce("rm", directory, "--space", "replay").startswith("removed ")
    assert listing(directory) == [] and "0 bad" in kvonce("verify", directory)


def test_policy_is_set_and_kept(folder):
    directory, _ = make_store(folder)
    blocks = listing(directory)
    before = {b["name"]: (b["policy"], b["identity"], b["copies"]) for b in blocks}
    name, tenant = blocks[5]["name"], blocks[0]["policy"]["tenant"]
    kvonce("policy", directory, "--tenant", tenant, "--set", "priority=90,qos=2")
    kvonce("policy", directory, "--name", name, "--set", "reuse=75,intent=keep,intent_seconds=1000")
    for block in listing(directory):
        policy, identity, copies = before[block["name"]]
        expected = dict(policy)
        if policy["tenant"] == tenant:
            expected.update(priority=90, qos=2)
        if block["name"] == name:
            expected.update(reuse=75, intent="keep", intent_seconds=block["policy"]["intent_seconds"])
            assert 900 < expected["intent_seconds"] <= 1001
        assert (block["policy"], block["identity"], block["copies"]) == (expected, identity, copies)
    shown = json.loads(kvonce("policy", directory, "--name", name, "--json"))["blocks"]
    assert len(shown) == 1 and shown[0]["policy"]["reuse"] == 75
    assert "reuse 75, keep for " in kvonce("policy", directory, "--name", name)
    for twice in ["qos=1,qos=2", "intent=keep,intent_seconds=1,intent_seconds=2"]:
        assert "--set" in kvonce("policy", directory, "--name", name, "--set", twice, code=2)


def test_B137_a_policy_that_is_refused_changes_nothing(folder):
    directory, _ = make_store(folder)
    kvonce("policy", directory, "--all", "--set", "priority=60,qos=2,reuse=7")
    before = {b["name"]: b["policy"] for b in listing(directory)}
    for text in ["priority=101", "priority=nan", "priority=inf", "priority=-1", "priority=1e400", "reuse=101%", "qos=4",
                 "priority=9,reuse=101", "tenant=65536", "intent=keep,intent_seconds=nan",
                 "intent=keep,intent_seconds=0"]:
        assert "--set" in kvonce("policy", directory, "--all", "--set", text, code=2)
    assert {b["name"]: b["policy"] for b in listing(directory)} == before


def test_a_name_in_two_spaces_needs_the_space(folder):
    directory, _ = make_store(folder)
    replay(folder / "trace-150.jsonl", "dram:200blk,disk:%s" % directory, "--block-bytes", BLOCK, "--space", "b",
           "--limit", 1)
    name = next(b["name"] for b in listing(directory, "--space", "b"))
    assert "several spaces" in kvonce("rm", directory, "--name", name, code=2)
    assert kvonce("rm", directory, "--name", name, "--space", "b") == "removed 1 block\n"
    assert [b["identity"]["space"] for b in listing(directory, "--name", name)] == ["replay"]


def test_directories_that_are_no_store_are_refused(folder):
    for command in [["stat"], ["ls"], ["verify"], ["rm", "--all"], ["policy", "--all"]]:
        kvonce(*command, folder / "nowhere", code=2)
        kvonce(*command, "/dev/null", code=2)
    assert not (folder / "nowhere").exists()
    foreign = folder / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear")
    kvonce("replay", synth(folder, 5), "--tiers", "disk:%s:100blk" % foreign, code=2)
    assert (foreign / "letter.txt").read_text() == "dear" and len(list(foreign.iterdir())) == 1


def test_odd_names_of_directories_work(folder):
    make_store(folder, "plain")
    for odd in ["a,b", "c:d:10G", "line\nbreak", "\"quote\"", "uml\u00e4ut"]:
        os.rename(folder / "plain", folder / odd)
        assert stat(folder / odd)["tiers"][0]["path"].endswith(odd)
        assert listing(folder / odd) and "0 bad" in kvonce("verify", folder / odd)
        os.rename(folder / odd, folder / "plain")
    no_utf8 = folder / os.fsdecode(b"bad\xff")
    os.rename(folder / "plain", no_utf8)
    assert stat(no_utf8)["tiers"][0]["path"].endswith("bad\ufffd")


def test_more_disk_grows_and_less_evicts(folder):
    directory, report = make_store(folder, capacity="2000blk")
    trace = folder / "trace-150.jsonl"
    more = replay(trace, "dram:200blk,disk:%s:4000blk" % directory, "--block-bytes", BLOCK, "--limit", 1)
    assert more["tiers"][1]["capacity_blocks"] == 4000 and more["wrong_reads"] == 0
    less = replay(trace, "dram:200blk,disk:%s:300blk" % directory, "--block-bytes", BLOCK)
    assert less["tiers"][1]["capacity_blocks"] == 300 and less["wrong_reads"] == 0
    assert len(listing(directory)) <= 300 and "0 bad" in kvonce("verify", directory)


main(sys.modules[__name__])
