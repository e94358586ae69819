/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "store/target.h"

static void describe_copies(kvo_store *s, const block_record *r, kvo_block_info *out)
{
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        if (!copy_valid(copy))
            continue;
        kvo_copy_info *c = &out->copies[out->copy_count++];
        c->tier = (uint8_t)t;
        c->format = (uint8_t)copy_format(copy);
        c->pins = (uint16_t)copy_pins(copy);
        c->slot = copy_slot(copy);
        c->offset_bytes = (uint64_t)copy_slot(copy) * TIER_UNIT;
    }
}

static void describe_identity(const block_identity *i, kvo_block_info *out)
{
    out->space = i->space;
    memcpy(out->name, i->name, sizeof out->name);
    out->name_bytes = i->name_bytes;
    out->kind = i->kind;
    out->layer_first = i->layer_first;
    out->layer_count = i->layer_count;
    out->head_group = i->head_group;
    out->sequence = i->sequence;
    out->position = i->position;
    out->positions = i->positions;
    out->payload_bytes = i->payload_bytes;
    memcpy(out->digest, i->digest, sizeof out->digest);
    memcpy(out->identity, i, sizeof out->identity);
    out->has_parent = i->parent_hash != 0;
}

/* false: the block changed while we looked. */
static bool describe(kvo_store *s, uint32_t record, kvo_handle handle, kvo_block_info *out)
{
    const block_record *r = &s->records[record];
    block_identity identity;
    memset(out, 0, sizeof *out);
    identity_load(&s->identities[record], &identity);
    uint64_t life = word_load(&r->life), touch = word_load(&r->touch);
    out->handle = handle;
    describe_identity(&identity, out);
    uint32_t parent = identity.parent_hash ? index_find_hash(&s->index, identity.parent_hash) : BLOCK_NONE;
    if (parent != BLOCK_NONE)
        out->parent = handle_make(parent, life_incarnation(word_load(&s->records[parent].life)));
    policy_unpack(word_load(&r->policy), store_now_s(s), &out->policy);
    out->last_use = touch_recency(touch);
    out->uses = touch_uses(touch);
    out->generation = life_rewrites(life) + 1;
    for (unsigned t = 1; t < KVO_TIERS_MAX; t++)
        out->delta[t] = (uint8_t)life_delta(life, t);
    describe_copies(s, r, out);
    return out->copy_count && store_by_handle(s, handle) == record;
}

int kvo_walk(kvo_store *s, const kvo_target *filter, uint64_t *cursor, kvo_block_info *infos, size_t capacity,
             size_t *count)
{
    static const kvo_target all = {.by = KVO_BY_ALL};
    STORE_ENTER(s);
    filter = filter ? filter : &all;
    int r = target_check(s, filter, false);
    if (r != KVO_OK)
        return r;
    if (cursor == NULL || count == NULL || capacity == 0 || infos == NULL || *cursor > UINT32_MAX)
        return KVO_E_ARGUMENT;
    target_cursor at = {.target = filter, .scan = (uint32_t)*cursor};
    *count = 0;
    for (target_hit hit; *count < capacity && target_next(s, &at, &hit);)
        if (hit.status == KVO_OK && describe(s, hit.record, hit.handle, &infos[*count]))
            (*count)++;
    *cursor = at.scan;
    return KVO_OK;
}
