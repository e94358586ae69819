#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the figures of a replay from its events and its trace, and compares them with --json.

It shares no code with the store: all it knows is the order of the calls (match, get what matched,
put the rest, one call each), how references are counted (a get counts its blocks at once, a put one
after the other), and what the six fields of an event mean.

    events_check.py TRACE EVENTS JSON BLOCK_BYTES [--exclusive]

For replays on a fresh store in which every put found room.
"""

import collections
import json
import sys

Event = collections.namedtuple("Event", "reference kind tier name bytes cause")


def read_trace(path):
    requests = [json.loads(line) for line in open(path, encoding="utf-8-sig") if line.strip()]
    requests.sort(key=lambda request: request.get("timestamp", 0))
    return [["7200000000000000%016x" % i for i in request["hash_ids"]] for request in requests]


def read_events(path):
    events = []
    for number, line in enumerate(open(path), 1):
        fields = line.rstrip("\n").split(" ")
        assert len(fields) == 6, "line %d: %r" % (number, line)
        reference, kind, tier, name, size, cause = fields
        assert kind in ("seal", "write", "promote", "discard", "drop", "end"), line
        assert (tier == "-") == (kind == "end"), line
        events.append(Event(int(reference), kind, None if tier == "-" else int(tier), name, int(size), cause))
    assert all(a.reference <= b.reference for a, b in zip(events, events[1:]))
    return events


class Tier:
    def __init__(self):
        self.hits = self.reads = self.writes = self.repairs = self.lives = 0
        self.clean = self.other = self.orphans = self.orphan_causes = self.yields = self.promotions = self.delta = 0
        self.names = set()
        self.children = collections.Counter()  # of each parent, resident here


class Replay:
    def __init__(self, requests, tier_count, exclusive):
        self.tiers = [Tier() for _ in range(tier_count)]
        self.exclusive = exclusive
        self.where = {}   # name: set of tiers
        self.entered = {}  # name: Counter of writes of this life into each tier
        self.parent = {}
        for names in requests:
            for parent, name in zip([None] + names, names):
                assert self.parent.setdefault(name, parent) == parent, "not prefix-chained"

    def enter(self, name, tier):
        assert tier not in self.where[name], (name, tier)
        self.where[name].add(tier)
        if self.parent[name] is not None:
            self.tiers[tier].children[self.parent[name]] += 1

    def leave(self, name, tier):
        self.where[name].remove(tier)
        if self.parent[name] is not None:
            self.tiers[tier].children[self.parent[name]] -= 1

    def take(self, event):
        getattr(self, event.kind)(event, self.tiers[event.tier] if event.tier is not None else None)

    def written(self, event, tier):
        """Repairs, rewrites and failed writes stand apart."""
        if event.cause == "-":
            tier.writes += event.bytes
            tier.names.add(event.name)
            entered = self.entered[event.name]
            tier.lives += entered[event.tier] == 0
            entered[event.tier] += 1
        elif event.cause == "repair":
            tier.repairs += event.bytes

    def seal(self, event, tier):
        assert event.name not in self.where, "sealed again while it lives"
        self.where[event.name], self.entered[event.name] = set(), collections.Counter()
        self.enter(event.name, event.tier)
        self.written(event, tier)

    def write(self, event, tier):
        source = min(self.where[event.name])
        assert source < event.tier
        self.tiers[source].reads += event.bytes
        self.enter(event.name, event.tier)
        self.written(event, tier)
        tier.delta = max(tier.delta, self.entered[event.name][event.tier])

    def promote(self, event, tier):
        source = min(self.where[event.name])
        assert source > event.tier
        self.tiers[source].promotions += 1
        self.tiers[source].reads += event.bytes
        self.enter(event.name, event.tier)
        self.written(event, tier)
        if self.exclusive:
            self.leave(event.name, source)

    def evicted(self, event, tier):
        tier.yields += event.cause == "yield"
        tier.orphan_causes += event.cause == "orphan"
        tier.orphans += tier.children[event.name] > 0
        self.leave(event.name, event.tier)

    def discard(self, event, tier):
        assert any(below > event.tier for below in self.where[event.name]), "nothing lies below"
        tier.clean += 1
        self.evicted(event, tier)

    def drop(self, event, tier):
        assert not any(below > event.tier for below in self.where[event.name]), "a copy lies below"
        tier.other += 1
        self.evicted(event, tier)

    def end(self, event, _):
        assert self.where.pop(event.name) == set()
        del self.entered[event.name]


class Cursor:
    """Walks the events of one request after the other."""

    def __init__(self, events, replay):
        self.events, self.replay, self.at, self.clock = events, replay, 0, 0

    def advance(self, references):
        """Takes the events of that many more references, and returns them."""
        self.clock += references
        while self.at < len(self.events) and self.events[self.at].reference <= self.clock:
            yield self.events[self.at]
            self.replay.take(self.events[self.at])
            self.at += 1

    def next_seal(self):
        """The block that the next reference seals, or None."""
        at = self.at
        while at < len(self.events) and self.events[at].reference <= self.clock + 1:
            if self.events[at].kind == "seal":
                return self.events[at].name
            at += 1
        return None


def get(names, cursor, replay):
    """Which tier served each block, and which were promoted."""
    served = {name: min(replay.where[name]) for name in names}
    promoted = set()
    for event in cursor.advance(len(names)):
        assert event.kind != "seal", "a seal during a get"
        if event.kind == "promote" and event.name in served:
            served[event.name] = min(replay.where[event.name])
            promoted.add(event.name)
    return served, promoted


def run(requests, events, replay, block_bytes):
    """Hits of the requests' prefixes, and how many bytes of them came from below the first tier."""
    cursor = Cursor(events, replay)
    hits = below = 0
    for names in requests:
        matched = next((i for i, name in enumerate(names) if name not in replay.where), len(names))
        served, promoted = get(names[:matched], cursor, replay)
        # Usually the first that did not match; an earlier one if promotions drove it out before its turn.
        sealed = cursor.next_seal()
        prefix = names.index(sealed) if sealed in names else len(names)
        assert prefix <= matched, "what did not match was not put"
        put = {event.name for event in cursor.advance(len(names) - prefix) if event.kind == "seal"}
        for i, name in enumerate(names[:matched]):
            if name not in put:
                replay.tiers[served[name]].hits += 1
                replay.tiers[0 if name in promoted else served[name]].reads += block_bytes
                below += block_bytes if served[name] > 0 and i < prefix else 0
        hits += prefix
    assert cursor.at == len(events), "events behind the last reference"
    return hits, below


def bound(requests):
    seen, hits = set(), 0
    for names in requests:
        hits += next((i for i, name in enumerate(names) if name not in seen), len(names))
        seen.update(names)
    return hits, len(seen)


def ratio(above, under):
    return above / under if under else None
def figures(requests, replay, hits, below, block_bytes):
    references = sum(map(len, requests))
    bound_hits, unique = bound(requests)
    moved = sum(tier.writes + tier.promotions * block_bytes for tier in replay.tiers[1:])
    return {
        "requests": len(requests), "references": references, "unique_blocks": unique, "block_bytes": block_bytes,
        "hits": hits, "hit_ratio": ratio(hits, references),
        "bound_hits": bound_hits, "bound_ratio": ratio(bound_hits, references),
        "wrong_reads": 0, "digest_misses": 0, "put_busy": 0,
        "movement_amplification": ratio(moved, below),
        "tiers": [{
            "hits": tier.hits, "read_bytes": tier.reads, "written_bytes": tier.writes, "repair_bytes": tier.repairs,
            "lives": tier.lives, "distinct_names_written": len(tier.names),
            "write_amplification": ratio(tier.writes, tier.lives * block_bytes),
            "clean_discards": tier.clean, "other_evictions": tier.other, "orphans": tier.orphans,
            "anchor_yields": tier.yields, "promotions": tier.promotions,
            "resident_blocks": sum(number in where for where in replay.where.values()),
            "max_delta": tier.delta} for number, tier in enumerate(replay.tiers)],
    }


def compare(expected, got, where=""):
    wrong = []
    for key, value in expected.items():
        if key == "tiers":
            for number, (mine, theirs) in enumerate(zip(value, got[key])):
                wrong += compare(mine, theirs, "tiers[%d]." % number)
        elif isinstance(value, float) and got[key] is not None:
            wrong += [] if abs(value - got[key]) <= 1e-12 * abs(value) else [(where + key, value, got[key])]
        elif value != got[key]:
            wrong.append((where + key, value, got[key]))
    return wrong


def check(trace, events_path, report, block_bytes, exclusive=False):
    requests = read_trace(trace)
    events = read_events(events_path)
    replay = Replay(requests, len(report["tiers"]), exclusive)
    hits, below = run(requests, events, replay, block_bytes)
    wrong = compare(figures(requests, replay, hits, below, block_bytes), report)
    for number, tier in enumerate(replay.tiers):
        if tier.orphans != tier.orphan_causes:
            wrong.append(("cause orphan in tier %d" % number, tier.orphans, tier.orphan_causes))
    for key, mine, theirs in wrong:
        print("%s: %r by the events, %r reported" % (key, mine, theirs))
    return not wrong


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--exclusive"]
    with open(arguments[2]) as file:
        sys.exit(0 if check(arguments[0], arguments[1], json.load(file), int(arguments[3]),
                            "--exclusive" in sys.argv) else 1)
