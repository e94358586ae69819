/* SPDX-License-Identifier: Apache-2.0 */
#include "place/victims.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/planted.h"

#define BUFFER_MAX (PLACE_VICTIMS_MAX * 16)
#define WIDTH_MAX (BUFFER_MAX / 2) /* most candidates of a scan */
#define PLACES BUFFER_MAX

static size_t words_for(uint32_t records_max) { return records_max / 64 + 1; }

size_t place_scan_bytes_for(uint32_t records_max)
{
    return words_for(records_max) * 16 + BUFFER_MAX * sizeof(place_candidate) + PLACES * sizeof(uint16_t);
}

int place_scan_open(place_scan *scan, base_env *env, uint32_t records_max)
{
    *scan = (place_scan){.env = env, .words = words_for(records_max), .bytes = place_scan_bytes_for(records_max)};
    scan->buffer = env->alloc(env, scan->bytes);
    if (scan->buffer == NULL)
        return -ENOMEM;
    scan->candidate = (uint64_t *)(void *)(scan->buffer + BUFFER_MAX);
    scan->blocked = scan->candidate + scan->words;
    scan->places = (uint16_t *)(void *)(scan->blocked + scan->words);
    return 0;
}

void place_scan_close(place_scan *scan)
{
    if (scan->buffer)
        scan->env->free(scan->env, scan->buffer, scan->bytes);
    scan->buffer = NULL;
}

uint32_t place_batch(uint64_t slots)
{
    uint64_t small = slots / 32 < 64 ? slots / 32 : 64, large = slots / 256;
    uint64_t n = small > large ? small : large;
    return n == 0 ? 1 : n > PLACE_VICTIMS_MAX ? PLACE_VICTIMS_MAX : (uint32_t)n;
}

/* ---- one record ---- */

typedef enum verdict { ABSENT, STAYS, ANCHORED, MAY_GO } verdict;

static bool above(const place_query *q, const block_record *r)
{
    for (unsigned t = 0; t < q->tier; t++)
        if (copy_state(word_load(&r->copy[t])) != BLOCK_EMPTY)
            return true;
    return false;
}

static verdict judge(const place_query *q, const block_record *r)
{
    uint64_t copy = word_load(&r->copy[q->tier]);
    if (copy_state(copy) == BLOCK_EMPTY)
        return ABSENT;
    uint64_t life = word_load(&r->life);
    if (!life_has(life, LIFE_USED) || life_has(life, LIFE_DOOMED))
        return ABSENT;
    if (!life_live(life) || !copy_idle(copy) || life_has(life, LIFE_HELD))
        return STAYS;
    if (q->stride && q->segments->segments[place_segment_of(q->segments, copy_slot(copy))].stride != q->stride)
        return STAYS;
    return q->anchored && above(q, r) ? ANCHORED : MAY_GO;
}

/* Does it keep its parent? In the tier itself, or anywhere (for the last tier). */
static bool keeps_parent(const place_query *q, const block_record *r, bool anywhere)
{
    uint64_t life = word_load(&r->life);
    if (!life_has(life, LIFE_USED) || life_has(life, LIFE_DOOMED))
        return false;
    return !KVO_PLANTED(PARENT) && (anywhere || copy_state(word_load(&r->copy[q->tier])) != BLOCK_EMPTY);
}

/* The record of the parent, if the link is still true. */
static uint32_t parent_of(const place_query *q, uint32_t record)
{
    uint32_t parent = tree_parent(word_load(&q->records[record].tree));
    if (parent >= q->record_end)
        return BLOCK_NONE;
    uint64_t hash = identity_parent_of(&q->identities[record]);
    return hash && identity_hash_of(&q->identities[parent]) == hash ? parent : BLOCK_NONE;
}

static uint64_t key_of(const place_query *q, uint32_t record, uint64_t policy, uint64_t touch)
{
    if (KVO_PLANTED(ANCHOR) && q->tier > 0)
        touch = touch_make(q->tier_recency[record], touch_uses(touch));
    return place_key(&q->rules, policy, touch, q->tier);
}

/* ---- the lowest n of many, in bounded memory ---- */

/* Of equals the deeper one goes first: a chain's blocks share a key when its end was used last. */
static bool lower(const place_candidate *a, const place_candidate *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->depth != b->depth ? a->depth > b->depth : a->record < b->record;
}

/* Quickselect: afterwards v[0 .. n) are the n lowest, in no order. */
static void keep_lowest(place_candidate *v, uint32_t count, uint32_t n)
{
    uint32_t lo = 0, hi = count;
    while (hi - lo > 1 && n > lo && n < hi) {
        place_candidate pivot = v[lo + (hi - lo) / 2];
        uint32_t i = lo, j = hi - 1;
        for (;;) {
            while (lower(&v[i], &pivot))
                i++;
            while (lower(&pivot, &v[j]))
                j--;
            if (i >= j)
                break;
            place_candidate t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        uint32_t split = j + 1;
        if (n <= split && split < hi)
            hi = split;
        else
            lo = split > lo ? split : lo + 1;
    }
}

typedef struct lowest {
    place_candidate *v;
    uint32_t n; /* wanted */
    uint32_t count;
    place_candidate limit; /* the worst that can still get in */
    bool limited;
} lowest;

static void lowest_cut(lowest *l)
{
    if (l->count <= l->n)
        return;
    keep_lowest(l->v, l->count, l->n);
    l->count = l->n;
    l->limit = l->v[0];
    for (uint32_t i = 1; i < l->n; i++)
        if (lower(&l->limit, &l->v[i]))
            l->limit = l->v[i];
    l->limited = true;
}

static void lowest_add(lowest *l, place_candidate v)
{
    if (l->limited && !lower(&v, &l->limit))
        return;
    l->v[l->count++] = v;
    if (l->count == BUFFER_MAX)
        lowest_cut(l);
}

/* ---- scans ---- */

/* Collects up to n candidates; with `leaves`, only blocks that no bit in `blocked` marks. */
static uint32_t collect(place_scan *scan, const place_query *q, uint32_t n, bool leaves, place_found *found)
{
    lowest l = {.v = scan->buffer, .n = n};
    found->eligible = found->anchored = 0;
    for (uint32_t i = 0; i < q->record_end; i++) {
        verdict is = judge(q, &q->records[i]);
        found->anchored += is == ANCHORED;
        if (is != MAY_GO)
            continue;
        found->eligible++;
        if (leaves && bits_get(scan->blocked, i))
            continue;
        const block_record *r = &q->records[i];
        uint64_t key = key_of(q, i, word_load(&r->policy), word_load(&r->touch));
        if (!l.limited || key <= l.limit.key)
            lowest_add(&l, (place_candidate){key, i, tree_depth(word_load(&r->tree))});
    }
    lowest_cut(&l);
    return l.count;
}

static int deeper_first(const void *a, const void *b)
{
    const place_candidate *x = a, *y = b;
    if (x->depth != y->depth)
        return x->depth > y->depth ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

static int lowest_first(const void *a, const void *b)
{
    const place_candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return deeper_first(a, b);
}

/* Marks candidates that have a resident child which is not itself a candidate, or a marked one. */
static void block_parents(place_scan *scan, const place_query *q, uint32_t count, bool anywhere)
{
    for (uint32_t i = 0; i < q->record_end; i++) {
        uint32_t parent = tree_parent(word_load(&q->records[i].tree));
        if (parent >= q->record_end || !bits_get(scan->candidate, parent) || bits_get(scan->candidate, i))
            continue;
        if (keeps_parent(q, &q->records[i], anywhere) && parent_of(q, i) == parent)
            bits_set(scan->blocked, parent);
    }
    for (uint32_t i = 0; i < count; i++) { /* deeper first: a child is seen before its parent */
        uint32_t parent = parent_of(q, scan->buffer[i].record);
        if (parent != BLOCK_NONE && bits_get(scan->blocked, scan->buffer[i].record) &&
            bits_get(scan->candidate, parent))
            bits_set(scan->blocked, parent);
    }
}

/* Among candidates, a parent is worth at least what its child is: sorted, children come first. */
static void raise_parents(place_scan *scan, const place_query *q, uint32_t count)
{
    place_candidate *v = scan->buffer;
    memset(scan->places, 0, PLACES * sizeof *scan->places);
    KVO_ASSERT(count <= PLACES / 2);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = v[i].record * 2654435761u % PLACES;
        while (scan->places[at])
            at = (at + 1) % PLACES;
        scan->places[at] = (uint16_t)(i + 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t parent = parent_of(q, v[i].record);
        if (parent == BLOCK_NONE || !bits_get(scan->candidate, parent))
            continue;
        uint32_t at = parent * 2654435761u % PLACES;
        while (scan->places[at] && v[scan->places[at] - 1].record != parent)
            at = (at + 1) % PLACES;
        if (scan->places[at] && v[scan->places[at] - 1].key < v[i].key)
            v[scan->places[at] - 1].key = v[i].key;
    }
}

/* From candidates to victims, with the words that they are judged by later. One that became worth
   more since the scan ends the list: what follows may be its parent. */
static uint32_t describe(const place_query *q, const place_candidate *from, uint32_t count, place_victim *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const block_record *r = &q->records[from[i].record];
        place_victim v = {.policy = word_load(&r->policy), .touch = word_load(&r->touch), .record = from[i].record};
        v.incarnation = life_incarnation(word_load(&r->life));
        v.key = from[i].key;
        if (key_of(q, v.record, v.policy, v.touch) > v.key)
            return i;
        out[i] = v;
    }
    return count;
}

/* From `count` candidates in the buffer to those that nothing blocks, in order. */
static uint32_t choose(place_scan *scan, const place_query *q, uint32_t count, bool anywhere, place_victim *out,
                       bool *changed)
{
    memset(scan->candidate, 0, words_for(q->record_end) * 8);
    memset(scan->blocked, 0, words_for(q->record_end) * 8);
    for (uint32_t i = 0; i < count; i++)
        bits_set(scan->candidate, scan->buffer[i].record);
    qsort(scan->buffer, count, sizeof *scan->buffer, deeper_first);
    block_parents(scan, q, count, anywhere);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (bits_get(scan->blocked, scan->buffer[i].record))
            bits_clear(scan->candidate, scan->buffer[i].record);
        else
            scan->buffer[left++] = scan->buffer[i];
    }
    raise_parents(scan, q, left);
    qsort(scan->buffer, left, sizeof *scan->buffer, lowest_first);
    if (left > q->want)
        left = q->want;
    uint32_t described = describe(q, scan->buffer, left, out);
    *changed = left > 0 && described == 0;
    return described;
}

/* When the lowest are all blocked: blocks without any resident child, wherever they stand. */
static uint32_t choose_leaves(place_scan *scan, const place_query *q, bool anywhere, place_victim *out)
{
    place_found ignored;
    memset(scan->blocked, 0, words_for(q->record_end) * 8);
    for (uint32_t i = 0; i < q->record_end; i++) {
        if (!keeps_parent(q, &q->records[i], anywhere))
            continue;
        uint32_t parent = parent_of(q, i);
        if (parent != BLOCK_NONE)
            bits_set(scan->blocked, parent);
    }
    uint32_t count = collect(scan, q, q->want, true, &ignored);
    qsort(scan->buffer, count, sizeof *scan->buffer, lowest_first);
    return describe(q, scan->buffer, count, out);
}

/* A blocked block is worth what its child is, and the child is no candidate: so it is none
   either. More candidates are taken until enough are not blocked; how many that was is where the
   next scan begins. */
static uint32_t choose_lowest(place_scan *scan, const place_query *q, bool anywhere, place_victim *out,
                              place_found *found)
{
    uint32_t *width = &scan->width[q->tier], least = q->want + q->want / 2 + 8;
    if (*width < least)
        *width = least;
    for (;;) {
        uint32_t count = collect(scan, q, *width, false, found);
        uint32_t chosen = count ? choose(scan, q, count, anywhere, out, &found->changed) : 0;
        if (found->changed)
            return 0;
        if (chosen >= (q->want + 1) / 2 || count < *width || *width == WIDTH_MAX) {
            if (chosen == q->want && *width > least)
                *width -= *width / 16;
            return chosen;
        }
        *width = *width > WIDTH_MAX / 4 ? WIDTH_MAX : *width * 4;
    }
}

place_found place_victims(place_scan *scan, const place_query *q, place_victim *out)
{
    KVO_ASSERT(q->want >= 1 && q->want <= PLACE_VICTIMS_MAX && words_for(q->record_end) <= scan->words);
    place_found found = {0};
    bool anywhere = q->tier + 1 == q->tier_count && !KVO_PLANTED(ANCHOR);
    found.count = choose_lowest(scan, q, anywhere, out, &found);
    if (found.eligible == 0 || found.changed)
        return found;
    if (found.count == 0)
        found.count = choose_leaves(scan, q, anywhere, out);
    if (found.count == 0 && anywhere)
        found.count = choose_leaves(scan, q, false, out);
    if (found.count == 0) {
        place_found ignored;
        collect(scan, q, 1, false, &ignored);
        found.count = describe(q, scan->buffer, 1, out);
        out[0].orphan = true;
    }
    return found;
}

/* Segment of a record's copy in the tier, or PLACE_SLOT_NONE. */
static uint32_t segment_of(const place_query *q, uint32_t record)
{
    uint64_t copy = word_load(&q->records[record].copy[q->tier]);
    /* One that will be filled may have no slot yet. */
    bool none = copy_state(copy) == BLOCK_EMPTY || copy_slot(copy) == PLACE_SLOT_NONE;
    return none ? PLACE_SLOT_NONE : place_segment_of(q->segments, copy_slot(copy));
}

static void at_least(uint64_t *most, uint64_t key)
{
    if (key > *most)
        *most = key;
}

/* What has to be known of each segment; an array each in the caller's scratch. */
typedef struct ratings {
    uint64_t *most;  /* its best block's key; UINT64_MAX: one has to stay */
    uint64_t *depth; /* its deepest block */
    uint64_t *dear;  /* blocks that are worth more than the bar */
    uint64_t *outside; /* children of its blocks in other segments, which leave with it */
    uint64_t *seen;  /* its blocks; other slots in use are taken for blocks to come */
} ratings;

#define CLASS_SHIFT 53 /* of a key: what is above the score */

/* A parent is worth what its child outside its segment is. With a bar: one whose child is above it stays. */
static void rate_children(place_scan *scan, const place_query *q, uint64_t bar, const ratings *r)
{
    bool anywhere = q->tier + 1 == q->tier_count;
    memset(scan->blocked, 0, words_for(q->record_end) * 8);
    for (uint32_t i = 0; i < q->record_end; i++) {
        uint32_t parent = tree_parent(word_load(&q->records[i].tree));
        if (parent >= q->record_end || !keeps_parent(q, &q->records[i], anywhere) || parent_of(q, i) != parent)
            continue;
        uint32_t above = segment_of(q, parent), here = segment_of(q, i);
        if (above == PLACE_SLOT_NONE || above == here)
            continue;
        uint64_t key = place_key(&q->rules, word_load(&q->records[i].policy), word_load(&q->records[i].touch), q->tier);
        if (key >= bar)
            bits_set(scan->blocked, parent);
        else if (here != PLACE_SLOT_NONE) {
            at_least(&r->most[above], key);
            r->outside[above]++;
        }
    }
}

static void rate_segments(place_scan *scan, const place_query *q, uint64_t bar, const ratings *r)
{
    for (uint32_t i = 0; i < q->record_end; i++) {
        const block_record *record = &q->records[i];
        uint32_t segment = segment_of(q, i);
        if (segment == PLACE_SLOT_NONE)
            continue;
        uint64_t key = place_key(&q->rules, word_load(&record->policy), word_load(&record->touch), q->tier);
        if (judge(q, record) != MAY_GO || bits_get(scan->blocked, i) || key >> CLASS_SHIFT > bar >> CLASS_SHIFT)
            r->most[segment] = UINT64_MAX;
        else if (key >= bar)
            r->dear[segment]++;
        else
            at_least(&r->most[segment], key);
        at_least(&r->depth[segment], tree_depth(word_load(&record->tree)));
        r->seen[segment]++;
    }
}

static bool better(const place_segments *p, const ratings *r, uint32_t a, uint32_t b)
{
    /* In eighths of the segment: a few are no reason to take a younger one. */
    uint64_t with_a = r->outside[a] * 8 / p->segments[a].slots, with_b = r->outside[b] * 8 / p->segments[b].slots;
    if (with_a != with_b)
        return with_a < with_b;
    if (r->dear[a] != r->dear[b])
        return r->dear[a] < r->dear[b];
    /* Of equals the one that lies deepest: a chain goes from its end. */
    return r->most[a] != r->most[b] ? r->most[a] < r->most[b] : r->depth[a] > r->depth[b];
}

uint32_t place_victim_segment(place_scan *scan, const place_query *query, uint32_t units, uint64_t bar,
                              uint64_t *scratch)
{
    place_query q = *query;
    const place_segments *p = q.segments;
    size_t n = p->segment_count;
    ratings r = {scratch, scratch + n, scratch + 2 * n, scratch + 3 * n, scratch + 4 * n};
    uint32_t best = PLACE_SLOT_NONE;
    q.stride = 0; /* judged are those of all strides */
    memset(scratch, 0, PLACE_SEGMENT_WORDS * n * sizeof *scratch);
    rate_children(scan, &q, bar, &r);
    rate_segments(scan, &q, bar, &r);
    for (uint32_t i = 0; i < p->segment_count; i++) {
        const place_segment *s = &p->segments[i];
        uint32_t has = i + 1 == p->segment_count ? p->last_units : p->segment_units;
        if (s->used == 0 || s->draining || s->stride == query->stride || has < units || r.most[i] == UINT64_MAX ||
            r.dear[i] > s->slots / 8 || r.seen[i] < s->used)
            continue;
        if (best == PLACE_SLOT_NONE || better(p, &r, i, best))
            best = i;
    }
    return best;
}
