/* SPDX-License-Identifier: Apache-2.0 */
#include "place/memory.h"

#include <errno.h>

#include "base/check.h"

enum { WAYS = 16, AGES = 4096, LIVE_AGES = 2048, TAG_SHIFT = 14, USES_SHIFT = 12 };

static uint32_t buckets_for(uint64_t slots)
{
    uint64_t n = slots * 8 / WAYS + 1;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

size_t place_memory_bytes_for(uint64_t slots)
{
    return slots ? (size_t)buckets_for(slots) * WAYS * sizeof(uint32_t) : 0;
}

int place_memory_open(place_memory *m, base_env *env, uint64_t slots)
{
    *m = (place_memory){.env = env, .bytes = place_memory_bytes_for(slots)};
    if (slots == 0)
        return 0;
    m->bucket_count = buckets_for(slots);
    m->window = slots * 8;
    m->age_unit = m->window / LIVE_AGES + 1;
    m->entries = env->alloc(env, m->bytes);
    return m->entries ? 0 : -ENOMEM;
}

void place_memory_close(place_memory *m)
{
    if (m->entries)
        m->env->free(m->env, m->entries, m->bytes);
    m->entries = NULL;
}

static uint32_t *bucket_of(place_memory *m, uint64_t hash)
{
    return m->entries + (size_t)(((hash & 0xffffffffu) * m->bucket_count) >> 32) * WAYS;
}

/* Never 0, so that an entry is never 0 either. */
static uint32_t tag_of(uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 46);
    return tag ? tag : 1;
}

static uint32_t age_at(const place_memory *m, uint64_t reference)
{
    return (uint32_t)(reference / m->age_unit) & (AGES - 1);
}

/* Steps since the entry was made. The counter of ages wraps at twice the window; an entry that
   nothing replaced for that long looks young again, which costs one wrong use count. */
static uint32_t steps_since(uint32_t entry, uint32_t now) { return (now - entry) & (AGES - 1); }

void place_memory_put(place_memory *m, uint64_t key_hash, uint32_t uses, uint64_t reference)
{
    if (m->entries == NULL || uses == 0)
        return;
    uint32_t *bucket = bucket_of(m, key_hash), tag = tag_of(key_hash), now = age_at(m, reference);
    uint32_t oldest = 0, oldest_steps = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (bucket[i] == 0 || bucket[i] >> TAG_SHIFT == tag) {
            oldest = i;
            break;
        }
        uint32_t steps = steps_since(bucket[i], now);
        if (steps >= oldest_steps) {
            oldest = i;
            oldest_steps = steps;
        }
    }
    bucket[oldest] = tag << TAG_SHIFT | ((uses > 4 ? 4 : uses) - 1) << USES_SHIFT | now;
}

uint32_t place_memory_take(place_memory *m, uint64_t key_hash, uint64_t reference)
{
    if (m->entries == NULL)
        return 0;
    uint32_t *bucket = bucket_of(m, key_hash), tag = tag_of(key_hash), now = age_at(m, reference);
    for (uint32_t i = 0; i < WAYS; i++) {
        uint32_t entry = bucket[i];
        if (entry == 0 || entry >> TAG_SHIFT != tag)
            continue;
        bucket[i] = 0;
        return steps_since(entry, now) > LIVE_AGES ? 0 : (entry >> USES_SHIFT & 3u) + 1;
    }
    return 0;
}
