/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane's calls that take no lock: look-ups (rule 8), touches, policies. */
#include <string.h>

#include "store/target.h"

static const kvo_answer no_answer = {.status = KVO_MISS, .tier = KVO_NO_TIER};

/* Where name i is. */
static int find(kvo_store *s, index_batch *batch, size_t i, kvo_answer *answer)
{
    uint64_t life;
    uint32_t record = index_batch_find(batch, i, &life);
    *answer = no_answer;
    if (record == BLOCK_NONE)
        return KVO_MISS;
    if (!life_has(life, LIFE_SEALED))
        return answer->status = KVO_PENDING;
    store_answer(s, record, answer);
    if (KVO_PLANTED(LOOKUP))
        store_touch(s, record, 0);
    /* The record may have got another block since the name was compared. */
    if (answer->tier_mask == 0 || life_incarnation(word_load(&s->records[record].life)) != life_incarnation(life)) {
        *answer = no_answer;
        return KVO_MISS;
    }
    return answer->status = KVO_OK;
}

int kvo_match(kvo_store *s, const kvo_names *names, kvo_answer *answers, size_t *matched)
{
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (matched == NULL)
        return KVO_E_ARGUMENT;
    bool alone = names->kind == KVO_KIND_STATE; /* every one counts */
    size_t n = 0, i = 0;
    kvo_answer answer;
    index_batch batch;
    index_batch_begin(&batch, &s->index, names);
    for (int status = KVO_OK; i < names->count && (alone || status == KVO_OK); i++) {
        status = find(s, &batch, i, answers ? &answers[i] : &answer);
        if (status == KVO_OK)
            n = i + 1;
    }
    for (; answers && i < names->count; i++)
        answers[i] = no_answer;
    *matched = n;
    return KVO_OK;
}

int kvo_exists(kvo_store *s, const kvo_names *names, kvo_answer *answers)
{
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (names->count && answers == NULL)
        return KVO_E_ARGUMENT;
    index_batch batch;
    index_batch_begin(&batch, &s->index, names);
    for (size_t i = 0; i < names->count; i++)
        find(s, &batch, i, &answers[i]);
    return KVO_OK;
}

static void answer_hit(kvo_store *s, const target_hit *hit, kvo_answer *answers)
{
    if (answers == NULL)
        return;
    answers[hit->index] = (kvo_answer){.tier = KVO_NO_TIER};
    if (hit->status == KVO_OK)
        store_answer(s, hit->record, &answers[hit->index]);
    answers[hit->index].status = hit->status;
}

int kvo_touch(kvo_store *s, const kvo_target *target, kvo_answer *answers)
{
    STORE_ENTER(s);
    int r = target_check(s, target, true);
    if (r != KVO_OK)
        return r;
    if (s->read_only)
        return KVO_E_STATE;
    size_t count = target_count(target);
    uint64_t recency = atomic_fetch_add(&s->clock, count) + count;
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        if (hit.status == KVO_OK) {
            store_touch(s, hit.record, recency - hit.index);
            store_raise_ancestors(s, hit.record, recency - hit.index);
        }
        answer_hit(s, &hit, answers);
    }
    return KVO_OK;
}

/* ---- policy ---- */

static void set_one(kvo_store *s, uint32_t record, policy_change change)
{
    _Atomic uint64_t *word = &s->records[record].policy;
    uint64_t old = word_load(word), new;
    do {
        new = policy_changed(old, change);
        if (new == old)
            return;
        /* Sequentially consistent: a scan for victims either sees the new word or has made the queue that
           set_hits() looks for afterwards. */
    } while (!atomic_compare_exchange_weak(word, &old, new));
    store_dirty(s, record);
}

#define SET_WINDOW 32u /* blocks that are set under one lock */

/* A record may be given to another block between the look at its handle and the update. For most
   fields that is as harmless as a late update; an intent can end a block, so it is set under the lock, where
   records stay who they are. Returns how many were set. */
static size_t set_hits(kvo_store *s, target_hit *hits, size_t count, policy_change change, bool careful,
                       uint32_t now_s)
{
    size_t set = 0;
    if (careful)
        store_lock(s);
    for (size_t i = 0; i < count; i++) {
        if (hits[i].status == KVO_OK && careful && store_by_handle(s, hits[i].handle) != hits[i].record)
            hits[i].status = KVO_GONE;
        if (hits[i].status != KVO_OK)
            continue;
        set_one(s, hits[i].record, change);
        set++;
    }
    for (size_t i = 0; store_queues(s) && i < count; i++)
        if (hits[i].status == KVO_OK)
            store_reorder(s, hits[i].record, now_s);
    if (careful)
        store_unlock(s);
    return set;
}

int kvo_policy_set(kvo_store *s, const kvo_target *target, const kvo_policy *policy, uint32_t mask,
                   kvo_answer *answers, uint64_t *changed)
{
    STORE_ENTER(s);
    int r = target_check(s, target, false);
    if (r != KVO_OK)
        return r;
    if (policy == NULL)
        return KVO_E_ARGUMENT;
    if (s->read_only)
        return KVO_E_STATE;
    r = policy_check(policy, mask);
    if (r != KVO_OK)
        return r;
    uint32_t now_s = store_now_s(s);
    policy_change change = policy_change_of(policy, mask, now_s);
    bool intent = (mask & KVO_POLICY_INTENT) && policy->intent != KVO_INTENT_NONE;
    uint64_t set = 0;
    target_hit hits[SET_WINDOW];
    target_cursor cursor = {.target = target};
    for (size_t n; (n = target_take(s, &cursor, hits, SET_WINDOW)) != 0;) {
        set += set_hits(s, hits, n, change, intent, now_s);
        for (size_t i = 0; answers && target_listed(target) && i < n; i++)
            answer_hit(s, &hits[i], answers);
    }
    if (changed)
        *changed = set;
    if (set && intent)
        store_intents_changed(s);
    return KVO_OK;
}

int kvo_policy_get(kvo_store *s, const kvo_target *target, kvo_policy *policies, kvo_answer *answers)
{
    STORE_ENTER(s);
    int r = target_check(s, target, true);
    if (r != KVO_OK)
        return r;
    if (policies == NULL || answers == NULL)
        return KVO_E_ARGUMENT;
    uint32_t now_s = store_now_s(s);
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        policies[hit.index] = (kvo_policy)KVO_POLICY_INIT;
        if (hit.status == KVO_OK)
            policy_unpack(word_load(&s->records[hit.record].policy), now_s, &policies[hit.index]);
        answer_hit(s, &hit, answers);
    }
    return KVO_OK;
}
