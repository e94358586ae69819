/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: one thread that writes out at intervals and carries out intents. */
#include <string.h>

#include "store/store.h"

/* ---- intents ---- */

/* Blocks to bring up or down, the most urgent first; what does not fit waits for the next round. */
typedef struct errand {
    uint64_t deadline_s; /* UINT64_MAX: none */
    uint32_t record;
} errand;

typedef struct errands {
    errand list[4 * STORE_WINDOW];
    size_t count;
    bool more;
} errands;

static void errand_add(errands *e, uint32_t record, uint32_t deadline_s)
{
    const size_t most = sizeof e->list / sizeof *e->list;
    errand new = {deadline_s ? deadline_s : UINT64_MAX, record};
    size_t at = e->count;
    while (at && e->list[at - 1].deadline_s > new.deadline_s)
        at--;
    e->more |= e->count == most;
    if (at == most)
        return;
    e->count -= e->count == most;
    memmove(&e->list[at + 1], &e->list[at], (e->count - at) * sizeof *e->list);
    e->list[at] = new;
    e->count++;
}

static bool alike(const kvo_names *a, const block_identity *b)
{
    return a->space == b->space && a->name_bytes == b->name_bytes && a->kind == b->kind &&
           a->layer_first == b->layer_first && a->layer_count == b->layer_count && a->head_group == b->head_group;
}

/* Those that follow each other and are alike go as one batch, several in transfer at a time. */
static bool bring_up(kvo_store *s, const errands *e)
{
    uint8_t bytes[STORE_WINDOW * KVO_NAME_BYTES_MAX];
    kvo_answer answers[STORE_WINDOW];
    bool left = false;
    for (size_t i = 0; i < e->count;) {
        kvo_names names = {.first = bytes};
        for (; i < e->count && names.count < STORE_WINDOW; i++) {
            block_identity identity;
            identity_load(&s->identities[e->list[i].record], &identity);
            if (names.count && !alike(&names, &identity))
                break;
            names.name_bytes = identity.name_bytes;
            names.space = identity.space;
            names.kind = identity.kind;
            names.layer_first = identity.layer_first;
            names.layer_count = identity.layer_count;
            names.head_group = identity.head_group;
            memcpy(bytes + names.count++ * names.name_bytes, identity.name, names.name_bytes);
        }
        if (store_check_names(s, &names) != KVO_OK) /* given to another block just now */
            continue;
        store_prefetch(s, &names, 0, false, answers);
        for (size_t k = 0; k < names.count; k++)
            left |= answers[k].status == KVO_BUSY;
    }
    return left;
}

static bool bring_down(kvo_store *s, const errands *e)
{
    uint32_t records[4 * STORE_WINDOW];
    int results[4 * STORE_WINDOW];
    bool left = false;
    for (size_t i = 0; i < e->count; i++)
        records[i] = e->list[i].record;
    store_lock(s);
    store_demote(s, records, e->count, 1, results);
    store_unlock(s);
    for (size_t i = 0; i < e->count; i++)
        left |= results[i] == KVO_BUSY;
    return left;
}

static void carry_out_all(kvo_store *s)
{
    if (atomic_exchange(&s->intents, 0) == 0)
        return;
    errands up = {.count = 0}, down = {.count = 0};
    uint32_t end = atomic_load(&s->record_end), now = store_now_s(s);
    bool memory_first = s->ghost || s->tiers[0].byte_addressable;
    for (uint32_t i = 0; i < end; i++) {
        const block_record *r = &s->records[i];
        uint64_t policy = word_load(&r->policy);
        unsigned mask = block_tiers(r), intent = policy_intent_at(policy, now);
        if (!life_live(word_load(&r->life)) || mask == 0)
            continue;
        if (intent == KVO_INTENT_PREFETCH && !(mask & 1u) && memory_first)
            errand_add(&up, i, policy_deadline(policy));
        if (intent == KVO_INTENT_DEMOTE && s->tier_count > 1 && mask == 1u)
            errand_add(&down, i, policy_deadline(policy));
    }
    bool left = bring_up(s, &up);
    left |= bring_down(s, &down);
    if (left || up.more || down.more)
        atomic_store(&s->intents_left, true);
}

void store_intents_changed(kvo_store *s)
{
    if (s->ghost) { /* no keeper: decisions happen in calls */
        atomic_store(&s->intents, 1);
        carry_out_all(s);
        return;
    }
    pthread_mutex_lock(&s->keeper_lock);
    atomic_store(&s->intents, 1);
    pthread_cond_signal(&s->keeper_wake);
    pthread_mutex_unlock(&s->keeper_lock);
}

/* ---- the thread ---- */

#define RETRY_NS 100000000u /* intents that could not be carried out yet */

/* Until the next write-out is due, an intent is new, or one is worth another try. */
static void sleep_until_due(kvo_store *s)
{
    bool again = atomic_exchange(&s->intents_left, false);
    uint64_t step = again && s->options.write_out_ns > RETRY_NS ? RETRY_NS : s->options.write_out_ns;
    while (!s->keeper_stops && !atomic_load(&s->intents))
        if (!base_cond_wait(&s->keeper_wake, &s->keeper_lock, step))
            break;
    if (again)
        atomic_store(&s->intents, 1);
}

static void *keeper(void *argument)
{
    kvo_store *s = argument;
    pthread_mutex_lock(&s->keeper_lock);
    while (!s->keeper_stops) {
        sleep_until_due(s);
        bool stop = s->keeper_stops;
        pthread_mutex_unlock(&s->keeper_lock);
        if (!stop) {
            carry_out_all(s);
            store_write_out(s, false);
        }
        pthread_mutex_lock(&s->keeper_lock);
    }
    pthread_mutex_unlock(&s->keeper_lock);
    return NULL;
}

int store_keeper_start(kvo_store *s)
{
    s->keeper_runs = base_thread_start(&s->keeper, keeper, s) == 0;
    return s->keeper_runs ? KVO_OK : KVO_E_MEMORY;
}

void store_keeper_stop(kvo_store *s)
{
    if (!s->keeper_runs)
        return;
    pthread_mutex_lock(&s->keeper_lock);
    s->keeper_stops = true;
    pthread_cond_signal(&s->keeper_wake);
    pthread_mutex_unlock(&s->keeper_lock);
    pthread_join(s->keeper, NULL);
    s->keeper_runs = false;
}
