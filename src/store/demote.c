/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demotion: copies of blocks to a lower tier, several at a time. MOVING keeps the copy that is
 * read, FILLING the slot that is written; the lock is let go in between.
 */
#include <errno.h>
#include <string.h>

#include "store/put.h"

#define STAGED_MAX 8u /* blocks at a time from a medium without addresses: bounds their memory */

tier_io store_io(kvo_store *s, uint32_t record, unsigned tier, uint32_t slot, void *memory)
{
    const block_record *r = &s->records[record];
    const store_tier *t = &s->tiers[tier];
    tier_io io = {.slot = slot, .memory = memory};
    uint64_t life = word_load(&r->life);
    io.segment = place_segment_of(&t->space, slot);
    io.stride = t->space.segments[io.segment].stride;
    io.epoch = t->space.segments[io.segment].epoch;
    identity_load(&s->identities[record], &io.identity);
    io.space_digest = s->spaces[io.identity.space].digest;
    io.policy = word_load(&r->policy);
    io.touch = word_load(&r->touch);
    io.rewrites = life_rewrites(life);
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++)
        io.delta[i] = (uint8_t)life_delta(life, i);
    io.generation = (uint8_t)copy_generation(word_load(&r->copy[tier]));
    io.format = copy_format(word_load(&r->copy[tier]));
    return io;
}

typedef struct demotion {
    uint32_t record;
    unsigned from;
    uint32_t slot;
    kvo_cause cause;
    tier_io io;
    int *result;
} demotion;

/* Why this write happens: rule 6 counts a life's first only. */
static kvo_cause demotion_cause(uint64_t life, unsigned to)
{
    if (life_has(life, life_repair_flag(to)))
        return KVO_CAUSE_REPAIR;
    return life_rewrites(life) ? KVO_CAUSE_REWRITE : KVO_CAUSE_DEMOTE;
}

static void demoted_ok(kvo_store *s, const demotion *d, unsigned to)
{
    block_record *r = &s->records[d->record];
    store_tier *t = &s->tiers[to];
    uint32_t bytes = identity_payload_of(&s->identities[d->record]);
    uint64_t life = word_load(&r->life), new;
    if (d->cause == KVO_CAUSE_DEMOTE && life_delta(life, to) == 0) {
        ledger_count(&s->ledger, t->account, LEDGER_LIVES, 1);
        ledger_count(&s->ledger, t->account, LEDGER_LIFE_BYTES, bytes);
    }
    new = d->cause == KVO_CAUSE_DEMOTE ? life_add_delta(life, to) : life;
    new &= ~LIFE_FLAG(life_repair_flag(to));
    word_store(&r->life, new); /* it changes under the lock alone */
    uint32_t delta = life_delta(new, to);
    KVO_ASSERT(delta <= 1 || !s->anchored); /* rule 6 */
    if (delta > atomic_load(&t->max_delta))
        atomic_store(&t->max_delta, delta);
    unsigned format = copy_format(word_load(&r->copy[d->from]));
    unsigned generation = d->io.generation + (KVO_PLANTED(GENERATION) ? 1u : 0u);
    store_copy_set(s, d->record, to, copy_make(d->slot, BLOCK_VALID, format, generation));
    unsigned tenant = store_tenant(s, d->record);
    ledger_add(&s->ledger, s->tiers[d->from].account, LEDGER_READ, d->cause, tenant, bytes, 1);
    ledger_add(&s->ledger, t->account, LEDGER_WRITE, d->cause, tenant, bytes, 1);
    store_event(s, KVO_EVENT_WRITE, d->cause == KVO_CAUSE_DEMOTE ? KVO_CAUSE_NONE : d->cause, to, d->record);
    *d->result = KVO_OK;
}

static void demoted_badly(kvo_store *s, const demotion *d, unsigned to)
{
    store_tier *t = &s->tiers[to];
    word_store(&s->records[d->record].copy[to], 0);
    /* The slot may hold half of this block over an older one: its header has to go. */
    store_stale_add(s, to, d->slot, 0, false);
    if (!KVO_PLANTED(LEAK))
        place_slot_free(&t->space, d->slot);
    if (d->io.begun)
        ledger_add(&s->ledger, t->account, LEDGER_WRITE, KVO_PLANTED(LEDGER) ? d->cause : KVO_CAUSE_FAILED,
                   store_tenant(s, d->record), identity_payload_of(&s->identities[d->record]), 1);
    ledger_count(&s->ledger, t->account, LEDGER_IO_ERRORS, 1);
    store_log(s, "%s: writing a block failed: %s", t->path[0] ? t->path : t->name, strerror(-d->io.result));
    *d->result = base_status_of_errno(d->io.result);
}

/* The copy to move did not read, or not as what was sealed. Nothing was written. */
static void source_bad(kvo_store *s, const demotion *d, unsigned to, int result, bool lost)
{
    word_store(&s->records[d->record].copy[to], 0);
    place_slot_free(&s->tiers[to].space, d->slot);
    if (result != -EBADMSG)
        ledger_count(&s->ledger, s->tiers[d->from].account, LEDGER_IO_ERRORS, 1);
    if (lost)
        store_retire(s, d->record, d->from, result);
    *d->result = lost ? KVO_GONE : base_status_of_errno(result);
}

static void unmove(kvo_store *s, const demotion *d)
{
    word_change(&s->records[d->record].copy[d->from], COPY_MOVING, 0);
    store_reap(s, d->record);
}

/* Marks the copy to read from; false if the block has none that can be moved now. */
static bool demotion_begin(kvo_store *s, demotion *d, unsigned to)
{
    block_record *r = &s->records[d->record];
    uint64_t life = word_load(&r->life);
    *d->result = KVO_GONE;
    if (!life_live(life))
        return false;
    if (KVO_PLANTED(DEMOTE_TWICE))
        store_copy_drop(s, d->record, to, true, KVO_CAUSE_EVICT);
    *d->result = copy_valid(word_load(&r->copy[to])) ? KVO_OK : KVO_BUSY;
    if (copy_state(word_load(&r->copy[to])) != BLOCK_EMPTY)
        return false;
    bool above = false;
    for (d->from = 0; d->from < to; d->from++) {
        uint64_t copy = word_load(&r->copy[d->from]);
        above |= copy_state(copy) != BLOCK_EMPTY;
        while (copy_valid(copy) && !copy_moving(copy))
            if (atomic_compare_exchange_weak(&r->copy[d->from], &copy, copy | COPY_MOVING)) {
                d->cause = demotion_cause(life, to);
                return true;
            }
    }
    if (!above) /* it lies below, and nobody waits for that to change */
        *d->result = KVO_GONE;
    return false;
}

/* A slot below for a marked block. */
static bool demotion_room(kvo_store *s, demotion *d, unsigned to)
{
    block_record *r = &s->records[d->record];
    bool waited = false;
    *d->result = store_room(s, to, identity_payload_of(&s->identities[d->record]), 0, &d->slot, &waited);
    if (*d->result == KVO_OK) {
        unsigned format = copy_format(word_load(&r->copy[d->from]));
        unsigned state = KVO_PLANTED(EARLY_DEMOTE) ? BLOCK_VALID : BLOCK_FILLING;
        word_store(&r->copy[to], copy_make(d->slot, state, format, 0));
        return true;
    }
    unmove(s, d);
    return false;
}

/* ---- the bytes ---- */

/* What is written: the arena itself, or memory to bring the upper medium's copy into. */
static void source(kvo_store *s, const demotion *d, tier_io *write, tier_io *read)
{
    store_tier *from = &s->tiers[d->from];
    uint32_t slot = copy_slot(word_load(&s->records[d->record].copy[d->from]));
    if (from->byte_addressable) {
        write->memory = tier_memory(from->io, slot);
        return;
    }
    uint8_t *staging = move_staging_take(s->engine, TIER_UNIT + tier_payload_span(write->identity.payload_bytes), true);
    write->memory = staging ? staging + TIER_UNIT : NULL;
    write->front = true;
    write->result = staging ? 0 : -ENOMEM;
    *read = store_io(s, d->record, d->from, slot, write->memory);
    read->front = true;
}

/* Whether what came from above is what was sealed; rule 2 holds for the mover too. */
static int check_source(kvo_store *s, const tier_io *read)
{
    uint8_t digest[16];
    uint32_t bytes = read->identity.payload_bytes;
    digest_of(read->memory, bytes, digest);
    ledger_total_add(&s->ledger, LEDGER_VERIFIED, 1);
    store_zero_tail(read->memory, bytes);
    return store_digest_same(digest, read->identity.digest) ? 0 : -EBADMSG;
}

static void write_one(tier_stream *stream, tier_io *io)
{
    while (tier_stream_full(stream, io->identity.payload_bytes))
        tier_stream_next(stream, true);
    tier_stream_add(stream, io);
}

/* A read that failed, or whose bytes went nowhere. */
static void count_wasted(kvo_store *s, const demotion *d)
{
    ledger_add(&s->ledger, s->tiers[d->from].account, LEDGER_READ, KVO_CAUSE_FAILED, store_tenant(s, d->record),
               identity_payload_of(&s->identities[d->record]), 1);
}

/* Copies of a medium on their way to memory, and from there to the medium below. */
typedef struct passing {
    kvo_store *s;
    const demotion *list;
    tier_stream *above, *below;
    tier_io *ios, *reads;
    bool retried[STORE_WINDOW * 2];
} passing;

/* One that is bad is left out of the write; its read says why. false: none is on its way. */
static bool pass_one(passing *p)
{
    tier_io *read = tier_stream_next(p->above, true);
    if (read == NULL)
        return false;
    size_t i = (size_t)(read - p->reads);
    if (read->result == -EIO && !p->retried[i]) { /* an error may pass */
        p->retried[i] = true;
        count_wasted(p->s, &p->list[i]);
        tier_stream_add(p->above, read);
        return true;
    }
    if (read->result == 0)
        read->result = check_source(p->s, read);
    p->ios[i].result = read->result;
    if (read->result == 0)
        write_one(p->below, &p->ios[i]);
    return true;
}

static void pass_on(kvo_store *s, const demotion *list, tier_io *ios, tier_io *reads, size_t n, unsigned from,
                    tier_stream *below)
{
    passing p = {.s = s, .list = list, .below = below, .ios = ios, .reads = reads};
    p.above = tier_stream_open(s->tiers[from].io, false);
    for (size_t i = 0; i < n; i++) {
        if (reads[i].memory == NULL || list[i].from != from)
            continue;
        while (p.above && tier_stream_full(p.above, reads[i].identity.payload_bytes))
            pass_one(&p);
        if (p.above)
            tier_stream_add(p.above, &reads[i]);
        else
            ios[i].result = reads[i].result = -ENOMEM;
    }
    while (p.above && pass_one(&p))
        continue;
    tier_stream_close(p.above);
}

/* Not under the lock. */
static void transfer(kvo_store *s, const demotion *list, tier_io *ios, tier_io *reads, size_t n, unsigned to)
{
    tier_stream *stream = tier_stream_open(s->tiers[to].io, true);
    for (size_t i = 0; i < n; i++) {
        if (stream == NULL)
            ios[i].result = -ENOMEM;
        else if (ios[i].result == 0 && reads[i].memory == NULL)
            write_one(stream, &ios[i]);
    }
    for (unsigned from = 0; stream && from < to; from++)
        if (!s->tiers[from].byte_addressable)
            pass_on(s, list, ios, reads, n, from, stream);
    while (stream && tier_stream_next(stream, true))
        continue;
    tier_stream_close(stream);
    for (size_t i = 0; i < n; i++)
        if (reads[i].memory)
            move_staging_give(s->engine, (uint8_t *)reads[i].memory - TIER_UNIT,
                              TIER_UNIT + tier_payload_span(reads[i].identity.payload_bytes));
}

static void demote_some(kvo_store *s, demotion *list, size_t n, unsigned to)
{
    tier_io ios[STORE_WINDOW * 2], reads[STORE_WINDOW * 2];
    bool lost[STORE_WINDOW * 2] = {false};
    memset(reads, 0, sizeof *reads * n);
    for (size_t i = 0; i < n && !s->ghost; i++) {
        ios[i] = store_io(s, list[i].record, to, list[i].slot, NULL);
        ios[i].delta[to] = (uint8_t)(ios[i].delta[to] + (list[i].cause == KVO_CAUSE_DEMOTE));
        source(s, &list[i], &ios[i], &reads[i]);
    }
    if (!s->ghost) {
        store_unlock(s);
        transfer(s, list, ios, reads, n, to);
        for (size_t i = 0; i < n; i++)
            lost[i] = reads[i].result != 0 && store_copy_lost(s, list[i].from, reads[i].result);
        store_lock(s);
    }
    for (size_t i = 0; i < n; i++) {
        list[i].io = s->ghost ? (tier_io){0} : ios[i];
        if (list[i].io.result != 0 && reads[i].begun)
            count_wasted(s, &list[i]);
        if (list[i].io.result == 0 || KVO_PLANTED(FAILED_WRITE))
            demoted_ok(s, &list[i], to);
        else if (reads[i].result != 0)
            source_bad(s, &list[i], to, reads[i].result, lost[i]);
        else
            demoted_badly(s, &list[i], to);
        unmove(s, &list[i]);
    }
    store_changed(s);
}

static bool staged(const kvo_store *s, const demotion *d) { return !s->ghost && !s->tiers[d->from].byte_addressable; }

void store_demote(kvo_store *s, const uint32_t *records, size_t count, unsigned to, int *results)
{
    demotion list[STORE_WINDOW * 2];
    for (size_t i = 0; i < count;) {
        size_t n = 0, begun = 0, most = sizeof list / sizeof *list;
        /* All marked first, so that making room for one cannot take another. */
        for (; i < count && begun < most; i++) {
            list[begun] = (demotion){.record = records[i], .result = &results[i]};
            if (!demotion_begin(s, &list[begun], to))
                continue;
            if (staged(s, &list[begun]))
                most = STAGED_MAX;
            begun++;
        }
        for (size_t k = 0; k < begun; k++) {
            demotion d = list[k];
            if (demotion_room(s, &d, to))
                list[n++] = d;
        }
        if (n)
            demote_some(s, list, n, to);
    }
}
