/* SPDX-License-Identifier: Apache-2.0 */
/* For producers that write in place: a put in two steps. */
#include <string.h>

#include "store/put.h"

/* A second block of a name in one batch would wait for its own first to be sealed. */
static bool reserved_here(const kvo_store *s, const block_identity *identity, const kvo_reservation *list, size_t count)
{
    uint64_t life;
    uint32_t record = count ? index_find(&s->index, identity, &life) : BLOCK_NONE;
    if (record == BLOCK_NONE || life_has(life, LIFE_SEALED))
        return false;
    for (size_t i = 0; i < count; i++)
        if (list[i].handle == handle_make(record, life_incarnation(life)))
            return true;
    return false;
}

static int reserve_one(kvo_store *s, const block_identity *identity, const kvo_put_options *o, uint64_t recency,
                       uint64_t deadline, kvo_reservation *reservation, kvo_answer *answer)
{
    uint32_t record = BLOCK_NONE;
    int status = store_reserve(s, identity, o, recency, deadline, &record, answer);
    if (status == KVO_EXISTS && store_by_handle(s, answer->handle) == record)
        store_touch(s, record, recency);
    if (status != KVO_OK)
        return status;
    store_raise_ancestors(s, record, recency);
    void *memory = store_fill_memory(s, record);
    if (memory == NULL && !s->ghost) {
        store_abort(s, record);
        return KVO_E_MEMORY;
    }
    *reservation = (kvo_reservation){
        .handle = handle_make(record, life_incarnation(word_load(&s->records[record].life))),
        .memory = memory,
        .payload_bytes = identity->payload_bytes};
    return KVO_OK;
}

int kvo_reserve(kvo_store *s, const kvo_names *names, const uint32_t *bytes, const kvo_put_options *options,
                kvo_reservation *reservations, kvo_answer *answers)
{
    kvo_put_options o;
    int r = store_put_begin(s, names, options, &o);
    if (r != KVO_OK)
        return r;
    if (names->count && (bytes == NULL || reservations == NULL || answers == NULL))
        return KVO_E_ARGUMENT;
    uint64_t deadline = store_patience(s, o.deadline_ns), base = atomic_load(&s->clock);
    for (size_t i = 0; i < names->count; i++) {
        block_identity identity;
        reservations[i] = (kvo_reservation){0};
        answers[i] = (kvo_answer){.tier = KVO_NO_TIER};
        atomic_fetch_add(&s->clock, 1);
        store_put_identity(s, names, &o, i, bytes[i], &identity);
        int status = store_put_length(s, names->space, bytes[i]);
        if (status == KVO_OK && reserved_here(s, &identity, reservations, i))
            status = KVO_BUSY;
        if (status == KVO_OK)
            status = reserve_one(s, &identity, &o, base + names->count - i, deadline, &reservations[i], &answers[i]);
        answers[i].status = status;
        store_count_put(s, status);
    }
    return KVO_OK;
}

/* The record of a reservation that is still open, or BLOCK_NONE. */
static uint32_t reserved_record(const kvo_store *s, kvo_handle handle)
{
    uint32_t record = handle_record(handle);
    if (handle == 0 || record >= atomic_load(&s->record_end))
        return BLOCK_NONE;
    uint64_t life = word_load(&s->records[record].life);
    bool open = life_has(life, LIFE_USED) && !life_has(life, LIFE_SEALED) &&
                life_incarnation(life) == handle_incarnation(handle) &&
                block_tiers(&s->records[record]) == 0; /* or a rewrite hides it */
    return open ? record : BLOCK_NONE;
}

/* Takes a reservation for seal or abort, so that it is used up once. */
static uint32_t reservation_claim(kvo_store *s, kvo_handle handle)
{
    uint32_t record;
    store_lock(s);
    record = reserved_record(s, handle);
    if (record != BLOCK_NONE) {
        _Atomic uint64_t *copy = &s->records[record].copy[0];
        if (copy_moving(word_load(copy)))
            record = BLOCK_NONE;
        else
            word_change(copy, 0, COPY_MOVING);
    }
    store_unlock(s);
    return record;
}

int kvo_fill(kvo_store *s, const kvo_reservation *reservation, uint32_t offset_bytes, const void *data,
             uint32_t bytes)
{
    STORE_ENTER(s);
    if (reservation == NULL || (bytes && data == NULL))
        return KVO_E_ARGUMENT;
    uint32_t record = reserved_record(s, reservation->handle);
    if (record == BLOCK_NONE || copy_moving(word_load(&s->records[record].copy[0])))
        return KVO_GONE;
    if (offset_bytes > reservation->payload_bytes || bytes > reservation->payload_bytes - offset_bytes)
        return KVO_E_RANGE;
    if (reservation->memory && bytes)
        memcpy((uint8_t *)reservation->memory + offset_bytes, data, bytes);
    return KVO_OK;
}

static void seal_one(kvo_store *s, store_inflow *in, const kvo_reservation *reservation, kvo_answer *answer)
{
    uint8_t digest[16] = {0};
    uint32_t record = reservation_claim(s, reservation->handle);
    answer->status = KVO_GONE;
    if (record == BLOCK_NONE)
        return;
    uint32_t bytes = identity_payload_of(&s->identities[record]);
    void *memory = store_filled_memory(s, record);
    if (memory) {
        digest_of(memory, bytes, digest);
        store_zero_tail(memory, bytes);
    }
    store_set_digest(s, record, digest);
    if (in) {
        store_inflow_seal(s, in, record, memory, answer);
        return;
    }
    answer->status = store_seal(s, record, 0);
    if (store_by_handle(s, reservation->handle) == record)
        store_answer(s, record, answer);
}

int kvo_seal(kvo_store *s, const kvo_reservation *reservations, size_t count, int level, uint64_t deadline_ns,
             kvo_answer *answers)
{
    STORE_ENTER(s);
    if (count && (reservations == NULL || answers == NULL))
        return KVO_E_ARGUMENT;
    if (level < KVO_SEALED || level > KVO_SAFE)
        return KVO_E_RANGE;
    if (level > KVO_SEALED && s->home == KVO_NO_TIER)
        return KVO_E_UNSUPPORTED;
    uint64_t deadline = store_deadline(s, deadline_ns);
    store_inflow inflow, *in = store_inflow_begin(s, &inflow);
    for (size_t i = 0; i < count; i++) {
        answers[i] = (kvo_answer){.tier = KVO_NO_TIER};
        seal_one(s, in, &reservations[i], &answers[i]);
    }
    store_inflow_end(s, in);
    if (level > KVO_SEALED)
        store_sync_answers(s, answers, count, level, deadline, NULL);
    return KVO_OK;
}

int kvo_abort(kvo_store *s, const kvo_reservation *reservations, size_t count, kvo_answer *answers)
{
    STORE_ENTER(s);
    if (count && (reservations == NULL || answers == NULL))
        return KVO_E_ARGUMENT;
    for (size_t i = 0; i < count; i++) {
        uint32_t record = reservation_claim(s, reservations[i].handle);
        answers[i] = (kvo_answer){.tier = KVO_NO_TIER, .status = record == BLOCK_NONE ? KVO_GONE : KVO_OK};
        if (record != BLOCK_NONE)
            store_abort(s, record);
    }
    return KVO_OK;
}
