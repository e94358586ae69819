/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "tier/disk/disk.h"
#include "tier/dram/dram.h"
#include "tier/tier.h"
#include "tier/wrap/wrap.h"

const tier_ops *tier_ops_of(int kind)
{
    switch (kind) {
    case KVO_TIER_DRAM:
        return &tier_dram;
    case KVO_TIER_DISK:
        return &tier_disk;
    default:
        return NULL;
    }
}

const tier_ops *tier_wrapper_of(const char *wrappers)
{
    static const tier_ops *const all[] = {&tier_fault, &tier_delay};
    size_t n = strcspn(wrappers, ":+");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i]->kind) == n && memcmp(all[i]->kind, wrappers, n) == 0)
            return all[i];
    return NULL;
}

uint64_t tier_injected(const tier_medium *t)
{
    uint64_t sum = 0;
    for (; t; t = t->behind)
        sum += atomic_load(&t->injected);
    return sum;
}

int tier_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    const kvo_tier_config *c = config->config;
    const tier_ops *ops = c->wrappers ? tier_wrapper_of(c->wrappers) : tier_ops_of(c->kind);
    *out = NULL;
    KVO_ASSERT(ops && ops->size >= sizeof(tier_ops) && ops->api == TIER_API);
    int r = ops->open(config, out, error);
    KVO_ASSERT((r == KVO_OK) == (*out != NULL));
    if (r == KVO_OK)
        KVO_ASSERT((*out)->ops == ops && (!(*out)->facts.persistent || (ops->flush && ops->scan && ops->state_write)));
    return r;
}

int tier_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error)
{
    KVO_ASSERT(t->geometry.segment_units == 0 || t->geometry.segment_units == geometry->segment_units);
    int r = t->ops->resize(t, geometry, error);
    KVO_ASSERT(r != KVO_OK || tier_units(&t->geometry) == tier_units(geometry));
    return r;
}

bool tier_direct_io(tier_medium *t) { return t->ops->direct_io ? t->ops->direct_io(t) : t->facts.direct_io; }

int tier_begin(tier_medium *t, kvo_error *error) { return t->ops->begin ? t->ops->begin(t, error) : KVO_OK; }

void tier_close(tier_medium *t)
{
    if (t)
        t->ops->close(t);
}

static bool slot_fits(const tier_medium *t, uint32_t slot)
{
    return slot < tier_units(&t->geometry);
}

void *tier_memory(tier_medium *t, uint32_t slot)
{
    KVO_ASSERT(t->facts.byte_addressable && slot_fits(t, slot));
    return t->ops->memory(t, slot);
}

const void *tier_readable(tier_medium *t, uint32_t slot)
{
    KVO_ASSERT(t->facts.byte_addressable && slot_fits(t, slot));
    return t->ops->readable(t, slot);
}

tier_stream *tier_stream_open(tier_medium *t, bool write)
{
    tier_stream *stream = t->ops->stream_open(t, write);
    KVO_ASSERT(stream == NULL || (stream->tier == t && stream->write == write && stream->in_flight == 0));
    return stream;
}

void tier_stream_close(tier_stream *stream)
{
    KVO_ASSERT(stream == NULL || stream->in_flight == 0);
    if (stream)
        stream->tier->ops->stream_close(stream);
}

bool tier_stream_full(const tier_stream *stream, uint32_t payload_bytes)
{
    return stream->in_flight && stream->tier->ops->full(stream, payload_bytes);
}

void tier_stream_add(tier_stream *stream, tier_io *io)
{
    const tier_medium *t = stream->tier;
    KVO_ASSERT(slot_fits(t, io->slot) && (io->memory == NULL) != (io->segments == NULL));
    KVO_ASSERT((uintptr_t)io->memory % TIER_UNIT == 0);
    KVO_ASSERT(io->segments == NULL || tier_straight(t, io->segments, io->segment_count));
    KVO_ASSERT(t->facts.header_units + tier_payload_span(io->identity.payload_bytes) / TIER_UNIT <= io->stride);
    io->result = 0;
    io->next = NULL;
    stream->in_flight++;
    stream->tier->ops->add(stream, io);
}

tier_io *tier_stream_next(tier_stream *stream, bool wait)
{
    tier_io *io = stream->in_flight ? stream->tier->ops->next(stream, wait) : NULL;
    KVO_ASSERT(io ? io->result <= 0 : !wait || stream->in_flight == 0);
    stream->in_flight -= io != NULL;
    return io;
}

bool tier_straight(const tier_medium *t, const kvo_segment *segments, uint32_t count)
{
    uint32_t used = 0;
    bool ended = false; /* inside a unit */
    for (uint32_t i = 0; i < count; i++) {
        if (segments[i].bytes == 0)
            continue;
        if (t->facts.alignment == 0 || ended || used++ == TIER_SEGMENTS_MAX ||
            (uintptr_t)segments[i].base % t->facts.alignment)
            return false;
        ended = segments[i].bytes % TIER_UNIT != 0;
    }
    return used > 0;
}

static void run(tier_medium *t, tier_io *ios, size_t count, bool write)
{
    tier_stream *stream = count ? tier_stream_open(t, write) : NULL;
    for (size_t i = 0; i < count; i++) {
        ios[i].result = -ENOMEM;
        while (stream && tier_stream_full(stream, ios[i].identity.payload_bytes))
            tier_stream_next(stream, true);
        if (stream)
            tier_stream_add(stream, &ios[i]);
    }
    while (stream && tier_stream_next(stream, true))
        continue;
    tier_stream_close(stream);
}

void tier_write(tier_medium *t, tier_io *ios, size_t count) { run(t, ios, count, true); }
void tier_read(tier_medium *t, tier_io *ios, size_t count) { run(t, ios, count, false); }

int tier_invalidate(tier_medium *t, const uint32_t *slots, size_t count)
{
    return count && t->facts.persistent ? t->ops->invalidate(t, slots, count) : 0;
}

int tier_flush(tier_medium *t) { return t->facts.persistent ? t->ops->flush(t) : 0; }
