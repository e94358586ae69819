/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-out: policies, recency and use counts of blocks on disk, the ledger and the clock, by the
 * keeper at intervals, and by sync and close. It never waits for a flush.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "store/persist.h"

#define PAGES_AT_ONCE 16u

/* ---- policy pages ---- */

/* Under the lock: which pages the changed records of one word lie in. */
static void note_pages(kvo_store *s, uint32_t first, uint64_t bits)
{
    for (; bits; bits &= bits - 1) {
        uint32_t record = first + (uint32_t)__builtin_ctzll(bits);
        for (unsigned t = 0; t < s->tier_count; t++) {
            store_tier *tier = &s->tiers[t];
            uint64_t copy = word_load(&s->records[record].copy[t]);
            if (!tier->persistent || !copy_valid(copy))
                continue;
            uint64_t page = store_policy_place(tier, copy_slot(copy)) / POLICY_PER_PAGE;
            bits_set(tier->dirty, page);
        }
    }
}

static void collect_pages(kvo_store *s)
{
    uint32_t end = atomic_load(&s->record_end);
    for (uint32_t first = 0; first < end;) {
        store_lock(s);
        for (uint32_t n = 0; n < 256 && first < end; n++, first += 64) {
            _Atomic uint64_t *word = &s->changed_records[first / 64];
            if (atomic_load_explicit(word, memory_order_relaxed))
                note_pages(s, first, atomic_exchange(word, 0));
        }
        store_unlock(s);
    }
}

uint64_t store_policy_checksum(const policy_record *p) { return digest_short(p, offsetof(policy_record, checksum)); }

void store_policy_seal(policy_record *p) { p->checksum = store_policy_checksum(p); }

/* One record as it is now; zero where the slot holds nothing. A record that is given to another
   block meanwhile leaves a mixture that names the wrong block, and is ignored when it is read. */
static void compose(const kvo_store *s, const store_tier *t, uint32_t record, policy_record *p)
{
    memset(p, 0, sizeof *p);
    if (record == BLOCK_NONE)
        return;
    const block_record *r = &s->records[record];
    uint64_t before = word_load(&r->life), copy = word_load(&r->copy[t->number]);
    p->key_hash = identity_hash_of(&s->identities[record]);
    p->policy = word_load(&r->policy);
    p->touch = word_load(&r->touch);
    p->slot = copy_slot(copy);
    p->generation = copy_generation(copy);
    uint64_t after = word_load(&r->life);
    if (!copy_valid(copy) || life_incarnation(before) != life_incarnation(after)) {
        memset(p, 0, sizeof *p);
        return;
    }
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++)
        p->delta[i] = (uint8_t)life_delta(after, i);
    store_policy_seal(p);
}

static void compose_page(kvo_store *s, const store_tier *t, uint64_t page, policy_record *memory)
{
    uint32_t records[POLICY_PER_PAGE];
    store_lock(s);
    for (uint32_t i = 0; i < POLICY_PER_PAGE; i++)
        records[i] = store_record_at(t, page * POLICY_PER_PAGE + i);
    store_unlock(s);
    for (uint32_t i = 0; i < POLICY_PER_PAGE; i++)
        compose(s, t, records[i], &memory[i]);
}

static int write_pages(kvo_store *s, store_tier *t, policy_record *memory)
{
    int result = 0;
    for (uint64_t page = 0; page < t->policy_pages;) {
        if (page % 64 == 0 && t->dirty[page / 64] == 0) {
            page += 64;
            continue;
        }
        uint32_t n = 0;
        while (n < PAGES_AT_ONCE && page + n < t->policy_pages && bits_get(t->dirty, page + n)) {
            compose_page(s, t, page + n, &memory[n * POLICY_PER_PAGE]);
            bits_clear(t->dirty, page + n);
            n++;
        }
        int r = n && !KVO_PLANTED(POLICY_PAGE) ? t->io->ops->policy_write(t->io, page, n, memory) : 0;
        for (uint32_t i = 0; r != 0 && i < n; i++) /* still to do */
            bits_set(t->dirty, page + i);
        result = r ? r : result;
        page += n ? n : 1;
    }
    return result;
}

/* ---- ledger and state ---- */

static int write_ledger(kvo_store *s)
{
    size_t need = ledger_encode(&s->ledger, NULL, 0), capacity = need + 64 * 1024;
    uint8_t *bytes = s->env->alloc(s->env, capacity);
    if (bytes == NULL)
        return -ENOMEM;
    store_lock(s); /* what belongs together is in it, or is not */
    need = ledger_encode(&s->ledger, bytes, capacity);
    store_unlock(s);
    tier_medium *home = s->tiers[s->home].io;
    int r = need <= capacity ? home->ops->note_write(home, TIER_NOTE_LEDGER, bytes, need) : -EAGAIN;
    s->env->free(s->env, bytes, capacity);
    return r;
}

static void state_now(kvo_store *s, tier_state *state)
{
    *state = (tier_state){.clock = atomic_load(&s->clock), .epoch_s = s->epoch_s};
    uint64_t made_with = s->tiers[s->home].io->state.block_bytes;
    state->block_bytes = made_with ? made_with : s->options.block_bytes;
    state->records_max = s->records_max;
    size_t used = 0;
    for (unsigned t = 0; t < s->tier_count; t++) {
        size_t n = strlen(s->tiers[t].name);
        if (used + n + 2 > sizeof state->tiers)
            break;
        if (t)
            state->tiers[used++] = ',';
        memcpy(state->tiers + used, s->tiers[t].name, n);
        used += n;
    }
}

static int write_all(kvo_store *s, bool clean)
{
    policy_record *memory = s->env->alloc(s->env, PAGES_AT_ONCE * TIER_UNIT);
    if (memory == NULL)
        return -ENOMEM;
    tier_state state;
    int result = 0, r;
    collect_pages(s);
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].persistent && (r = write_pages(s, &s->tiers[t], memory)) != 0)
            result = r;
    s->env->free(s->env, memory, PAGES_AT_ONCE * TIER_UNIT);
    if ((r = write_ledger(s)) != 0)
        result = r;
    state_now(s, &state);
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].persistent && (r = s->tiers[t].io->ops->state_write(s->tiers[t].io, &state, clean)) != 0)
            result = r;
    return result;
}

int store_write_out(kvo_store *s, bool clean)
{
    if (s->home == KVO_NO_TIER || s->ghost || s->read_only)
        return KVO_OK;
    pthread_mutex_lock(&s->write_out_lock);
    int r = 0;
    if (atomic_exchange(&s->activity, 0) || clean)
        r = write_all(s, clean);
    if (r != 0)
        atomic_store(&s->activity, 1);
    pthread_mutex_unlock(&s->write_out_lock);
    if (r != 0)
        store_log(s, "%s: writing out policies failed: %s", s->tiers[s->home].path, strerror(-r));
    return r == 0 ? KVO_OK : base_status_of_errno(r);
}

int kvo_write_out(kvo_store *s)
{
    STORE_ENTER(s);
    if (s->read_only)
        return KVO_E_STATE;
    return store_write_out(s, false);
}
