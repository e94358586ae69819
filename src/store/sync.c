/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing blocks to a level: a copy on a medium, and a flush. */
#include "store/put.h"
#include "store/target.h"

static bool written(const kvo_store *s, uint32_t record)
{
    for (unsigned t = s->home; t < s->tier_count; t++) {
        uint64_t copy = word_load(&s->records[record].copy[t]);
        if (s->tiers[t].persistent && copy_valid(copy))
            return true;
    }
    return false;
}

/* Of blocks that only memory holds: to the first persistent tier below that has room for them. */
static void write_memory(kvo_store *s, const uint32_t *records, size_t count, int *outcome)
{
    uint32_t left[STORE_WINDOW];
    int results[STORE_WINDOW];
    size_t which[STORE_WINDOW], n = 0;
    store_demote(s, records, count, s->home, outcome);
    for (unsigned t = s->home + 1; t < s->tier_count; t++, n = 0) {
        for (size_t i = 0; s->tiers[t].persistent && i < count; i++)
            if (outcome[i] == KVO_SHORT || outcome[i] == KVO_FULL || outcome[i] == KVO_GONE) {
                which[n] = i;
                left[n++] = records[i];
            }
        store_demote(s, left, n, t, results);
        for (size_t k = 0; k < n; k++)
            outcome[which[k]] = results[k];
    }
}

/* One window; retried while the deadline allows. true: others are in the way of some. */
static bool write_some(kvo_store *s, const kvo_handle *handles, size_t count, uint64_t deadline, int *results)
{
    bool left = true;
    store_lock(s);
    while (left) {
        uint32_t records[STORE_WINDOW];
        int outcome[STORE_WINDOW];
        size_t which[STORE_WINDOW], n = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t record = store_by_handle(s, handles[i]);
            results[i] = record == BLOCK_NONE ? KVO_GONE : written(s, record) ? KVO_OK : KVO_SHORT;
            if (results[i] == KVO_SHORT) {
                which[n] = i;
                records[n++] = record;
            }
        }
        write_memory(s, records, n, outcome);
        left = false;
        for (size_t k = 0; k < n; k++) {
            results[which[k]] = outcome[k] == KVO_OK ? KVO_OK : KVO_SHORT;
            left |= outcome[k] == KVO_BUSY;
        }
        if (left && (deadline == 0 || !store_wait(s, deadline)))
            break;
    }
    store_unlock(s);
    return left;
}

/* Before a flush, on every copy that is complete: FLUSHING. After it: those are safe, and only
   those; a copy made meanwhile has a word of its own. Under flush_lock. */
static void set_level(kvo_store *s, kvo_handle handle, bool flushed)
{
    uint32_t record = store_by_handle(s, handle);
    for (unsigned t = s->home; record != BLOCK_NONE && t < s->tier_count; t++) {
        _Atomic uint64_t *word = &s->records[record].copy[t];
        uint64_t copy = word_load(word), new;
        do {
            if (!s->tiers[t].persistent || !copy_valid(copy) || (flushed && !(copy & COPY_FLUSHING)))
                break;
            new = flushed ? (copy & ~COPY_FLUSHING) | COPY_SAFE : copy | COPY_FLUSHING;
        } while (!atomic_compare_exchange_weak(word, &copy, new));
    }
}

static int flush_all(kvo_store *s)
{
    int result = store_write_out(s, false);
    for (unsigned t = s->home; t < s->tier_count; t++) {
        int r = s->tiers[t].persistent && !s->ghost ? tier_flush(s->tiers[t].io) : 0;
        if (r != 0)
            result = base_status_of_errno(r);
    }
    return result;
}

typedef struct syncing {
    kvo_handle handles[STORE_WINDOW];
    kvo_answer *answers[STORE_WINDOW]; /* NULL where there is none */
    size_t count;
    uint64_t deadline;
    bool missed, busy;
} syncing;

static void sync_window(kvo_store *s, syncing *y)
{
    int results[STORE_WINDOW];
    y->busy |= write_some(s, y->handles, y->count, y->deadline, results);
    for (size_t i = 0; i < y->count; i++) {
        y->missed |= results[i] == KVO_SHORT;
        if (y->answers[i] && results[i] != KVO_OK)
            y->answers[i]->status = results[i];
    }
    y->count = 0;
}

static void sync_add(kvo_store *s, syncing *y, kvo_handle handle, kvo_answer *answer)
{
    y->handles[y->count] = handle;
    y->answers[y->count++] = answer;
    if (y->count == STORE_WINDOW)
        sync_window(s, y);
}

static bool stored(const kvo_answer *a)
{
    return a->handle && (a->status == KVO_STORED || a->status == KVO_EXISTS);
}

int store_sync_answers(kvo_store *s, kvo_answer *answers, size_t count, int level, uint64_t deadline, bool *busy)
{
    syncing y = {.deadline = deadline};
    for (size_t i = 0; i < count; i++)
        if (stored(&answers[i]))
            sync_add(s, &y, answers[i].handle, &answers[i]);
    if (y.count)
        sync_window(s, &y);
    for (size_t i = 0; i < count; i++)
        if (answers[i].status == KVO_GONE) /* stored, and gone before it got there */
            answers[i].status = answers[i].handle ? KVO_SHORT : KVO_GONE;
    if (busy)
        *busy = y.busy;
    int flushed = KVO_OK;
    if (level == KVO_SAFE) {
        pthread_mutex_lock(&s->flush_lock);
        for (size_t i = 0; i < count; i++)
            if (stored(&answers[i]))
                set_level(s, answers[i].handle, false);
        flushed = flush_all(s);
        for (size_t i = 0; i < count && flushed == KVO_OK; i++)
            if (stored(&answers[i]))
                set_level(s, answers[i].handle, true);
        pthread_mutex_unlock(&s->flush_lock);
    }
    for (size_t i = 0; i < count; i++) {
        if (!stored(&answers[i]))
            continue;
        int status = flushed == KVO_OK ? answers[i].status : KVO_SHORT;
        uint32_t record = store_by_handle(s, answers[i].handle);
        if (record != BLOCK_NONE)
            store_answer(s, record, &answers[i]);
        answers[i].status = status;
    }
    return y.missed || flushed != KVO_OK ? KVO_SHORT : KVO_OK;
}

static void set_level_all(kvo_store *s, const kvo_target *target, bool flushed)
{
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);)
        if (hit.status == KVO_OK)
            set_level(s, hit.handle, flushed);
}

static int make_safe(kvo_store *s, const kvo_target *target)
{
    pthread_mutex_lock(&s->flush_lock);
    set_level_all(s, target, false);
    int r = flush_all(s);
    if (r == KVO_OK)
        set_level_all(s, target, true);
    pthread_mutex_unlock(&s->flush_lock);
    return r;
}

static bool sync_all(kvo_store *s, const kvo_target *target, uint64_t deadline, kvo_answer *answers, bool *busy)
{
    syncing y = {.deadline = deadline};
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        kvo_answer *answer = answers ? &answers[hit.index] : NULL;
        if (answer)
            *answer = (kvo_answer){.status = hit.status, .tier = KVO_NO_TIER};
        if (hit.status == KVO_OK)
            sync_add(s, &y, hit.handle, answer);
    }
    if (y.count)
        sync_window(s, &y);
    if (busy)
        *busy = y.busy;
    return !y.missed;
}

static void answer_levels(kvo_store *s, const kvo_target *target, kvo_answer *answers, bool flushed)
{
    target_cursor cursor = {.target = target};
    for (target_hit hit; target_next(s, &cursor, &hit);) {
        int status = answers[hit.index].status;
        if (hit.status == KVO_OK && status == KVO_OK)
            store_answer(s, hit.record, &answers[hit.index]);
        answers[hit.index].status = status == KVO_OK && !flushed ? KVO_SHORT : status;
    }
}

int store_sync_check(const kvo_store *s, const kvo_target *target, int level)
{
    int r = target_check(s, target, false);
    if (r != KVO_OK)
        return r;
    if (level != KVO_WRITTEN && level != KVO_SAFE)
        return KVO_E_RANGE;
    if (s->read_only)
        return KVO_E_STATE;
    return s->home == KVO_NO_TIER ? KVO_E_UNSUPPORTED : KVO_OK;
}

int store_sync(kvo_store *s, const kvo_target *target, int level, uint64_t deadline, kvo_answer *answers, bool *busy)
{
    answers = target_listed(target) ? answers : NULL;
    bool all_written = sync_all(s, target, deadline, answers, busy);
    int flushed = level == KVO_SAFE ? make_safe(s, target) : store_write_out(s, false);
    if (answers)
        answer_levels(s, target, answers, flushed == KVO_OK);
    return all_written && flushed == KVO_OK ? KVO_OK : KVO_SHORT;
}

int kvo_sync(kvo_store *s, const kvo_target *target, int level, uint64_t deadline_ns, kvo_answer *answers)
{
    static const kvo_target all = {.by = KVO_BY_ALL};
    STORE_ENTER(s);
    target = target ? target : &all;
    int r = store_sync_check(s, target, level);
    return r == KVO_OK ? store_sync(s, target, level, store_deadline(s, deadline_ns), answers, NULL) : r;
}
