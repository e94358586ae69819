/* SPDX-License-Identifier: Apache-2.0 */
/* Birth, life and end of a block in its record. */
#include <errno.h>
#include <string.h>

#include "store/store.h"

uint32_t store_by_handle(const kvo_store *s, kvo_handle handle)
{
    uint32_t record = handle_record(handle);
    if (handle == 0 || record >= atomic_load(&s->record_end))
        return BLOCK_NONE;
    uint64_t life = word_load(&s->records[record].life);
    return life_live(life) && life_incarnation(life) == handle_incarnation(handle) ? record : BLOCK_NONE;
}

bool store_hidden(const kvo_store *s, uint32_t record)
{
    uint64_t life = word_load(&s->records[record].life);
    return life_has(life, LIFE_USED) && !life_has(life, LIFE_SEALED) && !life_has(life, LIFE_DOOMED) &&
           block_tiers(&s->records[record]) != 0;
}

unsigned store_tenant(const kvo_store *s, uint32_t record)
{
    return policy_tenant(word_load(&s->records[record].policy));
}

/* ---- changes of policy and recency ---- */

void store_touch(kvo_store *s, uint32_t record, uint64_t recency)
{
    block_touch(&s->records[record], recency);
    store_dirty(s, record);
}

void store_reorder(kvo_store *s, uint32_t record, uint32_t now_s)
{
    const block_record *r = &s->records[record];
    place_rules rules = {s->options.placement, s->tiers[0].slots, now_s};
    for (unsigned t = 0; t < s->tier_count; t++) {
        store_tier *tier = &s->tiers[t];
        uint64_t limit = atomic_load(&tier->queue_limit);
        if (limit && !atomic_load(&tier->queue_old) && copy_state(word_load(&r->copy[t])) != BLOCK_EMPTY &&
            place_key(&rules, word_load(&r->policy), word_load(&r->touch), t) < limit)
            atomic_store(&tier->queue_old, true);
    }
}

/* ---- records ---- */

uint32_t store_record_take(kvo_store *s)
{
    uint32_t record = s->free_first - 1;
    if (s->free_first) {
        s->free_first = tree_parent(word_load(&s->records[record].tree)) + 1;
        return record;
    }
    uint32_t end = atomic_load(&s->record_end);
    if (end == s->records_max)
        return BLOCK_NONE;
    atomic_store(&s->record_end, end + 1);
    return end;
}

void store_record_free(kvo_store *s, uint32_t record)
{
    block_record *r = &s->records[record];
    for (unsigned t = 0; t < s->tier_count; t++) {
        KVO_ASSERT(copy_state(word_load(&r->copy[t])) == BLOCK_EMPTY);
        bits_clear(s->tiers[t].queued, record);
    }
    /* The new incarnation comes first: readers of the identity notice that it may change. */
    uint32_t incarnation = life_incarnation(word_load(&r->life)) + (KVO_PLANTED(INCARNATION) ? 0u : 1u);
    word_store(&r->life, life_make(incarnation ? incarnation : 1, 0, NULL, 0));
    word_store(&r->tree, tree_make(s->free_first - 1, 0));
    s->free_first = record + 1;
}

/* A parent in a queue of victims has a child again: not before the child. */
static void unqueue(kvo_store *s, uint32_t record)
{
    for (unsigned t = 0; t < s->tier_count; t++)
        bits_clear(s->tiers[t].queued, record);
}

uint32_t store_parent(const kvo_store *s, uint32_t record)
{
    uint32_t parent = tree_parent(word_load(&s->records[record].tree));
    uint64_t hash = identity_parent_of(&s->identities[record]);
    if (hash == 0 || parent >= atomic_load(&s->record_end))
        return BLOCK_NONE;
    uint64_t life = word_load(&s->records[parent].life);
    bool there = life_has(life, LIFE_USED) && !life_has(life, LIFE_DOOMED);
    return there && identity_hash_of(&s->identities[parent]) == hash ? parent : BLOCK_NONE;
}

void store_raise_ancestors(kvo_store *s, uint32_t record, uint64_t recency)
{
    for (uint32_t p = store_parent(s, record); p != BLOCK_NONE; p = store_parent(s, p)) {
        if (!block_raise(&s->records[p], recency))
            return;
        store_dirty(s, p);
    }
}

/* Returns whether the record's place in the tree changed. */
static bool relink_one(kvo_store *s, uint32_t record)
{
    uint64_t tree = word_load(&s->records[record].tree);
    uint64_t hash = identity_parent_of(&s->identities[record]);
    uint32_t parent = store_parent(s, record);
    if (parent == BLOCK_NONE && hash)
        parent = index_find_hash(&s->index, hash);
    if (parent == BLOCK_NONE || parent == record)
        return false;
    uint32_t depth = tree_depth(tree), above = tree_depth(word_load(&s->records[parent].tree));
    uint64_t new = tree_make(parent, depth > above ? depth : above + 1);
    if (new == tree)
        return false;
    word_store(&s->records[record].tree, new);
    unqueue(s, parent);
    return true;
}

void store_link(kvo_store *s, uint32_t record)
{
    block_identity identity;
    identity_load(&s->identities[record], &identity);
    word_store(&s->records[record].tree, tree_make(BLOCK_NONE, identity.position));
    if (identity.parent_hash && !relink_one(s, record))
        s->gaps = true; /* the parent may come later */
}

void store_relink(kvo_store *s)
{
    if (!s->gaps)
        return;
    s->gaps = false;
    uint32_t end = atomic_load(&s->record_end);
    /* A depth that grows moves its children's; chains settle in a few rounds. */
    bool moved = true;
    for (unsigned round = 0; moved && round < 8; round++) {
        moved = false;
        for (uint32_t i = 0; i < end; i++) {
            uint64_t life = word_load(&s->records[i].life);
            if (life_has(life, LIFE_USED) && !life_has(life, LIFE_DOOMED))
                moved |= relink_one(s, i);
        }
    }
}

/* ---- copies ---- */

void store_copy_set(kvo_store *s, uint32_t record, unsigned tier, uint64_t copy)
{
    store_tier *t = &s->tiers[tier];
    word_store(&s->records[record].copy[tier], copy);
    atomic_fetch_add(&t->resident, 1);
    if (KVO_PLANTED(ANCHOR))
        t->tier_recency[record] = atomic_load(&s->clock);
    atomic_store_explicit(&s->activity, 1, memory_order_relaxed);
    uint32_t parent = store_parent(s, record);
    if (parent != BLOCK_NONE)
        bits_clear(t->queued, parent);
    if (!t->persistent || s->ghost)
        return;
    place_slot_number(&t->space, copy_slot(copy), record + 1);
    t->space.segments[place_segment_of(&t->space, copy_slot(copy))].written =
        t->space.segments[place_segment_of(&t->space, copy_slot(copy))].epoch;
    store_stale_forget(t, copy_slot(copy));
    store_dirty(s, record);
}

uint64_t store_policy_place(const store_tier *t, uint32_t slot)
{
    return (uint64_t)place_segment_of(&t->space, slot) * place_slots_max(&t->space) +
           place_slot_index(&t->space, slot);
}

uint32_t store_record_at(const store_tier *t, uint64_t place)
{
    uint32_t most = place_slots_max(&t->space);
    return place_number_at(&t->space, (uint32_t)(place / most), (uint32_t)(place % most)) - 1;
}

static bool droppable(uint64_t copy)
{
    return (copy_valid(copy) || copy_state(copy) == BLOCK_BAD) && copy_pins(copy) == 0 && !copy_moving(copy);
}

static void count_left(kvo_store *s, uint32_t record, unsigned tier, kvo_cause cause)
{
    if (cause != KVO_CAUSE_NONE)
        ledger_add(&s->ledger, s->tiers[tier].account, LEDGER_LEFT, cause, store_tenant(s, record),
                   identity_payload_of(&s->identities[record]), 1);
}

bool store_copy_drop(kvo_store *s, uint32_t record, unsigned tier, bool stale, kvo_cause cause)
{
    store_tier *t = &s->tiers[tier];
    _Atomic uint64_t *word = &s->records[record].copy[tier];
    uint64_t copy = word_load(word);
    if (!droppable(copy) || !atomic_compare_exchange_strong(word, &copy, 0))
        return false;
    uint32_t slot = copy_slot(copy);
    if (t->persistent && !s->ghost) {
        if (stale || copy_state(copy) == BLOCK_BAD)
            store_stale_add(s, tier, slot, identity_hash_of(&s->identities[record]), (copy & COPY_UNREAD) != 0);
    }
    place_slot_free(&t->space, slot);
    atomic_fetch_sub(&t->resident, 1);
    count_left(s, record, tier, cause);
    return true;
}

void store_copy_end(kvo_store *s, uint32_t record, unsigned tier, kvo_cause cause)
{
    store_tier *t = &s->tiers[tier];
    uint64_t copy = atomic_exchange(&s->records[record].copy[tier], 0);
    KVO_ASSERT(copy_state(copy) == BLOCK_VALID || copy_state(copy) == BLOCK_BAD);
    place_slot_free(&t->space, copy_slot(copy));
    atomic_fetch_sub(&t->resident, 1);
    count_left(s, record, tier, cause);
}

void store_doom(kvo_store *s, uint32_t record)
{
    index_remove(&s->index, identity_hash_of(&s->identities[record]), record);
    word_change(&s->records[record].life, 0, LIFE_FLAG(LIFE_DOOMED));
    s->gaps = true;
}

void store_end(kvo_store *s, uint32_t record, kvo_cause cause)
{
    block_record *r = &s->records[record];
    uint64_t life = word_load(&r->life);
    uint64_t hash = identity_hash_of(&s->identities[record]);
    KVO_ASSERT(block_tiers(r) == 0 && life_has(life, LIFE_USED | LIFE_SEALED));
    if (!life_has(life, LIFE_DOOMED))
        index_remove(&s->index, hash, record);
    if (cause == KVO_CAUSE_NONE || cause == KVO_CAUSE_RESIZE)
        place_memory_put(&s->memory, hash, touch_uses(word_load(&r->touch)), atomic_load(&s->clock));
    if (cause != KVO_CAUSE_NONE)
        s->gaps = true;
    store_event(s, KVO_EVENT_END, cause, KVO_NO_TIER, record);
    s->blocks--;
    store_record_free(s, record);
    store_changed(s);
}

static bool empty(const block_record *r)
{
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++)
        if (copy_state(word_load(&r->copy[t])) != BLOCK_EMPTY)
            return false;
    return true;
}

static kvo_cause cause_of_end(uint64_t life, uint64_t copy)
{
    return life_has(life, LIFE_REMOVED) ? KVO_CAUSE_REMOVE : copy & COPY_UNREAD ? KVO_CAUSE_UNREAD : KVO_CAUSE_FAILED;
}

static bool going(uint64_t life, uint64_t copy)
{
    return copy_state(copy) == BLOCK_BAD || (copy_valid(copy) && life_has(life, LIFE_DOOMED));
}

/* What was removed or found bad goes as soon as nobody reads or moves it. */
void store_reap(kvo_store *s, uint32_t record)
{
    block_record *r = &s->records[record];
    uint64_t life = word_load(&r->life);
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        if (going(life, copy))
            store_copy_drop(s, record, t, false, cause_of_end(life, copy));
    }
    bool sealed = life_has(word_load(&r->life), LIFE_USED | LIFE_SEALED);
    if (sealed && empty(r))
        store_end(s, record, life_has(word_load(&r->life), LIFE_REMOVED) ? KVO_CAUSE_REMOVE : KVO_CAUSE_FAILED);
}

void store_count_gone(kvo_store *s)
{
    uint32_t end = atomic_load(&s->record_end);
    for (uint32_t i = 0; i < end; i++)
        for (unsigned t = 0; t < s->tier_count; t++) {
            uint64_t life = word_load(&s->records[i].life), copy = word_load(&s->records[i].copy[t]);
            if (life_has(life, LIFE_USED) && going(life, copy))
                count_left(s, i, t, cause_of_end(life, copy));
        }
}

/* In an exclusive hierarchy: the block was moved up from here. */
static bool moved_away(const kvo_store *s, uint32_t record, unsigned tier)
{
    return s->exclusive && block_tiers(&s->records[record]) & ((1u << tier) - 1);
}

/* The pin may have been all that kept a removed block, a bad copy or one that moved. While it is there the
   record is ours to read; after, only its incarnation says whether it is still the same. */
void store_unpin(kvo_store *s, uint32_t record, unsigned tier)
{
    block_record *r = &s->records[record];
    uint32_t incarnation = life_incarnation(word_load(&r->life));
    uint64_t copy = block_unpin(r, tier);
    if (copy_pins(copy) != 0)
        return;
    uint64_t life = word_load(&r->life);
    bool reap = copy_state(copy) == BLOCK_BAD || life_has(life, LIFE_DOOMED) || moved_away(s, record, tier);
    if (!reap && !atomic_load(&s->waiting))
        return;
    store_lock(s);
    life = word_load(&r->life);
    if (reap && life_has(life, LIFE_USED) && life_incarnation(life) == incarnation) {
        if (moved_away(s, record, tier))
            store_copy_drop(s, record, tier, false, KVO_CAUSE_PROMOTE);
        store_reap(s, record);
    }
    store_changed(s);
    store_unlock(s);
}

/* ---- quarantine ---- */

void store_quarantine(kvo_store *s, uint32_t record, unsigned tier, int result)
{
    block_record *r = &s->records[record];
    store_lock(s);
    /* Removed while we read it: its header is dead already, the bytes are not at fault. */
    if (life_has(word_load(&r->life), LIFE_DOOMED | LIFE_REMOVED)) {
        block_unpin(r, tier);
        store_reap(s, record);
        store_changed(s);
        store_unlock(s);
        return;
    }
    store_retire(s, record, tier, result);
    block_unpin(r, tier);
    store_reap(s, record);
    store_changed(s);
    store_unlock(s);
}

/* The copies that still may serve, apart from one. */
static bool others(const kvo_store *s, uint32_t record, unsigned tier)
{
    for (unsigned t = 0; t < s->tier_count; t++) {
        unsigned state = copy_state(word_load(&s->records[record].copy[t]));
        if (t != tier && state != BLOCK_EMPTY && state != BLOCK_BAD)
            return true;
    }
    return false;
}

/* A copy that its medium destroyed may be written again, and so may those above that were discarded because it
   lay there: on its way down the block comes by them once more. */
static void allow_repair(block_record *r, unsigned tier)
{
    uint64_t life = word_load(&r->life);
    for (unsigned t = 1; t <= tier; t++)
        if (t == tier || (life_delta(life, t) && !copy_valid(word_load(&r->copy[t]))))
            word_change(&r->life, 0, LIFE_FLAG(life_repair_flag(t)));
}

/* It goes with its last reader. Until then a remove of its name, which finds no block any more, finds the headers. */
static void doom_bad(kvo_store *s, uint32_t record)
{
    store_doom(s, record);
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy = word_load(&s->records[record].copy[t]);
        if (copy_state(copy) == BLOCK_BAD)
            store_stale_add(s, t, copy_slot(copy), identity_hash_of(&s->identities[record]), (copy & COPY_UNREAD) != 0);
    }
}

void store_end_without(kvo_store *s, uint32_t record, unsigned tier, kvo_cause cause)
{
    if (others(s, record, tier))
        return;
    if (empty(&s->records[record]))
        store_end(s, record, cause);
    else
        doom_bad(s, record);
}

void store_retire(kvo_store *s, uint32_t record, unsigned tier, int result)
{
    block_record *r = &s->records[record];
    uint64_t copy = word_load(&r->copy[tier]), bad = (uint64_t)BLOCK_BAD << 44;
    if (result == -EBADMSG)
        ledger_total_add(&s->ledger, LEDGER_DIGEST_MISSES, 1);
    store_log(s, "%s: the copy at offset %llu %s; it is retired", s->tiers[tier].name,
              (unsigned long long)copy_slot(copy) * TIER_UNIT,
              result == -EBADMSG ? "does not match its digest" : strerror(-result));
    if (KVO_PLANTED(QUARANTINE))
        return;
    if (copy_valid(copy)) {
        word_change(&r->copy[tier], COPY_STATE_MASK, result == -EBADMSG ? bad : bad | COPY_UNREAD);
        store_event(s, KVO_EVENT_DROP, KVO_CAUSE_FAILED, tier, record);
    }
    if (life_has(word_load(&r->life), LIFE_DOOMED))
        return;
    /* Who found it bad before may have left the block to a copy that was on its way up, from this one. */
    if (!others(s, record, tier))
        doom_bad(s, record);
    else if (copy_valid(copy))
        allow_repair(r, tier);
}

void store_lose_media(kvo_store *s, uint32_t record)
{
    block_record *r = &s->records[record];
    for (unsigned t = 0; t < s->tier_count; t++) {
        if (!s->tiers[t].persistent || !copy_valid(word_load(&r->copy[t])))
            continue;
        word_change(&r->copy[t], COPY_STATE_MASK, (uint64_t)BLOCK_BAD << 44);
        store_event(s, KVO_EVENT_DROP, KVO_CAUSE_FAILED, t, record);
        allow_repair(r, t);
    }
    if (block_tiers(r) == 0 && !life_has(word_load(&r->life), LIFE_DOOMED))
        doom_bad(s, record);
    store_reap(s, record);
}

bool store_copy_lost(kvo_store *s, unsigned tier, int result)
{
    if (result == -EBADMSG)
        return true;
    if (result != -EIO && result != -ENODATA && result != -EILSEQ && result != -EREMOTEIO)
        return false;
    tier_medium *io = s->tiers[tier].io;
    void *page = s->env->alloc(s->env, TIER_UNIT);
    bool answers = page && io->ops->policy_read && io->ops->policy_read(io, 0, 1, page) == 0;
    if (page)
        s->env->free(s->env, page, TIER_UNIT);
    return answers;
}
