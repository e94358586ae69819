/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stale slots: free, but the header on the medium still says what was there. After a crash such a
 * block may be back, which is right for one that was evicted and wrong for one that was removed. So
 * they are listed until their slot is written again, or their segment's header has made them void.
 */
#include <errno.h>

#include "store/store.h"

static const place_segment *segment_of(const store_tier *t, uint32_t slot)
{
    return &t->space.segments[place_segment_of(&t->space, slot)];
}

/* The segment on the medium has another slot size now. */
static bool is_void(const store_tier *t, const store_stale *stale)
{
    return segment_of(t, stale->slot)->written != stale->epoch && segment_of(t, stale->slot)->epoch != stale->epoch;
}

void store_stale_forget(store_tier *t, uint32_t slot)
{
    for (uint32_t i = 0; i < t->stale_count; i++)
        if (t->stale[i].slot == slot && t->stale[i].epoch == segment_of(t, slot)->epoch) {
            t->stale[i] = t->stale[--t->stale_count];
            return;
        }
}

static void forget_void(store_tier *t)
{
    for (uint32_t i = 0; i < t->stale_count;)
        if (is_void(t, &t->stale[i]))
            t->stale[i] = t->stale[--t->stale_count];
        else
            i++;
}

static void add(kvo_store *s, store_tier *t, store_stale stale)
{
    if (t->stale_count == t->stale_max)
        forget_void(t);
    if (t->stale_count == t->stale_max) {
        store_log(s, "%s: more than %u evicted blocks to remember; one that is removed may be back after a crash",
                  t->path, t->stale_max);
        t->stale_lost = true;
        return;
    }
    t->stale[t->stale_count++] = stale;
    atomic_store_explicit(&s->activity, 1, memory_order_relaxed);
}

void store_stale_add(kvo_store *s, unsigned tier, uint32_t slot, uint64_t hash, bool keep)
{
    store_tier *t = &s->tiers[tier];
    if (!t->persistent || s->ghost || s->read_only)
        return;
    store_stale_forget(t, slot);
    add(s, t, (store_stale){slot, segment_of(t, slot)->epoch, hash, keep});
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

static void take_turned(const store_tier *t, const store_stale *stale, batch *b)
{
    const place_segment *segment = segment_of(t, stale->slot);
    b->turned[b->turned_count] = *stale;
    b->stride[b->turned_count] = segment->stride ? segment->stride : segment->last_stride;
    b->epoch[b->turned_count++] = segment->epoch;
}

/* Under the lock: takes free slots whose header may still name `hash` (0 = any, with `spare` only those
   that nothing speaks for) out of use. */
static void take(store_tier *t, uint64_t hash, bool spare, batch *b)
{
    for (uint32_t i = 0; i < t->stale_count && b->count < STORE_WINDOW && b->turned_count < STORE_WINDOW;) {
        store_stale stale = t->stale[i];
        bool wanted = (hash == 0 && !(stale.keep && spare)) || stale.hash == 0 || stale.hash == hash;
        bool mine = is_void(t, &stale);
        if (wanted && !mine && segment_of(t, stale.slot)->epoch != stale.epoch) {
            take_turned(t, &stale, b);
            mine = true;
        } else if (wanted && !mine) {
            mine = !place_slot_used(&t->space, stale.slot) && place_slot_retake(&t->space, stale.slot);
            b->busy |= !mine;
            if (mine)
                b->stale[b->count++] = stale;
        }
        if (mine)
            t->stale[i] = t->stale[--t->stale_count];
        else
            i++;
    }
}

static int invalidate(kvo_store *s, unsigned tier, const batch *b)
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
    store_changed(s);
    store_unlock(s);
    return invalidated ? invalidated : r;
}

static int invalidate_tier(kvo_store *s, unsigned tier, uint64_t hash, bool spare, uint64_t deadline)
{
    /* What is evicted while we work is not ours: at most as many rounds as there are entries now. */
    store_lock(s);
    uint64_t rounds = s->tiers[tier].stale_count;
    store_unlock(s);
    for (uint64_t round = 0;; round++) {
        batch b = {.count = 0};
        if (round > rounds && hash == 0)
            return 0;
        store_lock(s);
        take(&s->tiers[tier], hash, spare, &b);
        bool none = b.count + b.turned_count == 0;
        bool late = none && b.busy && (deadline == 0 || !store_wait(s, deadline));
        store_unlock(s);
        if (late)
            return -ETIMEDOUT;
        if (none && !b.busy)
            return 0;
        int r = none ? 0 : invalidate(s, tier, &b);
        if (r != 0)
            return r;
    }
}

static int invalidate_all(kvo_store *s, uint64_t hash, bool spare, uint64_t deadline)
{
    int result = 0;
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (!s->tiers[t].persistent || s->ghost || s->read_only)
            continue;
        int r = invalidate_tier(s, t, hash, spare, deadline);
        if (r != 0)
            result = r;
    }
    return result;
}

int store_invalidate_stale(kvo_store *s, uint64_t hash, uint64_t deadline)
{
    return invalidate_all(s, hash, false, deadline);
}

int store_invalidate_evicted(kvo_store *s) { return invalidate_all(s, 0, true, 0); }
