/* SPDX-License-Identifier: Apache-2.0 */
/* store_valid(): every invariant of the store at rest, recounted from the records. */
#include <stdio.h>
#include <string.h>

#include "store/store.h"

typedef struct checker {
    kvo_store *s;
    char *why;
    size_t why_bytes;
    uint64_t blocks, reserved, pins;
    uint64_t resident[KVO_TIERS_MAX];
    int64_t bytes[KVO_TIERS_MAX]; /* of those */
    uint64_t slots[KVO_TIERS_MAX]; /* in use, also by transfers and bad copies */
} checker;

#define CHECK(c, condition, ...)                             \
    do {                                                     \
        if (!(condition)) {                                  \
            snprintf((c)->why, (c)->why_bytes, __VA_ARGS__); \
            return false;                                    \
        }                                                    \
    } while (0)

static bool check_copy(checker *c, uint32_t i, unsigned t)
{
    kvo_store *s = c->s;
    uint64_t copy = word_load(&s->records[i].copy[t]);
    const store_tier *tier = &s->tiers[t];
    if (copy_state(copy) == BLOCK_EMPTY)
        return true;
    c->slots[t]++;
    c->pins += copy_pins(copy);
    bool resident = copy_valid(copy) || copy_state(copy) == BLOCK_BAD;
    c->resident[t] += resident;
    c->bytes[t] += resident ? identity_payload_of(&s->identities[i]) : 0;
    CHECK(c, tier->space.infinite || place_slot_used(&tier->space, copy_slot(copy)),
          "record %u: tier %u's slot %u is not in use", i, t, copy_slot(copy));
    if (tier->persistent && !s->ghost && copy_valid(copy))
        CHECK(c, store_record_at(tier, store_policy_place(tier, copy_slot(copy))) == i,
              "record %u: tier %u's slot %u belongs to another", i, t, copy_slot(copy));
    return true;
}

static bool check_record(checker *c, uint32_t i)
{
    kvo_store *s = c->s;
    const block_record *r = &s->records[i];
    uint64_t life = word_load(&r->life);
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++) {
        CHECK(c, t < s->tier_count || word_load(&r->copy[t]) == 0, "record %u has a copy in no tier", i);
        if (!check_copy(c, i, t))
            return false;
    }
    if (!life_has(life, LIFE_USED)) {
        for (unsigned t = 0; t < s->tier_count; t++)
            CHECK(c, word_load(&r->copy[t]) == 0, "free record %u has a copy in tier %u", i, t);
        return true;
    }
    if (!life_has(life, LIFE_SEALED)) {
        c->reserved++;
        return true;
    }
    c->blocks++;
    for (unsigned t = 1; t < s->tier_count; t++)
        CHECK(c, !s->anchored || life_delta(life, t) <= 1, "record %u: %u demotions into tier %u (rule 6)", i,
              life_delta(life, t), t);
    if (life_has(life, LIFE_DOOMED))
        return true;
    block_identity identity;
    uint64_t found_life;
    identity_load(&s->identities[i], &identity);
    CHECK(c, index_find(&s->index, &identity, &found_life) == i, "record %u is not what the index has", i);
    CHECK(c, block_tiers(r) != 0, "record %u is sealed and in no tier", i);
    CHECK(c, identity.key_hash == identity_hash(&identity), "record %u: its key hash is wrong", i);
    uint32_t parent = tree_parent(word_load(&r->tree));
    CHECK(c, parent == BLOCK_NONE || parent < atomic_load(&s->record_end), "record %u: its parent is no record", i);
    return true;
}

static bool check_tier(checker *c, unsigned t)
{
    const store_tier *tier = &c->s->tiers[t];
    CHECK(c, c->resident[t] == atomic_load(&tier->resident), "tier %u: %llu resident, counted %llu", t,
          (unsigned long long)atomic_load(&tier->resident), (unsigned long long)c->resident[t]);
    ledger_balance told = ledger_balance_of(&c->s->ledger, tier->account); /* rule 11 */
    /* A reader has the last writer's. */
    CHECK(c, c->s->read_only || (told.blocks == (int64_t)c->resident[t] && told.bytes == c->bytes[t]),
          "tier %u: %lld blocks and %lld bytes by the ledger, records have %llu and %lld", t, (long long)told.blocks,
          (long long)told.bytes, (unsigned long long)c->resident[t], (long long)c->bytes[t]);
    CHECK(c, c->slots[t] == tier->space.used_slots, "tier %u: %llu slots in use, records have %llu", t,
          (unsigned long long)tier->space.used_slots, (unsigned long long)c->slots[t]);
    uint64_t used = 0, gives = 0, counted = 0;
    for (uint32_t i = 0; i < tier->space.segment_count; i++) {
        const place_segment *segment = &tier->space.segments[i];
        used += segment->used;
        gives += segment->draining ? 0 : segment->slots - segment->used;
    }
    for (uint32_t i = 0; i < tier->space.class_count; i++)
        counted += tier->space.classes[i].free_slots;
    CHECK(c, gives == counted, "tier %u: segments have %llu free slots, counted %llu", t, (unsigned long long)gives,
          (unsigned long long)counted);
    CHECK(c, tier->space.infinite || used == c->slots[t], "tier %u: segments count %llu slots, records %llu", t,
          (unsigned long long)used, (unsigned long long)c->slots[t]);
    CHECK(c, !tier->demoting, "tier %u is demoting at rest", t);
    return true;
}

static bool check_all(checker *c)
{
    kvo_store *s = c->s;
    uint32_t end = atomic_load(&s->record_end), free_records = 0, used = 0;
    for (uint32_t i = 0; i < end; i++) {
        used += life_has(word_load(&s->records[i].life), LIFE_USED);
        if (!check_record(c, i))
            return false;
    }
    for (uint32_t i = s->free_first; i; i = tree_parent(word_load(&s->records[i - 1].tree)) + 1)
        CHECK(c, ++free_records <= end, "the list of free records has a loop");
    CHECK(c, free_records + used == end, "%u records: %u used and %u free", end, used, free_records);
    CHECK(c, c->blocks == s->blocks, "%llu blocks, counted %llu", (unsigned long long)s->blocks,
          (unsigned long long)c->blocks);
    CHECK(c, c->reserved == s->reserved, "%llu reserved, counted %llu", (unsigned long long)s->reserved,
          (unsigned long long)c->reserved);
    CHECK(c, c->pins == s->pinned, "%llu pins, copies have %llu", (unsigned long long)s->pinned,
          (unsigned long long)c->pins);
    for (unsigned t = 0; t < s->tier_count; t++)
        if (!check_tier(c, t))
            return false;
    return true;
}

bool store_valid(kvo_store *s, char *why, size_t why_bytes)
{
    checker c = {.s = s, .why = why, .why_bytes = why_bytes};
    store_lock(s);
    bool valid = check_all(&c);
    store_unlock(s);
    return valid;
}
