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

static bool next_listed(kvo_store *s, target_cursor *c, target_hit *hit)
{
    const kvo_target *t = c->target;
    size_t count = t->by == KVO_BY_NAMES ? t->names.count : t->handle_count;
    if (c->next == count)
        return false;
    *hit = (target_hit){.index = c->next++, .record = BLOCK_NONE};
    if (t->by == KVO_BY_HANDLES) {
        hit->handle = t->handles[hit->index];
        hit->record = store_by_handle(s, hit->handle);
        hit->status = hit->record == BLOCK_NONE ? KVO_GONE : KVO_OK;
        return true;
    }
    block_identity key;
    uint64_t life;
    identity_key(&t->names, hit->index, &key);
    uint32_t record = index_find(&s->index, &key, &life);
    hit->status = KVO_MISS;
    if (c->hidden && record != BLOCK_NONE && !life_has(life, LIFE_SEALED) && block_tiers(&s->records[record]))
        hit->status = KVO_PENDING; /* being rewritten */
    if (record != BLOCK_NONE && life_live(life) && block_tiers(&s->records[record])) {
        hit->record = record;
        hit->handle = handle_make(record, life_incarnation(life));
        hit->status = KVO_OK;
    }
    return true;
}

bool target_next(kvo_store *s, target_cursor *c, target_hit *hit)
{
    if (target_listed(c->target))
        return next_listed(s, c, hit);
    uint32_t end = atomic_load(&s->record_end);
    while (c->scan < end) {
        uint32_t record = c->scan++;
        uint64_t life = word_load(&s->records[record].life);
        if (!life_live(life) || !matches(s, c->target, record))
            continue;
        *hit = (target_hit){.index = c->next++, .record = record, .status = KVO_OK};
        hit->handle = handle_make(record, life_incarnation(life));
        return true;
    }
    return false;
}
