/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a copy lies in its tier: space is handed out in segments, a segment serves one slot
 * size (stride) at a time, and inside it slots are reused one by one. Counting only; the same
 * code serves real tiers and ghosts. Under the store's lock.
 */
#ifndef PLACE_SEGMENTS_H
#define PLACE_SEGMENTS_H

#include "base/env.h"
#include "block/record.h"

#define PLACE_UNIT 4096u /* slots begin at multiples of this; a slot number counts units */
#define PLACE_SLOT_NONE UINT32_MAX

/*
 * Of each slot it is known whether it is in use (one bit) and, where the caller wants it, a number of the
 * caller's. A segment's table has room for slots of the usual size; one that serves smaller slots gets a table of
 * its own while it does.
 */
typedef struct place_segment {
    uint64_t *own;   /* its own table; NULL: its part of `tables` */
    uint32_t stride; /* units of a slot; 0 = free */
    uint32_t slots;
    uint32_t used;
    uint32_t last_stride;
    uint32_t epoch;      /* raised with each change of stride, so that old headers are void */
    uint32_t written;    /* the epoch that the medium knows, as far as we do */
    uint32_t next, prev; /* + 1; in its class's list of segments with room, or the free list */
    bool draining;       /* about to change its stride: gives out no more slots */
} place_segment;

#define PLACE_CLASSES_MAX 512 /* a space's own, and 120 rounded ones */
typedef struct place_class {
    uint32_t stride;
    uint32_t with_room; /* first segment + 1 */
    uint32_t segments;
    uint64_t free_slots; /* of them, in segments that give out slots */
    bool exact; /* a space's largest block: its stride is not rounded */
    uint64_t lent_units; /* of larger slots that it used, */
    uint64_t lent_since; /* since so many units were taken */
} place_class;

typedef struct place_segments {
    base_env *env;
    bool infinite;
    uint32_t header_units;  /* of a slot and of a segment: 1 on media, 0 in memory */
    uint32_t segment_units;
    uint32_t segment_count;
    uint32_t last_units;    /* the last segment may be shorter */
    place_segment *segments;
    uint64_t *tables;
    bool numbers;         /* a number a slot is kept */
    bool short_of_memory; /* some segment has fewer slots than it could */
    uint32_t usual_slots; /* of a segment */
    uint32_t table_words;
    uint32_t free_first; /* + 1 */
    uint32_t free_count;
    place_class classes[PLACE_CLASSES_MAX];
    uint32_t class_count;
    uint64_t used_units;
    uint64_t used_slots;
    uint64_t taken_units; /* since open: what was ever handed out */
    size_t bytes; /* memory of all this */
} place_segments;

typedef struct place_geometry {
    uint32_t header_units;
    uint32_t segment_units;
    uint32_t segment_count;
    uint32_t last_units;
} place_geometry;

/* Units of a payload without rounding to a class. */
uint32_t place_payload_units(uint64_t payload_bytes);
/* A tier of `blocks` slots of block_bytes, or of `bytes` in all; segment_bytes 0 = chosen.
   segment_units of an existing medium are kept if not 0. false: not even one slot. */
bool place_geometry_blocks(place_geometry *g, uint32_t header_units, uint64_t blocks, uint64_t block_bytes,
                           uint32_t segment_units);
bool place_geometry_bytes(place_geometry *g, uint32_t header_units, uint64_t bytes, uint64_t block_bytes,
                          uint64_t segment_bytes, uint32_t segment_units);
uint64_t place_geometry_units(const place_geometry *g);
/* Before any slot is smaller than those of usual_bytes. */
size_t place_segments_bytes_for(const place_geometry *g, uint64_t usual_bytes, bool numbers);

/* g NULL = infinite. 0 or -ENOMEM. */
int place_segments_open(place_segments *p, base_env *env, const place_geometry *g, uint64_t usual_bytes, bool numbers);
void place_segments_close(place_segments *p);
/* This payload gets slots of exactly its size. */
void place_segments_exact(place_segments *p, uint64_t payload_bytes);
/* Units of a slot for this payload; 0 = no segment can hold it. */
uint32_t place_stride(place_segments *p, uint64_t payload_bytes);
/* Slots of this payload that the tier has room for when empty. UINT64_MAX if infinite. */
uint64_t place_capacity(const place_segments *p, uint64_t payload_bytes);

/* A slot, from a segment of the stride or from a free one; PLACE_SLOT_NONE = no room. */
uint32_t place_slot_take(place_segments *p, uint32_t stride);
void place_slot_free(place_segments *p, uint32_t slot);
bool place_slot_used(const place_segments *p, uint32_t slot);
/* Slots of a segment that has this stride. */
uint32_t place_slots_of(const place_segments *p, uint32_t segment, uint32_t stride);
/* The caller's number of a slot in use; 0 at first. */
void place_slot_number(place_segments *p, uint32_t slot, uint32_t number);
/* The number of a segment's slot; 0 where there is none, or no such slot. */
uint32_t place_number_at(const place_segments *p, uint32_t segment, uint32_t index);
/* The segment gives out no more slots, and is free for any stride once its last slot is. */
void place_segment_drain(place_segments *p, uint32_t segment);
/* It does after all. */
void place_segment_undrain(place_segments *p, uint32_t segment);
/* Slots of this stride that can be taken now, those included that free segments would give. */
uint64_t place_slots_free(const place_segments *p, uint32_t stride);
/* Whether all slots in use have this stride (0 and infinite tiers: any). */
bool place_only_stride(const place_segments *p, uint32_t stride);
/* Segments that serve this stride now. */
uint32_t place_segments_with(const place_segments *p, uint32_t stride);
/* The stride to serve a block of `stride` with: its own, or, while its size is too rare for a segment of its
   own, that of slots up to twice as large (eight times, where more sizes came than there are segments); at most a
   segment's worth of them a capacity. */
uint32_t place_lend(place_segments *p, uint32_t stride);
/* The next larger stride that has segments; 0 = none. */
uint32_t place_larger(const place_segments *p, uint32_t stride);
/* Units of all slots there can be. */
uint64_t place_units(const place_segments *p);
/* At recovery: the segment's stride as the medium says, and slots in use. */
bool place_segment_restore(place_segments *p, uint32_t segment, uint32_t stride, uint32_t epoch);
bool place_slot_restore(place_segments *p, uint32_t slot);
/* Takes a particular slot that is free; false: it cannot be had as it was. */
bool place_slot_retake(place_segments *p, uint32_t slot);
/* After recovery: segments without a slot in use may serve any stride again. */
void place_segments_release(place_segments *p);

static inline uint32_t place_segment_of(const place_segments *p, uint32_t slot)
{
    return slot / p->segment_units;
}
/* Position of a slot among its segment's. */
static inline uint32_t place_slot_index(const place_segments *p, uint32_t slot)
{
    const place_segment *s = &p->segments[slot / p->segment_units];
    return (slot % p->segment_units - p->header_units) / s->stride;
}
/* Most slots that a segment can ever have. */
static inline uint32_t place_slots_max(const place_segments *p)
{
    return p->segment_units / (p->header_units + 1);
}

#endif
