/* SPDX-License-Identifier: Apache-2.0 */
/* Reads every slot of the media, says which are bad, and mends them if that is asked for. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/store.h"

#define READS 8u /* payloads in memory at the same time */

typedef struct verification {
    kvo_store *s;
    store_tier *t;
    bool repairs;
    void (*on_bad)(void *context, const kvo_bad_slot *bad);
    void *context;
    kvo_verify_result *result;
    tier_slot slots[READS];
    tier_io ios[READS];
    size_t spans[READS];
    size_t count;
    tier_slot segment; /* whose header is bad, until it is known what it was */
    bool segment_bad;
    int error; /* of the first repair that failed */
} verification;

/* ---- what is done about it ---- */

static const char made_void[] = "made void", written_again[] = "written again", left[] = "left as it is";

/* What cannot be read now may be whole, and what another version wrote is not for this one to judge. */
static const char *remedy_of(const tier_slot *slot, const char *what)
{
    if (strstr(what, "cannot be read") || strstr(what, "version"))
        return left;
    bool tail = slot->state == TIER_SLOT_LIVE && strcmp(what, "bytes after the payload") == 0;
    return slot->state == TIER_SEGMENT_BAD || tail ? written_again : made_void;
}

/* A copy there is nobody's any more; its dead header follows with the others. */
static void make_void(verification *v, const tier_slot *slot)
{
    kvo_store *s = v->s;
    store_lock(s);
    bool used = place_slot_used(&v->t->space, slot->slot);
    uint32_t record = used ? store_record_at(v->t, store_policy_place(v->t, slot->slot)) : BLOCK_NONE;
    if (record != BLOCK_NONE) {
        store_retire(s, record, v->t->number, -EBADMSG);
        store_reap(s, record);
    } else if (!used) {
        store_stale_add(s, v->t->number, slot->slot, 0, false);
    }
    store_unlock(s);
}

/* The last unit of a payload that is whole, with zeros behind its end. */
static int pad(const verification *v, const tier_io *io, size_t span)
{
    uint8_t *memory = io->memory;
    memset(memory + io->identity.payload_bytes, 0, span - io->identity.payload_bytes);
    return v->t->io->ops->pad(v->t->io, io->slot, io->identity.payload_bytes, memory + span - TIER_UNIT);
}

/* ---- telling ---- */

static void report(verification *v, const tier_slot *slot, const char *what, const char *remedy)
{
    v->result->bad++;
    v->result->repaired += v->repairs && remedy != left;
    kvo_bad_slot bad = {.file = v->t->io->data_path,
                        .offset_bytes = (uint64_t)slot->slot * TIER_UNIT,
                        .what = what,
                        .remedy = remedy};
    if (slot->state == TIER_SLOT_LIVE) {
        bad.name = slot->identity.name;
        bad.name_bytes = slot->identity.name_bytes;
    }
    if (v->on_bad)
        v->on_bad(v->context, &bad);
}

/* A slot that holds a block (io: what was read of it), or whose header does not tell. */
static void bad_slot(verification *v, const tier_slot *slot, const char *what, const tier_io *io, size_t span)
{
    const char *remedy = remedy_of(slot, what);
    int r = 0;
    if (slot->unfinished) {
        v->result->unfinished++;
        return;
    }
    if (v->repairs && remedy == made_void)
        make_void(v, slot);
    else if (v->repairs && remedy == written_again)
        r = pad(v, io, span);
    if (r != 0 && v->error == 0)
        v->error = r;
    report(v, slot, what, r == 0 ? remedy : left);
}

/* Its slots have told what it was, or nothing in it is a block's: then it is as if it was never used. */
static void bad_segment(verification *v, uint32_t stride, uint32_t epoch)
{
    const char *remedy = remedy_of(&v->segment, v->segment.what);
    int r = 0;
    v->segment_bad = false;
    if (v->repairs && remedy != left)
        r = v->t->io->ops->segment_write(v->t->io, v->segment.segment, stride, epoch);
    if (r != 0 && v->error == 0)
        v->error = r;
    report(v, &v->segment, v->segment.what, r == 0 ? remedy : left);
}

/* ---- looking ---- */

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
    if (io->result == -EBADMSG)
        return "header changed meanwhile";
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
        if (v->repairs && KVO_PLANTED(REPAIR))
            what = "well";
        if (v->ios[i].begun)
            ledger_add(&s->ledger, v->t->account, LEDGER_READ, KVO_CAUSE_VERIFY, KVO_TENANT_OTHER,
                       v->ios[i].identity.payload_bytes, 1);
        if (what)
            bad_slot(v, &v->slots[i], what, &v->ios[i], v->spans[i]);
        s->env->free(s->env, v->ios[i].memory, v->spans[i]);
    }
    v->count = 0;
}

static int each_segment(void *context, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    verification *v = context;
    if (v->segment_bad)
        bad_segment(v, segment == v->segment.segment ? stride : 0, segment == v->segment.segment ? epoch : 0);
    return 0;
}

static int each_slot(void *context, const tier_slot *slot)
{
    verification *v = context;
    if (v->segment_bad)
        bad_segment(v, 0, 0);
    if (slot->state == TIER_SEGMENT_BAD) {
        v->segment = *slot;
        v->segment_bad = true;
        return 0;
    }
    if (slot->state == TIER_SLOT_BAD) {
        v->result->slots += !slot->unfinished;
        bad_slot(v, slot, slot->what, NULL, 0);
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

/* Who opens to write has written it again. */
static void lost_copy(verification *v)
{
    tier_medium *io = v->t->io;
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", io->path, io->lost_copy);
    kvo_bad_slot bad = {.file = path, .what = "one of two copies is damaged", .remedy = written_again};
    v->result->bad++;
    v->result->repaired += v->repairs;
    if (v->on_bad)
        v->on_bad(v->context, &bad);
    if (v->repairs)
        io->lost_copy = NULL;
}

static int verify_tier(verification *v)
{
    if (v->t->io->lost_copy)
        lost_copy(v);
    int r = v->t->io->ops->scan(v->t->io, each_segment, each_slot, v);
    read_batch(v);
    if (v->segment_bad)
        bad_segment(v, 0, 0);
    v->result->unclean += v->t->io->unclean;
    return r ? r : v->error;
}

static int verify_all(kvo_store *s, bool repairs, void (*on_bad)(void *context, const kvo_bad_slot *bad), void *context,
                      kvo_verify_result *result)
{
    memset(result, 0, sizeof *result);
    for (unsigned t = 0; t < s->tier_count; t++) {
        verification v = {
            .s = s, .t = &s->tiers[t], .repairs = repairs, .on_bad = on_bad, .context = context, .result = result};
        int r = s->tiers[t].persistent ? verify_tier(&v) : 0;
        if (r != 0)
            return r;
    }
    return 0;
}

int kvo_verify(kvo_store *s, void (*on_bad)(void *context, const kvo_bad_slot *bad), void *context,
               kvo_verify_result *result)
{
    STORE_ENTER(s);
    if (result == NULL)
        return KVO_E_ARGUMENT;
    if (s->home == KVO_NO_TIER || s->ghost)
        return KVO_E_UNSUPPORTED;
    if (!s->read_only)
        return KVO_E_STATE;
    int r = verify_all(s, false, on_bad, context, result);
    return r == 0 ? KVO_OK : base_status_of_errno(r);
}

int kvo_repair(kvo_store *s, void (*on_bad)(void *context, const kvo_bad_slot *bad), void *context,
               kvo_verify_result *result)
{
    STORE_ENTER(s);
    if (result == NULL)
        return KVO_E_ARGUMENT;
    if (s->ghost)
        return KVO_E_UNSUPPORTED;
    for (unsigned t = 0; t < s->tier_count; t++)
        if (!s->tiers[t].persistent)
            return KVO_E_UNSUPPORTED;
    if (s->read_only || !(s->options.flags & KVO_OPEN_STEPPED))
        return KVO_E_STATE;
    int r = verify_all(s, true, on_bad, context, result);
    if (r == 0)
        r = store_invalidate_evicted(s);
    for (unsigned t = 0; r == 0 && t < s->tier_count; t++)
        r = tier_flush(s->tiers[t].io);
    if (r == 0) /* what is left is for the next opening to find, and keeps the close from a checkpoint */
        s->damaged = result->bad - result->repaired;
    return r == 0 ? KVO_OK : base_status_of_errno(r);
}
