/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "tier/disk/disk.h"
#include "tier/dram/dram.h"
#include "tier/tier.h"

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

int tier_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    const tier_ops *ops = tier_ops_of(config->config->kind);
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

static void check_ios(const tier_medium *t, const tier_io *ios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        KVO_ASSERT(slot_fits(t, ios[i].slot));
        KVO_ASSERT((uintptr_t)ios[i].memory % TIER_UNIT == 0);
        KVO_ASSERT(t->facts.header_units + tier_payload_span(ios[i].identity.payload_bytes) / TIER_UNIT <=
                   ios[i].stride);
    }
}

void tier_write(tier_medium *t, tier_io *ios, size_t count)
{
    check_ios(t, ios, count);
    t->ops->write(t, ios, count);
    for (size_t i = 0; i < count; i++)
        KVO_ASSERT(ios[i].result <= 0);
}

void tier_read(tier_medium *t, tier_io *ios, size_t count)
{
    check_ios(t, ios, count);
    t->ops->read(t, ios, count);
    for (size_t i = 0; i < count; i++)
        KVO_ASSERT(ios[i].result <= 0);
}

int tier_invalidate(tier_medium *t, const uint32_t *slots, size_t count)
{
    return count && t->facts.persistent ? t->ops->invalidate(t, slots, count) : 0;
}

int tier_flush(tier_medium *t) { return t->facts.persistent ? t->ops->flush(t) : 0; }
