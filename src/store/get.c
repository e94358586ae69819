/* SPDX-License-Identifier: Apache-2.0 */
/* To the caller: copies of payloads, and pins on them. */
#include <errno.h>
#include <string.h>

#include "store/fetch.h"
#include "store/put.h"
#include "store/target.h"

static int get_begin(kvo_store *s, const kvo_names *names, const kvo_get_options *given, kvo_get_options *options)
{
    *options = (kvo_get_options)KVO_GET_OPTIONS_INIT;
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    return r == KVO_OK ? base_options_take(options, sizeof *options, given) : r;
}

static void count_hit(kvo_store *s, const fetch_item *item)
{
    unsigned account = s->tiers[item->tier].account;
    ledger_count(&s->ledger, s->tiers[item->from].account, LEDGER_HITS, 1);
    ledger_add(&s->ledger, account, LEDGER_READ, KVO_CAUSE_GET, store_tenant(s, item->record),
               item->identity.payload_bytes, 1);
}

static void served(kvo_store *s, fetch_batch *batch, fetch_item *item)
{
    kvo_answer *answer = &batch->answers[item->index];
    count_hit(s, item);
    store_answer(s, item->record, answer);
    answer->tier = (uint8_t)item->from;
    item->how = FETCH_DONE;
    item->status = KVO_OK;
}

/* What arrived is not what was sealed: is it the copy, or did the caller's memory change under us? */
static void deliver_failed(kvo_store *s, fetch_item *item, const void *from)
{
    uint8_t digest[16];
    digest_of(from, item->identity.payload_bytes, digest);
    if (memcmp(digest, item->identity.digest, 16) == 0) {
        store_unpin(s, item->record, item->tier);
        item->how = FETCH_DONE;
        item->status = KVO_BUSY;
        return;
    }
    store_quarantine(s, item->record, item->tier, -EBADMSG);
    item->how = FETCH_AGAIN;
}

/* Copies to the caller and checks what arrived there. */
static void deliver_copy(kvo_store *s, fetch_batch *batch, fetch_item *item)
{
    uint8_t digest[16];
    if (!s->ghost && !item->delivered) {
        const void *from = tier_readable(s->tiers[item->tier].io,
                                         copy_slot(word_load(&s->records[item->record].copy[item->tier])));
        digest_scatter(item->segments, item->segment_count, from, digest);
        atomic_fetch_add_explicit(&s->payload_copies, 1, memory_order_relaxed);
        ledger_total_add(&s->ledger, LEDGER_VERIFIED, 1);
        if (!store_digest_same(digest, item->identity.digest)) {
            deliver_failed(s, item, from);
            return;
        }
    }
    served(s, batch, item);
    store_unpin(s, item->record, item->tier);
}

/* A block whose intent is "drop" goes after its use. */
static void drop_used(kvo_store *s, const kvo_answer *answers, size_t count, uint64_t deadline_ns)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t record = answers[i].status == KVO_OK ? store_by_handle(s, answers[i].handle) : BLOCK_NONE;
        if (record == BLOCK_NONE ||
            policy_intent_at(word_load(&s->records[record].policy), store_now_s(s)) != KVO_INTENT_DROP)
            continue;
        kvo_target target = {.by = KVO_BY_HANDLES, .handles = &answers[i].handle, .handle_count = 1};
        kvo_remove(s, &target, KVO_WRITTEN, deadline_ns, NULL, NULL);
    }
}

void store_count_get(kvo_store *s, int status)
{
    ledger_total_add(&s->ledger, LEDGER_GETS, 1);
    if (status == KVO_MISS)
        ledger_total_add(&s->ledger, LEDGER_GET_MISSES, 1);
}

static void window(kvo_store *s, fetch_batch *batch, fetch_item *items, size_t n)
{
    store_fetch(s, batch, items, n);
    for (size_t i = 0; i < n; i++) {
        kvo_answer *answer = &batch->answers[items[i].index];
        if (items[i].status != KVO_OK)
            *answer = (kvo_answer){.tier = KVO_NO_TIER};
        answer->status = items[i].status;
        bool later = batch->tentative && items[i].status == KVO_BUSY && items[i].later;
        answer->reserved = !later ? 0 : items[i].pending ? FETCH_PENDING : FETCH_LATER;
        if (!later)
            store_count_get(s, items[i].status);
    }
}

/* All uses of a long batch are counted before its first block makes room for itself, or that room
   could be one of the batch's last blocks. */
static void touch_all(kvo_store *s, const kvo_names *names, uint64_t recency)
{
    kvo_target target = {.by = KVO_BY_NAMES, .names = *names};
    target_cursor cursor = {.target = &target};
    for (target_hit hit; target_next(s, &cursor, &hit);)
        if (hit.status == KVO_OK)
            store_touch(s, hit.record, recency - hit.index);
}

uint64_t store_get_uses(kvo_store *s, const kvo_names *names)
{
    uint64_t recency = atomic_fetch_add(&s->clock, names->count) + names->count;
    if (!s->read_only)
        touch_all(s, names, recency);
    return recency;
}

/* touched: the uses are counted. */
static void fetch_all(kvo_store *s, fetch_batch *batch, const kvo_memory *memory, bool touched)
{
    fetch_item items[STORE_WINDOW];
    const kvo_names *names = batch->names;
    const kvo_segment *segments = memory ? memory->segments : NULL;
    for (size_t i = 0; i < names->count;) {
        size_t n = 0;
        for (; n < STORE_WINDOW && i < names->count; n++, i++) {
            bool pending = batch->tentative && batch->answers[i].reserved == FETCH_PENDING;
            items[n] = (fetch_item){.index = i, .touched = touched && !pending};
            if (memory == NULL)
                continue;
            items[n].segments = segments;
            items[n].segment_count = memory->segment_counts ? memory->segment_counts[i] : 1;
            items[n].bytes = store_segments_bytes(segments, items[n].segment_count);
            if (!s->ghost && !store_segments_there(segments, items[n].segment_count))
                items[n].bytes = 0; /* no block has this length: KVO_SIZE */
            segments += items[n].segment_count;
        }
        window(s, batch, items, n);
    }
}

static void fetch_batch_all(kvo_store *s, fetch_batch *batch, const kvo_memory *memory)
{
    const kvo_names *names = batch->names;
    bool ahead = names->count > STORE_WINDOW && !s->read_only;
    batch->deadline = store_deadline(s, batch->options.deadline_ns);
    batch->recency = atomic_fetch_add(&s->clock, names->count) + names->count;
    if (ahead)
        touch_all(s, names, batch->recency);
    fetch_all(s, batch, memory, ahead);
}

void store_get(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *o,
               kvo_answer *answers)
{
    fetch_batch batch = {.names = names, .options = *o, .deliver = deliver_copy, .answers = answers};
    if (s->read_only)
        batch.options.no_promote = 1;
    fetch_batch_all(s, &batch, memory);
    if (!s->read_only)
        drop_used(s, answers, names->count, o->deadline_ns);
}

#define DROP_PATIENCE_NS 5000000u /* of a job, for a transfer of a block that is to go */

void store_get_part(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *o,
                    uint64_t recency, bool tentative, kvo_answer *answers)
{
    fetch_batch batch = {.names = names, .options = *o, .recency = recency, .deliver = deliver_copy,
                         .answers = answers, .tentative = tentative};
    if (s->read_only)
        batch.options.no_promote = 1;
    fetch_all(s, &batch, memory, true);
    if (!s->read_only)
        drop_used(s, answers, names->count, DROP_PATIENCE_NS);
}

int kvo_get(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *given,
            kvo_answer *answers)
{
    kvo_get_options options;
    int r = get_begin(s, names, given, &options);
    if (r != KVO_OK)
        return r;
    if (memory == NULL || (names->count && (answers == NULL || memory->segments == NULL)))
        return KVO_E_ARGUMENT;
    store_get(s, names, memory, &options, answers);
    return KVO_OK;
}

/* ---- pins ---- */

static uint64_t pin_token(uint32_t index, uint32_t generation) { return (uint64_t)generation << 32 | (index + 1u); }

/* Under the lock. 0: no place in the table. */
static uint64_t pin_register(kvo_store *s, uint32_t record)
{
    if (s->pin_free == 0)
        return 0;
    uint32_t index = s->pin_free - 1;
    store_pin *pin = &s->pins[index];
    s->pin_free = pin->next;
    pin->record = record;
    pin->generation++;
    s->pinned++;
    return pin_token(index, pin->generation);
}

static void deliver_pin(kvo_store *s, fetch_batch *batch, fetch_item *item)
{
    kvo_pin *pin = &batch->pins[item->index];
    KVO_ASSERT(item->how == FETCH_MEMORY && item->tier == 0); /* what lies below has no address: it is busy */
    const void *memory = tier_readable(s->tiers[0].io, copy_slot(word_load(&s->records[item->record].copy[0])));
    if (!item->checked) {
        uint8_t digest[16];
        digest_of(memory, item->identity.payload_bytes, digest);
        ledger_total_add(&s->ledger, LEDGER_VERIFIED, 1);
        if (!store_digest_same(digest, item->identity.digest)) {
            store_quarantine(s, item->record, 0, -EBADMSG);
            item->how = FETCH_AGAIN;
            return;
        }
    }
    store_lock(s);
    uint64_t token = pin_register(s, item->record);
    store_unlock(s);
    if (token == 0) {
        store_unpin(s, item->record, 0);
        item->how = FETCH_DONE;
        item->status = KVO_BUSY;
        return;
    }
    served(s, batch, item);
    *pin = (kvo_pin){.memory = memory, .token = token, .payload_bytes = item->identity.payload_bytes};
}

int kvo_pin_blocks(kvo_store *s, const kvo_names *names, const kvo_get_options *options, kvo_pin *pins,
                   kvo_answer *answers)
{
    fetch_batch batch = {.names = names, .deliver = deliver_pin, .pins = pins, .answers = answers};
    int r = get_begin(s, names, options, &batch.options);
    if (r != KVO_OK)
        return r;
    if (names->count && (pins == NULL || answers == NULL))
        return KVO_E_ARGUMENT;
    if (s->ghost || !s->tiers[0].byte_addressable)
        return KVO_E_UNSUPPORTED;
    for (size_t i = 0; i < names->count; i++)
        pins[i] = (kvo_pin){0};
    batch.options.no_promote = 0;
    fetch_batch_all(s, &batch, NULL);
    return KVO_OK;
}

int kvo_unpin(kvo_store *s, kvo_pin *pins, size_t count)
{
    STORE_ENTER(s);
    if (count && pins == NULL)
        return KVO_E_ARGUMENT;
    int result = KVO_OK;
    for (size_t i = 0; i < count; i++) {
        uint32_t index = (uint32_t)pins[i].token - 1u, record = BLOCK_NONE;
        store_lock(s);
        if (pins[i].token && index < s->options.pins_max && s->pins[index].record != BLOCK_NONE &&
            pin_token(index, s->pins[index].generation) == pins[i].token) {
            record = s->pins[index].record;
            s->pins[index].record = BLOCK_NONE;
            s->pins[index].next = s->pin_free;
            s->pin_free = index + 1;
            s->pinned--;
        }
        store_unlock(s);
        if (record == BLOCK_NONE)
            result = KVO_GONE;
        else
            store_unpin(s, record, 0);
        pins[i] = (kvo_pin){0};
    }
    return result;
}
