/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in a tier: slots are free, or freed by taking the next victim from the tier's queue. A
 * queue is filled by one scan (place_victims) for a batch of victims; those without a copy below
 * are demoted together, and each victim's copy is discarded when its slot is needed, not before, so
 * that a block which is used meanwhile is saved. Where slot sizes mix, a segment of another size may have to go
 * (resize.c). All under the store's lock, which demotion lets go.
 */
#include "store/room.h"

#define MOVER_BATCH_BYTES (32u << 20)
#define ORDINARY_KEY (PLACE_KEY_KEPT - 1)

uint32_t store_stride(kvo_store *s, unsigned tier, uint32_t payload_bytes)
{
    return place_stride(&s->tiers[tier].space, payload_bytes);
}

/* ---- the queue ---- */

static void queue_drop(store_tier *t, store_queue *q)
{
    for (uint32_t i = 0; i < q->count; i++)
        bits_clear(t->queued, t->queue[q->first + i].record);
    q->count = 0;
}

static store_queue queue_current(const store_tier *t)
{
    return (store_queue){t->queue_stride, t->queue_first, t->queue_count};
}

static void queue_use(store_tier *t, store_queue q)
{
    t->queue_stride = q.stride;
    t->clean = 0;
    t->queue_first = q.first;
    t->queue_count = q.count;
}

static void queue_clear(store_tier *t)
{
    store_queue current = queue_current(t);
    queue_drop(t, &current);
    queue_use(t, current);
    for (unsigned i = 0; i < STORE_QUEUES; i++)
        queue_drop(t, &t->parked[i]);
    t->queue_end = 0;
    atomic_store(&t->queue_limit, 0);
}

/* The queue of another slot size: the one in use waits for its turn. */
static void queue_switch(store_tier *t, uint32_t stride)
{
    store_queue current = queue_current(t), next = {.stride = stride};
    if (stride == t->queue_stride)
        return;
    for (unsigned i = 0; i < STORE_QUEUES; i++)
        if (t->parked[i].count && t->parked[i].stride == stride) {
            next = t->parked[i];
            t->parked[i] = (store_queue){0};
        }
    for (unsigned i = 0; i < STORE_QUEUES && current.count; i++)
        if (t->parked[i].count == 0) {
            t->parked[i] = current;
            current.count = 0;
        }
    queue_drop(t, &current);
    queue_use(t, next);
}

/* Where the next queue of `want` lies: what waits there gives way. */
static uint32_t queue_place(store_tier *t, uint32_t want)
{
    uint32_t first = t->queue_end + want > PLACE_VICTIMS_MAX ? 0 : t->queue_end;
    for (unsigned i = 0; i < STORE_QUEUES; i++) {
        store_queue *q = &t->parked[i];
        if (q->count && q->first < first + want && first < q->first + q->count)
            queue_drop(t, q);
    }
    t->queue_end = first + want;
    return first;
}

place_query room_query(kvo_store *s, unsigned tier, uint32_t stride)
{
    return (place_query){
        .records = s->records,
        .identities = s->identities,
        .record_end = atomic_load(&s->record_end),
        .rules = {s->options.placement, s->tiers[0].slots, store_now_s(s)},
        .tier = tier,
        .tier_count = s->tier_count,
        .anchored = s->anchored,
        .tier_recency = s->tiers[tier].tier_recency,
        .want = place_batch(stride ? place_units(&s->tiers[tier].space) / stride : s->tiers[tier].slots),
        .segments = &s->tiers[tier].space,
        .stride = stride,
    };
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Where sizes mix each has a queue, as long as its part of the segments, so that they all fit the array. */
static uint32_t queue_want(const store_tier *t, uint32_t stride, uint32_t want)
{
    const place_segments *p = &t->space;
    if (place_only_stride(p, stride))
        return want;
    uint64_t most = (uint64_t)PLACE_VICTIMS_MAX / 2 * place_segments_with(p, stride) / p->segment_count + 8;
    return want < most ? want : (uint32_t)most;
}

static place_found queue_fill(kvo_store *s, unsigned tier, uint32_t stride)
{
    store_tier *t = &s->tiers[tier];
    store_queue current = queue_current(t);
    queue_drop(t, &current);
    if (atomic_load(&t->queue_old))
        queue_clear(t);
    uint64_t limit = atomic_load(&t->queue_limit);
    atomic_store(&t->queue_old, false);
    atomic_store(&t->queue_limit, UINT64_MAX); /* what changes during the scan counts too */
    store_holds_expire(s);
    store_relink(s);
    place_query query = room_query(s, tier, stride);
    query.want = queue_want(t, stride, query.want);
    uint32_t first = queue_place(t, query.want);
    place_found found = place_victims(&s->scan, &query, t->queue + first);
    queue_use(t, (store_queue){stride, first, found.count});
    for (uint32_t i = 0; i < found.count; i++)
        bits_set(t->queued, t->queue[first + i].record);
    bool others = false;
    for (unsigned i = 0; i < STORE_QUEUES; i++)
        others |= t->parked[i].count > 0;
    atomic_store(&t->queue_limit,
                 max_u64(others ? limit : 0, found.count ? t->queue[first + found.count - 1].key : 0));
    return found;
}

static void queue_pop(store_tier *t)
{
    uint32_t record = t->queue[t->queue_first].record;
    bits_clear(t->queued, record);
    t->queue_first++;
    t->queue_count--;
    t->clean -= t->clean > 0;
}

bool room_below(const kvo_store *s, uint32_t record, unsigned tier)
{
    for (unsigned t = tier + 1; t < s->tier_count; t++)
        if (copy_valid(word_load(&s->records[record].copy[t])))
            return true;
    return false;
}

bool room_above(const kvo_store *s, uint32_t record, unsigned tier)
{
    for (unsigned t = 0; t < tier; t++)
        if (copy_state(word_load(&s->records[record].copy[t])) != BLOCK_EMPTY)
            return true;
    return false;
}

/* As it was when it was chosen: same block, same policy and recency, nobody at it. */
static bool victim_stands(const kvo_store *s, const store_tier *t, const place_victim *v)
{
    const block_record *r = &s->records[v->record];
    uint64_t life = word_load(&r->life);
    return bits_get(t->queued, v->record) && life_incarnation(life) == v->incarnation && life_live(life) &&
           !life_has(life, LIFE_HELD) && copy_idle(word_load(&r->copy[t->number])) &&
           word_load(&r->policy) == v->policy && word_load(&r->touch) == v->touch &&
           !(s->anchored && room_above(s, v->record, t->number));
}

/* One that stays after all: then its parent, which comes later in the queue, does too (rule 9). */
static void queue_skip(kvo_store *s, store_tier *t)
{
    uint32_t parent = store_parent(s, t->queue[t->queue_first].record);
    if (parent != BLOCK_NONE)
        bits_clear(t->queued, parent);
    queue_pop(t);
}

/* It is on its way down, and will stand again. */
static bool on_its_way(const kvo_store *s, const store_tier *t, const place_victim *v)
{
    const block_record *r = &s->records[v->record];
    uint64_t life = word_load(&r->life), copy = word_load(&r->copy[t->number]);
    return t->demoting && bits_get(t->queued, v->record) && life_incarnation(life) == v->incarnation &&
           life_live(life) && copy_valid(copy) && copy_moving(copy) && copy_pins(copy) == 0;
}

/* The next victim that stands or will, or NULL when the queue is used up. */
static place_victim *queue_head(kvo_store *s, store_tier *t, uint32_t stride)
{
    if (atomic_load(&t->queue_old))
        queue_clear(t);
    queue_switch(t, stride);
    while (t->queue_count && !victim_stands(s, t, &t->queue[t->queue_first]) &&
           !on_its_way(s, t, &t->queue[t->queue_first]))
        queue_skip(s, t);
    return t->queue_count ? &t->queue[t->queue_first] : NULL;
}

/* ---- leaving ---- */

static void count_eviction(kvo_store *s, unsigned tier, uint32_t record, bool clean, kvo_cause cause)
{
    store_tier *t = &s->tiers[tier];
    ledger_count(&s->ledger, t->account, clean ? LEDGER_CLEAN_DISCARDS : LEDGER_OTHER_EVICTIONS, 1);
    if (cause == KVO_CAUSE_ORPHAN)
        ledger_count(&s->ledger, t->account, LEDGER_ORPHANS, 1);
    if (cause == KVO_CAUSE_YIELD)
        ledger_count(&s->ledger, t->account, LEDGER_YIELDS, 1);
    store_event(s, clean ? KVO_EVENT_DISCARD : KVO_EVENT_DROP, cause, tier, record);
}

bool room_evict(kvo_store *s, unsigned tier, uint32_t record, kvo_cause cause)
{
    bool clean = room_below(s, record, tier);
    if (!store_copy_drop(s, record, tier, true, cause == KVO_CAUSE_NONE ? KVO_CAUSE_EVICT : cause))
        return false;
    count_eviction(s, tier, record, clean, cause);
    store_end_without(s, record, tier, cause);
    return true;
}

/* ---- demotion ---- */

/* Anchoring yields: all that lies below is anchored, so the next victim goes without a copy. Only
   that one: those behind it may be its parents. */
static bool yield(kvo_store *s, store_tier *t, uint32_t record)
{
    place_victim *v = queue_head(s, t, t->queue_stride);
    if (v == NULL || v->record != record)
        return true; /* things have changed: look again */
    if (v->orphan)
        ledger_count(&s->ledger, t->account, LEDGER_ORPHANS, 1);
    queue_pop(t);
    return room_evict(s, t->number, record, KVO_CAUSE_YIELD);
}

/* Blocks of a batch. With a mover they are few, so that those who wait for room wait for little. */
static size_t batch_most(const kvo_store *s, uint32_t record)
{
    uint64_t bytes = identity_payload_of(&s->identities[record]), most = STORE_WINDOW * 2;
    if (s->exclusive) /* a move is not made ahead */
        return 1;
    if (s->mover_runs && bytes * most > MOVER_BATCH_BYTES)
        most = bytes < MOVER_BATCH_BYTES ? MOVER_BATCH_BYTES / bytes : 1;
    return most;
}

typedef struct descent {
    uint32_t records[STORE_WINDOW * 2];
    int results[STORE_WINDOW * 2];
    size_t count;
} descent;

/* The first of the queue that lie nowhere below; best: as make_room(). */
static void descent_list(const kvo_store *s, const store_tier *t, uint32_t look, uint64_t best, descent *d)
{
    size_t most = STORE_WINDOW * 2;
    d->count = 0;
    for (uint32_t i = 0; i < t->queue_count && i < look && d->count < most; i++) {
        const place_victim *v = &t->queue[t->queue_first + i];
        bool there = room_below(s, v->record, t->number) && !KVO_PLANTED(DEMOTE_TWICE);
        if (v->key > best || !victim_stands(s, t, v) || there)
            continue;
        if (d->count == 0)
            most = batch_most(s, v->record);
        d->records[d->count++] = v->record;
    }
}

static void descend(kvo_store *s, store_tier *t, descent *d)
{
    t->demoting = true;
    store_demote(s, d->records, d->count, t->number + 1, d->results);
    t->demoting = false;
    store_changed(s);
}

/* Brings down those in the queue that lie nowhere below. KVO_OK: something was done. */
static int demote_queue(kvo_store *s, unsigned tier, uint64_t best, bool *waited)
{
    store_tier *t = &s->tiers[tier];
    descent d;
    descent_list(s, t, UINT32_MAX, best, &d);
    if (d.count == 0) /* the head was used since: look again */
        return KVO_OK;
    *waited = true;
    descend(s, t, &d);
    int worst = KVO_BUSY;
    for (size_t i = 0; i < d.count; i++) {
        if (d.results[i] == KVO_OK || d.results[i] == KVO_GONE)
            return KVO_OK;
        if (d.results[i] != KVO_BUSY && d.results[i] != KVO_SHORT)
            worst = KVO_FULL;
    }
    return d.results[0] == KVO_SHORT && yield(s, t, d.records[0]) ? KVO_OK : worst;
}

/* ---- ahead of need ---- */

bool store_room_low(const kvo_store *s, unsigned tier, uint32_t ahead)
{
    const store_tier *t = &s->tiers[tier];
    bool same = t->queue_stride == 0 || t->queue_stride == t->wanted_stride;
    return t->wanted_stride && place_slots_free(&t->space, t->wanted_stride) + (same ? t->clean : 0) < ahead;
}

static uint32_t clean_front(const kvo_store *s, const store_tier *t, uint32_t look)
{
    uint32_t n = 0;
    while (n < look && n < t->queue_count && room_below(s, t->queue[t->queue_first + n].record, t->number))
        n++;
    return n;
}

int store_demote_ahead(kvo_store *s, unsigned tier)
{
    store_tier *t = &s->tiers[tier];
    uint64_t free = place_slots_free(&t->space, t->wanted_stride);
    descent d = {.count = 0};
    if (t->demoting || free >= t->ahead)
        return KVO_MISS;
    uint32_t look = t->ahead - (uint32_t)free;
    uint32_t filter = place_only_stride(&t->space, t->wanted_stride) ? 0 : t->wanted_stride;
    if (queue_head(s, t, filter) == NULL && queue_fill(s, tier, filter).count == 0)
        return KVO_MISS;
    descent_list(s, t, look, ROOM_ANY_KEY, &d);
    if (d.count)
        descend(s, t, &d);
    t->clean = clean_front(s, t, look);
    for (size_t i = 0; i < d.count; i++)
        atomic_fetch_add(&s->demoted_ahead, d.results[i] == KVO_OK);
    int worst = KVO_MISS;
    for (size_t i = 0; i < d.count; i++) {
        if (d.results[i] == KVO_OK || d.results[i] == KVO_GONE)
            return KVO_OK;
        worst = d.results[i];
    }
    return worst;
}

/* ---- room ---- */

/* Where slot sizes mix, anchors in segments of another size are in the way too. */
static int why_no_victim(kvo_store *s, unsigned tier, const place_found *found, uint32_t filter)
{
    bool anchored = found->anchored > 0;
    if (!anchored && filter) {
        place_victim ignored;
        place_query query = room_query(s, tier, 0);
        query.want = 1;
        anchored = place_victims(&s->scan, &query, &ignored).anchored > 0;
    }
    return anchored ? KVO_SHORT : KVO_BUSY;
}

/* Who makes room: whoever needs it, or, for one with a deadline that a device must not outlast, the mover. */
typedef enum maker { MAKER_SELF, MAKER_MOVER } maker;

static maker maker_for(const kvo_store *s, uint64_t deadline)
{
    bool bounded = deadline != 0 && deadline != KVO_FOREVER;
    return bounded && s->mover_runs && !s->mover_stops ? MAKER_MOVER : MAKER_SELF;
}

/* One slot's worth of room, from blocks with keys up to `best`. KVO_OK: look again; KVO_BUSY: nothing may go now;
   KVO_SHORT: only anchors are in the way; KVO_FULL: below does not take what must go; KVO_PENDING: what must go
   has to be written first, and that is the mover's. */
static int make_room(kvo_store *s, unsigned tier, uint32_t stride, uint64_t best, maker who, bool *waited)
{
    store_tier *t = &s->tiers[tier];
    bool mixed = !place_only_stride(&t->space, stride), last = tier + 1 == s->tier_count;
    uint32_t filter = mixed ? stride : 0;
    int dirty = who == MAKER_MOVER && !last ? KVO_PENDING : KVO_OK;
    place_victim *v = queue_head(s, t, filter);
    if (v == NULL) {
        if (t->demoting)
            return KVO_BUSY;
        place_found found = queue_fill(s, tier, filter);
        if (found.changed)
            return KVO_OK;
        v = found.count ? &t->queue[t->queue_first] : NULL;
        if (v == NULL && filter && dirty)
            return dirty;
        if (v == NULL)
            return filter && room_resize(s, tier, stride, NULL, best) ? KVO_OK
                                                                        : why_no_victim(s, tier, &found, filter);
    }
    if (mixed && !t->demoting && t->space.taken_units >= t->look_units) {
        if (dirty)
            return dirty;
        if (room_resize(s, tier, stride, v, best))
            return KVO_OK;
    }
    v = queue_head(s, t, filter);
    if (v == NULL)
        return KVO_OK;
    if (v->key > best)
        return KVO_BUSY;
    if (room_below(s, v->record, tier) || last || KVO_PLANTED(LOSS)) {
        uint32_t record = v->record;
        if (room_evict(s, tier, record, v->orphan ? KVO_CAUSE_ORPHAN : KVO_CAUSE_NONE))
            queue_pop(t);
        else
            queue_skip(s, t);
        return KVO_OK;
    }
    if (t->demoting)
        return KVO_BUSY;
    return dirty ? dirty : demote_queue(s, tier, best, waited);
}

void store_room_answer(kvo_store *s, unsigned tier)
{
    store_tier *t = &s->tiers[tier];
    bool waited;
    if (!t->room.asked)
        return;
    t->room.status = make_room(s, tier, t->room.stride, t->room.best, MAKER_SELF, &waited);
    t->room.asked = false;
    t->room.round++;
    store_changed(s);
}

/* Has the mover make room. KVO_BUSY: not in time; KVO_OK also where it was made for another, or there is no
   mover any more: look again. */
static int ask_mover(kvo_store *s, store_tier *t, uint32_t stride, uint64_t best, uint64_t deadline, bool *waited)
{
    bool mine = !t->room.asked;
    uint64_t round = t->room.round;
    if (mine) {
        t->room.asked = true;
        t->room.stride = stride;
        t->room.best = best;
        store_mover_wake(s);
    }
    while (t->room.round == round && !s->mover_stops) {
        if (!store_wait(s, deadline))
            return KVO_BUSY;
        *waited = true;
    }
    return mine && t->room.round == round + 1 ? t->room.status : KVO_OK;
}

/* make_room(), by whoever may wait for it. */
static int have_room(kvo_store *s, unsigned tier, uint32_t stride, uint64_t best, uint64_t deadline, bool *waited)
{
    int status = make_room(s, tier, stride, best, maker_for(s, deadline), waited);
    return status == KVO_PENDING ? ask_mover(s, &s->tiers[tier], stride, best, deadline, waited) : status;
}

/* A slot of this stride, or why not. */
static int take_slot(kvo_store *s, unsigned tier, uint32_t stride, uint64_t best, uint64_t deadline, uint32_t *slot,
                     bool *waited)
{
    int status;
    do {
        *slot = place_slot_take(&s->tiers[tier].space, stride);
        if (*slot != PLACE_SLOT_NONE)
            return KVO_OK;
        status = have_room(s, tier, stride, best, deadline, waited);
    } while (status == KVO_OK);
    return status;
}

static int room(kvo_store *s, unsigned tier, uint32_t payload_bytes, uint64_t best, uint64_t deadline, uint32_t *slot,
                bool *waited)
{
    store_tier *t = &s->tiers[tier];
    uint32_t stride = store_stride(s, tier, payload_bytes);
    if (stride == 0)
        return KVO_REFUSED;
    for (;;) {
        uint32_t used = place_lend(&t->space, stride);
        int status = take_slot(s, tier, used, best, deadline, slot, waited);
        /* No slot of its size can be had, nor a segment for it: better one that is too large. */
        for (uint32_t l = stride; (status == KVO_BUSY || status == KVO_SHORT) && !t->demoting;) {
            if ((l = place_larger(&t->space, l)) == 0)
                break;
            if (take_slot(s, tier, l, best, deadline, slot, waited) == KVO_OK) {
                status = KVO_OK;
                used = l;
            }
        }
        if (status == KVO_OK) {
            t->wanted_stride = used;
            store_mover_nudge(s, t);
        }
        if (status == KVO_OK || deadline == 0 || status == KVO_FULL)
            return status;
        if (!store_wait(s, deadline))
            return KVO_PLANTED(TIMEOUT) ? KVO_FULL : status == KVO_SHORT ? KVO_BUSY : status;
        *waited = true;
    }
}

int store_room(kvo_store *s, unsigned tier, uint32_t payload_bytes, uint64_t deadline, uint32_t *slot, bool *waited)
{
    return room(s, tier, payload_bytes, ROOM_ANY_KEY, deadline, slot, waited);
}

int store_room_ordinary(kvo_store *s, unsigned tier, uint32_t payload_bytes, uint32_t *slot)
{
    bool waited;
    return room(s, tier, payload_bytes, ORDINARY_KEY, 0, slot, &waited);
}

int store_room_record(kvo_store *s, uint64_t deadline, uint32_t *record)
{
    bool waited = false;
    while ((*record = store_record_take(s)) == BLOCK_NONE) {
        /* A block ends where it lies lowest; where nothing may go there, it first has to get there. */
        int status = KVO_BUSY;
        for (unsigned t = s->tier_count; t-- > 0 && status != KVO_OK;)
            status = have_room(s, t, 0, ROOM_ANY_KEY, deadline, &waited);
        if (status == KVO_OK)
            continue;
        if (deadline == 0 || !store_wait(s, deadline))
            return status == KVO_SHORT ? KVO_BUSY : status;
    }
    return KVO_OK;
}
