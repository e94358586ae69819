/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule 7's exception. The new bytes are brought to a slot of their own first; then the block is
 * hidden (it reads as pending), its readers leave, its copies are closed to those that found it before,
 * the old copies' headers go from the media, and only then the new copy is shown. A crash in between
 * costs the block, never shows the old bytes.
 */
#include <errno.h>
#include <string.h>

#include "store/put.h"

typedef struct rewriting {
    uint32_t record;
    kvo_handle handle;
    block_identity identity; /* the new one */
    uint32_t slot;
    unsigned generation; /* of the new copy */
    unsigned format;
    uint64_t deadline;
    int level;
    bool closed;      /* the old copies can't be pinned */
    bool written;     /* the new slot's header is on the medium, or may be */
    bool invalidated; /* the old copies' headers may be dead */
} rewriting;

/* A copy that is being retired counts as one in transfer: it goes by itself. */
static bool in_transfer(const block_record *r)
{
    bool bad = false;
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++)
        bad |= copy_state(word_load(&r->copy[t])) == BLOCK_BAD;
    return bad || block_in_transfer(r);
}

/* A copy may be found bad while it is marked. */
static void mark(block_record *r, bool moving)
{
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++)
        if (copy_valid(word_load(&r->copy[t])) || (!moving && copy_state(word_load(&r->copy[t])) == BLOCK_BAD))
            word_change(&r->copy[t], moving ? 0 : COPY_MOVING, moving ? COPY_MOVING : 0);
}

/* A copy with all the pins it can have gets no more; that none of them is a reader's is known when its block is
   hidden and nothing is in transfer. All copies of the block, or none. */
#define CLOSED ((uint64_t)COPY_PINS_MAX * COPY_PIN)

static void reopen(block_record *r, unsigned end)
{
    for (unsigned t = 0; t < end; t++)
        if (copy_valid(word_load(&r->copy[t])))
            word_change(&r->copy[t], CLOSED, 0);
}

/* Who found the block before it was hidden may pin a copy yet, for the moment until it looks at the block's life:
   one compare-and-swap sees that pin or keeps it from being made. */
static bool close_copies(block_record *r)
{
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        while (copy_valid(copy) && copy_pins(copy) == 0 &&
               !atomic_compare_exchange_weak(&r->copy[t], &copy, copy | CLOSED)) {}
        bool bad = copy_state(copy) == BLOCK_BAD && copy_pins(copy) == 0; /* nobody reads it any more */
        if (copy_state(copy) != BLOCK_EMPTY && !bad && (!copy_valid(copy) || copy_pins(copy))) {
            reopen(r, t);
            return false;
        }
    }
    return true;
}

/* Finds the block, keeps its copies in place, and gets a slot for the new bytes. */
static int begin(kvo_store *s, rewriting *w)
{
    uint64_t life;
    bool waited = false;
    store_lock(s);
    int status;
    for (;;) {
        w->record = index_find(&s->index, &w->identity, &life);
        status = w->record == BLOCK_NONE ? KVO_MISS : KVO_OK;
        if (status != KVO_OK || (life_live(life) && !in_transfer(&s->records[w->record])))
            break;
        status = KVO_BUSY;
        if (w->deadline == 0 || !store_wait(s, w->deadline))
            break;
    }
    if (status == KVO_OK && life_rewrites(life) == LIFE_REWRITES_MAX)
        status = KVO_REFUSED;
    if (status == KVO_OK) {
        mark(&s->records[w->record], true);
        w->handle = handle_make(w->record, life_incarnation(life));
        status = store_room(s, 0, w->identity.payload_bytes, w->deadline, &w->slot, &waited);
        if (status != KVO_OK) {
            mark(&s->records[w->record], false);
            status = status == KVO_SHORT || status == KVO_BUSY ? KVO_FULL : status;
            store_reap(s, w->record); /* the lock was let go: a reader may have found it bad */
        }
    }
    store_changed(s);
    store_unlock(s);
    return status;
}

/* The old block is shown again; what may have lost its header on a medium is no copy any more. */
static void give_up(kvo_store *s, rewriting *w)
{
    block_record *r = &s->records[w->record];
    /* Flushed, or after a power cut the bytes that were refused would stand for those that may have been safe. */
    bool dead = w->written && tier_invalidate(s->tiers[0].io, &w->slot, 1) == 0 && tier_flush(s->tiers[0].io) == 0;
    if (w->written)
        ledger_add(&s->ledger, s->tiers[0].account, LEDGER_WRITE, KVO_CAUSE_FAILED, store_tenant(s, w->record),
                   w->identity.payload_bytes, 1);
    store_lock(s);
    if (w->written && !dead) /* the header may be that of an older block still, whatever its name */
        store_stale_add(s, 0, w->slot, 0, false);
    place_slot_free(&s->tiers[0].space, w->slot);
    if (w->closed)
        reopen(r, KVO_TIERS_MAX);
    word_change(&r->life, 0, LIFE_FLAG(LIFE_SEALED));
    mark(r, false);
    if (w->invalidated)
        store_lose_media(s, w->record);
    else
        store_reap(s, w->record);
    store_changed(s);
    store_unlock(s);
}

/* The new bytes to their slot. KVO_OK or why not. */
static int fill(kvo_store *s, rewriting *w, const kvo_segment *segments, uint32_t count)
{
    uint64_t span = tier_payload_span(w->identity.payload_bytes);
    bool direct = s->ghost || s->tiers[0].byte_addressable;
    if (s->ghost)
        return KVO_OK;
    uint8_t *staging = direct ? NULL : move_staging_take(s->engine, TIER_UNIT + span, true);
    if (!direct && staging == NULL)
        return KVO_E_MEMORY;
    uint8_t *memory = direct ? tier_memory(s->tiers[0].io, w->slot) : staging + TIER_UNIT;
    atomic_fetch_add_explicit(&s->payload_copies, 1, memory_order_relaxed);
    digest_gather(memory, segments, count, w->identity.digest);
    memset(memory + w->identity.payload_bytes, 0, span - w->identity.payload_bytes);
    if (direct)
        return KVO_OK;
    store_lock(s);
    tier_io io = store_io(s, w->record, 0, w->slot, memory);
    store_unlock(s);
    io.identity = w->identity;
    io.front = true;
    io.rewrites++;
    io.format = w->format;
    memset(io.delta, 0, sizeof io.delta);
    tier_write(s->tiers[0].io, &io, 1);
    w->generation = io.generation;
    w->written = io.begun;
    move_staging_give(s->engine, staging, TIER_UNIT + span);
    if (io.result != 0)
        return base_status_of_errno(io.result);
    /* What lay in this slot is written over. Were it still listed, forgetting the old bytes would wait for a slot that
       we hold ourselves. */
    store_lock(s);
    store_stale_forget(&s->tiers[0], w->slot);
    store_unlock(s);
    return KVO_OK;
}

/* No new reader or transfer, and the old ones gone, those too that bring up a copy which was not there when we
   began. */
static int hide(kvo_store *s, rewriting *w)
{
    block_record *r = &s->records[w->record];
    int status = KVO_OK;
    store_lock(s);
    word_change(&r->life, LIFE_FLAG(LIFE_SEALED), 0);
    /* A reader that found its only copy bad has ended it. */
    while (status == KVO_OK && !life_has(word_load(&r->life), LIFE_DOOMED) && !(w->closed = close_copies(r)))
        if (w->deadline == 0 || !store_wait(s, w->deadline))
            status = KVO_BUSY;
    if (life_has(word_load(&r->life), LIFE_DOOMED))
        status = KVO_MISS;
    mark(r, true);
    store_unlock(s);
    return status;
}

/* How many media hold a copy. */
static unsigned media_of(const kvo_store *s, uint32_t record)
{
    unsigned media = 0;
    for (unsigned t = 0; t < s->tier_count; t++)
        media += s->tiers[t].persistent && copy_state(word_load(&s->records[record].copy[t])) != BLOCK_EMPTY;
    return media;
}

static int forget_old(kvo_store *s, rewriting *w)
{
    int r = store_invalidate_stale(s, w->identity.key_hash, NULL, w->deadline);
    if (r == -ETIMEDOUT)
        return KVO_BUSY;
    if (r == 0) {
        r = KVO_PLANTED(REWRITE) ? 0 : store_invalidate_copies(s, &w->record, 1, w->level);
        /* Memory ran short before the one header was touched. */
        w->invalidated = r != -ENOMEM || media_of(s, w->record) > 1;
    }
    return r == 0 ? KVO_OK : base_status_of_errno(r);
}

static void show(kvo_store *s, rewriting *w, kvo_answer *answer)
{
    block_record *r = &s->records[w->record];
    unsigned account = s->tiers[0].account;
    store_lock(s);
    /* First: hidden and without copies it would look like somebody's reservation. */
    uint64_t life = word_load(&r->life);
    word_store(&r->life, life_make(life_incarnation(life) + 1, life_rewrites(life) + 1, NULL, LIFE_USED));
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (copy_state(word_load(&r->copy[t])) == BLOCK_EMPTY || (t > 0 && KVO_PLANTED(REWRITE_LOWER)))
            continue;
        store_event(s, KVO_EVENT_DROP, KVO_CAUSE_REWRITE, t, w->record);
        store_copy_end(s, w->record, t, KVO_CAUSE_REWRITE);
    }
    identity_store(&s->identities[w->record], &w->identity);
    store_copy_set(s, w->record, 0, copy_make(w->slot, BLOCK_VALID, w->format, w->generation));
    word_change(&r->life, 0, LIFE_FLAG(LIFE_SEALED));
    ledger_add(&s->ledger, account, LEDGER_WRITE, KVO_CAUSE_REWRITE, store_tenant(s, w->record),
               w->identity.payload_bytes, 1);
    ledger_total_add(&s->ledger, LEDGER_REWRITES, 1);
    store_event(s, KVO_EVENT_SEAL, KVO_CAUSE_REWRITE, 0, w->record);
    store_answer(s, w->record, answer);
    store_changed(s);
    store_unlock(s);
}

static int rewrite_one(kvo_store *s, rewriting *w, const kvo_segment *segments, uint32_t count, kvo_answer *answer)
{
    int status = begin(s, w);
    if (status != KVO_OK)
        return status;
    block_identity old;
    identity_load(&s->identities[w->record], &old);
    uint32_t bytes = w->identity.payload_bytes;
    w->identity = old; /* a rewrite keeps the creator's provenance */
    w->identity.payload_bytes = bytes;
    status = fill(s, w, segments, count);
    if (status == KVO_OK)
        status = hide(s, w);
    if (status == KVO_OK)
        status = forget_old(s, w);
    if (status != KVO_OK) {
        give_up(s, w);
        return status;
    }
    show(s, w, answer);
    return KVO_STORED;
}

int kvo_rewrite(kvo_store *s, const kvo_names *names, const kvo_memory *memory, uint32_t format,
                const kvo_put_options *options, kvo_answer *answers)
{
    kvo_put_options o;
    int r = store_put_begin(s, names, options, &o);
    if (r != KVO_OK)
        return r;
    if (format > 15)
        return KVO_E_RANGE;
    if (memory == NULL || (names->count && (answers == NULL || memory->segments == NULL)))
        return KVO_E_ARGUMENT;
    const kvo_segment *segments = memory->segments;
    rewriting w = {.format = format, .deadline = store_patience(s, o.deadline_ns), .level = o.level};
    for (size_t i = 0; i < names->count; i++) {
        uint32_t count = memory->segment_counts ? memory->segment_counts[i] : 1;
        uint64_t bytes = store_segments_bytes(segments, count);
        answers[i] = (kvo_answer){.tier = KVO_NO_TIER};
        atomic_fetch_add(&s->clock, 1);
        identity_key(names, i, &w.identity);
        w.identity.payload_bytes = (uint32_t)bytes;
        w.generation = 0;
        w.closed = w.written = w.invalidated = false;
        answers[i].status = store_put_length(s, names->space, bytes);
        if (!s->ghost && !store_segments_there(segments, count))
            answers[i].status = KVO_E_ARGUMENT;
        if (answers[i].status == KVO_OK)
            answers[i].status = rewrite_one(s, &w, segments, count, &answers[i]);
        segments += count;
    }
    if (o.level > KVO_SEALED)
        store_sync_answers(s, answers, names->count, o.level, w.deadline, NULL);
    return KVO_OK;
}
