/* SPDX-License-Identifier: Apache-2.0 */
/* Closing in order: each medium gets a list of what it holds, so that the next opening need not look for it. */
#include <errno.h>
#include <string.h>

#include "store/persist.h"

typedef struct listing {
    kvo_store *s;
    store_tier *t;
    uint32_t segment, index; /* the next place to look at */
} listing;

static void describe(const listing *l, uint32_t record, tier_slot *slot)
{
    const block_record *r = &l->s->records[record];
    uint64_t copy = word_load(&r->copy[l->t->number]);
    slot->slot = copy_slot(copy);
    slot->write_number = copy_generation(copy);
    slot->format = copy_format(copy);
    slot->rewrites = life_rewrites(word_load(&r->life));
    slot->policy = word_load(&r->policy);
    slot->touch = word_load(&r->touch);
    identity_load(&l->s->identities[record], &slot->identity);
}

static size_t next_slots(void *context, tier_slot *slots, size_t capacity)
{
    listing *l = context;
    const place_segments *p = &l->t->space;
    size_t n = 0;
    store_lock(l->s);
    while (l->segment < p->segment_count && n < capacity) {
        const place_segment *segment = &p->segments[l->segment];
        if (segment->used == 0 || l->index == segment->slots) {
            l->segment++;
            l->index = 0;
            continue;
        }
        uint32_t record = place_number_at(p, l->segment, l->index++) - 1;
        if (record != BLOCK_NONE)
            describe(l, record, &slots[n++]);
    }
    store_unlock(l->s);
    return n;
}

/* Every header that names a block is that of a valid copy: nothing that could not be read, that waits for a
   last unpin, or that was found damaged, which the next opening has to see again. */
static const char *cannot_list(kvo_store *s)
{
    if (s->damaged)
        return "damaged slots are for the next opening to find";
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].stale.count || s->tiers[t].stale.lost_count)
            return "there are headers of blocks that are gone";
    for (uint32_t i = 0; i < atomic_load(&s->record_end); i++) {
        uint64_t life = word_load(&s->records[i].life);
        if (!life_has(life, LIFE_USED))
            continue;
        if (!life_live(life))
            return "some block was removed and is still in use";
        for (unsigned t = 0; t < s->tier_count; t++) {
            uint64_t copy = word_load(&s->records[i].copy[t]);
            if (s->tiers[t].persistent && copy_state(copy) != BLOCK_EMPTY && (!copy_valid(copy) || copy_moving(copy)))
                return "some copy is in transfer or could not be read";
        }
    }
    return NULL;
}

void store_checkpoint_write(kvo_store *s)
{
    tier_checkpoint close = {.tier_count = 0};
    const char *why = cannot_list(s);
    if (why == NULL && s->env->random(s->env, close.id, sizeof close.id) != 0)
        why = "no randomness for its name";
    for (unsigned t = 0; t < s->tier_count; t++)
        close.tier_count += s->tiers[t].persistent;
    for (unsigned t = 0; why == NULL && t < s->tier_count; t++) {
        listing l = {.s = s, .t = &s->tiers[t]};
        int r = l.t->persistent ? l.t->io->ops->checkpoint_write(l.t->io, &close, next_slots, &l) : 0;
        why = r == 0 ? NULL : strerror(-r);
    }
    if (why)
        store_log(s, "%s: no checkpoint is written: %s", s->tiers[s->home].path, why);
}

bool store_checkpoint_there(kvo_store *s)
{
    const tier_checkpoint *first = &s->tiers[s->home].io->checkpoint;
    unsigned count = 0, same = 0;
    if (s->read_only)
        return false;
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (!s->tiers[t].persistent)
            continue;
        const tier_checkpoint *c = &s->tiers[t].io->checkpoint;
        if (c->tier_count == 0)
            return false; /* the tier has said why */
        count++;
        same += memcmp(c, first, sizeof *c) == 0;
    }
    if (same == first->tier_count && count == same)
        return true;
    store_log(s, "%s: was closed with other tiers; reading all slot headers", s->tiers[s->home].path);
    return false;
}
