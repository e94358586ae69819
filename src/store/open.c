/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: how much of everything, in which order. */
#include "store/open.h"

#include "base/text.h"
#include "store/put.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define USUAL_BYTES 65536u
#define USUAL_THREADS 8u /* that wait for a device */
#define LARGE_BYTES (1u << 20) /* blocks from which handing a copy to another thread pays */
#define RECORDS_SPARE 1024u /* for blocks on their way in and out */

/* ---- what the caller asks for ---- */

/* For work of processors: workers, and transfers that are copies. */
static uint32_t usual_threads(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 2 ? 2 : processors > 4 ? 4 : (uint32_t)processors;
}

static int check_options(const base_env *env, kvo_options *o, kvo_error *error)
{
    if (o->placement != KVO_PLACE_CREDIT && o->placement != KVO_PLACE_LRU)
        return base_fail(error, KVO_E_RANGE, "options.placement: %d is not a placement", o->placement);
    if (o->hierarchy != KVO_INCLUSIVE && o->hierarchy != KVO_EXCLUSIVE)
        return base_fail(error, KVO_E_RANGE, "options.hierarchy: %d is not a hierarchy", o->hierarchy);
    if (o->hierarchy == KVO_EXCLUSIVE && !(o->flags & KVO_OPEN_GHOST))
        return base_fail(error, KVO_E_UNSUPPORTED, "options.hierarchy: exclusive exists in ghost stores only");
    if (o->block_bytes > KVO_PAYLOAD_BYTES_MAX)
        return base_fail(error, KVO_E_RANGE, "options.block_bytes: %llu is over the limit of %u",
                         (unsigned long long)o->block_bytes, KVO_PAYLOAD_BYTES_MAX);
    if (o->io_threads > 64 || o->tenants_max > 4096)
        return base_fail(error, KVO_E_RANGE, "options: io_threads is at most 64, tenants_max at most 4096");
    if (o->blocks_max > UINT32_MAX - 2 * RECORDS_SPARE || o->pins_max > 1u << 24 || o->holds_max > 1u << 24)
        return base_fail(error, KVO_E_RANGE, "options: blocks_max, pins_max or holds_max is too large");
    if (o->write_out_ns > 86400ull * 1000000000u)
        return base_fail(error, KVO_E_RANGE, "options.write_out_ns: at most a day (86400000000000)");
    if (o->workers == 1 || o->workers > JOBS_WORKERS_MAX)
        return base_fail(error, KVO_E_RANGE, "options.workers: 0, or 2 to %u", JOBS_WORKERS_MAX);
    bool simulated = o->io_engine == MOVE_SIMULATED && env != base_env_posix();
    if ((o->io_engine < KVO_IO_AUTO || o->io_engine > KVO_IO_THREADS) && !simulated)
        return base_fail(error, KVO_E_RANGE, "options.io_engine: %d is not an engine", o->io_engine);
    if (o->flags & ~(uint32_t)(KVO_OPEN_GHOST | KVO_OPEN_READ_ONLY | KVO_OPEN_MUST_EXIST | KVO_OPEN_STEPPED))
        return base_fail(error, KVO_E_RANGE, "options.flags: 0x%x has bits that mean nothing here", o->flags);
    o->write_out_ns = o->write_out_ns ? o->write_out_ns : 1000000000u;
    o->workers = o->workers ? o->workers : usual_threads();
    o->flight_bytes = o->flight_bytes ? o->flight_bytes : 256u << 20;
    o->tenants_max = o->tenants_max ? o->tenants_max : 256;
    o->pins_max = o->pins_max ? o->pins_max : 16384;
    o->holds_max = o->holds_max ? o->holds_max : 4096;
    return KVO_OK;
}

static int check_wrappers(const kvo_tier_config *c, unsigned i, const kvo_options *o, kvo_error *error)
{
    for (const char *at = c->wrappers; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        if (tier_wrapper_of(at) == NULL)
            return base_fail(error, KVO_E_ARGUMENT, "tier %u: wrappers are fault and delay, with a '+' between, not %s",
                             i, base_quote(at, strcspn(at, ":+")).text);
    if (c->wrappers && (o->flags & KVO_OPEN_GHOST))
        return base_fail(error, KVO_E_UNSUPPORTED, "tier %u: a ghost moves no bytes that a wrapper could harm", i);
    return KVO_OK;
}

static int check_tier_config(const kvo_tier_config *c, unsigned i, const kvo_options *o, kvo_error *error)
{
    if (tier_ops_of(c->kind) == NULL)
        return base_fail(error, KVO_E_ARGUMENT, "tier %u: unknown kind %d", i, c->kind);
    if (c->kind == KVO_TIER_DISK && (c->path == NULL || c->path[0] == 0 || strlen(c->path) > 200))
        return base_fail(error, KVO_E_ARGUMENT, "tier %u: a disk needs a path of 1 to 200 bytes", i);
    if (c->capacity_bytes && c->capacity_blocks)
        return base_fail(error, KVO_E_ARGUMENT, "tier %u: give capacity_bytes or capacity_blocks, not both", i);
    if (c->capacity_blocks == KVO_INFINITE) {
        if (!(o->flags & KVO_OPEN_GHOST))
            return base_fail(error, KVO_E_UNSUPPORTED, "tier %u: an infinite capacity exists in ghost stores only", i);
        if (o->blocks_max == 0)
            return base_fail(error, KVO_E_ARGUMENT, "tier %u: an infinite capacity needs options.blocks_max", i);
    } else if (c->capacity_blocks && o->block_bytes == 0)
        return base_fail(error, KVO_E_ARGUMENT,
                         "tier %u: a capacity in blocks needs options.block_bytes: say how large a block is", i);
    if (c->kind == KVO_TIER_DRAM && c->capacity_bytes == 0 && c->capacity_blocks == 0)
        return base_fail(error, KVO_E_ARGUMENT, "tier %u: dram needs a capacity", i);
    return check_wrappers(c, i, o, error);
}

/* ---- tiers ---- */

static void account_add(void *context, bool write, uint64_t metadata_bytes, uint64_t padding_bytes)
{
    store_tier *t = context;
    kvo_store *s = t->store;
    ledger_direction direction = write ? LEDGER_WRITE : LEDGER_READ;
    if (metadata_bytes)
        ledger_add(&s->ledger, t->account, direction, KVO_CAUSE_METADATA, KVO_TENANT_OTHER, metadata_bytes, 1);
    if (padding_bytes)
        ledger_add(&s->ledger, t->account, direction, KVO_CAUSE_PADDING, KVO_TENANT_OTHER, padding_bytes, 1);
}

static void name_tier(kvo_store *s, store_tier *t, const kvo_tier_config *config)
{
    const char *kind = tier_ops_of(config->kind)->kind;
    unsigned same = 1;
    for (unsigned i = 0; i < t->number; i++)
        same += strncmp(s->tiers[i].name, kind, strlen(kind)) == 0;
    snprintf(t->name, sizeof t->name, same > 1 ? "%s%u" : "%s", kind, same);
    if (config->path)
        snprintf(t->path, sizeof t->path, "%s", config->path);
}

static int open_tier(kvo_store *s, unsigned i, const kvo_tier_config *config, kvo_error *error)
{
    store_tier *t = &s->tiers[i];
    t->number = i;
    t->store = s;
    name_tier(s, t, config);
    int account = ledger_account_of(&s->ledger, t->name);
    if (account < 0)
        return base_fail(error, KVO_E_MEMORY, "tier %s: no memory for its ledger", t->name);
    t->account = (unsigned)account;
    t->persistent = config->kind == KVO_TIER_DISK;
    s->persistent |= (unsigned)t->persistent << i;
    t->byte_addressable = config->kind == KVO_TIER_DRAM;
    if (t->persistent && s->home == KVO_NO_TIER)
        s->home = i;
    if (s->ghost)
        return KVO_OK;
    tier_config c = {.env = s->env,
                     .engine = s->engine,
                     .config = config,
                     .block_bytes = s->options.block_bytes,
                     .read_only = s->read_only,
                     .must_exist = (s->options.flags & KVO_OPEN_MUST_EXIST) != 0,
                     .write_number = &s->write_number,
                     .account = {account_add, t},
                     .log = s->options.on_log,
                     .log_context = s->options.log_context};
    return tier_open(&c, &t->io, error);
}

uint64_t store_usual_bytes(const kvo_store *s)
{
    return s->options.block_bytes ? s->options.block_bytes : USUAL_BYTES;
}

static bool is_large(const kvo_tier_config *c, uint64_t bytes, uint64_t block_bytes)
{
    uint64_t most = (uint64_t)UINT32_MAX * PLACE_UNIT;
    return c->capacity_blocks ? c->capacity_blocks > most / (block_bytes + PLACE_UNIT) : bytes > most;
}

/* The cut of a tier's space; segment_units of a medium that exists stay. false: too small. */
static int cut(kvo_store *s, unsigned i, const kvo_tier_config *c, uint64_t bytes, place_geometry *g,
               kvo_error *error)
{
    store_tier *t = &s->tiers[i];
    uint32_t header = t->persistent ? 1 : 0;
    const tier_geometry *had = t->io ? &t->io->geometry : NULL;
    uint32_t kept = had ? had->segment_units : 0;
    /* A reader takes what there is. */
    if ((s->read_only && kept) || (c->capacity_bytes == 0 && c->capacity_blocks == 0)) {
        if (kept == 0)
            return base_fail(error, KVO_E_ARGUMENT, "%s: there is no store yet: give it a capacity, as in disk:%s:20G",
                             t->path, t->path);
        *g = (place_geometry){header, had->segment_units, had->segment_count, had->last_units};
        return KVO_OK;
    }
    uint64_t then = t->io ? t->io->state.block_bytes : 0;
    if (kept && c->capacity_blocks && then && then != s->options.block_bytes)
        return base_fail(error, KVO_E_MISMATCH,
                         "%s: the store was made with blocks of %llu bytes, and a capacity of %llu blocks is asked for "
                         "with block_bytes %llu: give the same block_bytes, or a capacity in bytes",
                         t->path, (unsigned long long)then, (unsigned long long)c->capacity_blocks,
                         (unsigned long long)s->options.block_bytes);
    bool fits = c->capacity_blocks
                    ? place_geometry_blocks(g, header, c->capacity_blocks, s->options.block_bytes, kept)
                    : place_geometry_bytes(g, header, bytes, s->options.block_bytes, c->segment_bytes, kept);
    if (!fits && kept)
        return base_fail(error, KVO_E_RANGE,
                         "%s: made of segments of %llu bytes, and the capacity asked for is not even one, or a block "
                         "does not fit one: give it more, or use another directory",
                         t->path, (unsigned long long)kept * PLACE_UNIT);
    if (!fits)
        return base_fail(error, KVO_E_RANGE, "tier %s: the capacity is %s: give it %s", t->name,
                         is_large(c, bytes, s->options.block_bytes) ? "over 16 TiB" : "too small for one block",
                         is_large(c, bytes, s->options.block_bytes) ? "less" : "more");
    return KVO_OK;
}

/* Of a disk's bytes: what its small files may come to. A policy record for each of the smallest
   slots is 1/128; superblock, spaces and ledger take two copies each of some tens of KiB. */
static uint64_t slot_bytes(const kvo_tier_config *c)
{
    uint64_t others = c->capacity_bytes / 128 + 256 * 1024;
    if (c->kind != KVO_TIER_DISK)
        return c->capacity_bytes;
    return c->capacity_bytes > 2 * others ? c->capacity_bytes - others : 0;
}

typedef struct plan {
    place_geometry geometry[KVO_TIERS_MAX];
    bool infinite[KVO_TIERS_MAX];
    uint64_t slots; /* of all tiers */
    uint32_t records_max;
    size_t control_bytes;
} plan;

static uint64_t slots_of(const place_geometry *g, uint64_t block_bytes)
{
    uint64_t stride = g->header_units + place_payload_units(block_bytes);
    return (uint64_t)(g->segment_count - 1) * ((g->segment_units - g->header_units) / stride) +
           (g->last_units - g->header_units) / stride;
}

static size_t bits_bytes(uint32_t records_max) { return (records_max / 64 + 1) * sizeof(uint64_t); }

/* Whether the tier's slots are on a medium, and have to be found and invalidated there. */
static bool on_medium(const kvo_store *s, unsigned tier) { return s->tiers[tier].persistent && !s->ghost; }

static bool written_out(const kvo_store *s) { return s->home != KVO_NO_TIER && !s->ghost && !s->read_only; }

static uint64_t remembered_slots(const kvo_store *s, const plan *p)
{
    return s->options.placement == KVO_PLACE_CREDIT ? p->slots : 0;
}

static uint64_t policy_places(const place_geometry *g)
{
    return (uint64_t)g->segment_count * (g->segment_units / (g->header_units + 1));
}

static size_t dirty_bytes_for(const place_geometry *g) { return (policy_places(g) / 64 / 64 + 1) * sizeof(uint64_t); }

static size_t control_bytes_of_tier(const kvo_store *s, const plan *p, unsigned tier)
{
    const place_geometry *g = &p->geometry[tier];
    const tier_medium *io = s->tiers[tier].io;
    size_t bytes = PLACE_VICTIMS_MAX * sizeof(place_victim) + bits_bytes(p->records_max) + (io ? io->control_bytes : 0);
    if (!p->infinite[tier])
        bytes += place_segments_bytes_for(g, store_usual_bytes(s), on_medium(s, tier));
    if (on_medium(s, tier))
        bytes += dirty_bytes_for(g) + store_stale_bytes_for(slots_of(g, store_usual_bytes(s)), g->segment_count);
    return bytes;
}

static size_t control_bytes_for(const kvo_store *s, const plan *p)
{
    uint32_t n = p->records_max;
    size_t bytes = sizeof *s + n * (sizeof(block_record) + sizeof(block_identity_words)) + index_bytes_for(n) +
                   place_memory_bytes_for(remembered_slots(s, p)) + place_scan_bytes_for(n) +
                   ledger_memory_bytes(&s->ledger) + s->options.pins_max * sizeof(store_pin) +
                   s->options.holds_max * sizeof(store_hold) + (written_out(s) ? bits_bytes(n) : 0);
    for (unsigned i = 0; i < s->tier_count; i++)
        bytes += control_bytes_of_tier(s, p, i);
    return bytes;
}

/* The same of what there is now: descriptions of spaces, accounts of earlier tiers and tables of small slots come
   and go. */
size_t store_control_bytes(const kvo_store *s)
{
    uint32_t n = s->records_max;
    size_t bytes = sizeof *s + n * (sizeof *s->records + sizeof *s->identities) + s->index.bytes + s->memory.bytes +
                   s->scan.bytes + ledger_memory_bytes(&s->ledger) + s->options.pins_max * sizeof *s->pins +
                   s->options.holds_max * sizeof *s->holds + (s->changed_records ? bits_bytes(n) : 0);
    for (unsigned i = 0; i < s->tier_count; i++) {
        const store_tier *t = &s->tiers[i];
        bytes += PLACE_VICTIMS_MAX * sizeof *t->queue + bits_bytes(n) + (t->io ? t->io->control_bytes : 0) +
                 t->space.bytes + t->dirty_bytes + t->stale.bytes;
    }
    for (unsigned i = 0; i <= KVO_SPACES_MAX; i++)
        bytes += s->spaces[i].record ? sizeof *s->spaces[i].record : 0;
    return bytes;
}

static int plan_once(kvo_store *s, const kvo_tier_config *tiers, size_t reserved, plan *p, kvo_error *error)
{
    uint64_t records = RECORDS_SPARE;
    p->slots = 0;
    for (unsigned i = 0; i < s->tier_count; i++) {
        p->infinite[i] = tiers[i].capacity_blocks == KVO_INFINITE;
        if (p->infinite[i])
            continue;
        uint64_t bytes = slot_bytes(&tiers[i]);
        if (reserved && tiers[i].kind == KVO_TIER_DRAM && bytes) {
            if (bytes <= reserved)
                return base_fail(error, KVO_E_RANGE,
                                 "tier %s: %llu bytes, of which the control records of all tiers need %zu: give it "
                                 "more, or set block_bytes to the usual block's size",
                                 s->tiers[i].name, (unsigned long long)bytes, reserved);
            bytes -= reserved;
            reserved = 0;
        }
        int r = cut(s, i, &tiers[i], bytes, &p->geometry[i], error);
        if (r != KVO_OK)
            return r;
        uint64_t slots = slots_of(&p->geometry[i], store_usual_bytes(s));
        p->slots += slots;
        records += slots;
    }
    for (unsigned i = 0; i < s->tier_count; i++)
        if (p->infinite[i])
            p->slots = 0; /* nothing departs for lack of room */
    for (unsigned i = 0; i < s->tier_count; i++) /* what a medium holds has to fit */
        if (s->tiers[i].io && s->tiers[i].io->state.records_max > records)
            records = s->tiers[i].io->state.records_max;
    if (s->options.blocks_max)
        records = s->options.blocks_max + RECORDS_SPARE;
    if (records > UINT32_MAX - 1)
        return base_fail(error, KVO_E_RANGE, "%llu control records are too many: set blocks_max or block_bytes",
                         (unsigned long long)records);
    p->records_max = (uint32_t)records;
    p->control_bytes = control_bytes_for(s, p);
    return KVO_OK;
}

/* ---- tables ---- */

static int tables_of_tier(kvo_store *s, unsigned i, const plan *p)
{
    store_tier *t = &s->tiers[i];
    base_env *env = s->env;
    const place_geometry *g = p->infinite[i] ? NULL : &p->geometry[i];
    if (place_segments_open(&t->space, env, g, store_usual_bytes(s), on_medium(s, i)) != 0)
        return KVO_E_MEMORY;
    t->slots = p->infinite[i] ? 0 : slots_of(&p->geometry[i], store_usual_bytes(s));
    t->queue = env->alloc(env, PLACE_VICTIMS_MAX * sizeof *t->queue);
    t->queued = env->alloc(env, bits_bytes(p->records_max));
    if (t->queue == NULL || t->queued == NULL)
        return KVO_E_MEMORY;
    if (KVO_PLANTED(ANCHOR)) {
        t->tier_recency = env->alloc(env, p->records_max * sizeof *t->tier_recency);
        if (t->tier_recency == NULL)
            return KVO_E_MEMORY;
    }
    if (!on_medium(s, i))
        return KVO_OK;
    t->policy_pages = (policy_places(g) + 63) / 64;
    t->dirty_bytes = dirty_bytes_for(g);
    t->dirty = env->alloc(env, t->dirty_bytes);
    return t->dirty && store_stale_open(t, env, t->slots) == 0 ? KVO_OK : KVO_E_MEMORY;
}

static int tables(kvo_store *s, const plan *p, kvo_error *error)
{
    base_env *env = s->env;
    s->records_max = p->records_max;
    s->records = env->alloc(env, (size_t)p->records_max * sizeof *s->records);
    s->identities = env->alloc(env, (size_t)p->records_max * sizeof *s->identities);
    s->pins = env->alloc(env, s->options.pins_max * sizeof *s->pins);
    s->holds = env->alloc(env, s->options.holds_max * sizeof *s->holds);
    bool ok = s->records && s->identities && s->pins && s->holds &&
              index_open(&s->index, env, s->records, s->identities, p->records_max) == 0 &&
              place_memory_open(&s->memory, env, remembered_slots(s, p)) == 0 &&
              place_scan_open(&s->scan, env, p->records_max) == 0;
    if (ok && written_out(s)) {
        s->changed_records = env->alloc(env, bits_bytes(p->records_max));
        ok = s->changed_records != NULL;
    }
    for (unsigned i = 0; ok && i < s->tier_count; i++)
        ok = tables_of_tier(s, i, p) == KVO_OK;
    if (!ok)
        return base_fail(error, KVO_E_MEMORY, "no memory for %u control records (%zu bytes)", p->records_max,
                         p->control_bytes);
    KVO_ASSERT(store_control_bytes(s) == p->control_bytes); /* what was taken from the first tier's capacity */
    for (uint32_t i = s->options.pins_max; i-- > 0;) {
        s->pins[i] = (store_pin){.record = BLOCK_NONE, .next = s->pin_free};
        s->pin_free = i + 1;
    }
    for (uint32_t i = s->options.holds_max; i-- > 0;) {
        s->holds[i].next = s->hold_free;
        s->hold_free = i + 1;
    }
    return KVO_OK;
}

static int resize_tiers(kvo_store *s, const plan *p, kvo_error *error)
{
    for (unsigned i = 0; i < s->tier_count && !s->ghost; i++) {
        tier_geometry g = {p->geometry[i].segment_units, p->geometry[i].segment_count, p->geometry[i].last_units};
        int r = tier_resize(s->tiers[i].io, &g, error);
        if (r != KVO_OK)
            return r;
    }
    return KVO_OK;
}

/* ---- the whole ---- */

static void free_if(kvo_store *s, void *memory, size_t bytes)
{
    if (memory)
        s->env->free(s->env, memory, bytes);
}

void store_destroy(kvo_store *s)
{
    store_jobs_close(s);
    store_mover_stop(s);
    store_keeper_stop(s);
    for (unsigned i = 0; i < s->tier_count; i++) {
        store_tier *t = &s->tiers[i];
        tier_close(t->io);
        place_segments_close(&t->space);
        free_if(s, t->queue, PLACE_VICTIMS_MAX * sizeof *t->queue);
        free_if(s, t->queued, bits_bytes(s->records_max));
        free_if(s, t->dirty, t->dirty_bytes);
        store_stale_close(t, s->env);
        free_if(s, t->tier_recency, s->records_max * sizeof *t->tier_recency);
    }
    move_close(s->engine);
    index_close(&s->index);
    place_memory_close(&s->memory);
    place_scan_close(&s->scan);
    free_if(s, s->records, (size_t)s->records_max * sizeof *s->records);
    free_if(s, s->identities, (size_t)s->records_max * sizeof *s->identities);
    free_if(s, s->pins, s->options.pins_max * sizeof *s->pins);
    free_if(s, s->holds, s->options.holds_max * sizeof *s->holds);
    free_if(s, s->changed_records, bits_bytes(s->records_max));
    for (unsigned i = 0; i <= KVO_SPACES_MAX; i++)
        free_if(s, s->spaces[i].record, sizeof *s->spaces[i].record);
    ledger_close(&s->ledger);
    pthread_cond_destroy(&s->keeper_wake);
    pthread_mutex_destroy(&s->keeper_lock);
    pthread_mutex_destroy(&s->flush_lock);
    pthread_mutex_destroy(&s->write_out_lock);
    pthread_cond_destroy(&s->mover_wake);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    s->env->free(s->env, s, sizeof *s);
}

static kvo_store *new_store(base_env *env, const kvo_options *o, uint32_t tier_count)
{
    kvo_store *s = env->alloc(env, sizeof *s);
    if (s == NULL)
        return NULL;
    s->env = env;
    s->process = env->process(env);
    s->options = *o;
    s->ghost = (o->flags & KVO_OPEN_GHOST) != 0;
    s->read_only = (o->flags & KVO_OPEN_READ_ONLY) != 0;
    s->exclusive = o->hierarchy == KVO_EXCLUSIVE;
    s->tier_count = tier_count;
    s->home = KVO_NO_TIER;
    store_clock_start(s, env->wall_s(env));
    s->anchored = !s->exclusive && !KVO_PLANTED(ANCHOR);
    pthread_mutex_init(&s->lock, NULL);
    base_cond_init(&s->changed);
    base_cond_init(&s->mover_wake);
    pthread_mutex_init(&s->write_out_lock, NULL);
    pthread_mutex_init(&s->flush_lock, NULL);
    pthread_mutex_init(&s->keeper_lock, NULL);
    base_cond_init(&s->keeper_wake);
    store_jobs_open(s);
    return s;
}

static bool all_in_memory(const kvo_store *s, const kvo_tier_config *tiers)
{
    bool any = false;
    for (unsigned i = 0; i < s->tier_count; i++) {
        if (tiers[i].kind != KVO_TIER_DISK)
            continue;
        if (s->env->in_memory == NULL || s->env->in_memory(s->env, tiers[i].path) == 0)
            return false;
        any = true;
    }
    return any;
}

/* On a file system in memory io_uring copies in the call that hands a request over, so that nothing is in
   flight while the caller digests. */
static int open_engine(kvo_store *s, const kvo_tier_config *tiers, kvo_error *error)
{
    const kvo_options *o = &s->options;
    bool copies = all_in_memory(s, tiers);
    uint32_t threads = o->io_threads ? o->io_threads : copies ? usual_threads() : USUAL_THREADS;
    move_kind kind = (move_kind)o->io_engine;
    if (kind == MOVE_AUTO && copies && o->block_bytes >= LARGE_BYTES)
        kind = MOVE_AUTO_THREADS;
    int r = move_open(s->env, kind, threads, o->flight_bytes, &s->engine, error);
    if (r == KVO_OK)
        move_on_log(s->engine, o->on_log, o->log_context);
    return r;
}

static int open_stages(kvo_store *s, const kvo_tier_config *tiers, kvo_error *error)
{
    plan p;
    if (ledger_open(&s->ledger, s->env, s->options.tenants_max) != 0)
        return base_fail(error, KVO_E_MEMORY, "no memory for the ledger");
    int r = s->ghost ? KVO_OK : open_engine(s, tiers, error);
    for (unsigned i = 0; r == KVO_OK && i < s->tier_count; i++)
        r = open_tier(s, i, &tiers[i], error);
    if (r == KVO_OK && s->options.block_bytes == 0 && s->home != KVO_NO_TIER && !s->ghost)
        s->options.block_bytes = s->tiers[s->home].io->state.block_bytes;
    if (r == KVO_OK)
        r = plan_once(s, tiers, 0, &p, error);
    if (r == KVO_OK && !s->ghost)
        r = plan_once(s, tiers, p.control_bytes, &p, error);
    if (r == KVO_OK)
        r = tables(s, &p, error);
    if (r == KVO_OK)
        r = resize_tiers(s, &p, error);
    if (r == KVO_OK && s->home != KVO_NO_TIER && !s->ghost)
        store_clock_start(s, s->tiers[s->home].io->state.epoch_s);
    if (r == KVO_OK)
        r = store_spaces_load(s, error);
    if (r == KVO_OK)
        r = store_recover(s, error);
    for (unsigned i = 0; r == KVO_OK && i < s->tier_count && !s->ghost; i++)
        r = tier_begin(s->tiers[i].io, error);
    if (r == KVO_OK)
        r = store_recover_finish(s, error);
    if (r == KVO_OK && !s->ghost && !s->read_only && store_keeper_start(s) != KVO_OK)
        r = base_fail(error, KVO_E_MEMORY, "cannot start the keeper's thread");
    if (r == KVO_OK && store_mover_start(s) != KVO_OK)
        r = base_fail(error, KVO_E_MEMORY, "cannot start the mover's thread");
    return r;
}

int store_open(base_env *env, const kvo_tier_config *tiers, uint32_t count, const kvo_options *options,
               kvo_store **store, kvo_error *error)
{
    kvo_options o = KVO_OPTIONS_INIT;
    kvo_tier_config configs[KVO_TIERS_MAX];
    if (store == NULL)
        return KVO_E_ARGUMENT;
    *store = NULL;
    if (tiers == NULL || count == 0 || count > KVO_TIERS_MAX)
        return base_fail(error, KVO_E_ARGUMENT, "a store has 1 to %d tiers", KVO_TIERS_MAX);
    int r = base_options_take(&o, sizeof o, options);
    if (r != KVO_OK)
        return base_fail(error, r, "options.size is not set, or a newer program uses an option unknown here");
    r = check_options(env, &o, error);
    for (unsigned i = 0; r == KVO_OK && i < count; i++) {
        configs[i] = (kvo_tier_config)KVO_TIER_CONFIG_INIT;
        /* An older program's array has shorter entries. */
        r = base_options_take(&configs[i], sizeof configs[i], (const char *)tiers + i * tiers->size);
        if (r != KVO_OK)
            return base_fail(error, r, "tier %u: its size is not set", i);
        r = check_tier_config(&configs[i], i, &o, error);
    }
    if (r != KVO_OK)
        return r;
    kvo_store *s = new_store(env, &o, count);
    if (s == NULL)
        return base_fail(error, KVO_E_MEMORY, "no memory for the store itself");
    r = open_stages(s, configs, error);
    if (r != KVO_OK) {
        store_destroy(s);
        return r;
    }
    *store = s;
    return KVO_OK;
}

int kvo_open_tiers(const kvo_tier_config *tiers, uint32_t count, const kvo_options *options, kvo_store **store,
                   kvo_error *error)
{
    return store_open(base_env_posix(), tiers, count, options, store, error);
}

int kvo_open(const char *text, const kvo_options *options, kvo_store **store, kvo_error *error)
{
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count;
    char paths[4096];
    if (store)
        *store = NULL;
    if (text == NULL || store == NULL)
        return KVO_E_ARGUMENT;
    int r = kvo_parse_tiers(text, tiers, &count, paths, sizeof paths, error);
    return r == KVO_OK ? kvo_open_tiers(tiers, count, options, store, error) : r;
}

/* ---- closing ---- */

static void abort_reservations(kvo_store *s)
{
    for (uint32_t i = 0; i < atomic_load(&s->record_end); i++) {
        uint64_t life = word_load(&s->records[i].life);
        kvo_reservation open = {.handle = handle_make(i, life_incarnation(life))};
        kvo_answer answer;
        if (life_has(life, LIFE_USED) && !life_has(life, LIFE_SEALED))
            kvo_abort(s, &open, 1, &answer);
    }
}

static int settle(kvo_store *s, uint64_t deadline)
{
    static const kvo_target all = {.by = KVO_BY_ALL};
    int result = store_sync(s, &all, KVO_WRITTEN, deadline, NULL, NULL);
    bool clean = store_invalidate_evicted(s) == 0;
    store_count_gone(s);
    int r = store_write_out(s, false);
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].persistent && tier_flush(s->tiers[t].io) != 0)
            r = KVO_E_IO;
    /* Only what is flushed may be called clean. */
    if (r == KVO_OK && clean) {
        store_checkpoint_write(s);
        r = store_write_out(s, true);
    }
    for (unsigned t = 0; t < s->tier_count; t++)
        if (s->tiers[t].persistent && tier_flush(s->tiers[t].io) != 0)
            r = KVO_E_IO;
    return result != KVO_OK ? result : r;
}

/* All that may wait for a device: in a thread of its own, so that the caller's deadline holds. */
static void *closer(void *argument)
{
    kvo_store *s = argument;
    store_mover_stop(s);
    store_keeper_stop(s);
    int result = written_out(s) ? settle(s, s->close_deadline) : KVO_OK;
    store_lock(s);
    s->close_result = result;
    s->closed = true;
    store_changed(s);
    store_unlock(s);
    return NULL;
}

#define NOBODY (-1)
#define CLOSE_PATIENCE_NS 10000000000u /* at least, for a device that is slow */

/* From here on only kvo_close() comes in. */
static void close_begin(kvo_store *s, uint64_t deadline)
{
    abort_reservations(s);
    s->closing = s->process;
    s->process = NOBODY;
    s->close_deadline = deadline;
    s->closer_runs = written_out(s) && base_thread_start(&s->closer, closer, s) == 0;
    if (!s->closer_runs)
        closer(s);
}

static bool closed_in_time(kvo_store *s, uint64_t deadline)
{
    uint64_t least = store_deadline(s, CLOSE_PATIENCE_NS);
    deadline = deadline < least ? least : deadline;
    store_lock(s);
    while (!s->closed && store_wait(s, deadline))
        continue;
    bool closed = s->closed;
    store_unlock(s);
    return closed;
}

int kvo_close(kvo_store *s, uint64_t deadline_ns)
{
    if (s == NULL)
        return KVO_OK;
    int result = store_enter(s);
    if (result != KVO_OK && result != KVO_E_STATE)
        return result;
    uint64_t deadline = store_deadline(s, deadline_ns);
    if (!s->closing) {
        result = store_queues_close(s, deadline);
        if (result != KVO_OK)
            return result;
        close_begin(s, deadline);
    }
    if (!closed_in_time(s, deadline))
        return KVO_BUSY;
    result = s->close_result;
    if (s->closer_runs)
        pthread_join(s->closer, NULL);
    store_destroy(s);
    return result;
}
