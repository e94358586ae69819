/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/dram/dram.h"

#include <string.h>

#include "base/status.h"

typedef struct dram {
    tier_medium tier;
    base_env *env;
    uint8_t *writable;
    const uint8_t *readable;
    size_t bytes;
} dram;

static int dram_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    dram *d = config->env->alloc(config->env, sizeof *d);
    if (d == NULL)
        return base_fail(error, KVO_E_MEMORY, "dram: no memory for the tier itself");
    d->tier.ops = &tier_dram;
    d->tier.facts = (tier_facts){.byte_addressable = true};
    d->env = config->env;
    *out = &d->tier;
    return KVO_OK;
}

static int dram_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error)
{
    dram *d = (dram *)t;
    void *writable;
    const void *readable;
    d->bytes = tier_units(geometry) * TIER_UNIT;
    int r = d->env->map_arena(d->env, d->bytes, &writable, &readable);
    if (r != 0)
        return base_fail(error, base_status_of_errno(r),
                         "dram: cannot map an arena of %zu bytes (%s): give the tier less", d->bytes, strerror(-r));
    d->writable = writable;
    d->readable = readable;
    t->geometry = *geometry;
    t->data_bytes = d->bytes;
    return KVO_OK;
}

static void dram_close(tier_medium *t)
{
    dram *d = (dram *)t;
    if (d->writable)
        d->env->unmap_arena(d->env, d->bytes, d->writable, d->readable);
    d->env->free(d->env, d, sizeof *d);
}

static void *dram_memory(tier_medium *t, uint32_t slot) { return ((dram *)t)->writable + (uint64_t)slot * TIER_UNIT; }

static const void *dram_readable(tier_medium *t, uint32_t slot)
{
    return ((dram *)t)->readable + (uint64_t)slot * TIER_UNIT;
}

/* Into a second memory tier: the payload is copied; there is no header to keep. */
static void dram_write(tier_medium *t, tier_io *ios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(dram_memory(t, ios[i].slot), ios[i].memory, tier_payload_span(ios[i].identity.payload_bytes));
        ios[i].generation = 0;
        ios[i].result = 0;
    }
}

static void dram_read(tier_medium *t, tier_io *ios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(ios[i].memory, dram_memory(t, ios[i].slot), tier_payload_span(ios[i].identity.payload_bytes));
        ios[i].result = 0;
    }
}

const tier_ops tier_dram = {
    .size = sizeof(tier_ops),
    .api = TIER_API,
    .kind = "dram",
    .open = dram_open,
    .resize = dram_resize,
    .close = dram_close,
    .memory = dram_memory,
    .readable = dram_readable,
    .write = dram_write,
    .read = dram_read,
};
