/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what is there: the index from the media, then policies, ledger and clock. */
#include <errno.h>
#include <string.h>

#include "store/persist.h"

typedef struct recovery {
    kvo_store *s;
    store_tier *t;
    bool listed; /* by a checkpoint: it has no name twice, and the policies of its close */
    uint64_t *numbers;    /* the highest write number of each record's copies */
    uint32_t *unsure;     /* records whose write a crash may have cut short */
    size_t unsure_count;
    uint64_t highest; /* write number seen */
    uint64_t clock;
    uint64_t foreign; /* blocks of spaces that no medium here describes */
    uint64_t lacking; /* blocks for which there is no record */
} recovery;

static int found_segment(void *context, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    recovery *v = context;
    place_segment_restore(&v->t->space, segment, stride, epoch);
    return 0;
}

/* Written in a space that the store knows, as it knows it. A checkpoint goes with the note of spaces. */
static bool space_known(const recovery *v, const tier_slot *slot)
{
    const store_space *spaces = v->s->spaces;
    unsigned space = slot->identity.space;
    return space > 0 && space <= KVO_SPACES_MAX && spaces[space].used &&
           (v->listed || memcmp(spaces[space].digest, slot->space_digest, 32) == 0);
}

/* A header may be whole and its policy none all the same: that costs the policy, not the block. */
static uint64_t policy_of(const tier_slot *slot)
{
    static const kvo_policy usual = KVO_POLICY_INIT;
    return policy_word_good(slot->policy) ? slot->policy
                                          : policy_changed(0, policy_change_of(&usual, KVO_POLICY_ALL, 0));
}

static void adopt(recovery *v, uint32_t record, const tier_slot *slot)
{
    block_record *r = &v->s->records[record];
    identity_store(&v->s->identities[record], &slot->identity);
    word_store(&r->policy, policy_of(slot));
    word_store(&r->touch, slot->touch);
    word_store(&r->life, life_make(1, slot->rewrites, slot->delta, LIFE_USED | LIFE_SEALED));
    v->numbers[record] = 0;
}

static uint32_t new_record(recovery *v, const tier_slot *slot)
{
    kvo_store *s = v->s;
    uint32_t record = store_record_take(s);
    if (record == BLOCK_NONE)
        return BLOCK_NONE;
    block_record *r = &s->records[record];
    if (!index_insert(&s->index, slot->identity.key_hash, record)) {
        store_record_free(s, record);
        return BLOCK_NONE;
    }
    adopt(v, record, slot);
    word_store(&r->tree, tree_make(BLOCK_NONE, slot->identity.position));
    s->blocks++;
    return record;
}

/* For a reader, who shows what the headers say: a second copy of a life may know of more demotions
   than the first. */
static void merge_delta(block_record *r, const tier_slot *slot)
{
    uint64_t life = word_load(&r->life);
    uint8_t delta[KVO_TIERS_MAX] = {0};
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++)
        delta[i] = (uint8_t)(life_delta(life, i) > slot->delta[i] ? life_delta(life, i) : slot->delta[i]);
    word_store(&r->life, life_make(life_incarnation(life), life_rewrites(life), delta, life_flags(life)));
}

/* Headers count demotions by the tiers of the store that wrote them, which may have been others. What
   is certain is where the copies lie: under anchoring each came there once. One that a crash cut short never did. */
static void count_demotions(block_record *r)
{
    uint64_t life = word_load(&r->life);
    uint8_t delta[KVO_TIERS_MAX] = {0};
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++)
        delta[i] = copy_valid(word_load(&r->copy[i]));
    word_store(&r->life, life_make(life_incarnation(life), life_rewrites(life), delta, life_flags(life)));
}

static void take_slot(recovery *v, uint32_t record, const tier_slot *slot)
{
    if (v->numbers[record] < slot->write_number)
        v->numbers[record] = slot->write_number;
    store_copy_set(v->s, record, v->t->number,
                   copy_make(slot->slot, BLOCK_VALID, slot->format, (unsigned)(slot->write_number & 255u)));
    if (slot->unfinished && !KVO_PLANTED(UNFINISHED))
        v->unsure[v->unsure_count++] = record;
    if (touch_recency(slot->touch) > v->clock)
        v->clock = touch_recency(slot->touch);
}

/* Drops the block's copy in this tier, whose slot is older than another of the same name. */
static void drop_older(recovery *v, uint32_t record)
{
    store_copy_drop(v->s, record, v->t->number, true, KVO_CAUSE_NONE);
    for (size_t i = 0; i < v->unsure_count; i++)
        if (v->unsure[i] == record)
            v->unsure[i--] = v->unsure[--v->unsure_count];
}

static bool identity_is(const kvo_store *s, uint32_t record, const tier_slot *slot)
{
    block_identity have;
    identity_load(&s->identities[record], &have);
    return memcmp(&have, &slot->identity, sizeof have) == 0;
}

/* Another block's bytes, or another life's, under the same name: its copies go. */
static void drop_others(recovery *v, uint32_t record)
{
    for (unsigned t = 0; t < v->t->number; t++)
        store_copy_drop(v->s, record, t, true, KVO_CAUSE_NONE);
}

static int found_live(recovery *v, const tier_slot *slot)
{
    kvo_store *s = v->s;
    uint64_t life;
    if (!space_known(v, slot)) {
        s->damaged++;
        v->foreign++;
        return v->listed ? -EBADMSG : 0;
    }
    uint32_t record = index_find(&s->index, &slot->identity, &life);
    bool here = record != BLOCK_NONE && copy_valid(word_load(&s->records[record].copy[v->t->number]));
    bool same = record != BLOCK_NONE && identity_is(s, record, slot);
    if (v->listed && record != BLOCK_NONE && (here || !same))
        return -EBADMSG;
    /* The same name twice: the later write counts, in a tier and across tiers. */
    bool twice = record != BLOCK_NONE && (here || !same);
    if (twice && (v->numbers[record] > slot->write_number) != KVO_PLANTED(WRITE_NUMBER)) {
        store_stale_add(s, v->t->number, slot->slot, slot->identity.key_hash, false);
        return 0;
    }
    /* Before an older one is dropped: a segment without a slot in use would be given away. */
    if (!place_slot_restore(&v->t->space, slot->slot)) {
        s->damaged++;
        return v->listed ? -EBADMSG : 0;
    }
    if (here)
        drop_older(v, record);
    if (record != BLOCK_NONE && !same)
        drop_others(v, record);
    if (record == BLOCK_NONE)
        record = new_record(v, slot);
    else if (block_tiers(&s->records[record]) == 0)
        adopt(v, record, slot);
    else if (s->read_only)
        merge_delta(&s->records[record], slot);
    if (record == BLOCK_NONE) {
        v->lacking++; /* the slot stays taken, or its segment were given away and the rest miscounted */
        return 0;
    }
    take_slot(v, record, slot);
    if (!s->read_only)
        count_demotions(&s->records[record]);
    return 0;
}

static int found_slot(void *context, const tier_slot *slot)
{
    recovery *v = context;
    if (slot->state == TIER_SLOT_LIVE) {
        if (slot->write_number > v->highest)
            v->highest = slot->write_number;
        return found_live(v, slot);
    }
    if (!slot->unfinished) {
        v->s->damaged++;
    } else {
        KVO_ASSERT(slot->state == TIER_SLOT_BAD);
        v->s->unfinished++;
        store_stale_add(v->s, v->t->number, slot->slot, 0, false);
    }
    return 0;
}

/* ---- writes that a crash may have cut short: read them, whole or gone ---- */

static void forget(kvo_store *s, uint32_t record, unsigned tier)
{
    s->unfinished++;
    store_copy_drop(s, record, tier, true, KVO_CAUSE_NONE);
    if (!s->read_only)
        count_demotions(&s->records[record]);
    if (block_tiers(&s->records[record]) == 0) {
        index_remove(&s->index, identity_hash_of(&s->identities[record]), record);
        s->blocks--;
        store_record_free(s, record);
    }
}

static int check_unsure(recovery *v)
{
    kvo_store *s = v->s;
    for (size_t i = 0; i < v->unsure_count; i++) {
        uint32_t record = v->unsure[i];
        size_t span = tier_payload_span(identity_payload_of(&s->identities[record]));
        uint8_t *memory = s->env->alloc(s->env, span), digest[16];
        if (memory == NULL)
            return KVO_E_MEMORY;
        tier_io io = store_io(s, record, v->t->number, copy_slot(word_load(&s->records[record].copy[v->t->number])),
                              memory);
        tier_read(v->t->io, &io, 1);
        if (io.begun)
            ledger_add(&s->ledger, v->t->account, LEDGER_READ, KVO_CAUSE_RECOVER, store_tenant(s, record),
                       io.identity.payload_bytes, 1);
        digest_of(memory, io.identity.payload_bytes, digest);
        if (io.result != 0 && io.result != -EBADMSG) /* it may be whole: its header stays */
            word_change(&s->records[record].copy[v->t->number], 0, COPY_UNREAD);
        if (io.result != 0 || memcmp(digest, io.identity.digest, 16) != 0)
            forget(s, record, v->t->number);
        s->env->free(s->env, memory, span);
    }
    return KVO_OK;
}

/* ---- policies ---- */

static void apply_policy(recovery *v, uint64_t place, const policy_record *p)
{
    kvo_store *s = v->s;
    uint32_t record = store_record_at(v->t, place);
    if (record == BLOCK_NONE || (p->checksum != store_policy_checksum(p) && !KVO_PLANTED(POLICY_TORN)))
        return;
    block_record *r = &s->records[record];
    uint64_t copy = word_load(&r->copy[v->t->number]);
    bool same = p->key_hash == identity_hash_of(&s->identities[record]) && p->slot == copy_slot(copy) &&
                p->generation == copy_generation(copy);
    if ((!same && !KVO_PLANTED(POLICY_OTHER)) || !policy_word_good(p->policy))
        return;
    if (touch_recency(p->touch) < touch_recency(word_load(&r->touch)))
        return;
    word_store(&r->policy, p->policy);
    word_store(&r->touch, p->touch);
    if (touch_recency(p->touch) > v->clock)
        v->clock = touch_recency(p->touch);
}

static int read_policies(recovery *v, kvo_error *error)
{
    kvo_store *s = v->s;
    store_tier *t = v->t;
    enum { PAGES = 64 };
    policy_record *memory = s->env->alloc(s->env, PAGES * TIER_UNIT);
    if (memory == NULL)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory to read policies", t->path);
    for (uint32_t i = 0; i < t->space.segment_count; i++) {
        uint64_t first = (uint64_t)i * place_slots_max(&t->space), count = t->space.segments[i].slots;
        for (uint64_t at = first; t->space.segments[i].used && at < first + count;) {
            uint64_t page = at / POLICY_PER_PAGE, end = (first + count + POLICY_PER_PAGE - 1) / POLICY_PER_PAGE;
            uint32_t n = (uint32_t)(end - page < PAGES ? end - page : PAGES);
            /* What cannot be read costs policies, nothing else. */
            if (t->io->ops->policy_read(t->io, page, n, memory) != 0)
                memset(memory, 0, n * TIER_UNIT);
            for (; at < first + count && at < (page + n) * POLICY_PER_PAGE; at++)
                apply_policy(v, at, &memory[at - page * POLICY_PER_PAGE]);
        }
    }
    s->env->free(s->env, memory, PAGES * TIER_UNIT);
    return KVO_OK;
}

static void read_ledger(kvo_store *s)
{
    void *bytes;
    size_t count;
    tier_medium *home = s->tiers[s->home].io;
    if (home->ops->note_read(home, TIER_NOTE_LEDGER, &bytes, &count) != 0)
        return;
    if (!ledger_decode(&s->ledger, bytes, count))
        store_log(s, "%s: the ledger is of another version; counting starts anew", s->tiers[s->home].path);
    s->env->free(s->env, bytes, (count + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT);
}

/* A crash takes the ledger's last entries; what memory held is gone with every process. */
static void settle_ledger(kvo_store *s)
{
    ledger_balance found[KVO_TIERS_MAX] = {{0, 0}};
    uint64_t rewritten[KVO_TIERS_MAX] = {0};
    uint32_t end = atomic_load(&s->record_end);
    for (uint32_t i = 0; i < end; i++)
        for (unsigned t = 0; t < s->tier_count; t++)
            if (copy_valid(word_load(&s->records[i].copy[t]))) {
                found[t].blocks++;
                found[t].bytes += identity_payload_of(&s->identities[i]);
                rewritten[t] += life_rewrites(word_load(&s->records[i].life)) > 0;
            }
    for (unsigned t = 0; t < s->tier_count; t++)
        if (ledger_settle(&s->ledger, s->tiers[t].account, found[t], rewritten[t]))
            atomic_store(&s->activity, 1);
}

static int recover_tier(recovery *v, kvo_error *error)
{
    tier_medium *io = v->t->io;
    v->unsure_count = 0;
    int r = (v->listed ? io->ops->checkpoint_scan : io->ops->scan)(io, found_segment, found_slot, v);
    if (r != 0 && v->listed)
        return KVO_E_DAMAGED; /* for recover_anew() */
    if (r != 0)
        return base_fail(error, base_status_of_errno(r), "%s: cannot read the slots: %s", v->t->path, strerror(-r));
    if (v->foreign && !v->s->read_only)
        return base_fail(error, KVO_E_MISMATCH,
                         "%s: holds %llu blocks of spaces that are described in another directory: open it together "
                         "with the one that it was written with",
                         v->t->path, (unsigned long long)v->foreign);
    if (v->lacking)
        return base_fail(error, KVO_E_RANGE,
                         "%s: holds %llu blocks more than there are control records for (%u): raise or unset "
                         "blocks_max",
                         v->t->path, (unsigned long long)v->lacking, v->s->records_max);
    r = check_unsure(v);
    if (r != KVO_OK)
        return base_fail(error, r, "%s: no memory to check the last writes", v->t->path);
    place_segments_release(&v->t->space);
    if (v->t->space.short_of_memory)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory for the slots of its segments", v->t->path);
    return v->listed ? KVO_OK : read_policies(v, error);
}

static int recover_tiers(recovery *v, kvo_error *error)
{
    int r = KVO_OK;
    for (unsigned t = 0; r == KVO_OK && t < v->s->tier_count; t++)
        if (v->s->tiers[t].persistent) {
            v->t = &v->s->tiers[t];
            r = recover_tier(v, error);
        }
    return r;
}

/* All slots free, as before anything was found. */
static int space_anew(const kvo_store *s, store_tier *t)
{
    place_geometry g = {t->space.header_units, t->space.segment_units, t->space.segment_count, t->space.last_units};
    place_segments_close(&t->space);
    if (place_segments_open(&t->space, s->env, &g, store_usual_bytes(s), true) != 0)
        return KVO_E_MEMORY;
    for (unsigned i = 1; i <= KVO_SPACES_MAX; i++)
        if (s->spaces[i].used)
            place_segments_exact(&t->space, s->spaces[i].record->block_bytes_max);
    return KVO_OK;
}

/* Forgets what a checkpoint told before it turned out to be damaged, and reads the headers. */
static int recover_anew(recovery *v, kvo_error *error)
{
    kvo_store *s = v->s;
    uint32_t end = atomic_load(&s->record_end);
    store_log(s, "%s: the checkpoint is damaged; reading all slot headers", v->t->path);
    for (uint32_t i = 0; i < end; i++) {
        if (life_has(word_load(&s->records[i].life), LIFE_USED))
            index_remove(&s->index, identity_hash_of(&s->identities[i]), i);
        for (unsigned t = 0; t < s->tier_count; t++)
            store_copy_drop(s, i, t, false, KVO_CAUSE_NONE);
    }
    memset(s->records, 0, end * sizeof *s->records);
    atomic_store(&s->record_end, 0);
    s->free_first = 0;
    s->blocks = s->damaged = 0;
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].persistent && space_anew(s, &s->tiers[t]) != KVO_OK)
            return base_fail(error, KVO_E_MEMORY, "%s: no memory to begin anew", s->tiers[t].path);
    v->listed = false;
    v->foreign = v->lacking = v->highest = 0;
    v->clock = s->tiers[s->home].io->state.clock;
    return recover_tiers(v, error);
}

int store_recover(kvo_store *s, kvo_error *error)
{
    if (s->home == KVO_NO_TIER || s->ghost)
        return KVO_OK;
    size_t bytes = s->records_max * (sizeof(uint64_t) + sizeof(uint32_t));
    recovery v = {.s = s, .numbers = s->env->alloc(s->env, bytes)};
    if (v.numbers == NULL)
        return base_fail(error, KVO_E_MEMORY, "no memory to rebuild the index");
    v.unsure = (uint32_t *)(void *)(v.numbers + s->records_max);
    v.clock = s->tiers[s->home].io->state.clock;
    read_ledger(s);
    v.listed = store_checkpoint_there(s);
    int r = recover_tiers(&v, error);
    if (v.listed && r == KVO_E_DAMAGED)
        r = recover_anew(&v, error);
    s->env->free(s->env, v.numbers, bytes);
    if (r != KVO_OK)
        return r;
    atomic_store(&s->clock, v.clock);
    if (atomic_load(&s->write_number) < v.highest)
        atomic_store(&s->write_number, v.highest);
    if (v.listed) { /* the policy records on the media are of the same close */
        memset(s->changed_records, 0, (s->records_max / 64 + 1) * 8);
        atomic_store(&s->activity, 0);
    }
    s->recovered = s->blocks;
    if (!s->read_only)
        settle_ledger(s);
    for (unsigned t = 0; t < s->tier_count; t++)
        s->scanned += tier_innermost(s->tiers[t].io)->scanned;
    s->gaps = true;
    return KVO_OK;
}

int store_recover_finish(kvo_store *s, kvo_error *error)
{
    /* Off the medium before the marks may pass them: another crash must not find them as damage. */
    int r = s->unfinished && !s->read_only ? store_invalidate_evicted(s) : 0;
    if (r != 0)
        store_log(s, "what a crash left unfinished cannot be invalidated: %s", strerror(-r));
    return store_spaces_complete(s, error);
}
