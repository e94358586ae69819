/* SPDX-License-Identifier: Apache-2.0 */
#include "place/segments.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"

#define UNITS_MIB 256u
#define SEGMENTS_WANTED 32u /* of a small tier */
#define SEGMENTS_FEWEST 8u

uint32_t place_payload_units(uint64_t payload_bytes)
{
    return (uint32_t)((payload_bytes + PLACE_UNIT - 1) / PLACE_UNIT);
}

static uint32_t min_u32(uint64_t a, uint64_t b) { return (uint32_t)(a < b ? a : b); }

/*
 * Units of a segment where nobody says, before its headers. Few enough segments to count, small next to the
 * tier, and of a length that blocks of 1, 2, 4, 5, 10 MiB and their parts fill without much of a rest: whatever
 * is put after the first size finds a segment that it can use nearly all of.
 */
static uint64_t segment_payload_units(uint64_t total)
{
    static const uint32_t mib[] = {240, 120, 60, 20, 10, 5};
    for (unsigned i = 0; i < sizeof mib / sizeof *mib; i++) {
        uint32_t fewest = mib[i] > 20 ? SEGMENTS_WANTED : mib[i] > 5 ? SEGMENTS_WANTED * 3 / 4 : SEGMENTS_FEWEST;
        if (total >= (uint64_t)mib[i] * UNITS_MIB * fewest)
            return (uint64_t)mib[i] * UNITS_MIB;
    }
    uint64_t units = total / SEGMENTS_WANTED;
    return units < UNITS_MIB ? min_u32(total, UNITS_MIB) : units;
}

bool place_geometry_blocks(place_geometry *g, uint32_t header_units, uint64_t blocks, uint64_t block_bytes,
                           uint32_t segment_units)
{
    uint64_t stride = header_units + place_payload_units(block_bytes);
    if (blocks == 0 || blocks >= UINT32_MAX)
        return false;
    uint64_t slots = (segment_payload_units(blocks * stride) + stride - 1) / stride;
    if (blocks * stride < (uint64_t)5 * UNITS_MIB * SEGMENTS_FEWEST)
        slots = blocks / SEGMENTS_WANTED ? blocks / SEGMENTS_WANTED : 1;
    else if (blocks >= slots)
        slots = (blocks + blocks / slots - 1) / (blocks / slots);
    if (segment_units) {
        if (segment_units < header_units + stride)
            return false;
        slots = (segment_units - header_units) / stride;
    }
    uint64_t count = (blocks + slots - 1) / slots, rest = blocks - (count - 1) * slots;
    g->header_units = header_units;
    g->segment_units = segment_units ? segment_units : (uint32_t)(header_units + slots * stride);
    if (count * g->segment_units >= UINT32_MAX)
        return false;
    g->segment_count = (uint32_t)count;
    g->last_units = rest == slots ? g->segment_units : (uint32_t)(header_units + rest * stride);
    return true;
}

/* Whole slots of the usual block, at least one. */
static uint64_t given_units(uint32_t header_units, uint64_t total, uint64_t segment_bytes, uint64_t stride)
{
    uint64_t units = segment_bytes / PLACE_UNIT;
    if (units < UNITS_MIB)
        units = min_u32(total, UNITS_MIB);
    uint64_t slots = units > header_units ? (units - header_units) / stride : 0;
    return header_units + (slots ? slots : 1) * stride;
}

/* stride 0: the usual block is not known. */
static uint64_t chosen_units(uint32_t header_units, uint64_t total, uint64_t stride)
{
    uint64_t payload = segment_payload_units(total), slots = stride ? (payload + stride - 1) / stride : 0;
    uint64_t units = header_units + slots * stride;
    if (stride == 0) /* headers for slots of 1 MiB */
        units += payload + header_units * (payload / UNITS_MIB);
    if (units > total && stride)
        units = header_units + (total >= header_units + stride ? (total - header_units) / stride : 1) * stride;
    else if (units > total)
        units = total;
    /* No short segment at the end, which no larger block could ever have, where the usual one hardly minds. */
    return units && units <= total && units >= 8 * stride ? total / (total / units) : units;
}

bool place_geometry_bytes(place_geometry *g, uint32_t header_units, uint64_t bytes, uint64_t block_bytes,
                          uint64_t segment_bytes, uint32_t segment_units)
{
    uint64_t total = bytes / PLACE_UNIT;
    uint64_t stride = block_bytes ? header_units + place_payload_units(block_bytes) : header_units + 1;
    uint64_t units = segment_units;
    if (units == 0)
        units = segment_bytes ? given_units(header_units, total, segment_bytes, stride)
                              : chosen_units(header_units, total, block_bytes ? stride : 0);
    if (units > total || total >= UINT32_MAX || units <= header_units)
        return false;
    g->header_units = header_units;
    g->segment_units = (uint32_t)units;
    g->segment_count = (uint32_t)(total / units);
    g->last_units = g->segment_units;
    uint64_t rest = total % units;
    if (rest >= header_units + stride) {
        g->segment_count++;
        g->last_units = (uint32_t)rest;
    }
    return true;
}

uint64_t place_geometry_units(const place_geometry *g)
{
    return (uint64_t)(g->segment_count - 1) * g->segment_units + g->last_units;
}

static uint32_t usual_slots_of(const place_geometry *g, uint64_t usual_bytes)
{
    uint32_t slots = (g->segment_units - g->header_units) / (g->header_units + place_payload_units(usual_bytes));
    return slots ? slots : 1;
}

/* Bits, then numbers. */
static uint32_t table_words(uint32_t slots, bool numbers)
{
    return (slots + 63) / 64 + (numbers ? (slots + 1) / 2 : 0);
}

size_t place_segments_bytes_for(const place_geometry *g, uint64_t usual_bytes, bool numbers)
{
    size_t table = table_words(usual_slots_of(g, usual_bytes), numbers) * sizeof(uint64_t);
    return g->segment_count * (sizeof(place_segment) + table);
}

static void link_first(place_segments *p, uint32_t *first, uint32_t i)
{
    place_segment *s = &p->segments[i];
    s->prev = 0;
    s->next = *first;
    if (*first)
        p->segments[*first - 1].prev = i + 1;
    *first = i + 1;
}

static void unlink_segment(place_segments *p, uint32_t *first, uint32_t i)
{
    place_segment *s = &p->segments[i];
    if (s->prev)
        p->segments[s->prev - 1].next = s->next;
    else
        *first = s->next;
    if (s->next)
        p->segments[s->next - 1].prev = s->prev;
    s->next = s->prev = 0;
}

/* ---- a segment's table ---- */

static uint64_t *bits_of(const place_segments *p, uint32_t segment)
{
    uint64_t *own = p->segments[segment].own;
    return own ? own : p->tables + (size_t)segment * p->table_words;
}

static uint32_t *numbers_of(const place_segments *p, uint32_t segment)
{
    return (uint32_t *)(void *)(bits_of(p, segment) + (p->segments[segment].slots + 63) / 64);
}

static size_t own_bytes(const place_segments *p, uint32_t segment)
{
    return table_words(p->segments[segment].slots, p->numbers) * sizeof(uint64_t);
}

static void table_free(place_segments *p, uint32_t segment)
{
    place_segment *s = &p->segments[segment];
    if (s->own == NULL)
        return;
    p->bytes -= own_bytes(p, segment);
    p->env->free(p->env, s->own, own_bytes(p, segment));
    s->own = NULL;
}

/* Without memory for its slots the segment has as many as there is a table for. */
static void table_make(place_segments *p, uint32_t segment)
{
    place_segment *s = &p->segments[segment];
    if (s->slots > p->usual_slots) {
        s->own = p->env->alloc(p->env, own_bytes(p, segment));
        if (s->own) {
            p->bytes += own_bytes(p, segment);
            return;
        }
        s->slots = p->usual_slots;
        p->short_of_memory = true;
    }
    memset(bits_of(p, segment), 0, own_bytes(p, segment));
}

int place_segments_open(place_segments *p, base_env *env, const place_geometry *g, uint64_t usual_bytes, bool numbers)
{
    *p = (place_segments){.env = env, .infinite = g == NULL, .numbers = numbers};
    if (p->infinite)
        return 0;
    p->header_units = g->header_units;
    p->segment_units = g->segment_units;
    p->segment_count = g->segment_count;
    p->last_units = g->last_units;
    p->usual_slots = usual_slots_of(g, usual_bytes);
    p->table_words = table_words(p->usual_slots, numbers);
    p->bytes = place_segments_bytes_for(g, usual_bytes, numbers);
    p->segments = env->alloc(env, p->bytes);
    if (p->segments == NULL)
        return -ENOMEM;
    p->tables = (uint64_t *)(void *)(p->segments + p->segment_count);
    for (uint32_t i = p->segment_count; i-- > 0;)
        link_first(p, &p->free_first, i);
    p->free_count = p->segment_count;
    return 0;
}

void place_segments_close(place_segments *p)
{
    for (uint32_t i = 0; p->segments && i < p->segment_count; i++)
        table_free(p, i);
    if (p->segments)
        p->env->free(p->env, p->segments, p->bytes);
    p->segments = NULL;
}

static uint32_t units_of(const place_segments *p, uint32_t segment)
{
    return segment + 1 == p->segment_count ? p->last_units : p->segment_units;
}

static const place_class *class_at(const place_segments *p, uint32_t stride)
{
    for (uint32_t i = 0; i < p->class_count; i++)
        if (p->classes[i].stride == stride)
            return &p->classes[i];
    return NULL;
}

static place_class *class_find(place_segments *p, uint32_t stride) { return (place_class *)class_at(p, stride); }

static place_class *class_make(place_segments *p, uint32_t stride)
{
    place_class *c = class_find(p, stride);
    if (c == NULL && p->class_count < PLACE_CLASSES_MAX) {
        c = &p->classes[p->class_count++];
        *c = (place_class){.stride = stride};
    }
    return c;
}

void place_segments_exact(place_segments *p, uint64_t payload_bytes)
{
    if (p->infinite)
        return;
    place_class *c = class_make(p, p->header_units + place_payload_units(payload_bytes));
    if (c)
        c->exact = true;
}

/* Up to 16 units as they are, above in eighths of a power of two: at most an eighth is lost. */
static uint32_t rounded(uint32_t units)
{
    if (units <= 16)
        return units;
    uint32_t step = 1u << (28 - __builtin_clz(units));
    return (units + step - 1) / step * step;
}

uint32_t place_stride(place_segments *p, uint64_t payload_bytes)
{
    if (p->infinite)
        return 1;
    uint32_t need = p->header_units + place_payload_units(payload_bytes);
    uint32_t most = p->segment_units - p->header_units;
    uint32_t stride = p->header_units + rounded(need - p->header_units);
    for (uint32_t i = 0; i < p->class_count; i++)
        if (p->classes[i].exact && p->classes[i].stride >= need && p->classes[i].stride < stride)
            stride = p->classes[i].stride;
    if (stride > most)
        stride = need <= most ? most : 0;
    return stride && class_make(p, stride) ? stride : 0;
}

uint64_t place_capacity(const place_segments *p, uint64_t payload_bytes)
{
    if (p->infinite)
        return UINT64_MAX;
    uint64_t stride = p->header_units + place_payload_units(payload_bytes), n = 0;
    if (stride == 0)
        return 0;
    n = (uint64_t)(p->segment_count - 1) * ((p->segment_units - p->header_units) / stride);
    return n + (p->last_units - p->header_units) / stride;
}

uint32_t place_slots_of(const place_segments *p, uint32_t segment, uint32_t stride)
{
    return (units_of(p, segment) - p->header_units) / stride;
}

static void segment_assign(place_segments *p, place_class *c, uint32_t i)
{
    place_segment *s = &p->segments[i];
    unlink_segment(p, &p->free_first, i);
    p->free_count--;
    s->stride = c->stride;
    s->slots = place_slots_of(p, i, c->stride);
    s->used = 0;
    if (s->last_stride != c->stride)
        s->epoch = s->epoch == UINT32_MAX ? 2 : s->epoch + 1; /* 0: never used; 1: nothing was there before */
    s->last_stride = c->stride;
    c->segments++;
    table_make(p, i);
    c->free_slots += s->slots;
    if (s->slots)
        link_first(p, &c->with_room, i);
}

/* A free segment that can hold a slot of the class. The last one may be too short. */
static bool segment_for(place_segments *p, place_class *c)
{
    for (uint32_t i = p->free_first; i; i = p->segments[i - 1].next)
        if (units_of(p, i - 1) >= p->header_units + c->stride) {
            segment_assign(p, c, i - 1);
            return true;
        }
    return false;
}

static uint32_t slot_at(const place_segments *p, uint32_t segment, uint32_t index)
{
    return segment * p->segment_units + p->header_units + index * p->segments[segment].stride;
}

static void mark_used(place_segments *p, place_class *c, uint32_t segment, uint32_t index)
{
    place_segment *s = &p->segments[segment];
    bits_set(bits_of(p, segment), index);
    p->used_units += s->stride;
    p->used_slots++;
    c->free_slots--;
    if (++s->used == s->slots)
        unlink_segment(p, &c->with_room, segment);
}

uint64_t place_units(const place_segments *p)
{
    return p->segment_count ? (uint64_t)(p->segment_count - 1) * p->segment_units + p->last_units : 0;
}

uint32_t place_slot_take(place_segments *p, uint32_t stride)
{
    if (p->infinite) {
        p->used_slots++;
        return 0;
    }
    place_class *c = class_find(p, stride);
    if (c->with_room == 0 && !segment_for(p, c))
        return PLACE_SLOT_NONE;
    uint32_t segment = c->with_room - 1;
    const uint64_t *bits = bits_of(p, segment);
    uint32_t word = 0;
    while (bits[word] == UINT64_MAX)
        word++;
    uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(~bits[word]);
    KVO_ASSERT(index < p->segments[segment].slots);
    uint32_t slot = slot_at(p, segment, index);
    mark_used(p, c, segment, index);
    p->taken_units += stride;
    return slot;
}

static void segment_release(place_segments *p, place_class *c, uint32_t segment)
{
    if (!p->segments[segment].draining) {
        unlink_segment(p, &c->with_room, segment);
        c->free_slots -= p->segments[segment].slots;
    }
    p->segments[segment].draining = false;
    c->segments--;
    table_free(p, segment);
    p->segments[segment].stride = p->segments[segment].slots = 0;
    link_first(p, &p->free_first, segment);
    p->free_count++;
}

void place_segment_drain(place_segments *p, uint32_t segment)
{
    place_segment *s = &p->segments[segment];
    KVO_ASSERT(s->used > 0);
    place_class *c = class_find(p, s->stride);
    if (!s->draining && s->used < s->slots)
        unlink_segment(p, &c->with_room, segment);
    if (!s->draining)
        c->free_slots -= s->slots - s->used;
    s->draining = true;
}

void place_segment_undrain(place_segments *p, uint32_t segment)
{
    place_segment *s = &p->segments[segment];
    place_class *c = class_find(p, s->stride);
    if (s->draining && s->used < s->slots) {
        link_first(p, &c->with_room, segment);
        c->free_slots += s->slots - s->used;
    }
    s->draining = false;
}

uint64_t place_slots_free(const place_segments *p, uint32_t stride)
{
    const place_class *c = stride ? class_at(p, stride) : NULL;
    if (c == NULL)
        return 0;
    uint32_t last = p->segment_count - 1, whole = p->free_count;
    uint64_t n = c->free_slots;
    if (p->segments[last].stride == 0) { /* the last may be shorter */
        n += place_slots_of(p, last, stride);
        whole--;
    }
    return n + (uint64_t)whole * ((p->segment_units - p->header_units) / stride);
}

bool place_only_stride(const place_segments *p, uint32_t stride)
{
    for (uint32_t i = 0; stride && i < p->class_count; i++)
        if (p->classes[i].segments && p->classes[i].stride != stride)
            return false;
    return true;
}

uint32_t place_segments_with(const place_segments *p, uint32_t stride)
{
    for (uint32_t i = 0; i < p->class_count; i++)
        if (p->classes[i].stride == stride)
            return p->classes[i].segments;
    return 0;
}

uint32_t place_larger(const place_segments *p, uint32_t stride)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < p->class_count; i++) {
        const place_class *c = &p->classes[i];
        if (c->segments && c->stride > stride && (best == 0 || c->stride < best))
            best = c->stride;
    }
    return best;
}

uint32_t place_lend(place_segments *p, uint32_t stride)
{
    place_class *c = p->infinite || stride == 0 ? NULL : class_find(p, stride);
    if (c == NULL || c->segments || p->free_first)
        return stride;
    uint32_t larger = place_larger(p, stride), times = p->class_count > p->segment_count ? 8 : 2;
    if (larger == 0 || larger > times * stride)
        return stride;
    if (p->taken_units - c->lent_since > place_units(p)) {
        c->lent_since = p->taken_units;
        c->lent_units = 0;
    }
    if (c->lent_units >= p->segment_units)
        return stride;
    c->lent_units += larger;
    return larger;
}

void place_segments_release(place_segments *p)
{
    for (uint32_t i = p->segment_count; i-- > 0;)
        if (p->segments[i].stride && p->segments[i].used == 0)
            segment_release(p, class_find(p, p->segments[i].stride), i);
}

void place_slot_free(place_segments *p, uint32_t slot)
{
    p->used_slots--;
    if (p->infinite)
        return;
    uint32_t segment = place_segment_of(p, slot), index = place_slot_index(p, slot);
    place_segment *s = &p->segments[segment];
    place_class *c = class_find(p, s->stride);
    KVO_ASSERT(place_slot_used(p, slot));
    bits_clear(bits_of(p, segment), index);
    if (p->numbers)
        numbers_of(p, segment)[index] = 0;
    p->used_units -= s->stride;
    if (s->used-- == s->slots && !s->draining)
        link_first(p, &c->with_room, segment);
    c->free_slots += !s->draining;
    if (s->used == 0)
        segment_release(p, c, segment);
}

bool place_slot_used(const place_segments *p, uint32_t slot)
{
    uint32_t segment = place_segment_of(p, slot);
    if (segment >= p->segment_count || p->segments[segment].stride == 0)
        return false;
    uint32_t index = place_slot_index(p, slot);
    return bits_get(bits_of(p, segment), index);
}

void place_slot_number(place_segments *p, uint32_t slot, uint32_t number)
{
    KVO_ASSERT(p->numbers && place_slot_used(p, slot));
    numbers_of(p, place_segment_of(p, slot))[place_slot_index(p, slot)] = number;
}

uint32_t place_number_at(const place_segments *p, uint32_t segment, uint32_t index)
{
    bool there = segment < p->segment_count && index < p->segments[segment].slots;
    return there ? numbers_of(p, segment)[index] : 0;
}

bool place_segment_restore(place_segments *p, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    if (segment >= p->segment_count)
        return false;
    place_segment *s = &p->segments[segment];
    if (s->stride == 0)
        s->epoch = s->written = epoch; /* the next stride's headers differ, also from one's that cannot stay */
    if (stride <= p->header_units || stride > units_of(p, segment) - p->header_units)
        return false;
    place_class *c = class_make(p, stride);
    if (c == NULL || s->stride != 0)
        return false;
    segment_assign(p, c, segment);
    s->epoch = epoch;
    return true;
}

bool place_slot_restore(place_segments *p, uint32_t slot)
{
    uint32_t segment = place_segment_of(p, slot);
    if (segment >= p->segment_count || p->segments[segment].stride == 0)
        return false;
    uint32_t index = place_slot_index(p, slot);
    if (index >= p->segments[segment].slots || slot_at(p, segment, index) != slot || place_slot_used(p, slot))
        return false;
    mark_used(p, class_find(p, p->segments[segment].stride), segment, index);
    return true;
}

bool place_slot_retake(place_segments *p, uint32_t slot)
{
    uint32_t i = place_segment_of(p, slot);
    place_segment *s = &p->segments[i];
    if (s->draining)
        return false;
    if (s->stride == 0) {
        place_class *c = s->last_stride ? class_find(p, s->last_stride) : NULL;
        if (c == NULL)
            return false;
        segment_assign(p, c, i);
    }
    return place_slot_restore(p, slot);
}
