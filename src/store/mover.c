/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mover: one thread that keeps the next victims of each tier clean, so that making room is a
 * discard, and that makes room where a call must not wait longer than it said. How far ahead follows
 * from how fast slots are taken and how long a batch takes: what is taken during two batches. It
 * sleeps until a slot is taken and less than half of that is ready.
 */
#include "store/store.h"

#define AHEAD_LEAST 4u
#define REST_NS 100000000u /* after a batch that failed: the medium is full or does not answer */

static uint64_t smooth(uint64_t old, uint64_t new) { return old ? (3 * old + new) / 4 : new; }

static void look_ahead(store_tier *t, uint64_t now)
{
    uint64_t elapsed = now - t->looked_ns;
    if (t->looked_ns && elapsed > 1000000u)
        t->per_second = smooth(t->per_second, t->taken * 1000000000u / elapsed);
    if (t->looked_ns == 0 || elapsed > 1000000u) {
        t->looked_ns = now;
        t->taken = 0;
    }
    uint64_t ahead = t->per_second * (2 * t->batch_ns / 1000u) / 1000000u + AHEAD_LEAST;
    uint32_t most = place_batch(t->slots); /* what the queue can hold: a small part of the tier */
    t->ahead = ahead < most ? (uint32_t)ahead : most;
}

/* Lowest first: room below is what those above need. */
static bool move_once(kvo_store *s)
{
    bool moved = false;
    for (unsigned tier = s->tier_count - 1; tier-- > 0;) {
        store_tier *t = &s->tiers[tier];
        uint64_t begin = s->env->now_ns(s->env);
        look_ahead(t, begin);
        if (begin < t->rest_until_ns || !store_room_low(s, tier, t->ahead))
            continue;
        int r = store_demote_ahead(s, tier);
        uint64_t end = s->env->now_ns(s->env);
        if (r == KVO_OK)
            t->batch_ns = smooth(t->batch_ns, end - begin);
        else if (r != KVO_MISS)
            t->rest_until_ns = end + REST_NS;
        moved |= r == KVO_OK;
    }
    return moved;
}

void store_mover_nudge(kvo_store *s, store_tier *t)
{
    t->taken++;
    if (!s->mover_runs || s->mover_asked || t->number + 1 == s->tier_count ||
        !store_room_low(s, t->number, t->ahead / 2 + 1))
        return;
    store_mover_wake(s);
}

void store_mover_wake(kvo_store *s)
{
    s->mover_asked = true;
    pthread_cond_signal(&s->mover_wake);
}

static void *mover(void *argument)
{
    kvo_store *s = argument;
    store_lock(s);
    while (!s->mover_stops) {
        s->mover_asked = false;
        for (unsigned tier = s->tier_count - 1; tier-- > 0;)
            store_room_answer(s, tier);
        if (move_once(s))
            continue;
        while (!s->mover_asked && !s->mover_stops)
            pthread_cond_wait(&s->mover_wake, &s->lock);
    }
    store_unlock(s);
    return NULL;
}

int store_mover_start(kvo_store *s)
{
    if (s->ghost || s->read_only || s->tier_count < 2 || (s->options.flags & KVO_OPEN_STEPPED))
        return KVO_OK;
    for (unsigned t = 0; t < s->tier_count; t++)
        s->tiers[t].ahead = AHEAD_LEAST;
    s->mover_runs = base_thread_start(&s->mover, mover, s) == 0;
    return s->mover_runs ? KVO_OK : KVO_E_MEMORY;
}

void store_mover_stop(kvo_store *s)
{
    if (!s->mover_runs)
        return;
    store_lock(s);
    s->mover_stops = true;
    pthread_cond_signal(&s->mover_wake);
    store_unlock(s);
    pthread_join(s->mover, NULL);
    s->mover_runs = s->mover_stops = false;
}
