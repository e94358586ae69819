/* SPDX-License-Identifier: Apache-2.0 */
#include "store/fetch.h"

#include <errno.h>
#include <string.h>

#include "store/put.h"

#define ROUNDS_MAX 1000u

/* ---- look ---- */

/* Pins the fastest copy of a record that still is the item's block. */
static bool pin_fastest(kvo_store *s, fetch_item *item, uint64_t life)
{
    block_record *r = &s->records[item->record];
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy;
        if (!block_pin(r, t, &copy))
            continue;
        uint64_t now = word_load(&r->life);
        if (life_live(now) && life_incarnation(now) == life_incarnation(life)) {
            item->tier = item->from = t;
            return true;
        }
        store_unpin(s, item->record, t);
    }
    return false;
}

/* Full of pins, or it just went, or its only copy is being retired; or a rewrite hid it when we came, and it is
   there again, or will be. */
static void not_pinned(const kvo_store *s, fetch_item *item, uint64_t life)
{
    const block_record *r = &s->records[item->record];
    uint64_t now = word_load(&r->life);
    bool full = false, again = !life_has(now, LIFE_SEALED) || life_incarnation(now) != life_incarnation(life);
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        full |= copy_pins(copy) == COPY_PINS_MAX;
        again |= copy_valid(copy) && copy_pins(copy) < COPY_PINS_MAX;
    }
    item->how = again ? FETCH_AGAIN : FETCH_DONE;
    item->status = full ? KVO_BUSY : KVO_MISS;
    item->later = full;
}

static void look(kvo_store *s, fetch_batch *batch, fetch_item *item)
{
    uint64_t life;
    block_identity key;
    identity_key(batch->names, item->index, &key);
    item->how = FETCH_DONE;
    item->status = KVO_MISS;
    item->checked = item->delivered = item->retried = false;
    item->record = index_find(&s->index, &key, &life);
    if (item->record == BLOCK_NONE)
        return;
    if (!life_has(life, LIFE_SEALED)) {
        item->how = FETCH_AGAIN;
        item->pending = true;
        return;
    }
    if (!pin_fastest(s, item, life)) {
        not_pinned(s, item, life);
        return;
    }
    /* Pinned: the record and its identity are ours to read. */
    identity_load(&s->identities[item->record], &item->identity);
    item->handle = handle_make(item->record, life_incarnation(life));
    if (batch->pins == NULL && item->bytes != item->identity.payload_bytes) {
        store_unpin(s, item->record, item->tier);
        item->handle = 0;
        item->status = KVO_SIZE;
        return;
    }
    if (!item->touched)
        store_touch(s, item->record, batch->recency - item->index);
    if (batch->recency)
        store_raise_ancestors(s, item->record, batch->recency - item->index);
    item->touched = true;
    item->how = s->ghost || s->tiers[item->tier].byte_addressable ? FETCH_MEMORY : FETCH_DIRECT;
    if (item->tier > 0 && (s->ghost || s->tiers[0].byte_addressable) && !batch->options.no_promote)
        item->how = FETCH_PROMOTE;
}

/* ---- room above ---- */

/* No room above: past the first tier, where the caller wants bytes and no address. */
static void go_past(kvo_store *s, const fetch_batch *batch, fetch_item *item)
{
    item->how = s->ghost || s->tiers[item->tier].byte_addressable ? FETCH_MEMORY : FETCH_DIRECT;
    if (batch->pins) {
        item->how = FETCH_DONE;
        item->status = KVO_BUSY;
        item->later = true;
    }
}

/* Somebody brings it up, or has: look again. A copy above that is being retired, or has all the pins
   it can have, is no help. */
static bool above_soon(uint64_t first)
{
    return copy_state(first) == BLOCK_FILLING || (copy_valid(first) && copy_pins(first) < COPY_PINS_MAX);
}

static int room_above(kvo_store *s, const fetch_batch *batch, fetch_item *item)
{
    bool waited = false;
    if (batch->yields)
        return store_room_ordinary(s, 0, item->identity.payload_bytes, &item->slot);
    return store_room(s, 0, item->identity.payload_bytes, 0, &item->slot, &waited);
}

/* Under the lock. A slot of the first tier, if it can be had now. */
static void claim_room(kvo_store *s, const fetch_batch *batch, fetch_item *item)
{
    _Atomic uint64_t *first = &s->records[item->record].copy[0];
    if (copy_state(word_load(first)) != BLOCK_EMPTY) {
        if (above_soon(word_load(first)))
            item->how = FETCH_AGAIN;
        else
            go_past(s, batch, item);
        return;
    }
    /* The lock may be let go for the room: who comes meanwhile waits for this transfer. */
    word_store(first, copy_make(PLACE_SLOT_NONE, BLOCK_FILLING, 0, 0));
    int status = room_above(s, batch, item);
    /* Who wants an address can't go past: what is on its way down makes room soon. */
    while (batch->pins && status == KVO_BUSY && s->tiers[0].demoting && batch->deadline &&
           store_wait(s, batch->deadline))
        status = room_above(s, batch, item);
    bool room = status == KVO_OK;
    unsigned state = KVO_PLANTED(EARLY_PROMOTE) ? BLOCK_VALID : BLOCK_FILLING;
    word_store(first, room ? copy_make(item->slot, state, 0, 0) : 0);
    if (room)
        return;
    go_past(s, batch, item);
    pthread_cond_broadcast(&s->changed); /* for who waited for this claim; nothing else has changed */
}

static void claim_rooms(kvo_store *s, const fetch_batch *batch, fetch_item *items, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= items[i].how == FETCH_PROMOTE;
    if (!any)
        return;
    store_lock(s);
    for (size_t i = 0; i < count; i++)
        if (items[i].how == FETCH_PROMOTE)
            claim_room(s, batch, &items[i]);
    store_unlock(s);
    for (size_t i = 0; i < count; i++)
        if (items[i].handle && (items[i].how == FETCH_AGAIN || items[i].how == FETCH_DONE))
            store_unpin(s, items[i].record, items[i].tier);
}

/* ---- transfer ---- */

static void read_failed(kvo_store *s, fetch_item *item, int result)
{
    if (result != -EBADMSG) {
        ledger_count(&s->ledger, s->tiers[item->tier].account, LEDGER_IO_ERRORS, 1);
        store_log(s, "%s: reading a block failed: %s", s->tiers[item->tier].name, strerror(-result));
    }
    if (!store_copy_lost(s, item->tier, result)) {
        store_unpin(s, item->record, item->tier);
        item->how = FETCH_DONE;
        item->status = KVO_BUSY; /* the device is away, or memory is short: the copy stays */
        return;
    }
    store_quarantine(s, item->record, item->tier, result); /* gives the pin up */
    item->how = FETCH_AGAIN;
}

/* Items of one tier that are being read. */
typedef struct arrivals {
    kvo_store *s;
    tier_stream *stream;
    fetch_item *items;
    tier_io ios[STORE_WINDOW]; /* each at its item's place */
} arrivals;

static bool stage(kvo_store *s, fetch_item *item, tier_io *io, bool must)
{
    item->staging_bytes = TIER_UNIT + tier_payload_span(item->identity.payload_bytes);
    item->staging = move_staging_take(s->engine, item->staging_bytes, must);
    if (item->staging == NULL)
        return false;
    io->segments = NULL;
    io->memory = item->staging + TIER_UNIT;
    io->front = true;
    return true;
}

/* Where the bytes are to arrive. */
static bool aim(kvo_store *s, fetch_item *item, tier_io *io, bool must)
{
    if (item->how == FETCH_PROMOTE) {
        io->memory = tier_memory(s->tiers[0].io, item->slot);
        return true;
    }
    if (!tier_straight(s->tiers[item->tier].io, item->segments, item->segment_count))
        return stage(s, item, io, must);
    io->segments = item->segments;
    io->segment_count = item->segment_count;
    return true;
}

static bool agrees(kvo_store *s, const fetch_item *item, const uint8_t digest[16])
{
    ledger_total_add(&s->ledger, LEDGER_VERIFIED, 1);
    return store_digest_same(digest, item->identity.digest);
}

/* The bytes against the identity, where they arrived. In the caller's memory they may change under us;
   what our own holds says whether the copy is at fault. 0; -EBADMSG; -EAGAIN: ours has to be asked;
   -EBUSY: the copy is good, the caller's memory did not hold it. */
static int check(kvo_store *s, fetch_item *item, const tier_io *io)
{
    uint8_t digest[16];
    if (io->segments) {
        digest_segments(item->segments, item->segment_count, digest);
        item->delivered = agrees(s, item, digest);
        return item->delivered ? 0 : -EAGAIN;
    }
    if (item->segments) {
        digest_scatter(item->segments, item->segment_count, io->memory, digest);
        atomic_fetch_add_explicit(&s->payload_copies, 1, memory_order_relaxed);
        item->delivered = agrees(s, item, digest);
        if (item->delivered)
            return 0;
    }
    digest_of(io->memory, item->identity.payload_bytes, digest);
    if (!agrees(s, item, digest))
        return -EBADMSG;
    return item->how == FETCH_DIRECT ? -EBUSY : 0;
}

/* Whether it is worth another read: an error may pass, and what does not go straight goes through staging. */
static bool read_again(kvo_store *s, fetch_item *item, tier_io *io, int result)
{
    if (io->segments && (result == -EAGAIN || result == -EFAULT || result == -EINVAL))
        return stage(s, item, io, true);
    bool again = result == -EIO && !item->retried;
    item->retried = true;
    return again;
}

static void arrived(arrivals *a, tier_io *io)
{
    fetch_item *item = &a->items[io - a->ios];
    int result = io->result == 0 ? check(a->s, item, io) : io->result;
    if (result != 0) /* read, and of no use */
        ledger_add(&a->s->ledger, a->s->tiers[item->tier].account, LEDGER_READ, KVO_CAUSE_FAILED,
                   store_tenant(a->s, item->record), item->identity.payload_bytes, 1);
    if (result < 0 && read_again(a->s, item, io, result)) {
        tier_stream_add(a->stream, io);
        return;
    }
    if (item->staging)
        move_staging_give(a->s->engine, item->staging, item->staging_bytes);
    item->staging = NULL;
    item->status = result;
    if (result != -EBUSY)
        return;
    store_unpin(a->s, item->record, item->tier);
    item->how = FETCH_DONE;
    item->status = KVO_BUSY;
}

static bool comes_from(const fetch_item *item, unsigned tier)
{
    return item->tier == tier && (item->how == FETCH_PROMOTE || item->how == FETCH_DIRECT);
}

static void send(arrivals *a, fetch_item *item, tier_io *io)
{
    /* Staging that is short comes back with what is on its way. */
    while (tier_stream_full(a->stream, item->identity.payload_bytes) ||
           !aim(a->s, item, io, a->stream->in_flight == 0)) {
        tier_io *before = tier_stream_next(a->stream, true);
        item->status = -ENOMEM;
        if (before == NULL)
            return;
        arrived(a, before);
    }
    tier_stream_add(a->stream, io);
}

/* Reads what has to come from below, of one tier: while one is digested, others are on their way. */
static void read_tier(kvo_store *s, fetch_item *items, size_t count, unsigned tier)
{
    arrivals a;
    bool any = false;
    store_lock(s);
    for (size_t i = 0; i < count; i++) {
        if (!comes_from(&items[i], tier))
            continue;
        any = true;
        a.ios[i] = store_io(s, items[i].record, tier, copy_slot(word_load(&s->records[items[i].record].copy[tier])),
                            NULL);
    }
    store_unlock(s);
    if (!any)
        return;
    a.s = s;
    a.items = items;
    a.stream = tier_stream_open(s->tiers[tier].io, false);
    for (size_t i = 0; i < count; i++) {
        if (!comes_from(&items[i], tier))
            continue;
        items[i].status = -ENOMEM;
        if (a.stream)
            send(&a, &items[i], &a.ios[i]);
    }
    for (tier_io *io; a.stream && (io = tier_stream_next(a.stream, true));)
        arrived(&a, io);
    tier_stream_close(a.stream);
}

static void read_below(kvo_store *s, fetch_item *items, size_t count)
{
    for (unsigned t = 0; t < s->tier_count; t++)
        read_tier(s, items, count, t);
}

/* ---- publish ---- */

/* Exclusive hierarchies move: the lower copy goes, where another has it pinned with that pin (store_unpin). Ghosts
   only. */
static void moved_up(kvo_store *s, const fetch_item *item)
{
    block_unpin(&s->records[item->record], item->tier);
    store_copy_drop(s, item->record, item->tier, false, KVO_CAUSE_PROMOTE);
}

/* Under the lock. The new copy comes with our pin; the one below loses it. */
static void promoted(kvo_store *s, fetch_item *item)
{
    unsigned tenant = store_tenant(s, item->record), from = s->tiers[item->tier].account;
    uint32_t bytes = item->identity.payload_bytes;
    uint64_t below = word_load(&s->records[item->record].copy[item->tier]);
    store_copy_set(s, item->record, 0, copy_make(item->slot, BLOCK_VALID, copy_format(below), 0) + COPY_PIN);
    ledger_count(&s->ledger, from, LEDGER_PROMOTIONS, 1);
    if (KVO_PLANTED(ANCHOR))
        s->tiers[item->tier].tier_recency[item->record] = atomic_load(&s->clock);
    ledger_add(&s->ledger, from, LEDGER_READ, KVO_CAUSE_PROMOTE, tenant, bytes, 1);
    ledger_add(&s->ledger, s->tiers[0].account, LEDGER_WRITE, KVO_CAUSE_PROMOTE, tenant, bytes, 1);
    store_event(s, KVO_EVENT_PROMOTE, KVO_CAUSE_NONE, 0, item->record);
    store_reorder(s, item->record, store_now_s(s));
    if (s->exclusive)
        moved_up(s, item);
    item->from = item->tier;
    item->tier = 0;
    item->how = FETCH_MEMORY;
    item->checked = true;
}

static void publish(kvo_store *s, fetch_item *items, size_t count)
{
    bool any = false;
    store_lock(s);
    for (size_t i = 0; i < count; i++) {
        fetch_item *item = &items[i];
        if (item->how != FETCH_PROMOTE)
            continue;
        any = true;
        if (item->status < 0) {
            word_store(&s->records[item->record].copy[0], 0);
            place_slot_free(&s->tiers[0].space, item->slot);
            ledger_add(&s->ledger, s->tiers[0].account, LEDGER_WRITE, KVO_CAUSE_FAILED, store_tenant(s, item->record),
                       item->identity.payload_bytes, 1);
            continue;
        }
        promoted(s, item);
    }
    if (any)
        store_changed(s);
    store_unlock(s);
    for (size_t i = 0; i < count; i++) {
        fetch_item *item = &items[i];
        if (item->how == FETCH_MEMORY && item->checked && !s->exclusive) /* promoted */
            store_unpin(s, item->record, item->from);
        else if ((item->how == FETCH_PROMOTE || item->how == FETCH_DIRECT) && item->status < 0)
            read_failed(s, item, item->status);
    }
}

/* ---- the whole way ---- */

static void fetch_once(kvo_store *s, fetch_batch *batch, fetch_item *items, size_t count)
{
    claim_rooms(s, batch, items, count);
    if (!s->ghost)
        read_below(s, items, count);
    for (size_t i = 0; s->ghost && i < count; i++)
        if (items[i].how == FETCH_PROMOTE)
            items[i].status = 0;
    publish(s, items, count);
    for (size_t i = 0; i < count; i++) {
        fetch_item *item = &items[i];
        if (item->how == FETCH_MEMORY || item->how == FETCH_DIRECT)
            batch->deliver(s, batch, item);
        item->handle = 0;
    }
}

/* A block that somebody else fills or brings up: until that is over. */
static bool settle(kvo_store *s, const fetch_batch *batch, const fetch_item *item)
{
    block_identity key;
    identity_key(batch->names, item->index, &key);
    bool in_time = true;
    store_lock(s);
    for (;;) {
        uint64_t life;
        uint32_t record = index_find(&s->index, &key, &life);
        if (record == BLOCK_NONE || (life_has(life, LIFE_SEALED) &&
                                     copy_state(word_load(&s->records[record].copy[0])) != BLOCK_FILLING))
            break;
        in_time = batch->deadline != 0 && store_wait(s, batch->deadline);
        if (!in_time)
            break;
    }
    store_unlock(s);
    return in_time;
}

void store_fetch(kvo_store *s, fetch_batch *batch, fetch_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        look(s, batch, &items[i]);
    fetch_once(s, batch, items, count);
    for (size_t i = 0; i < count; i++) {
        /* A round waits for another's transfer or retires a bad copy. Where others keep winning it is
           busy, not endless. */
        for (unsigned round = 0; items[i].how == FETCH_AGAIN; round++) {
            if (round == ROUNDS_MAX || !settle(s, batch, &items[i])) {
                items[i].how = FETCH_DONE;
                items[i].status = KVO_BUSY;
                items[i].later = true;
                break;
            }
            look(s, batch, &items[i]);
            fetch_once(s, batch, &items[i], 1);
        }
    }
}
