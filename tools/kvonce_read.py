#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the blocks of a store that was closed in order, and checks every name, checksum and payload.
Written from docs/format.md alone; shares no code with the library.

    kvonce_read.py [--json] DIR          exit: 0 clean; 1 something is wrong; 2 it could not be read
"""
import fcntl
import hashlib
import json
import os
import struct
import sys

import xxhash

PAGE, SLOT, DEAD = 4096, b"KVOSLOT1", b"KVODEAD1"
COUNT_MAX = 1 << 63  # of sequences and write numbers


def whole(page):
    return len(page) == PAGE and struct.unpack("<Q", page[4088:])[0] == xxhash.xxh3_64_intdigest(page[:4088])


def zero(data):
    return not data.strip(b"\0")


def superblock(folder):
    with open(os.path.join(folder, "super"), "rb") as file:
        copies = [file.read(PAGE), file.read(PAGE)]
    good = [page for page in copies if whole(page) and page[:7] == b"KVOSUPR"]
    for page in good:
        if page[7:8] != b"1" or struct.unpack_from("<I", page, 8)[0] != 1:
            raise ValueError("another version of the format: %d" % struct.unpack_from("<I", page, 8))
    if not good:
        raise ValueError("no superblock that can be read")
    page = max(good, key=lambda copy: struct.unpack_from("<Q", copy, 32)[0])
    clean, ident = struct.unpack_from("<I16s", page, 12)
    if not clean:
        raise ValueError("not closed in order: open it with kvonce once")
    if max(struct.unpack_from("<Q", page, 32) + struct.unpack_from("<Q", page, 64)) > COUNT_MAX:
        raise ValueError("no superblock that can be read")
    return ident, *struct.unpack_from("<III", page, 48)


def spaces(folder, ident):
    """Number: (label, encoded description)."""
    best, content = 0, b""
    for copy in "ab":
        with open(os.path.join(folder, "spaces." + copy), "rb") as file:
            page, rest = file.read(PAGE), file.read()
        if not whole(page) or page[:8] != b"KVONOTE1" or page[16:32] != ident:
            continue
        version, which = struct.unpack_from("<II", page, 8)
        sequence, count, checksum = struct.unpack_from("<QQQ", page, 32)
        if (version, which) == (1, 1) and COUNT_MAX >= sequence > best and \
                xxhash.xxh3_64_intdigest(rest[:count]) == checksum:
            best, content = sequence, rest[:count]
    found = {}
    while content:
        number, label, count = struct.unpack_from("<I64sI", content)
        found[number] = label.rstrip(b"\0").decode(), content[72:72 + count]
        content = content[72 + count:]
    return found


def block(page, place, stride, ident):
    """The block of a slot header, or what is wrong with it."""
    version, slot, owner, number, own_stride = struct.unpack_from("<II16sQI", page, 8)
    rewrites, form = struct.unpack_from("<II", page, 48)
    stored, digest = struct.unpack_from("<Q32s", page, 80)
    key, _, payload_digest, sequence, position, positions, space = struct.unpack_from("<QQ16sQIIH", page, 128)
    size, name_bytes, kind = struct.unpack_from("<IBB", page, 184)
    name, fields = page[192:192 + name_bytes], struct.unpack_from("<Q", page, 176)[0]
    seed = fields ^ name_bytes << 16 ^ kind << 24
    if not whole(page) or version != 1:
        return "header checksum"
    if slot != place or owner != ident or page[:8] != SLOT:
        return "header of another place or store"
    if not 16 <= name_bytes <= 64 or size == 0 or size != stored or 1 + -(-size // PAGE) > stride \
            or own_stride != stride or number > COUNT_MAX:
        return "header contents"
    if key != (xxhash.xxh3_64_intdigest(name, seed) or 1):
        return "key hash"
    return {"name": name.hex(), "bytes": size, "space": space, "kind": kind, "key": (page[176:184], name, kind),
            "sequence": sequence, "position": position, "positions": positions, "slot": place, "write_number": number,
            "generation": rewrites + 1, "format": form, "digest": payload_digest.hex(), "space_digest": digest}


def read(folder):
    ident, units, count, last = superblock(folder)
    known, blocks, wrong = spaces(folder, ident), {}, []
    digests = {number: hashlib.sha256(encoded).digest() for number, (_, encoded) in known.items()}
    with open(os.path.join(folder, "data"), "rb") as data:
        def page_at(unit, pages=1):
            data.seek(unit * PAGE)
            return data.read(pages * PAGE)
        for segment in range(count):
            first, size = segment * units, last if segment + 1 == count else units
            head = page_at(first)
            version, own, owner, stride, epoch = struct.unpack_from("<II16sII", head.ljust(PAGE, b"\1"), 8)
            if head and zero(head):
                page = page_at(first + 1).ljust(PAGE, b"\1")
                place = struct.unpack_from("<I16s", page, 12)
                if page[:8] in (SLOT, DEAD) and place == (first + 1, ident) and whole(page):
                    wrong.append((first, "segment header"))
                continue
            if not whole(head) or (head[:8], version, own, owner) != (b"KVOSEGM1", 1, segment, ident):
                wrong.append((first, "segment header"))
                continue
            for slot in range(first + 1, first + size - stride + 1, stride) if stride >= 2 else ():
                page = page_at(slot).ljust(PAGE, b"\1")
                ours = page[16:32] == ident and struct.unpack_from("<I", page, 12)[0] == slot
                void = page[:8] == SLOT and struct.unpack_from("<I", page, 44)[0] != epoch
                old = epoch > 1 and page[:8] not in (SLOT, DEAD) and not ours
                if zero(page) or old or whole(page) and ours and (page[:8] == DEAD or void):
                    continue
                found = block(page, slot, stride, ident)
                if isinstance(found, str):
                    wrong.append((slot, found))
                    continue
                payload = page_at(slot + 1, -(-found["bytes"] // PAGE))
                if xxhash.xxh3_128_hexdigest(payload[:found["bytes"]]) != found["digest"]:
                    wrong.append((slot, "payload digest"))
                elif not zero(payload[found["bytes"]:]):
                    wrong.append((slot, "bytes after the payload"))
                if digests.get(found["space"]) != found.pop("space_digest"):
                    wrong.append((slot, "space"))
                    continue
                found["space"] = known[found["space"]][0]
                key = found.pop("key")
                if key not in blocks or blocks[key]["write_number"] < found["write_number"]:
                    blocks[key] = found
    return list(blocks.values()), wrong


def main():
    arguments = [word for word in sys.argv[1:] if word != "--json"]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    folder = arguments[0]
    try:
        with open(os.path.join(folder, "lock"), "rb") as lock:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            blocks, wrong = read(folder)
    except (OSError, ValueError, struct.error) as error:
        print("kvonce_read: %s: %s" % (folder, error), file=sys.stderr)
        sys.exit(2)
    bad = [{"file": os.path.join(folder, "data"), "offset_bytes": slot * PAGE, "what": what} for slot, what in wrong]
    if "--json" in sys.argv:
        print(json.dumps({"blocks": blocks, "bad": bad}))
    else:
        for one in blocks:
            print("%(name)s %(bytes)d %(space)s %(position)d+%(positions)d" % one)
        for one in bad:
            print("%(file)s:%(offset_bytes)d: %(what)s" % one)
    sys.exit(1 if bad else 0)


main()
