/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the store, in numbers. */
#include <string.h>

#include "store/store.h"

int kvo_stat_store(kvo_store *s, kvo_stat *out)
{
    kvo_stat stat = KVO_STAT_INIT;
    STORE_ENTER(s);
    if (out == NULL || out->size < sizeof out->size)
        return KVO_E_ARGUMENT;
    const ledger *l = &s->ledger;
    store_lock(s);
    stat.present_tier_count = s->tier_count;
    stat.tier_count = s->tier_count;
    for (uint32_t a = 0; a < l->account_count; a++) {
        bool present = false;
        for (unsigned t = 0; t < s->tier_count; t++)
            present |= s->tiers[t].account == a;
        stat.tier_count += !present;
    }
    stat.blocks = s->blocks;
    stat.blocks_max = s->records_max;
    stat.references = atomic_load(&s->clock);
    stat.pinned_blocks = s->pinned;
    stat.held_blocks = s->held;
    stat.reserved_blocks = s->reserved;
    stat.control_bytes = store_control_bytes(s);
    stat.recovered_blocks = s->recovered;
    stat.unfinished_slots = s->unfinished;
    stat.damaged_slots = s->damaged;
    stat.headers_read = s->scanned;
    for (unsigned t = 0; t < s->tier_count && !s->ghost; t++)
        stat.unclean_tiers += s->tiers[t].io->unclean;
    stat.io_engine = s->ghost ? 0 : (int)move_kind_of(s->engine);
    stat.io_registered = !s->ghost && move_registered(s->engine);
    stat.payload_copies = atomic_load(&s->payload_copies);
    for (unsigned t = 0; t < s->tier_count && !s->ghost; t++) {
        const tier_medium *io = tier_innermost(s->tiers[t].io);
        stat.transfers += atomic_load(&io->transfers);
        stat.submissions += atomic_load(&io->submissions);
        stat.payload_copies += atomic_load(&io->copies);
    }
    stat.demoted_ahead = atomic_load(&s->demoted_ahead);
    stat.record_bytes = sizeof(block_record);
    store_unlock(s);
    stat.puts = ledger_total_of(l, LEDGER_PUTS);
    stat.put_exists = ledger_total_of(l, LEDGER_PUT_EXISTS);
    stat.put_busy = ledger_total_of(l, LEDGER_PUT_BUSY);
    stat.put_full = ledger_total_of(l, LEDGER_PUT_FULL);
    stat.put_waits = ledger_total_of(l, LEDGER_PUT_WAITS);
    stat.gets = ledger_total_of(l, LEDGER_GETS);
    stat.get_misses = ledger_total_of(l, LEDGER_GET_MISSES);
    stat.payloads_verified = ledger_total_of(l, LEDGER_VERIFIED);
    stat.digest_misses = ledger_total_of(l, LEDGER_DIGEST_MISSES);
    stat.digest_conflicts = ledger_total_of(l, LEDGER_DIGEST_CONFLICTS);
    stat.rewrites = ledger_total_of(l, LEDGER_REWRITES);
    stat.removes = ledger_total_of(l, LEDGER_REMOVES);
    /* An older program's struct is filled as far as it goes. */
    size_t size = out->size < sizeof stat ? out->size : sizeof stat;
    stat.size = out->size;
    memcpy(out, &stat, size);
    return KVO_OK;
}

static void fill_account(const kvo_store *s, unsigned a, kvo_tier_stat *out)
{
    const ledger *l = &s->ledger;
    memcpy(out->name, l->accounts[a].name, sizeof out->name);
    out->hits = ledger_counted(l, a, LEDGER_HITS);
    for (unsigned cause = 1; cause < KVO_CAUSE_COUNT; cause++)
        if (cause != KVO_CAUSE_METADATA && cause != KVO_CAUSE_PADDING && cause != KVO_CAUSE_RECOVER)
            out->read_bytes += ledger_bytes(l, a, LEDGER_READ, cause);
    out->written_bytes = ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_PUT) +
                         ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_DEMOTE) +
                         ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_PROMOTE);
    out->repair_bytes = ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_REPAIR);
    out->rewrite_bytes = ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_REWRITE);
    out->failed_bytes = ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_FAILED);
    out->metadata_bytes = ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_METADATA) +
                          ledger_bytes(l, a, LEDGER_WRITE, KVO_CAUSE_PADDING);
    out->lives = ledger_counted(l, a, LEDGER_LIVES);
    out->life_bytes = ledger_counted(l, a, LEDGER_LIFE_BYTES);
    out->clean_discards = ledger_counted(l, a, LEDGER_CLEAN_DISCARDS);
    out->other_evictions = ledger_counted(l, a, LEDGER_OTHER_EVICTIONS);
    out->orphans = ledger_counted(l, a, LEDGER_ORPHANS);
    out->anchor_yields = ledger_counted(l, a, LEDGER_YIELDS);
    out->promotions = ledger_counted(l, a, LEDGER_PROMOTIONS);
    out->io_errors = ledger_counted(l, a, LEDGER_IO_ERRORS);
}

static void fill_present(kvo_store *s, const store_tier *t, kvo_tier_stat *out)
{
    uint64_t usual = s->options.block_bytes ? s->options.block_bytes : 65536;
    out->present = 1;
    memcpy(out->path, t->path, sizeof out->path);
    out->direct_io = t->io && tier_direct_io(t->io);
    store_lock(s);
    out->capacity_blocks = place_capacity(&t->space, usual);
    out->capacity_bytes = t->space.infinite ? KVO_INFINITE
                                            : ((uint64_t)(t->space.segment_count - 1) * t->space.segment_units +
                                               t->space.last_units) * PLACE_UNIT;
    out->used_bytes = t->space.used_units * PLACE_UNIT;
    store_unlock(s);
    out->resident_blocks = atomic_load(&t->resident);
    out->max_delta = atomic_load(&t->max_delta);
    out->injected = tier_injected(t->io);
}

int kvo_stat_tier(kvo_store *s, uint32_t index, kvo_tier_stat *out)
{
    STORE_ENTER(s);
    if (out == NULL)
        return KVO_E_ARGUMENT;
    memset(out, 0, sizeof *out);
    if (index < s->tier_count) {
        fill_account(s, s->tiers[index].account, out);
        fill_present(s, &s->tiers[index], out);
        return KVO_OK;
    }
    uint32_t skip = index - s->tier_count;
    for (uint32_t a = 0; a < s->ledger.account_count; a++) {
        bool present = false;
        for (unsigned t = 0; t < s->tier_count; t++)
            present |= s->tiers[t].account == a;
        if (!present && skip-- == 0) {
            fill_account(s, a, out);
            return KVO_OK;
        }
    }
    return KVO_E_RANGE;
}

int kvo_ledger(kvo_store *s, kvo_ledger_row *rows, size_t capacity, size_t *count)
{
    STORE_ENTER(s);
    if (count == NULL || (capacity && rows == NULL))
        return KVO_E_ARGUMENT;
    *count = ledger_rows(&s->ledger, rows, capacity);
    return KVO_OK;
}

int kvo_stat_spaces(kvo_store *s, kvo_space_stat *stats, size_t capacity, size_t *count)
{
    STORE_ENTER(s);
    if (count == NULL || (capacity && stats == NULL))
        return KVO_E_ARGUMENT;
    size_t n = 0;
    for (unsigned i = 1; i <= KVO_SPACES_MAX; i++) {
        const store_space *space = &s->spaces[i];
        if (!space->used || n++ >= capacity)
            continue;
        kvo_space_stat *out = &stats[n - 1];
        memset(out, 0, sizeof *out);
        out->space = i;
        memcpy(out->label, space->label, sizeof out->label);
        base_space_record_describe(space->record, out->description, sizeof out->description);
        memcpy(out->digest, space->digest, 32);
        out->block_bytes_max = space->record->block_bytes_max;
        for (uint32_t r = 0; r < atomic_load(&s->record_end); r++)
            if (life_live(word_load(&s->records[r].life)) && identity_space_of(&s->identities[r]) == i) {
                out->blocks++;
                out->payload_bytes += identity_payload_of(&s->identities[r]);
            }
    }
    *count = n;
    return KVO_OK;
}

int kvo_stat_tenants(kvo_store *s, kvo_tenant_stat *stats, size_t capacity, size_t *count)
{
    STORE_ENTER(s);
    if (count == NULL || (capacity && stats == NULL))
        return KVO_E_ARGUMENT;
    size_t bytes = 65536 * sizeof(uint32_t), n = 0;
    uint32_t *place = s->env->alloc(s->env, bytes); /* + 1 */
    if (place == NULL)
        return KVO_E_MEMORY;
    for (uint32_t r = 0; r < atomic_load(&s->record_end); r++) {
        if (!life_live(word_load(&s->records[r].life)))
            continue;
        unsigned tenant = store_tenant(s, r);
        if (place[tenant] == 0) {
            place[tenant] = (uint32_t)++n;
            if (n <= capacity)
                stats[n - 1] = (kvo_tenant_stat){.tenant = tenant};
        }
        if (place[tenant] > capacity)
            continue;
        kvo_tenant_stat *out = &stats[place[tenant] - 1];
        out->blocks++;
        out->payload_bytes += identity_payload_of(&s->identities[r]);
        for (unsigned t = 0; t < s->tier_count; t++)
            out->resident_blocks[t] += copy_valid(word_load(&s->records[r].copy[t]));
    }
    s->env->free(s->env, place, bytes);
    *count = n;
    return KVO_OK;
}
