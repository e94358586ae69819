/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stale slots: free, but the header on the medium still says what was there. After a crash such a
 * block may be back, which is right for one that was evicted and wrong for one that was removed. So
 * they are listed until their slot is written again, or their segment's header has made them void.
 *
 * The table is found by slot (a slot is written again) and by name (a name is removed). It has an entry for one
 * slot in 32: few are free for long, since the next block takes the last victim's. When it is full, the segment
 * is noted instead of the slot; then every free slot of it is taken for stale, and the next remove writes dead
 * headers over all of them.
 */
#include <errno.h>

#include "store/store.h"

enum { BY_SLOT, BY_HASH };

/* ---- the table ---- */

static uint32_t stale_max(uint64_t slots)
{
    uint64_t n = slots / 32;
    return n < 64 ? 64 : n > 1u << 20 ? 1u << 20 : (uint32_t)n;
}

size_t store_stale_bytes_for(uint64_t slots, uint32_t segment_count)
{
    size_t lost = (segment_count / 64 + 1) * sizeof(uint64_t);
    return lost + stale_max(slots) * (sizeof(store_stale) + 2 * sizeof(uint32_t));
}

int store_stale_open(store_tier *t, base_env *env, uint64_t slots)
{
    store_stale_table *table = &t->stale;
    *table = (store_stale_table){.max = stale_max(slots),
                                 .bytes = store_stale_bytes_for(slots, t->space.segment_count)};
    table->entries = env->alloc(env, table->bytes);
    if (table->entries == NULL)
        return -ENOMEM;
    table->lost = (uint64_t *)(void *)(table->entries + table->max);
    table->heads[BY_SLOT] = (uint32_t *)(void *)(table->lost + t->space.segment_count / 64 + 1);
    table->heads[BY_HASH] = table->heads[BY_SLOT] + table->max;
    return 0;
}

void store_stale_close(store_tier *t, base_env *env)
{
    if (t->stale.entries)
        env->free(env, t->stale.entries, t->stale.bytes);
    t->stale.entries = NULL;
}

static uint32_t *head_of(const store_stale_table *table, unsigned by, uint64_t key)
{
    return &table->heads[by][(key * 0x9e3779b97f4a7c15u >> 32) * table->max >> 32];
}

static uint64_t key_of(const store_stale *stale, unsigned by) { return by == BY_SLOT ? stale->slot : stale->hash; }

/* false: it is full. */
static bool table_put(store_stale_table *table, store_stale stale)
{
    uint32_t i = table->free_first ? table->free_first - 1 : table->end;
    if (i == table->max)
        return false;
    if (table->free_first)
        table->free_first = table->entries[i].next[BY_SLOT];
    else
        table->end++;
    stale.used = true;
    for (unsigned by = BY_SLOT; by <= BY_HASH; by++) {
        uint32_t *head = head_of(table, by, key_of(&stale, by));
        stale.next[by] = *head;
        *head = i + 1;
    }
    table->entries[i] = stale;
    table->count++;
    return true;
}

static void table_drop(store_stale_table *table, uint32_t i)
{
    store_stale *stale = &table->entries[i];
    for (unsigned by = BY_SLOT; by <= BY_HASH; by++) {
        uint32_t *at = head_of(table, by, key_of(stale, by));
        while (*at != i + 1)
            at = &table->entries[*at - 1].next[by];
        *at = stale->next[by];
    }
    *stale = (store_stale){.next = {table->free_first}};
    table->free_first = i + 1;
    table->count--;
}

/* ---- slots ---- */

static const place_segment *segment_of(const store_tier *t, uint32_t slot)
{
    return &t->space.segments[place_segment_of(&t->space, slot)];
}

/* The segment on the medium has another slot size now. */
static bool is_void(const store_tier *t, const store_stale *stale)
{
    return segment_of(t, stale->slot)->written != stale->epoch && segment_of(t, stale->slot)->epoch != stale->epoch;
}

/* Its entry, of the slot as it is cut now; or the table's end. */
static uint32_t entry_of(const store_tier *t, uint32_t slot)
{
    const store_stale_table *table = &t->stale;
    for (uint32_t i = *head_of(table, BY_SLOT, slot); i; i = table->entries[i - 1].next[BY_SLOT])
        if (table->entries[i - 1].slot == slot && table->entries[i - 1].epoch == segment_of(t, slot)->epoch)
            return i - 1;
    return table->end;
}

void store_stale_forget(store_tier *t, uint32_t slot)
{
    uint32_t i = entry_of(t, slot);
    if (i != t->stale.end)
        table_drop(&t->stale, i);
}

/* Of a full table. */
static void forget_void(store_tier *t)
{
    for (uint32_t i = 0; i < t->stale.end; i++)
        if (is_void(t, &t->stale.entries[i]))
            table_drop(&t->stale, i);
}

static void add(kvo_store *s, store_tier *t, store_stale stale)
{
    store_stale_table *table = &t->stale;
    uint32_t segment = place_segment_of(&t->space, stale.slot);
    atomic_store_explicit(&s->activity, 1, memory_order_relaxed);
    if (bits_get(table->lost, segment))
        return;
    if (table->count == table->max)
        forget_void(t);
    if (table_put(table, stale))
        return;
    bits_set(table->lost, segment);
    table->lost_count++;
}

void store_stale_add(kvo_store *s, unsigned tier, uint32_t slot, uint64_t hash, bool keep)
{
    store_tier *t = &s->tiers[tier];
    if (!t->persistent || s->ghost || s->read_only || KVO_PLANTED(STALE))
        return;
    store_stale_forget(t, slot);
    add(s, t, (store_stale){.hash = hash, .slot = slot, .epoch = segment_of(t, slot)->epoch, .keep = keep});
}

/* ---- off the medium ---- */

typedef struct batch {
    store_stale stale[STORE_WINDOW]; /* slots that we hold */
    size_t count;
    store_stale turned[STORE_WINDOW]; /* in segments whose new header is not on the medium yet */
    uint32_t stride[STORE_WINDOW], epoch[STORE_WINDOW];
    size_t turned_count;
    bool busy; /* some are in use: by a transfer, or by a reservation */
} batch;

/* How far the segments that were lost have been gone through. */
typedef struct lost_cursor {
    uint32_t segment, index;
    bool busy; /* of this segment some are being written */
    bool left; /* of some segment */
} lost_cursor;

static bool has_room(const batch *b) { return b->count < STORE_WINDOW && b->turned_count < STORE_WINDOW; }

static void take_turned(const store_tier *t, const store_stale *stale, batch *b)
{
    const place_segment *segment = segment_of(t, stale->slot);
    b->turned[b->turned_count] = *stale;
    b->stride[b->turned_count] = segment->stride ? segment->stride : segment->last_stride;
    b->epoch[b->turned_count++] = segment->epoch;
}

void store_erasure_begin(kvo_store *s, store_erasure *e, const uint64_t *hashes, size_t count)
{
    e->hashes = hashes;
    e->count = count;
    e->turn = ++s->erasure_turns;
    e->next = s->erasures;
    s->erasures = e;
}

void store_erasure_end(kvo_store *s, store_erasure *e)
{
    store_erasure **at = &s->erasures;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
}

static bool concerns(const store_erasure *e, uint64_t hash)
{
    for (size_t i = 0; i < e->count; i++)
        if (hash == 0 || e->hashes[i] == 0 || e->hashes[i] == hash)
            return true;
    return false;
}

/* How far back somebody who wants names gone looks for others that are at it. */
typedef struct horizon {
    uint64_t turn; /* removes that began later are of blocks that were put later; and two never wait for each other */
    uint64_t mark; /* slots taken from the table later were not in it when it was searched; 0: it was not yet */
} horizon;

/* Under the lock. */
static bool others_erase(const kvo_store *s, uint64_t hash, const horizon *h)
{
    for (const store_erasure *e = s->erasures; e; e = e->next)
        if ((e->doomed ? e->turn < h->turn : e->turn <= h->mark) && concerns(e, hash))
            return true;
    return false;
}

/* Takes a free slot out of use. false: it is in use. */
static bool take_slot(store_tier *t, const store_stale *stale, batch *b)
{
    if (place_slot_used(&t->space, stale->slot) || !place_slot_retake(&t->space, stale->slot)) {
        b->busy = true;
        return false;
    }
    b->stale[b->count++] = *stale;
    return true;
}

static void take_entry(store_tier *t, uint32_t i, batch *b)
{
    store_stale stale = t->stale.entries[i];
    bool mine = true;
    if (!is_void(t, &stale)) {
        if (segment_of(t, stale.slot)->epoch != stale.epoch)
            take_turned(t, &stale, b);
        else
            mine = take_slot(t, &stale, b);
    }
    if (mine)
        table_drop(&t->stale, i);
}

static void take_named(store_tier *t, uint64_t hash, batch *b)
{
    uint32_t next;
    for (uint32_t i = *head_of(&t->stale, BY_HASH, hash); i && has_room(b); i = next) {
        next = t->stale.entries[i - 1].next[BY_HASH];
        if (t->stale.entries[i - 1].hash == hash)
            take_entry(t, i - 1, b);
    }
}

/* The free slots of a segment, as it is cut now or was last. true: that was all of them. */
static bool take_free(store_tier *t, bool spare, lost_cursor *c, batch *b)
{
    const place_segment *segment = &t->space.segments[c->segment];
    uint32_t stride = segment->stride ? segment->stride : segment->last_stride;
    uint32_t first = c->segment * t->space.segment_units + t->space.header_units;
    uint32_t end = stride ? place_slots_of(&t->space, c->segment, stride) : 0;
    for (; c->index < end && has_room(b); c->index++) {
        store_stale stale = {.slot = first + c->index * stride, .epoch = segment->epoch};
        bool used = segment->stride && place_slot_used(&t->space, stale.slot);
        uint32_t i = entry_of(t, stale.slot);
        if (used && place_number_at(&t->space, c->segment, c->index)) /* written since: a block's */
            continue;
        if (i == t->stale.end)
            c->busy |= !take_slot(t, &stale, b);
        else if (!(spare && t->stale.entries[i].keep))
            take_entry(t, i, b);
    }
    return c->index >= end;
}

static void take_lost(store_tier *t, bool spare, lost_cursor *c, batch *b)
{
    for (; t->stale.lost_count && c->segment < t->space.segment_count && has_room(b); c->segment++) {
        const place_segment *segment = &t->space.segments[c->segment];
        if (!bits_get(t->stale.lost, c->segment))
            continue;
        if (c->index == 0 && segment->written != segment->epoch)
            take_turned(t, &(store_stale){.slot = c->segment * t->space.segment_units, .epoch = segment->written}, b);
        if (!take_free(t, spare, c, b))
            return;
        c->left |= c->busy;
        if (!c->busy) {
            bits_clear(t->stale.lost, c->segment);
            t->stale.lost_count--;
        }
        c->index = 0;
        c->busy = false;
    }
}

/* Under the lock: takes free slots whose header may still name `hash` (0 = any, with `spare` only those
   that nothing speaks for) out of use. */
static void take(store_tier *t, uint64_t hash, bool spare, lost_cursor *c, batch *b)
{
    take_named(t, 0, b);
    if (hash)
        take_named(t, hash, b);
    for (uint32_t i = 0; hash == 0 && i < t->stale.end && has_room(b); i++)
        if (t->stale.entries[i].used && !(t->stale.entries[i].keep && spare))
            take_entry(t, i, b);
    if (b->count + b->turned_count == 0) /* what this batch holds would look as if it were being written */
        take_lost(t, spare, c, b);
}

/* What is to be written is nowhere listed until it was. */
static void erasure_of(kvo_store *s, const batch *b, store_erasure *e, uint64_t hashes[2 * STORE_WINDOW])
{
    size_t n = 0;
    for (size_t i = 0; i < b->count; i++)
        hashes[n++] = b->stale[i].hash;
    for (size_t i = 0; i < b->turned_count; i++)
        hashes[n++] = b->turned[i].hash;
    store_erasure_begin(s, e, hashes, n);
}

static int invalidate(kvo_store *s, unsigned tier, const batch *b, store_erasure *e)
{
    store_tier *t = &s->tiers[tier];
    uint32_t slots[STORE_WINDOW];
    int r = 0, failed;
    for (size_t i = 0; i < b->count; i++)
        slots[i] = b->stale[i].slot;
    int invalidated = tier_invalidate(t->io, slots, b->count);
    for (size_t i = 0; i < b->turned_count; i++)
        if ((failed = t->io->ops->segment_write(t->io, place_segment_of(&t->space, b->turned[i].slot), b->stride[i],
                                                b->epoch[i])) != 0)
            r = failed;
    store_lock(s);
    for (size_t i = 0; i < b->count; i++) {
        if (invalidated != 0)
            add(s, t, b->stale[i]);
        place_slot_free(&t->space, b->stale[i].slot);
    }
    for (size_t i = 0; r != 0 && i < b->turned_count; i++)
        add(s, t, b->turned[i]);
    store_erasure_end(s, e);
    store_changed(s);
    store_unlock(s);
    return invalidated ? invalidated : r;
}

static int invalidate_tier(kvo_store *s, unsigned tier, uint64_t hash, bool spare, horizon h, uint64_t deadline)
{
    store_tier *t = &s->tiers[tier];
    lost_cursor cursor = {.segment = 0};
    store_erasure e = {.doomed = false};
    uint64_t hashes[2 * STORE_WINDOW];
    /* What is evicted while we work is not ours: at most as many rounds as there are entries now. */
    store_lock(s);
    uint64_t rounds = t->stale.count + (uint64_t)t->stale.lost_count * place_slots_max(&t->space);
    store_unlock(s);
    bool in_use = false;
    for (uint64_t round = 0;;) {
        batch b = {.count = 0};
        bool over = round > rounds && hash == 0;
        store_lock(s);
        if (!over) {
            take(t, hash, spare, &cursor, &b);
            in_use = b.busy || cursor.left;
        }
        bool none = b.count + b.turned_count == 0;
        if (none && h.mark == 0)
            h.mark = s->erasure_turns;
        bool busy = in_use || others_erase(s, hash, &h);
        bool late = none && busy && (deadline == 0 || !store_wait(s, deadline));
        if (over && in_use) /* of those that are ours: look again */
            rounds = round;
        if (!none)
            erasure_of(s, &b, &e, hashes);
        store_unlock(s);
        if (late)
            return -ETIMEDOUT;
        if (none && !busy)
            return 0;
        int r = none ? 0 : invalidate(s, tier, &b, &e);
        if (r != 0)
            return r;
        round += !none;
        if (none)
            cursor = (lost_cursor){.segment = 0};
    }
}

static int invalidate_all(kvo_store *s, uint64_t hash, bool spare, const store_erasure *own, uint64_t deadline)
{
    int result = 0;
    store_lock(s);
    horizon h = {.turn = own ? own->turn : s->erasure_turns + 1};
    store_unlock(s);
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (!s->tiers[t].persistent || s->ghost || s->read_only)
            continue;
        int r = invalidate_tier(s, t, hash, spare, h, deadline);
        if (r != 0)
            result = r;
    }
    return result;
}

int store_invalidate_stale(kvo_store *s, uint64_t hash, const store_erasure *own, uint64_t deadline)
{
    return invalidate_all(s, hash, false, own, deadline);
}

int store_invalidate_evicted(kvo_store *s) { return invalidate_all(s, 0, true, NULL, 0); }
