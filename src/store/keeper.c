/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: one thread that writes out at intervals and carries out intents. */
#include <signal.h>
#include <time.h>

#include "store/fetch.h"

/* ---- intents ---- */

static void prefetch(kvo_store *s, uint32_t record)
{
    block_identity identity;
    kvo_answer answer;
    identity_load(&s->identities[record], &identity);
    kvo_names names = {.first = identity.name, .name_bytes = identity.name_bytes, .count = 1};
    names.space = identity.space;
    names.kind = identity.kind;
    names.layer_first = identity.layer_first;
    names.layer_count = identity.layer_count;
    names.head_group = identity.head_group;
    if (store_check_names(s, &names) == KVO_OK)
        store_prefetch(s, &names, 0, &answer);
}

/* true: still to do. */
static bool carry_out(kvo_store *s, uint32_t record)
{
    const block_record *r = &s->records[record];
    uint64_t life = word_load(&r->life);
    unsigned mask = block_tiers(r);
    if (!life_live(life) || mask == 0)
        return false;
    switch (policy_intent_at(word_load(&r->policy), store_now_s(s))) {
    case KVO_INTENT_PREFETCH:
        if (!(mask & 1u))
            prefetch(s, record);
        return !(block_tiers(r) & 1u);
    case KVO_INTENT_DEMOTE:
        if (s->tier_count > 1 && mask == 1u) {
            int result;
            store_lock(s);
            store_demote(s, &record, 1, 1, &result);
            store_unlock(s);
            return result == KVO_BUSY;
        }
        return false;
    default:
        return false;
    }
}

static void carry_out_all(kvo_store *s)
{
    bool left = false;
    if (atomic_exchange(&s->intents, 0) == 0)
        return;
    uint32_t end = atomic_load(&s->record_end);
    for (uint32_t i = 0; i < end; i++)
        left |= carry_out(s, i);
    if (left)
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
    struct timespec until;
    bool again = atomic_exchange(&s->intents_left, false);
    uint64_t step = again && s->options.write_out_ns > RETRY_NS ? RETRY_NS : s->options.write_out_ns;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + step;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    while (!s->keeper_stops && !atomic_load(&s->intents))
        if (pthread_cond_timedwait(&s->keeper_wake, &s->keeper_lock, &until) != 0)
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
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    s->keeper_runs = pthread_create(&s->keeper, NULL, keeper, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
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
