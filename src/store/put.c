/* SPDX-License-Identifier: Apache-2.0 */
/* From a producer into the first tier: reserve, fill, seal; put is the three at once. */
#include <string.h>

#include "store/put.h"

int store_put_begin(kvo_store *s, const kvo_names *names, const kvo_put_options *given, kvo_put_options *options)
{
    *options = (kvo_put_options)KVO_PUT_OPTIONS_INIT;
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r == KVO_OK)
        r = base_options_take(options, sizeof *options, given);
    if (r != KVO_OK)
        return r;
    if (s->read_only)
        return KVO_E_STATE;
    if (options->level < KVO_SEALED || options->level > KVO_SAFE)
        return KVO_E_RANGE;
    if (options->level > KVO_SEALED && s->home == KVO_NO_TIER)
        return KVO_E_UNSUPPORTED;
    if (options->parents && options->parents_stride_bytes && options->parents_stride_bytes < names->name_bytes)
        return KVO_E_ARGUMENT;
    return policy_check(&options->policy, KVO_POLICY_ALL);
}

static bool all_zero(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i])
            return false;
    return true;
}

/* key_hash of the parent of block i, as the caller gives it; 0 = none or unknown. */
static uint64_t parent_hash(const kvo_names *names, const kvo_put_options *o, size_t i)
{
    const void *name = NULL;
    size_t stride = names->stride_bytes ? names->stride_bytes : names->name_bytes;
    size_t parents_stride = o->parents_stride_bytes ? o->parents_stride_bytes : names->name_bytes;
    if (o->chained)
        name = i ? (const uint8_t *)names->first + (i - 1) * stride : o->parent;
    else if (o->parents)
        name = (const uint8_t *)o->parents + i * parents_stride;
    if (name == NULL || (!o->chained && all_zero(name, names->name_bytes)))
        return 0;
    kvo_names one = *names;
    one.first = name;
    one.count = 1;
    block_identity key;
    identity_key(&one, 0, &key);
    return key.key_hash;
}

void store_put_identity(const kvo_store *s, const kvo_names *names, const kvo_put_options *o, size_t i,
                        uint32_t payload_bytes, block_identity *identity)
{
    uint32_t positions = s->spaces[names->space].record->block_positions;
    identity_key(names, i, identity);
    identity->parent_hash = parent_hash(names, o, i);
    identity->sequence = o->sequence;
    identity->positions = names->kind == KVO_KIND_RANGE ? positions : 0;
    identity->position = o->positions ? o->positions[i] : o->position + (uint32_t)i * (positions ? positions : 1);
    identity->payload_bytes = payload_bytes;
}

/* ---- reserve ---- */

/* What a name that is there already means for a new block of that name. Under the lock.
   KVO_OK: it is free. */
static int name_taken(kvo_store *s, const block_identity *identity, uint64_t deadline, uint32_t *record)
{
    for (;;) {
        uint64_t life;
        *record = index_find(&s->index, identity, &life);
        if (*record == BLOCK_NONE || KVO_PLANTED(FIRST_SEAL))
            return KVO_OK;
        bool same = identity_payload_of(&s->identities[*record]) == identity->payload_bytes || KVO_PLANTED(LENGTH);
        if (life_has(life, LIFE_SEALED))
            return same ? KVO_EXISTS : KVO_SIZE;
        if (deadline == 0 || !store_wait(s, deadline))
            return KVO_BUSY;
    }
}

static void record_begin(kvo_store *s, uint32_t record, const block_identity *identity, const kvo_put_options *o,
                         uint64_t recency, uint32_t slot)
{
    block_record *r = &s->records[record];
    uint32_t remembered = place_memory_take(&s->memory, identity->key_hash, atomic_load(&s->clock));
    uint32_t incarnation = life_incarnation(word_load(&r->life));
    identity_store(&s->identities[record], identity);
    word_store(&r->policy, policy_change_of(&o->policy, KVO_POLICY_ALL, store_now_s(s)).set);
    word_store(&r->touch, touch_make(recency, remembered + 1));
    word_store(&r->life, life_make(incarnation ? incarnation : 1, 0, NULL, LIFE_USED));
    word_store(&r->copy[0], copy_make(slot, BLOCK_FILLING, 0, 0));
    store_link(s, record);
    s->reserved++;
}

static int reserve_locked(kvo_store *s, const block_identity *identity, const kvo_put_options *o, uint64_t recency,
                          uint64_t deadline, uint32_t *record, bool *waited)
{
    uint32_t slot, fresh;
    int status = name_taken(s, identity, deadline, record);
    if (status != KVO_OK)
        return status;
    status = store_room(s, 0, identity->payload_bytes, deadline, &slot, waited);
    if (status != KVO_OK)
        return status;
    status = store_room_record(s, deadline, &fresh);
    if (status != KVO_OK) {
        place_slot_free(&s->tiers[0].space, slot);
        store_changed(s);
        return status;
    }
    /* The lock may have been let go: somebody else may have taken the name meanwhile. */
    status = name_taken(s, identity, deadline, record);
    if (status == KVO_OK && !index_insert(&s->index, identity->key_hash, fresh))
        status = KVO_BUSY;
    if (status != KVO_OK) {
        place_slot_free(&s->tiers[0].space, slot);
        store_record_free(s, fresh);
        store_changed(s);
        return status;
    }
    record_begin(s, fresh, identity, o, recency, slot);
    *record = fresh;
    return KVO_OK;
}

int store_reserve(kvo_store *s, const block_identity *identity, const kvo_put_options *o, uint64_t recency,
                  uint64_t deadline, uint32_t *record, kvo_answer *answer)
{
    bool waited = false;
    store_lock(s);
    int status = reserve_locked(s, identity, o, recency, deadline, record, &waited);
    if (status == KVO_EXISTS || status == KVO_SIZE) /* while the record is sure to be that block's */
        store_answer(s, *record, answer);
    store_unlock(s);
    if (waited)
        ledger_total_add(&s->ledger, LEDGER_PUT_WAITS, 1);
    return status == KVO_SHORT ? KVO_BUSY : status;
}

/* ---- fill ---- */

/* Memory for a block whose first tier cannot be written in place. The page in front of it links
   it to the others. */
struct store_staging {
    store_staging *next;
    uint32_t record;
    size_t bytes;
};

static void *staging_make(kvo_store *s, uint32_t record, uint32_t payload_bytes)
{
    size_t bytes = TIER_UNIT + tier_payload_span(payload_bytes);
    store_staging *staging = s->env->alloc(s->env, bytes);
    if (staging == NULL)
        return NULL;
    staging->record = record;
    staging->bytes = bytes;
    store_lock(s);
    staging->next = s->staging;
    s->staging = staging;
    store_unlock(s);
    return (uint8_t *)staging + TIER_UNIT;
}

static store_staging **staging_of(kvo_store *s, uint32_t record)
{
    store_staging **at = &s->staging;
    while (*at && (*at)->record != record)
        at = &(*at)->next;
    return at;
}

/* Under the lock. */
static void staging_drop(kvo_store *s, uint32_t record)
{
    store_staging **at = staging_of(s, record), *gone = *at;
    if (gone == NULL)
        return;
    *at = gone->next;
    s->env->free(s->env, gone, gone->bytes);
}

void *store_fill_memory(kvo_store *s, uint32_t record)
{
    if (s->ghost)
        return NULL;
    if (!s->tiers[0].byte_addressable)
        return staging_make(s, record, identity_payload_of(&s->identities[record]));
    return tier_memory(s->tiers[0].io, copy_slot(word_load(&s->records[record].copy[0])));
}

void *store_filled_memory(kvo_store *s, uint32_t record)
{
    if (s->ghost || s->tiers[0].byte_addressable)
        return store_fill_memory(s, record);
    store_lock(s);
    store_staging *staging = *staging_of(s, record);
    store_unlock(s);
    return staging ? (uint8_t *)staging + TIER_UNIT : NULL;
}

void store_zero_tail(void *memory, uint32_t payload_bytes)
{
    memset((uint8_t *)memory + payload_bytes, 0, tier_payload_span(payload_bytes) - payload_bytes);
}

/* ---- seal ---- */

void store_set_digest(kvo_store *s, uint32_t record, const uint8_t digest[16])
{
    block_identity identity;
    identity_load(&s->identities[record], &identity);
    memcpy(identity.digest, digest, 16);
    identity_store(&s->identities[record], &identity);
}

int store_seal_failed(kvo_store *s, uint32_t record, const tier_io *io)
{
    unsigned account = s->tiers[0].account;
    ledger_count(&s->ledger, account, LEDGER_IO_ERRORS, 1);
    if (io->begun)
        ledger_add(&s->ledger, account, LEDGER_WRITE, KVO_CAUSE_FAILED, store_tenant(s, record),
                   identity_payload_of(&s->identities[record]), 1);
    store_log(s, "%s: writing a block failed: %s", s->tiers[0].name, strerror(-io->result));
    store_lock(s);
    store_stale_add(s, 0, copy_slot(word_load(&s->records[record].copy[0])), 0, false);
    store_unlock(s);
    store_abort(s, record);
    int status = base_status_of_errno(io->result);
    return status == KVO_E_NO_SPACE ? KVO_FULL : status;
}

int store_seal(kvo_store *s, uint32_t record, unsigned generation)
{
    block_record *r = &s->records[record];
    uint32_t bytes = identity_payload_of(&s->identities[record]), slot = copy_slot(word_load(&r->copy[0]));
    unsigned account = s->tiers[0].account;
    store_lock(s);
    KVO_ASSERT(!life_has(word_load(&r->life), LIFE_SEALED)); /* rule 1: once */
    staging_drop(s, record);
    store_copy_set(s, record, 0, copy_make(slot, BLOCK_VALID, 0, generation));
    word_change(&r->life, 0, LIFE_FLAG(LIFE_SEALED)); /* last: what is sealed has a copy */
    s->blocks++;
    s->reserved--;
    ledger_count(&s->ledger, account, LEDGER_LIVES, 1);
    ledger_count(&s->ledger, account, LEDGER_LIFE_BYTES, bytes);
    ledger_add(&s->ledger, account, LEDGER_WRITE, KVO_CAUSE_PUT, store_tenant(s, record), bytes, 1);
    store_event(s, KVO_EVENT_SEAL, KVO_CAUSE_NONE, 0, record);
    store_reorder(s, record, store_now_s(s));
    store_changed(s);
    store_unlock(s);
    return KVO_STORED;
}

void store_abort(kvo_store *s, uint32_t record)
{
    block_record *r = &s->records[record];
    store_lock(s);
    staging_drop(s, record);
    uint32_t slot = copy_slot(word_load(&r->copy[0]));
    index_remove(&s->index, identity_hash_of(&s->identities[record]), record);
    word_store(&r->copy[0], 0);
    place_slot_free(&s->tiers[0].space, slot);
    store_record_free(s, record);
    s->reserved--;
    s->gaps = true;
    store_changed(s);
    store_unlock(s);
}

bool store_digest_same(const uint8_t a[16], const uint8_t b[16])
{
    return KVO_PLANTED(DIGEST) || memcmp(a, b, 16) == 0;
}

uint64_t store_segments_bytes(const kvo_segment *segments, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += segments[i].bytes > KVO_PAYLOAD_BYTES_MAX ? (uint64_t)KVO_PAYLOAD_BYTES_MAX + 1 : segments[i].bytes;
    return sum;
}

bool store_segments_there(const kvo_segment *segments, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (segments[i].base == NULL && segments[i].bytes)
            return false;
    return true;
}

int store_put_length(const kvo_store *s, kvo_space space, uint64_t payload_bytes)
{
    return payload_bytes == 0 || payload_bytes > s->spaces[space].record->block_bytes_max ? KVO_REFUSED : KVO_OK;
}

/* ---- put ---- */

static int fill_and_seal(kvo_store *s, uint32_t record, const kvo_segment *segments, uint32_t count, uint32_t bytes)
{
    uint8_t digest[16] = {0};
    if (!s->ghost) {
        void *memory = store_fill_memory(s, record);
        digest_gather(memory, segments, count, digest);
        atomic_fetch_add_explicit(&s->payload_copies, 1, memory_order_relaxed);
        store_zero_tail(memory, bytes);
    }
    store_set_digest(s, record, digest);
    return store_seal(s, record, 0);
}

/* First seal wins; that other bytes came under the same name is worth knowing. */
static void put_again(kvo_store *s, uint32_t record, kvo_handle handle, const kvo_segment *segments, uint32_t count,
                      uint64_t recency, bool trust)
{
    if (store_by_handle(s, handle) != record)
        return;
    store_touch(s, record, recency);
    if (trust || s->ghost)
        return;
    block_identity identity;
    uint8_t digest[16];
    identity_load(&s->identities[record], &identity);
    digest_segments(segments, count, digest);
    if (store_by_handle(s, handle) == record && memcmp(digest, identity.digest, 16) != 0)
        ledger_total_add(&s->ledger, LEDGER_DIGEST_CONFLICTS, 1);
}

void store_count_put(kvo_store *s, int status)
{
    ledger_total_add(&s->ledger, LEDGER_PUTS, 1);
    if (status == KVO_EXISTS)
        ledger_total_add(&s->ledger, LEDGER_PUT_EXISTS, 1);
    if (status == KVO_BUSY)
        ledger_total_add(&s->ledger, LEDGER_PUT_BUSY, 1);
    if (status == KVO_FULL)
        ledger_total_add(&s->ledger, LEDGER_PUT_FULL, 1);
}

/* What is in the way may be the batch's own blocks that are on their way: they land before it waits. */
static int reserve_after(kvo_store *s, store_inflow *in, const block_identity *identity, const kvo_put_options *o,
                         uint64_t recency, uint64_t deadline, uint32_t *record, kvo_answer *answer)
{
    bool flying = in && in->used, bounded = deadline != 0 && deadline != KVO_FOREVER;
    uint64_t first = !flying ? deadline : bounded ? STORE_OVER : 0;
    int status = store_reserve(s, identity, o, recency, first, record, answer);
    if (!flying || (status != KVO_BUSY && status != KVO_FULL))
        return status;
    store_inflow_drain(s, in);
    return store_reserve(s, identity, o, recency, deadline, record, answer);
}

/* in: NULL where the first tier is memory; else the answer may come later. */
static void put_one(kvo_store *s, store_inflow *in, const kvo_names *names, size_t i, const kvo_segment *segments,
                    uint32_t count, const kvo_put_options *o, uint64_t recency, uint64_t deadline, bool tentative,
                    kvo_answer *answer)
{
    uint64_t bytes = store_segments_bytes(segments, count);
    uint32_t record = BLOCK_NONE;
    *answer = (kvo_answer){.tier = KVO_NO_TIER};
    if (!tentative)
        atomic_fetch_add(&s->clock, 1);
    answer->status = store_put_length(s, names->space, bytes);
    if (!s->ghost && !store_segments_there(segments, count))
        answer->status = KVO_E_ARGUMENT;
    if (answer->status == KVO_OK) {
        block_identity identity;
        store_put_identity(s, names, o, i, (uint32_t)bytes, &identity);
        answer->status = reserve_after(s, in, &identity, o, recency, deadline, &record, answer);
    }
    if (tentative && answer->status == KVO_BUSY)
        return;
    if (tentative)
        atomic_fetch_add(&s->clock, 1);
    if (answer->status == KVO_EXISTS)
        put_again(s, record, answer->handle, segments, count, recency, o->trust_name != 0);
    if (answer->status == KVO_OK) {
        kvo_handle handle = handle_make(record, life_incarnation(word_load(&s->records[record].life)));
        store_raise_ancestors(s, record, recency);
        if (in) {
            store_inflow_put(s, in, record, segments, count, answer);
            return;
        }
        answer->status = fill_and_seal(s, record, segments, count, (uint32_t)bytes);
        answer->handle = handle; /* also if it is gone again: a level asked for then says so */
        if (store_by_handle(s, handle) == record)
            store_answer(s, record, answer);
    }
    store_count_put(s, answer->status);
}

void store_put_part(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_put_options *o,
                    uint64_t recency, uint64_t deadline, bool tentative, kvo_answer *answers)
{
    const kvo_segment *segments = memory->segments;
    store_inflow inflow, *in = store_inflow_begin(s, &inflow);
    for (size_t i = 0; i < names->count; i++) {
        uint32_t count = memory->segment_counts ? memory->segment_counts[i] : 1;
        put_one(s, in, names, i, segments, count, o, recency - i, deadline, tentative, &answers[i]);
        segments += count;
    }
    store_inflow_end(s, in);
}

int kvo_put(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_put_options *options,
            kvo_answer *answers)
{
    kvo_put_options o;
    int r = store_put_begin(s, names, options, &o);
    if (r != KVO_OK)
        return r;
    if (memory == NULL || (names->count && (answers == NULL || memory->segments == NULL)))
        return KVO_E_ARGUMENT;
    uint64_t room = store_patience(s, o.deadline_ns), level = store_deadline(s, o.deadline_ns);
    store_put_part(s, names, memory, &o, atomic_load(&s->clock) + names->count, room, false, answers);
    if (o.level > KVO_SEALED)
        store_sync_answers(s, answers, names->count, o.level, level, NULL);
    return KVO_OK;
}
