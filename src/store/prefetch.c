/* SPDX-License-Identifier: Apache-2.0 */
/* Into the first tier, for a use to come: as a get, but nothing is delivered and nothing counted. */
#include "store/fetch.h"

static void deliver_nothing(kvo_store *s, fetch_batch *batch, fetch_item *item)
{
    KVO_ASSERT(item->how == FETCH_MEMORY && item->tier == 0); /* without room above it is busy, and not delivered */
    store_answer(s, item->record, &batch->answers[item->index]);
    batch->answers[item->index].tier = (uint8_t)item->from;
    item->status = KVO_OK;
    store_unpin(s, item->record, item->tier);
    item->how = FETCH_DONE;
}

void store_prefetch(kvo_store *s, const kvo_names *names, uint64_t deadline, bool tentative, kvo_answer *answers)
{
    kvo_pin no_pin; /* says that no length is asked for, and that a copy below is no help */
    fetch_item items[STORE_WINDOW];
    fetch_batch batch = {.names = names, .deadline = deadline, .deliver = deliver_nothing, .pins = &no_pin,
                         .answers = answers, .yields = true};
    for (size_t i = 0; i < names->count;) {
        size_t n = 0;
        for (; n < STORE_WINDOW && i < names->count; n++, i++)
            items[n] = (fetch_item){.index = i, .touched = true};
        store_fetch(s, &batch, items, n);
        for (size_t k = 0; k < n; k++) {
            if (items[k].status != KVO_OK)
                answers[items[k].index] = (kvo_answer){.tier = KVO_NO_TIER};
            answers[items[k].index].status = items[k].status;
            answers[items[k].index].reserved = tentative && items[k].status == KVO_BUSY && items[k].later;
        }
    }
}

int store_prefetch_check(kvo_store *s, const kvo_names *names, const kvo_answer *answers)
{
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (names->count && answers == NULL)
        return KVO_E_ARGUMENT;
    if (s->read_only)
        return KVO_E_STATE;
    return s->ghost || s->tiers[0].byte_addressable ? KVO_OK : KVO_E_UNSUPPORTED;
}

int kvo_prefetch(kvo_store *s, const kvo_names *names, const kvo_get_options *given, kvo_answer *answers)
{
    kvo_get_options options = KVO_GET_OPTIONS_INIT;
    STORE_ENTER(s);
    int r = store_prefetch_check(s, names, answers);
    if (r == KVO_OK)
        r = base_options_take(&options, sizeof options, given);
    if (r == KVO_OK)
        store_prefetch(s, names, store_deadline(s, options.deadline_ns), false, answers);
    return r;
}
