/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that leave by a caller's will: out of the index first, then off the media, then gone. */
#include <string.h>

#include "store/target.h"

/* ---- copies of live blocks ---- */

/* Under the lock. From here no look-up finds it; its copies on media stay in place for now. */
static int doom(kvo_store *s, kvo_handle handle, uint64_t deadline)
{
    uint32_t record = handle_record(handle);
    for (;;) {
        bool same = life_incarnation(word_load(&s->records[record].life)) == handle_incarnation(handle);
        bool hidden = same && store_hidden(s, record);
        if (!hidden && store_by_handle(s, handle) != record)
            return KVO_GONE;
        if (!hidden && !block_in_transfer(&s->records[record]))
            break;
        if (deadline == 0 || !store_wait(s, deadline))
            return KVO_BUSY;
    }
    store_doom(s, record);
    word_change(&s->records[record].life, 0, LIFE_FLAG(LIFE_REMOVED));
    for (unsigned t = 0; t < s->tier_count; t++)
        if (copy_state(word_load(&s->records[record].copy[t])) != BLOCK_EMPTY)
            word_change(&s->records[record].copy[t], 0, COPY_MOVING);
    return KVO_OK;
}

int store_invalidate_copies(kvo_store *s, const uint32_t *records, size_t count, int level)
{
    int result = 0;
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint32_t slots[STORE_WINDOW];
        size_t n = 0;
        if (!s->tiers[t].persistent || s->ghost)
            continue;
        for (size_t i = 0; i < count; i++) {
            uint64_t copy = word_load(&s->records[records[i]].copy[t]);
            if (copy_state(copy) != BLOCK_EMPTY)
                slots[n++] = copy_slot(copy);
        }
        int r = tier_invalidate(s->tiers[t].io, slots, n);
        if (r == 0 && level == KVO_SAFE)
            r = tier_flush(s->tiers[t].io);
        if (r != 0)
            result = r;
    }
    return result;
}

/* Under the lock: lets the copies go; pinned ones at their last unpin. */
static void let_go(kvo_store *s, uint32_t record, bool invalid)
{
    block_record *r = &s->records[record];
    for (unsigned t = 0; t < s->tier_count; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        if (copy_state(copy) == BLOCK_EMPTY)
            continue;
        word_change(&r->copy[t], COPY_MOVING, 0);
        store_event(s, KVO_EVENT_DROP, KVO_CAUSE_REMOVE, t, record);
        if (invalid)
            continue;
        /* One that is being read goes later; its header is known from now on. */
        if (s->tiers[t].persistent && copy_valid(copy))
            word_change(&r->copy[t], COPY_STATE_MASK, (uint64_t)BLOCK_BAD << 44);
        if (!store_copy_drop(s, record, t, true, KVO_CAUSE_REMOVE))
            store_stale_add(s, t, copy_slot(copy), identity_hash_of(&s->identities[record]), false);
    }
    store_reap(s, record);
}

/* `wait`: for transfers of these blocks. Off in batches, so that none waits while it keeps others. */
static int remove_some(kvo_store *s, const kvo_handle *handles, size_t count, bool wait, uint64_t deadline,
                       int *results)
{
    uint32_t doomed[STORE_WINDOW] = {0};
    uint64_t hashes[STORE_WINDOW];
    size_t which[STORE_WINDOW], n = 0;
    store_erasure own = {.doomed = true};
    int failed = 0;
    store_lock(s);
    for (size_t i = 0; i < count; i++) {
        results[i] = doom(s, handles[i], wait ? deadline : 0);
        if (results[i] == KVO_OK) {
            which[n] = i;
            doomed[n] = handle_record(handles[i]);
            hashes[n] = identity_hash_of(&s->identities[doomed[n]]);
            n++;
        }
    }
    store_erasure_begin(s, &own, hashes, n);
    store_unlock(s);
    for (size_t i = 0; i < n; i++) {
        int r = store_invalidate_stale(s, hashes[i], &own, deadline);
        failed = r != 0 ? r : failed;
    }
    /* one flush at the end of the call */
    int r = KVO_PLANTED(REMOVE) ? 0 : store_invalidate_copies(s, doomed, n, KVO_WRITTEN);
    failed = r != 0 ? r : failed;
    store_lock(s);
    for (size_t i = 0; i < n; i++) {
        let_go(s, doomed[i], r == 0);
        results[which[i]] = failed ? KVO_SHORT : KVO_OK;
    }
    store_erasure_end(s, &own);
    store_changed(s);
    store_unlock(s);
    if (failed)
        store_log(s, "removing blocks: a header could not be written: %s", strerror(-failed));
    ledger_total_add(&s->ledger, LEDGER_REMOVES, n);
    return failed ? KVO_SHORT : KVO_OK;
}

int store_remove_flush(kvo_store *s, kvo_answer *answers, size_t count)
{
    int result = 0;
    for (unsigned t = 0; t < s->tier_count; t++) {
        int r = s->tiers[t].persistent && !s->ghost ? tier_flush(s->tiers[t].io) : 0;
        result = r != 0 ? r : result;
    }
    for (size_t i = 0; result != 0 && i < count; i++)
        if (answers[i].status == KVO_OK || answers[i].status == KVO_MISS)
            answers[i].status = KVO_SHORT;
    return result;
}

typedef struct removal {
    const kvo_target *target;
    target_hit hits[STORE_WINDOW];
    size_t count;
    int level;
    uint64_t deadline;
    kvo_answer *answers;
    uint64_t removed;
    int result;
    bool evicted; /* headers of blocks that no call answers for were invalidated */
} removal;

/* Blocks of the target that were evicted may still lie on a medium, and would be back after a crash. */
static void remove_evicted(kvo_store *s, const kvo_target *t, const target_hit *hit, removal *m)
{
    block_identity key = {0};
    if (hit)
        identity_key(&t->names, hit->index, &key);
    int r = store_invalidate_stale(s, key.key_hash, NULL, m->deadline);
    m->evicted = true;
    if (r == 0)
        return;
    m->result = KVO_SHORT;
    if (hit && m->answers)
        m->answers[hit->index].status = KVO_SHORT;
}

/* A rewrite has made another block of it since it was found; handles are of that block alone. */
static bool rewritten(kvo_store *s, const removal *m, const target_hit *hit, kvo_handle *handle)
{
    uint64_t life;
    block_identity key;
    uint32_t record = BLOCK_NONE;
    if (m->target->by == KVO_BY_NAMES) {
        identity_key(&m->target->names, hit->index, &key);
        record = index_find(&s->index, &key, &life);
    } else if (m->target->by != KVO_BY_HANDLES && target_matches_again(s, m->target, hit->record, &life)) {
        record = hit->record;
    }
    bool again = record != BLOCK_NONE && *handle != handle_make(record, life_incarnation(life));
    if (again)
        *handle = handle_make(record, life_incarnation(life));
    return again;
}

static void remove_window(kvo_store *s, removal *m)
{
    kvo_handle handles[STORE_WINDOW];
    int results[STORE_WINDOW];
    bool gone[STORE_WINDOW] = {false};
    for (size_t i = 0; i < m->count; i++)
        handles[i] = m->hits[i].handle;
    int r = remove_some(s, handles, m->count, false, m->deadline, results);
    for (size_t i = 0; i < m->count; i++)
        if (results[i] == KVO_BUSY && m->deadline != 0 &&
            remove_some(s, &handles[i], 1, true, m->deadline, &results[i]) != KVO_OK)
            r = KVO_SHORT;
    for (size_t i = 0; i < m->count; i++)
        while (results[i] == KVO_GONE && rewritten(s, m, &m->hits[i], &handles[i]))
            if (remove_some(s, &handles[i], 1, true, m->deadline, &results[i]) != KVO_OK)
                r = KVO_SHORT;
    if (r != KVO_OK)
        m->result = r;
    for (size_t i = 0; i < m->count; i++) {
        /* Evicted between the two looks at it. */
        if (results[i] == KVO_GONE && m->target->by == KVO_BY_NAMES) {
            results[i] = KVO_MISS;
            gone[i] = true;
        }
        m->removed += results[i] == KVO_OK || results[i] == KVO_SHORT;
        if (results[i] == KVO_BUSY && m->result == KVO_OK)
            m->result = KVO_BUSY;
        if (m->answers)
            m->answers[m->hits[i].index].status = results[i];
        if (gone[i])
            remove_evicted(s, m->target, &m->hits[i], m);
    }
    m->count = 0;
}

static bool wait_shown(kvo_store *s, const removal *m)
{
    store_lock(s);
    bool in_time = m->deadline != 0 && store_wait(s, m->deadline);
    store_unlock(s);
    return in_time;
}

int store_remove_check(const kvo_store *s, const kvo_target *target, int level)
{
    int r = target_check(s, target, false);
    if (r != KVO_OK)
        return r;
    if (level < KVO_SEALED || level > KVO_SAFE)
        return KVO_E_RANGE;
    return s->read_only ? KVO_E_STATE : KVO_OK;
}

int kvo_remove(kvo_store *s, const kvo_target *target, int level, uint64_t deadline_ns, kvo_answer *answers,
               uint64_t *removed)
{
    STORE_ENTER(s);
    int r = store_remove_check(s, target, level);
    if (r != KVO_OK)
        return r;
    removal m = {.target = target, .level = level, .deadline = store_deadline(s, deadline_ns), .result = KVO_OK};
    m.answers = target_listed(target) ? answers : NULL;
    target_cursor cursor = {.target = target, .hidden = true};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        if (m.answers)
            m.answers[hit.index] = (kvo_answer){.status = hit.status, .tier = KVO_NO_TIER};
        /* Hidden by a rewrite: it is there, and will be again. */
        if (hit.status == KVO_PENDING && wait_shown(s, &m)) {
            cursor.next--;
            cursor.scan -= !target_listed(target);
            continue;
        }
        if (hit.status == KVO_PENDING && m.result == KVO_OK)
            m.result = KVO_BUSY;
        if (hit.status == KVO_PENDING && m.answers)
            m.answers[hit.index].status = KVO_BUSY;
        if (hit.status == KVO_OK)
            m.hits[m.count++] = hit;
        if (hit.status == KVO_MISS)
            remove_evicted(s, target, &hit, &m);
        if (m.count == STORE_WINDOW)
            remove_window(s, &m);
    }
    if (m.count)
        remove_window(s, &m);
    if (!target_listed(target))
        remove_evicted(s, target, NULL, &m);
    if (level == KVO_SAFE && (m.evicted || m.removed) &&
        store_remove_flush(s, m.answers, m.answers ? target_count(target) : 0) != 0)
        m.result = KVO_SHORT;
    if (removed)
        *removed = m.removed;
    return m.result;
}
