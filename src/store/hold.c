/* SPDX-License-Identifier: Apache-2.0 */
/* Holds: a bounded table beside the records' flag. Under the store's lock. */
#include "store/store.h"

static bool held_by_any(const kvo_store *s, uint32_t record, uint32_t incarnation)
{
    for (uint32_t i = 0; i < s->options.holds_max; i++)
        if (s->holds[i].token && s->holds[i].record == record && s->holds[i].incarnation == incarnation)
            return true;
    return false;
}

static void entry_free(kvo_store *s, uint32_t index)
{
    store_hold *h = &s->holds[index];
    uint32_t record = h->record;
    h->token = 0;
    h->next = s->hold_free;
    s->hold_free = index + 1;
    s->held--;
    uint64_t life = word_load(&s->records[record].life);
    if (life_incarnation(life) == h->incarnation && !held_by_any(s, record, h->incarnation))
        word_change(&s->records[record].life, LIFE_FLAG(LIFE_HELD), 0);
}

void store_holds_expire(kvo_store *s)
{
    if (s->held == 0)
        return;
    uint64_t now = s->env->now_ns(s->env);
    for (uint32_t i = 0; i < s->options.holds_max; i++)
        if (s->holds[i].token && s->holds[i].deadline_ns != KVO_FOREVER && s->holds[i].deadline_ns <= now)
            entry_free(s, i);
}

static int hold_one(kvo_store *s, const kvo_names *names, size_t i, uint64_t token, uint64_t deadline,
                    kvo_answer *answer)
{
    block_identity key;
    uint64_t life;
    identity_key(names, i, &key);
    uint32_t record = index_find(&s->index, &key, &life);
    if (record == BLOCK_NONE || !life_live(life) || block_tiers(&s->records[record]) == 0)
        return KVO_MISS;
    if (s->hold_free == 0)
        return KVO_BUSY;
    uint32_t index = s->hold_free - 1;
    s->hold_free = s->holds[index].next;
    s->holds[index] = (store_hold){.token = token, .deadline_ns = deadline, .record = record};
    s->holds[index].incarnation = life_incarnation(life);
    if (!KVO_PLANTED(HOLD))
        word_change(&s->records[record].life, 0, LIFE_FLAG(LIFE_HELD));
    s->held++;
    store_answer(s, record, answer);
    return KVO_OK;
}

int kvo_hold(kvo_store *s, const kvo_names *names, uint64_t duration_ns, uint64_t *hold, kvo_answer *answers)
{
    STORE_ENTER(s);
    int r = store_check_names(s, names);
    if (r != KVO_OK)
        return r;
    if (hold == NULL || (names->count && answers == NULL))
        return KVO_E_ARGUMENT;
    if (duration_ns == 0)
        return KVO_E_RANGE;
    uint64_t deadline = store_deadline(s, duration_ns), kept = 0;
    store_lock(s);
    store_holds_expire(s);
    uint64_t token = ++s->hold_token;
    for (size_t i = 0; i < names->count; i++) {
        answers[i] = (kvo_answer){.tier = KVO_NO_TIER};
        answers[i].status = hold_one(s, names, i, token, deadline, &answers[i]);
        kept += answers[i].status == KVO_OK;
    }
    store_unlock(s);
    *hold = kept ? token : 0;
    return KVO_OK;
}

int kvo_release(kvo_store *s, uint64_t hold)
{
    STORE_ENTER(s);
    int result = KVO_GONE;
    store_lock(s);
    store_holds_expire(s);
    for (uint32_t i = 0; hold && i < s->options.holds_max; i++)
        if (s->holds[i].token == hold) {
            entry_free(s, i);
            result = KVO_OK;
        }
    store_changed(s);
    store_unlock(s);
    return result;
}
