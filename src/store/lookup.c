/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane's calls that take no lock: look-ups (rule 8), touches, policies. */
#include <string.h>

#include "store/target.h"

#define GROUP 8u /* names whose buckets are on their way at the same time */

/* Where one name is. */
static int find(kvo_store *s, const block_identity *key, kvo_answer *answer)
{
    uint64_t life;
    uint32_t record = index_find(&s->index, key, &life);
    *answer = (kvo_answer){.status = KVO_MISS, .tier = KVO_NO_TIER};
    if (record == BLOCK_NONE)
        return KVO_MISS;
    if (!life_has(life, LIFE_SEALED))
        return answer->status = KVO_PENDING;
    store_answer(s, record, answer);
    if (answer->tier_mask == 0 || answer->handle != handle_make(record, life_incarnation(life))) {
        *answer = (kvo_answer){.status = KVO_MISS, .tier = KVO_NO_TIER};
        return KVO_MISS;
    }
    return answer->status = KVO_OK;
}

/* Calls each(i, answer) in order until it says stop. */
static void find_each(kvo_store *s, const kvo_names *names, bool (*each)(void *context, size_t i, kvo_answer *answer),
                      void *context)
{
    block_identity keys[GROUP];
    kvo_answer answer;
    for (size_t i = 0; i < names->count; i += GROUP) {
        size_t n = names->count - i < GROUP ? names->count - i : GROUP;
        for (size_t k = 0; k < n; k++) {
            identity_key(names, i + k, &keys[k]);
            index_prefetch(&s->index, keys[k].key_hash);
        }
        for (size_t k = 0; k < n; k++) {
            find(s, &keys[k], &answer);
            if (!each(context, i + k, &answer))
                return;
        }
    }
}

typedef struct match_state {
    kvo_answer *answers;
    size_t matched;
    bool alone; /* states: every one counts */
} match_state;

static bool match_each(void *context, size_t i, kvo_answer *answer)
{
    match_state *m = context;
    if (m->answers)
        m->answers[i] = *answer;
    if (answer->status == KVO_OK)
        m->matched = i + 1;
    return m->alone || answer->status == KVO_OK;
}

int kvo_match(kvo_store *s, const kvo_names *names, kvo_answer *answers, size_t *matched)
{
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (matched == NULL)
        return KVO_E_ARGUMENT;
    match_state m = {.answers = answers, .alone = names->kind == KVO_KIND_STATE};
    find_each(s, names, match_each, &m);
    for (size_t i = m.matched + 1; answers && !m.alone && i < names->count; i++)
        answers[i] = (kvo_answer){.status = KVO_MISS, .tier = KVO_NO_TIER};
    *matched = m.matched;
    return KVO_OK;
}

static bool exists_each(void *context, size_t i, kvo_answer *answer)
{
    ((kvo_answer *)context)[i] = *answer;
    return true;
}

int kvo_exists(kvo_store *s, const kvo_names *names, kvo_answer *answers)
{
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (names->count && answers == NULL)
        return KVO_E_ARGUMENT;
    find_each(s, names, exists_each, answers);
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
    size_t count = target->by == KVO_BY_NAMES ? target->names.count : target->handle_count;
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

static void set_one(kvo_store *s, uint32_t record, const kvo_policy *policy, uint32_t mask, uint32_t now_s)
{
    _Atomic uint64_t *word = &s->records[record].policy;
    uint64_t old = word_load(word), new;
    do {
        new = policy_merge(old, policy, mask, now_s);
    } while (!atomic_compare_exchange_weak(word, &old, new));
    if (new == old)
        return;
    store_dirty(s, record);
    store_reorder(s, record);
}

/* A record may be given to another block between the look at its handle and the update. For most
   fields that is as harmless as a late update; an intent can end a block, so it takes the lock, under
   which records stay who they are. */
static bool set_hit(kvo_store *s, target_hit *hit, const kvo_policy *policy, uint32_t mask, uint32_t now_s)
{
    bool careful = (mask & KVO_POLICY_INTENT) != 0;
    if (careful)
        store_lock(s);
    bool same = !careful || store_by_handle(s, hit->handle) == hit->record;
    if (same)
        set_one(s, hit->record, policy, mask, now_s);
    if (careful)
        store_unlock(s);
    hit->status = same ? KVO_OK : KVO_GONE;
    return same;
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
    uint64_t n = 0;
    bool listed = target_listed(target);
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        if (hit.status == KVO_OK)
            n += set_hit(s, &hit, policy, mask, now_s);
        answer_hit(s, &hit, listed ? answers : NULL);
    }
    if (changed)
        *changed = n;
    if (n && (mask & KVO_POLICY_INTENT))
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
