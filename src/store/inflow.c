/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into a first tier that takes blocks by transfer: while one is digested, those before it are being
 * written. A block is sealed when its own write has completed, not before.
 */
#include <errno.h>
#include <string.h>

#include "store/put.h"

store_inflow *store_inflow_begin(const kvo_store *s, store_inflow *in)
{
    in->stream = NULL;
    in->used = 0;
    return s->ghost || s->tiers[0].byte_addressable ? NULL : in;
}

/* ---- landing ---- */

static void done(kvo_store *s, store_inflow *in, store_inflow_block *b)
{
    kvo_answer *answer = b->answer;
    kvo_handle handle = handle_make(b->record, life_incarnation(word_load(&s->records[b->record].life)));
    if (b->staging)
        move_staging_give(s->engine, b->staging, b->staging_bytes);
    in->used &= ~(1u << (b - in->blocks));
    bool failed = b->io.result < 0 && !KVO_PLANTED(FAILED_WRITE);
    answer->status = failed ? store_seal_failed(s, b->record, &b->io)
                     : KVO_PLANTED(EARLY_SEAL) ? KVO_STORED
                                               : store_seal(s, b->record, b->io.generation);
    if (b->put)
        answer->handle = handle; /* also if it is gone again: a level asked for then says so */
    if (answer->status == KVO_STORED && store_by_handle(s, handle) == b->record)
        store_answer(s, b->record, answer);
    if (b->put)
        store_count_put(s, answer->status);
}

static bool stage(kvo_store *s, store_inflow_block *b, bool must)
{
    b->staging_bytes = TIER_UNIT + tier_payload_span(b->io.identity.payload_bytes);
    b->staging = move_staging_take(s->engine, b->staging_bytes, must);
    b->io.memory = b->staging ? b->staging + TIER_UNIT : NULL;
    b->io.front = true;
    return b->staging != NULL;
}

static void gather(kvo_store *s, store_inflow_block *b, const kvo_segment *segments, uint32_t count)
{
    digest_gather(b->io.memory, segments, count, b->io.identity.digest);
    store_zero_tail(b->io.memory, b->io.identity.payload_bytes);
    atomic_fetch_add_explicit(&s->payload_copies, 1, memory_order_relaxed);
}

/* Memory that the device cannot read, of another device perhaps: the processor may. */
static bool write_again(kvo_store *s, store_inflow *in, store_inflow_block *b)
{
    const kvo_segment *segments = b->io.segments;
    if (segments == NULL || (b->io.result != -EFAULT && b->io.result != -EINVAL) || !stage(s, b, true))
        return false;
    b->io.segments = NULL;
    gather(s, b, segments, b->io.segment_count);
    store_set_digest(s, b->record, b->io.identity.digest);
    tier_stream_add(in->stream, &b->io);
    return true;
}

/* Waits for one to land; false: none is on its way. */
static bool land(kvo_store *s, store_inflow *in)
{
    tier_io *io = in->stream ? tier_stream_next(in->stream, true) : NULL;
    if (io && !write_again(s, in, (store_inflow_block *)io))
        done(s, in, (store_inflow_block *)io);
    return io != NULL;
}

void store_inflow_drain(kvo_store *s, store_inflow *in)
{
    while (land(s, in))
        continue;
    KVO_ASSERT(in->used == 0);
}

void store_inflow_end(kvo_store *s, store_inflow *in)
{
    if (in == NULL)
        return;
    store_inflow_drain(s, in);
    tier_stream_close(in->stream);
}

/* ---- on the way ---- */

static store_inflow_block *place_for(kvo_store *s, store_inflow *in, uint32_t record, kvo_answer *answer, bool put)
{
    while (~in->used == 0)
        land(s, in);
    unsigned place = (unsigned)__builtin_ctz(~in->used);
    store_inflow_block *b = &in->blocks[place];
    in->used |= 1u << place;
    b->record = record;
    b->put = put;
    b->answer = answer;
    b->staging = NULL;
    store_lock(s);
    b->io = store_io(s, record, 0, copy_slot(word_load(&s->records[record].copy[0])), NULL);
    store_unlock(s);
    answer->status = KVO_PENDING; /* until it has landed */
    return b;
}

static void go(kvo_store *s, store_inflow *in, store_inflow_block *b)
{
    if (in->stream == NULL)
        in->stream = tier_stream_open(s->tiers[0].io, true);
    if (in->stream == NULL) {
        b->io.result = -ENOMEM;
        done(s, in, b);
        return;
    }
    while (tier_stream_full(in->stream, b->io.identity.payload_bytes))
        land(s, in);
    if (KVO_PLANTED(EARLY_SEAL))
        store_seal(s, b->record, 0);
    tier_stream_add(in->stream, &b->io);
    if (s->options.flags & KVO_OPEN_STEPPED) /* which one lands first would decide what is evicted next */
        store_inflow_drain(s, in);
}

void store_inflow_put(kvo_store *s, store_inflow *in, uint32_t record, const kvo_segment *segments, uint32_t count,
                      kvo_answer *answer)
{
    store_inflow_block *b = place_for(s, in, record, answer, true);
    if (tier_straight(s->tiers[0].io, segments, count)) {
        b->io.segments = segments;
        b->io.segment_count = count;
        digest_segments(segments, count, b->io.identity.digest);
    } else {
        /* Staging that is short comes back with what is on its way. */
        while (!stage(s, b, false) && land(s, in))
            continue;
        if (b->staging == NULL && !stage(s, b, true)) {
            b->io.result = -ENOMEM;
            done(s, in, b);
            return;
        }
        gather(s, b, segments, count);
    }
    store_set_digest(s, record, b->io.identity.digest);
    go(s, in, b);
}

void store_inflow_seal(kvo_store *s, store_inflow *in, uint32_t record, void *memory, kvo_answer *answer)
{
    store_inflow_block *b = place_for(s, in, record, answer, false);
    b->io.memory = memory;
    go(s, in, b);
}
