/* SPDX-License-Identifier: Apache-2.0 */
/* What the medium says: all segment and slot headers, in order of place. */
#include <errno.h>
#include <string.h>

#include "tier/disk/internal.h"

typedef struct scan {
    disk *d;
    int (*segment)(void *context, uint32_t segment, uint32_t stride, uint32_t epoch);
    int (*each)(void *context, const tier_slot *slot);
    void *context;
    uint8_t *pages; /* DISK_BATCH of them */
} scan;

static uint32_t units_in(const tier_geometry *g, uint32_t segment)
{
    return segment + 1 == g->segment_count ? g->last_units : g->segment_units;
}

static uint32_t units_of(const disk *d, uint32_t segment) { return units_in(&d->tier.geometry, segment); }

uint32_t disk_slots_of(const tier_geometry *g, uint32_t segment, uint32_t stride)
{
    return stride < 2 ? 0 : (units_in(g, segment) - 1) / stride;
}

/* Reads one page at each of `count` places. */
static int read_pages(scan *s, const uint64_t *units, size_t count)
{
    move_transfer transfers[DISK_BATCH];
    for (size_t i = 0; i < count; i++)
        transfers[i] = (move_transfer){.file = s->d->data_file,
                                       .piece_count = 1,
                                       .pieces = {{s->pages + i * TIER_UNIT, TIER_UNIT}},
                                       .offset = units[i] * TIER_UNIT};
    move_run(s->d->engine, transfers, count);
    s->d->account.add(s->d->account.context, false, count * TIER_UNIT, 0);
    for (size_t i = 0; i < count; i++) {
        if (transfers[i].result < 0 && transfers[i].result != -EIO)
            return (int)transfers[i].result;
        /* A page that cannot be read, or lies past the end of the file, is treated as damaged. */
        if (transfers[i].result != TIER_UNIT)
            memset(s->pages + i * TIER_UNIT, 0xff, TIER_UNIT);
    }
    return 0;
}

static tier_slot slot_of(const disk_slot *h, uint32_t slot, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    tier_slot out = {.state = TIER_SLOT_LIVE, .slot = slot, .segment = segment, .stride = stride, .epoch = epoch};
    out.write_number = h->write_number;
    out.identity = h->identity;
    memcpy(out.space_digest, h->space_digest, 32);
    out.policy = h->policy;
    out.touch = h->touch;
    out.rewrites = h->rewrites;
    out.format = h->format;
    memcpy(out.delta, h->delta, sizeof out.delta);
    return out;
}

bool disk_identity_fits(const block_identity *i, uint32_t stride)
{
    return i->name_bytes >= KVO_NAME_BYTES_MIN && i->name_bytes <= KVO_NAME_BYTES_MAX && i->payload_bytes != 0 &&
           1 + tier_payload_span(i->payload_bytes) / TIER_UNIT <= stride && i->key_hash == identity_hash(i);
}

static const char *wrong_with(const disk *d, const disk_slot *h, bool whole, uint32_t slot, uint32_t stride)
{
    if (!whole)
        return "header checksum";
    if (h->version != DISK_FORMAT_VERSION)
        return "header version";
    if (h->slot != slot || memcmp(h->uuid, d->super.uuid, 16) != 0)
        return "header of another place or store";
    if (memcmp(h->magic, DISK_MAGIC_SLOT, 8) != 0)
        return "header magic";
    if (h->stride != stride || h->stored_bytes != h->identity.payload_bytes || !disk_identity_fits(&h->identity, stride))
        return "header contents";
    return NULL;
}

static bool belongs_here(const disk *d, const disk_slot *h, uint32_t slot)
{
    return h->slot == slot && memcmp(h->uuid, d->super.uuid, 16) == 0;
}

/* Where the segment had another slot size before, a slot that was not written since begins with
   whatever lay there. A header that is damaged still shows two of its fields, or its first. */
static bool never_written(const disk *d, const disk_slot *h, uint32_t slot, uint32_t epoch)
{
    return epoch > 1 && memcmp(h->magic, DISK_MAGIC_SLOT, 8) != 0 && memcmp(h->magic, DISK_MAGIC_DEAD, 8) != 0 &&
           !belongs_here(d, h, slot);
}

/* Live, dead, never used, or bad; calls each() for live and bad ones. */
static int judge_slot(scan *s, const disk_slot *h, uint32_t slot, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    if (disk_page_zero(h))
        return 0;
    bool whole = disk_page_whole(h);
    bool ours = whole && belongs_here(s->d, h, slot);
    if (ours && memcmp(h->magic, DISK_MAGIC_DEAD, 8) == 0)
        return 0;
    /* Left by a segment that had another slot size before. */
    if (ours && memcmp(h->magic, DISK_MAGIC_SLOT, 8) == 0 && h->epoch != epoch)
        return 0;
    if (never_written(s->d, h, slot, epoch))
        return 0;
    tier_slot out = slot_of(h, slot, segment, stride, epoch);
    out.what = wrong_with(s->d, h, whole, slot, stride);
    out.state = out.what ? TIER_SLOT_BAD : TIER_SLOT_LIVE;
    out.unfinished = s->d->crashed && h->write_number > s->d->mark;
    return s->each(s->context, &out);
}

static int scan_slots(scan *s, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    uint64_t units[DISK_BATCH];
    uint64_t first = (uint64_t)segment * s->d->tier.geometry.segment_units + 1;
    uint32_t slots = disk_slots_of(&s->d->tier.geometry, segment, stride);
    for (uint32_t i = 0; i < slots; i += DISK_BATCH) {
        uint32_t n = slots - i < DISK_BATCH ? slots - i : DISK_BATCH;
        for (uint32_t k = 0; k < n; k++)
            units[k] = first + (uint64_t)(i + k) * stride;
        int r = read_pages(s, units, n);
        for (uint32_t k = 0; r == 0 && k < n; k++)
            r = judge_slot(s, (const disk_slot *)(void *)(s->pages + k * TIER_UNIT), (uint32_t)units[k], segment,
                           stride, epoch);
        if (r != 0)
            return r;
    }
    return 0;
}

/* The segment's header is damaged: any whole slot header in it, dead or not, tells stride and epoch. */
static int rescue(scan *s, uint32_t segment, uint32_t *stride, uint32_t *epoch)
{
    uint64_t units[DISK_BATCH];
    uint64_t first = (uint64_t)segment * s->d->tier.geometry.segment_units;
    for (uint32_t at = 1; at < units_of(s->d, segment); at += DISK_BATCH) {
        uint32_t n = units_of(s->d, segment) - at < DISK_BATCH ? units_of(s->d, segment) - at : DISK_BATCH;
        for (uint32_t k = 0; k < n; k++)
            units[k] = first + at + k;
        int r = read_pages(s, units, n);
        if (r != 0)
            return r;
        for (uint32_t k = 0; k < n; k++) {
            const disk_slot *h = (const disk_slot *)(void *)(s->pages + k * TIER_UNIT);
            bool header = memcmp(h->magic, DISK_MAGIC_SLOT, 8) == 0 || memcmp(h->magic, DISK_MAGIC_DEAD, 8) == 0;
            if (header && disk_page_whole(h) && belongs_here(s->d, h, (uint32_t)units[k]) && h->epoch > *epoch &&
                h->stride >= 2 && (at + k - 1) % h->stride == 0) {
                *stride = h->stride;
                *epoch = h->epoch;
            }
        }
    }
    return 0;
}

static int scan_segment(scan *s, uint32_t segment, const disk_segment *h)
{
    uint32_t stride = 0, epoch = 0;
    if (disk_page_zero(h))
        return 0;
    bool whole = disk_page_whole(h) && memcmp(h->magic, DISK_MAGIC_SEGMENT, 8) == 0 &&
                 h->version == DISK_FORMAT_VERSION && h->segment == segment &&
                 memcmp(h->uuid, s->d->super.uuid, 16) == 0;
    if (whole) {
        stride = h->stride;
        epoch = h->epoch;
    } else {
        tier_slot bad = {.state = TIER_SEGMENT_BAD, .segment = segment, .what = "segment header"};
        bad.slot = (uint32_t)((uint64_t)segment * s->d->tier.geometry.segment_units);
        int r = s->each(s->context, &bad);
        if (r == 0)
            r = rescue(s, segment, &stride, &epoch);
        if (r != 0 || stride == 0)
            return r;
    }
    s->d->on_medium[segment] = (disk_segment_now){stride, epoch, whole};
    /* Also where the slots do not fit a last segment that became shorter: the epoch goes on from here. */
    int r = s->segment(s->context, segment, stride, epoch);
    if (r != 0 || stride < 2 || stride > units_of(s->d, segment) - 1)
        return r;
    return scan_slots(s, segment, stride, epoch);
}

int disk_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t), int (*each)(void *, const tier_slot *),
              void *context)
{
    disk *d = disk_of(t);
    if (d->half_created)
        return 0;
    memset(d->on_medium, 0, d->on_medium_bytes);
    scan s = {.d = d, .segment = segment, .each = each, .context = context};
    uint8_t *header = d->env->alloc(d->env, TIER_UNIT);
    s.pages = d->env->alloc(d->env, DISK_BATCH * TIER_UNIT);
    int r = header && s.pages ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < t->geometry.segment_count; i++) {
        uint64_t unit = (uint64_t)i * t->geometry.segment_units;
        r = read_pages(&s, &unit, 1);
        if (r == 0) {
            memcpy(header, s.pages, TIER_UNIT);
            r = scan_segment(&s, i, (const disk_segment *)(void *)header);
        }
    }
    if (header)
        d->env->free(d->env, header, TIER_UNIT);
    if (s.pages)
        d->env->free(d->env, s.pages, DISK_BATCH * TIER_UNIT);
    return r;
}
