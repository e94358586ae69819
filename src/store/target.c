/* SPDX-License-Identifier: Apache-2.0 */
#include "store/target.h"

int target_check(const kvo_store *s, const kvo_target *t, bool listed)
{
    if (t == NULL)
        return KVO_E_ARGUMENT;
    switch (t->by) {
    case KVO_BY_NAMES:
        return store_check_names(s, &t->names);
    case KVO_BY_HANDLES:
        return t->handle_count > KVO_BATCH_MAX || (t->handle_count && t->handles == NULL) ? KVO_E_ARGUMENT : KVO_OK;
    case KVO_BY_TENANT:
        return listed || t->tenant > UINT16_MAX ? KVO_E_ARGUMENT : KVO_OK;
    case KVO_BY_SEQUENCE:
    case KVO_BY_SPACE:
    case KVO_BY_ALL:
        return listed ? KVO_E_ARGUMENT : KVO_OK;
    default:
        return KVO_E_ARGUMENT;
    }
}

static bool matches(const kvo_store *s, const kvo_target *t, uint32_t record)
{
    switch (t->by) {
    case KVO_BY_SEQUENCE:
        return identity_sequence_of(&s->identities[record]) == t->sequence;
    case KVO_BY_TENANT:
        return store_tenant(s, record) == t->tenant;
    case KVO_BY_SPACE:
        return identity_space_of(&s->identities[record]) == t->space;
    default:
        return true;
    }
}

static void bring_near(const kvo_store *s, target_cursor *c)
{
    const kvo_target *t = c->target;
    size_t end = t->handle_count - c->next < INDEX_GROUP ? t->handle_count : c->next + INDEX_GROUP;
    for (size_t i = c->next; i < end; i++)
        if (handle_record(t->handles[i]) < s->records_max)
            __builtin_prefetch(&s->records[handle_record(t->handles[i])]);
    c->near = end;
}

/* A rewrite hides a block and shows it again under the lock. Without it a block that is being shown may have been
   hidden by one word and be shown by the next, or have no copy for a moment, and would be missed; so what is not there
   is looked for once more. */
static bool handle_hidden(kvo_store *s, target_hit *hit)
{
    uint32_t record = handle_record(hit->handle);
    if (record >= atomic_load(&s->record_end))
        return false;
    store_lock(s);
    hit->record = store_by_handle(s, hit->handle);
    bool same = life_incarnation(word_load(&s->records[record].life)) == handle_incarnation(hit->handle);
    bool hidden = same && store_hidden(s, record);
    store_unlock(s);
    return hidden;
}

static bool name_hidden(kvo_store *s, target_cursor *c, size_t index, uint32_t *record, uint64_t *life)
{
    store_lock(s);
    *record = index_batch_find(&c->batch, index, life);
    bool hidden = *record != BLOCK_NONE && store_hidden(s, *record);
    store_unlock(s);
    return hidden;
}

static bool record_hidden(kvo_store *s, uint32_t record, uint64_t *life)
{
    store_lock(s);
    *life = word_load(&s->records[record].life);
    bool hidden = store_hidden(s, record);
    store_unlock(s);
    return hidden;
}

static inline bool next_handle(kvo_store *s, target_cursor *c, target_hit *hit)
{
    const kvo_target *t = c->target;
    if (c->next == t->handle_count)
        return false;
    if (c->next >= c->near)
        bring_near(s, c);
    *hit = (target_hit){.index = c->next, .handle = t->handles[c->next]};
    hit->record = store_by_handle(s, hit->handle);
    bool hidden = c->hidden && hit->record == BLOCK_NONE && handle_hidden(s, hit);
    hit->status = hidden ? KVO_PENDING : hit->record == BLOCK_NONE ? KVO_GONE : KVO_OK;
    c->next++;
    return true;
}

static bool next_name(kvo_store *s, target_cursor *c, target_hit *hit)
{
    uint64_t life;
    if (c->next == c->target->names.count)
        return false;
    if (c->batch.index == NULL)
        index_batch_begin(&c->batch, &s->index, &c->target->names);
    *hit = (target_hit){.index = c->next++, .record = BLOCK_NONE, .status = KVO_MISS};
    uint32_t record = index_batch_find(&c->batch, hit->index, &life);
    if (c->hidden && (record == BLOCK_NONE || !life_live(life)) && name_hidden(s, c, hit->index, &record, &life))
        hit->status = KVO_PENDING;
    if (record != BLOCK_NONE && life_live(life) && block_tiers(&s->records[record])) {
        hit->record = record;
        hit->handle = handle_make(record, life_incarnation(life));
        hit->status = KVO_OK;
    }
    return true;
}

bool target_next(kvo_store *s, target_cursor *c, target_hit *hit)
{
    if (c->target->by == KVO_BY_HANDLES)
        return next_handle(s, c, hit);
    if (c->target->by == KVO_BY_NAMES)
        return next_name(s, c, hit);
    uint32_t end = atomic_load(&s->record_end);
    while (c->scan < end) {
        uint32_t record = c->scan++;
        uint64_t life = word_load(&s->records[record].life);
        bool hidden = c->hidden && life_has(life, LIFE_USED) && !life_live(life) && record_hidden(s, record, &life);
        if ((!life_live(life) && !hidden) || !matches(s, c->target, record))
            continue;
        *hit = (target_hit){.index = c->next++, .record = record, .status = hidden ? KVO_PENDING : KVO_OK};
        hit->handle = handle_make(record, life_incarnation(life));
        return true;
    }
    return false;
}

bool target_matches_again(kvo_store *s, const kvo_target *t, uint32_t record, uint64_t *life)
{
    store_lock(s);
    *life = word_load(&s->records[record].life);
    bool there = (life_live(*life) || store_hidden(s, record)) && matches(s, t, record);
    store_unlock(s);
    return there;
}

size_t target_take(kvo_store *s, target_cursor *c, target_hit *hits, size_t most)
{
    size_t n = 0;
    if (c->target->by == KVO_BY_HANDLES)
        while (n < most && next_handle(s, c, &hits[n]))
            n++;
    else
        while (n < most && target_next(s, c, &hits[n]))
            n++;
    return n;
}
