/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/dram/dram.h"

#include <stdatomic.h>
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
    d->tier.control_bytes = sizeof *d;
    d->env = config->env;
    *out = &d->tier;
    return KVO_OK;
}

/* The kernel gives the addresses, and kills who then uses them. */
static int check_limits(const dram *d, kvo_error *error)
{
    base_limits limits = {UINT64_MAX, UINT64_MAX};
    if (d->env->limits)
        d->env->limits(d->env, &limits);
    if (d->bytes > limits.memory_bytes)
        return base_fail(error, KVO_E_MEMORY,
                         "dram: needs an arena of %zu bytes, and the machine, or the cgroup, has %llu: give the tier "
                         "less",
                         d->bytes, (unsigned long long)limits.memory_bytes);
    if (d->bytes > limits.file_bytes)
        return base_fail(error, KVO_E_MEMORY,
                         "dram: needs an arena of %zu bytes, and this process may have files and shared memory of %llu "
                         "(ulimit -f): raise that, or give the tier less",
                         d->bytes, (unsigned long long)limits.file_bytes);
    return KVO_OK;
}

static int dram_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error)
{
    dram *d = (dram *)t;
    void *writable;
    const void *readable;
    d->bytes = tier_units(geometry) * TIER_UNIT;
    int r = check_limits(d, error);
    if (r != KVO_OK)
        return r;
    r = d->env->map_arena(d->env, d->bytes, &writable, &readable);
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

/* To and from a second memory tier: the payload is copied at once; there is no header to keep. */
typedef struct dram_stream {
    tier_stream base;
    tier_io *finished;
} dram_stream;

static tier_stream *dram_stream_open(tier_medium *t, bool write)
{
    base_env *env = ((dram *)t)->env;
    dram_stream *stream = env->alloc(env, sizeof *stream);
    if (stream)
        stream->base = (tier_stream){.tier = t, .write = write};
    return stream ? &stream->base : NULL;
}

static void dram_stream_close(tier_stream *stream)
{
    base_env *env = ((dram *)stream->tier)->env;
    env->free(env, stream, sizeof(dram_stream));
}

static bool dram_full(const tier_stream *stream, uint32_t payload_bytes)
{
    (void)stream, (void)payload_bytes;
    return false;
}

static void dram_add(tier_stream *stream, tier_io *io)
{
    dram_stream *d = (dram_stream *)stream;
    void *mine = dram_memory(stream->tier, io->slot);
    memcpy(stream->write ? mine : io->memory, stream->write ? io->memory : mine,
           tier_payload_span(io->identity.payload_bytes));
    io->generation = 0;
    io->next = d->finished;
    d->finished = io;
    atomic_fetch_add(&stream->tier->copies, 1);
}

static tier_io *dram_next(tier_stream *stream, bool wait)
{
    dram_stream *d = (dram_stream *)stream;
    tier_io *io = d->finished;
    (void)wait;
    d->finished = io->next;
    return io;
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
    .stream_open = dram_stream_open,
    .stream_close = dram_stream_close,
    .full = dram_full,
    .add = dram_add,
    .next = dram_next,
};
