/* SPDX-License-Identifier: Apache-2.0 */
/* Reads every slot of the media and says which are bad. */
#include <errno.h>
#include <string.h>

#include "store/store.h"

#define READS 8u /* payloads in memory at the same time */

typedef struct verification {
    kvo_store *s;
    store_tier *t;
    void (*on_bad)(void *context, const kvo_bad_slot *bad);
    void *context;
    kvo_verify_result *result;
    tier_slot slots[READS];
    tier_io ios[READS];
    size_t spans[READS];
    size_t count;
} verification;

static void report(verification *v, const tier_slot *slot, const char *what)
{
    if (slot->unfinished) {
        v->result->unfinished++;
        return;
    }
    v->result->bad++;
    kvo_bad_slot bad = {.file = v->t->io->data_path, .offset_bytes = (uint64_t)slot->slot * TIER_UNIT, .what = what};
    if (slot->state == TIER_SLOT_LIVE) {
        bad.name = slot->identity.name;
        bad.name_bytes = slot->identity.name_bytes;
    }
    if (v->on_bad)
        v->on_bad(v->context, &bad);
}

static bool zero_tail(const uint8_t *memory, size_t payload, size_t span)
{
    for (size_t i = payload; i < span; i++)
        if (memory[i])
            return false;
    return true;
}

static const char *wrong_with(const tier_io *io, size_t span)
{
    uint8_t digest[16];
    if (io->result != 0)
        return "cannot be read";
    digest_of(io->memory, io->identity.payload_bytes, digest);
    if (memcmp(digest, io->identity.digest, 16) != 0)
        return "payload digest";
    return zero_tail(io->memory, io->identity.payload_bytes, span) ? NULL : "bytes after the payload";
}

static void read_batch(verification *v)
{
    kvo_store *s = v->s;
    if (v->count)
        tier_read(v->t->io, v->ios, v->count);
    for (size_t i = 0; i < v->count; i++) {
        const char *what = wrong_with(&v->ios[i], v->spans[i]);
        if (v->ios[i].begun)
            ledger_add(&s->ledger, v->t->account, LEDGER_READ, KVO_CAUSE_VERIFY, KVO_TENANT_OTHER,
                       v->ios[i].identity.payload_bytes, 1);
        if (what)
            report(v, &v->slots[i], what);
        s->env->free(s->env, v->ios[i].memory, v->spans[i]);
    }
    v->count = 0;
}

static int each_segment(void *context, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    (void)context, (void)segment, (void)stride, (void)epoch;
    return 0;
}

static int each_slot(void *context, const tier_slot *slot)
{
    verification *v = context;
    if (slot->state != TIER_SLOT_LIVE) {
        v->result->slots += slot->state == TIER_SLOT_BAD && !slot->unfinished;
        report(v, slot, slot->what);
        return 0;
    }
    v->result->slots++;
    size_t span = tier_payload_span(slot->identity.payload_bytes);
    void *memory = v->s->env->alloc(v->s->env, span);
    if (memory == NULL)
        return -ENOMEM;
    v->slots[v->count] = *slot;
    v->spans[v->count] = span;
    v->ios[v->count++] = (tier_io){.slot = slot->slot,
                                   .stride = slot->stride,
                                   .segment = slot->segment,
                                   .epoch = slot->epoch,
                                   .identity = slot->identity,
                                   .generation = (uint8_t)slot->write_number,
                                   .memory = memory};
    if (v->count == READS)
        read_batch(v);
    return 0;
}

int kvo_verify(kvo_store *s, void (*on_bad)(void *context, const kvo_bad_slot *bad), void *context,
               kvo_verify_result *result)
{
    STORE_ENTER(s);
    if (result == NULL)
        return KVO_E_ARGUMENT;
    memset(result, 0, sizeof *result);
    if (s->home == KVO_NO_TIER || s->ghost)
        return KVO_E_UNSUPPORTED;
    if (!s->read_only)
        return KVO_E_STATE;
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (!s->tiers[t].persistent)
            continue;
        verification v = {.s = s, .t = &s->tiers[t], .on_bad = on_bad, .context = context, .result = result};
        int r = v.t->io->ops->scan(v.t->io, each_segment, each_slot, &v);
        read_batch(&v);
        if (r != 0)
            return base_status_of_errno(r);
    }
    return KVO_OK;
}
