/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments change their slot size here: one of another size is emptied whole, with what descends from its blocks,
 * when they are worth less than what would go instead. All under the store's lock, which demotion lets go.
 */
#include <stdlib.h>
#include <string.h>

#include "store/room.h"

/* One that has to leave, as it was found. */
typedef struct leaver {
    uint32_t record;
    uint32_t incarnation;
    uint32_t depth;
} leaver;

/* The blocks of a segment and those that descend from them, which are of no use without; deepest first. Where
   these are more than the segment's own, as with trees that lie all over the tier, they stay as orphans. */
typedef struct leaving {
    uint64_t *known;  /* one bit a record: `marked` is true of it */
    uint64_t *marked; /* it is one of them; later: one of its children stays */
    leaver *list;
    uint32_t count;
    size_t bits_bytes, list_bytes;
} leaving;

static bool resident(const kvo_store *s, unsigned tier, uint32_t record)
{
    return copy_state(word_load(&s->records[record].copy[tier])) != BLOCK_EMPTY;
}

static bool in_segment(const kvo_store *s, unsigned tier, uint32_t segment, uint32_t record)
{
    uint64_t copy = word_load(&s->records[record].copy[tier]);
    return copy_state(copy) != BLOCK_EMPTY && copy_slot(copy) != PLACE_SLOT_NONE &&
           place_segment_of(&s->tiers[tier].space, copy_slot(copy)) == segment;
}

/* Whether the block or one above it in the tier lies in the segment. Each record is walked over twice at most. */
static bool descends(const kvo_store *s, unsigned tier, uint32_t segment, leaving *l, uint32_t record)
{
    uint32_t end = record;
    while (end != BLOCK_NONE && resident(s, tier, end) && !bits_get(l->known, end)) {
        bits_set(l->known, end);
        if (in_segment(s, tier, segment, end)) {
            bits_set(l->marked, end);
            break;
        }
        end = store_parent(s, end);
    }
    bool leaves = end != BLOCK_NONE && resident(s, tier, end) && bits_get(l->marked, end);
    for (uint32_t i = record; leaves && i != end; i = store_parent(s, i))
        bits_set(l->marked, i);
    return leaves;
}

static int deepest_first(const void *a, const void *b)
{
    const leaver *x = a, *y = b;
    if (x->depth != y->depth)
        return x->depth > y->depth ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

static void leaving_close(kvo_store *s, leaving *l)
{
    s->env->free(s->env, l->known, l->bits_bytes);
    if (l->list)
        s->env->free(s->env, l->list, l->list_bytes);
}

static bool leaving_open(kvo_store *s, unsigned tier, uint32_t segment, leaving *l)
{
    uint32_t end = atomic_load(&s->record_end), words = end / 64 + 1, count = 0;
    *l = (leaving){.bits_bytes = 2 * words * sizeof *l->known};
    l->known = s->env->alloc(s->env, l->bits_bytes);
    if (l->known == NULL)
        return false;
    l->marked = l->known + words;
    for (uint32_t i = 0; i < end; i++)
        count += resident(s, tier, i) && descends(s, tier, segment, l, i);
    bool alone = count > 2 * s->tiers[tier].space.segments[segment].used;
    l->list_bytes = (count + 1) * sizeof *l->list;
    l->list = s->env->alloc(s->env, l->list_bytes);
    if (l->list == NULL) {
        leaving_close(s, l);
        return false;
    }
    for (uint32_t i = 0; i < end; i++)
        if (bits_get(l->marked, i) && (!alone || in_segment(s, tier, segment, i)))
            l->list[l->count++] = (leaver){i, life_incarnation(word_load(&s->records[i].life)),
                                           tree_depth(word_load(&s->records[i].tree))};
    qsort(l->list, l->count, sizeof *l->list, deepest_first);
    memset(l->marked, 0, words * sizeof *l->marked);
    for (uint32_t i = 0; alone && i < end; i++)
        if (resident(s, tier, i) && !in_segment(s, tier, segment, i) && store_parent(s, i) != BLOCK_NONE)
            bits_set(l->marked, store_parent(s, i));
    return true;
}

/* The lock was let go since: the same block, and nobody reads, moves, holds or hides it, nothing above needs it. */
static bool may_leave(const kvo_store *s, const leaver *l, unsigned tier)
{
    uint64_t life = word_load(&s->records[l->record].life);
    return life_incarnation(life) == l->incarnation && copy_idle(word_load(&s->records[l->record].copy[tier])) &&
           life_live(life) && !life_has(life, LIFE_HELD) && !(s->anchored && room_above(s, l->record, tier));
}

/* Brings down what lies nowhere below. true: anchoring has to yield for some. */
static bool leaving_demote(kvo_store *s, unsigned tier, const leaving *l)
{
    uint32_t records[STORE_WINDOW];
    int results[STORE_WINDOW];
    bool yields = false;
    for (uint32_t i = 0, n = 0; tier + 1 < s->tier_count && i < l->count; i++) {
        if (may_leave(s, &l->list[i], tier) && !room_below(s, l->list[i].record, tier))
            records[n++] = l->list[i].record;
        if (n < STORE_WINDOW && i + 1 < l->count)
            continue;
        store_demote(s, records, n, tier + 1, results);
        while (n)
            yields |= results[--n] == KVO_SHORT;
    }
    return yields;
}

/* A child goes before its parent; one that stays makes an orphan of itself. */
static void leave(kvo_store *s, unsigned tier, uint32_t segment, leaving *l, const leaver *who, bool yields)
{
    uint32_t record = who->record, parent = store_parent(s, record);
    if (life_incarnation(word_load(&s->records[record].life)) != who->incarnation)
        return;
    bool clean = tier + 1 == s->tier_count || room_below(s, record, tier), orphan = bits_get(l->marked, record);
    kvo_cause cause = in_segment(s, tier, segment, record) ? KVO_CAUSE_RESIZE : KVO_CAUSE_NONE;
    if (orphan)
        cause = KVO_CAUSE_ORPHAN;
    if (!clean)
        cause = KVO_CAUSE_YIELD;
    if (may_leave(s, who, tier) && (clean || yields) && room_evict(s, tier, record, cause)) {
        if (orphan && cause == KVO_CAUSE_YIELD)
            ledger_count(&s->ledger, s->tiers[tier].account, LEDGER_ORPHANS, 1);
        return;
    }
    if (parent != BLOCK_NONE && resident(s, tier, record))
        bits_set(l->marked, parent);
}

/* Whether all that would leave have keys up to `best`. */
static bool leaving_within(kvo_store *s, unsigned tier, const leaving *l, uint64_t best)
{
    place_rules rules = room_query(s, tier, 0).rules;
    for (uint32_t i = 0; best != ROOM_ANY_KEY && i < l->count; i++) {
        const block_record *r = &s->records[l->list[i].record];
        if (place_key(&rules, word_load(&r->policy), word_load(&r->touch), tier) > best)
            return false;
    }
    return true;
}

/* Frees a segment of another stride, whole. false: some of its blocks have to stay. */
static bool evict_segment(kvo_store *s, unsigned tier, uint32_t segment, uint64_t best)
{
    store_tier *t = &s->tiers[tier];
    leaving l;
    if (!leaving_open(s, tier, segment, &l))
        return false;
    if (!leaving_within(s, tier, &l, best)) {
        leaving_close(s, &l);
        return false;
    }
    place_segment_drain(&t->space, segment);
    bool yields = leaving_demote(s, tier, &l);
    for (uint32_t i = 0; i < l.count; i++)
        leave(s, tier, segment, &l, &l.list[i], yields);
    bool done = t->space.segments[segment].used == 0;
    if (!done)
        place_segment_undrain(&t->space, segment);
    leaving_close(s, &l);
    return done;
}

bool room_resize(kvo_store *s, unsigned tier, uint32_t stride, const place_victim *instead, uint64_t best)
{
    store_tier *t = &s->tiers[tier];
    size_t bytes = PLACE_SEGMENT_WORDS * t->space.segment_count * sizeof(uint64_t);
    uint64_t *scratch = s->env->alloc(s->env, bytes), bar = best;
    if (scratch == NULL)
        return false;
    place_query query = room_query(s, tier, stride);
    query.rules.placement = KVO_PLACE_LRU;
    if (instead)
        bar = place_key(&query.rules, instead->policy, instead->touch, tier);
    bar = bar < best ? bar : best;
    uint32_t segment = place_victim_segment(&s->scan, &query, t->space.header_units + stride, bar, scratch);
    s->env->free(s->env, scratch, bytes);
    t->look_units = t->space.taken_units;
    if (segment == PLACE_SLOT_NONE) /* not for each block: values change with what is put */
        t->look_units += place_units(&t->space) / 64;
    return segment != PLACE_SLOT_NONE && evict_segment(s, tier, segment, best);
}
