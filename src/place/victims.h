/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks leave a tier next: a scan over the table of records. Pure: no I/O, no clock, no
 * lock; reads records and segments, changes neither.
 */
#ifndef PLACE_VICTIMS_H
#define PLACE_VICTIMS_H

#include "block/identity.h"
#include "place/score.h"
#include "place/segments.h"

#define PLACE_VICTIMS_MAX 1024u

typedef struct place_victim {
    uint64_t key;
    uint64_t policy; /* as they were when it was chosen: a change saves it */
    uint64_t touch;
    uint32_t record;
    uint32_t incarnation;
    bool orphan; /* it has a resident child in the tier, as all others have */
} place_victim;

typedef struct place_query {
    const block_record *records;
    const block_identity_words *identities;
    uint32_t record_end; /* records [0, record_end) have ever been used */
    place_rules rules;
    unsigned tier;
    unsigned tier_count;
    bool anchored;    /* lower copies of blocks that are resident above stay */
    const uint64_t *tier_recency; /* as in store_tier */
    uint32_t want;    /* 1 .. PLACE_VICTIMS_MAX */
    const place_segments *segments; /* with stride: only blocks in segments of it; NULL = any */
    uint32_t stride; /* of place_victim_segment(): the one that is wanted */
} place_query;

typedef struct place_candidate {
    uint64_t key;
    uint32_t record;
    uint32_t depth;
} place_candidate;

/* Scratch of a scan: one bit a record, twice, and a buffer of candidates. */
typedef struct place_scan {
    base_env *env;
    uint64_t *candidate;
    uint64_t *blocked;
    place_candidate *buffer;
    uint16_t *places; /* record to place in the buffer, + 1; open addressing */
    uint32_t width[KVO_TIERS_MAX]; /* candidates that the last scans needed */
    size_t words;
    size_t bytes;
} place_scan;
size_t place_scan_bytes_for(uint32_t records_max);
int place_scan_open(place_scan *scan, base_env *env, uint32_t records_max);
void place_scan_close(place_scan *scan);

typedef struct place_found {
    uint32_t count;    /* victims in out[], worst first; a child always before its parent */
    uint64_t eligible; /* blocks that may go now */
    uint64_t anchored; /* blocks that only an upper copy protects */
    bool changed;      /* none, because the worst were used while we looked: look again */
} place_found;

/* Victims in a batch: enough to spread a scan's cost, few enough to be fresh. */
uint32_t place_batch(uint64_t slots);

/*
 * The `want` lowest keys of the tier's blocks that may go: valid, not pinned, held or moving, not
 * anchored. Rule 9: a block with a resident child in the tier comes only after the child, and,
 * in the last tier, after its children anywhere. Only when every candidate has a resident child, one
 * of them is returned, marked.
 */
place_found place_victims(place_scan *scan, const place_query *query, place_victim *out);

/*
 * For a change of slot size: a segment of another stride, large enough for `units`, to evict whole. All of its
 * blocks may go, and at most an eighth of its slots hold blocks that are worth more than `bar`, the key of the
 * block that would go instead (UINT64_MAX: none would); none of them is above it in intent, class or priority, or
 * has a child elsewhere that is worth more. First the one with the fewest children elsewhere, then with the fewest
 * blocks above the bar, then the one whose best block is worth least, then the deepest. PLACE_SLOT_NONE = none.
 */
#define PLACE_SEGMENT_WORDS 5u /* of scratch a segment */
uint32_t place_victim_segment(place_scan *scan, const place_query *query, uint32_t units, uint64_t bar,
                              uint64_t *scratch);

#endif
