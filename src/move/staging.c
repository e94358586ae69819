/* SPDX-License-Identifier: Apache-2.0 */
/* One region, cut in units, given out in runs of them. */
#include "base/bits.h"
#include "move/internal.h"

#define UNIT 16384u
#define REGION_MAX (64u << 20)

void move_staging_open(move_engine *e)
{
    move_staging *m = &e->staging;
    pthread_mutex_init(&m->lock, NULL);
    m->bytes = (e->flight_max < REGION_MAX ? e->flight_max : REGION_MAX) / UNIT * UNIT;
}

static size_t all_bytes(const move_staging *m) { return m->bytes + (m->bytes / UNIT / 64 + 1) * 8; }

void move_staging_close(move_engine *e)
{
    move_staging *m = &e->staging;
    uint8_t *region = atomic_load(&m->region);
    if (region)
        e->env->free(e->env, region, all_bytes(m));
    pthread_mutex_destroy(&m->lock);
}

bool move_staging_holds(const move_engine *e, const void *memory)
{
    const uint8_t *region = atomic_load(&e->staging.region);
    return region && (const uint8_t *)memory >= region && (const uint8_t *)memory < region + e->staging.bytes;
}

/* Under the lock. */
static bool region_make(move_engine *e)
{
    move_staging *m = &e->staging;
    if (atomic_load(&m->region))
        return true;
    uint8_t *region = m->bytes ? e->env->alloc(e->env, all_bytes(m)) : NULL;
    if (region == NULL)
        return false;
    m->used = (uint64_t *)(void *)(region + m->bytes);
    atomic_store(&m->region, region);
    return true;
}

/* The lowest run of free units, so that what is used again is what the caches have; or the end. */
static uint32_t find_run(const move_staging *m, uint32_t units)
{
    uint32_t run = 0, all = (uint32_t)(m->bytes / UNIT);
    for (uint32_t i = 0; i < all; i++) {
        if (i % 64 == 0 && m->used[i / 64] == UINT64_MAX) {
            run = 0;
            i += 63;
            continue;
        }
        run = bits_get(m->used, i) ? 0 : run + 1;
        if (run == units)
            return i + 1 - units;
    }
    return all;
}

static void *take_run(move_engine *e, uint32_t units)
{
    move_staging *m = &e->staging;
    uint32_t at = find_run(m, units);
    if (at == m->bytes / UNIT)
        return NULL;
    for (uint32_t i = at; i < at + units; i++)
        bits_set(m->used, i);
    return atomic_load(&m->region) + (size_t)at * UNIT;
}

void *move_staging_take(move_engine *e, size_t bytes, bool must)
{
    move_staging *m = &e->staging;
    void *memory = NULL;
    pthread_mutex_lock(&m->lock);
    if (bytes <= m->bytes && region_make(e))
        memory = take_run(e, (uint32_t)((bytes + UNIT - 1) / UNIT));
    pthread_mutex_unlock(&m->lock);
    return memory || !must ? memory : e->env->alloc(e->env, bytes);
}

void move_staging_give(move_engine *e, void *memory, size_t bytes)
{
    move_staging *m = &e->staging;
    if (!move_staging_holds(e, memory)) {
        e->env->free(e->env, memory, bytes);
        return;
    }
    uint32_t at = (uint32_t)((size_t)((uint8_t *)memory - atomic_load(&m->region)) / UNIT);
    pthread_mutex_lock(&m->lock);
    for (uint32_t i = at; i < at + (bytes + UNIT - 1) / UNIT; i++) {
        KVO_ASSERT(bits_get(m->used, i));
        bits_clear(m->used, i);
    }
    pthread_mutex_unlock(&m->lock);
}
