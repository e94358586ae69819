/* SPDX-License-Identifier: Apache-2.0 */
/* What is written about slots: write numbers, headers of slots and segments. */
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/planted.h"
#include "tier/disk/internal.h"

uint64_t disk_checksum(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

void disk_page_seal(void *page)
{
    uint64_t sum = disk_checksum(page, TIER_UNIT - 8);
    memcpy((uint8_t *)page + TIER_UNIT - 8, &sum, 8);
}

bool disk_page_whole(const void *page)
{
    uint64_t sum;
    memcpy(&sum, (const uint8_t *)page + TIER_UNIT - 8, 8);
    return sum == disk_checksum(page, TIER_UNIT - 8);
}

bool disk_page_zero(const void *page)
{
    const uint64_t *w = page;
    for (size_t i = 0; i < TIER_UNIT / 8; i++)
        if (w[i])
            return false;
    return true;
}

/* ---- write numbers: which writes are complete ---- */

uint64_t disk_mark(disk *d)
{
    uint64_t mark = atomic_load(d->write_number);
    for (const disk_writer *w = d->writers; w; w = w->next)
        if (w->lowest <= mark && !KVO_PLANTED(MARK))
            mark = w->lowest - 1;
    /* What it left may look whole. That its header is gone is sure only after a close in order, which needs no mark. */
    return d->failed && d->failed <= mark ? d->failed - 1 : mark;
}

uint64_t disk_numbers_begin(disk *d, size_t count, disk_writer *writer)
{
    pthread_mutex_lock(&d->lock);
    writer->lowest = atomic_fetch_add(d->write_number, count) + 1;
    writer->at = &d->writers;
    writer->next = d->writers;
    if (writer->next)
        writer->next->at = &writer->next;
    d->writers = writer;
    pthread_mutex_unlock(&d->lock);
    return writer->lowest;
}

void disk_numbers_end(disk *d, disk_writer *writer)
{
    pthread_mutex_lock(&d->lock);
    *writer->at = writer->next;
    if (writer->next)
        writer->next->at = writer->at;
    pthread_mutex_unlock(&d->lock);
}

/* ---- segment headers ---- */

static void segment_header_fill(const disk *d, const tier_io *io, disk_segment *page)
{
    memcpy(page->magic, DISK_MAGIC_SEGMENT, 8);
    page->version = DISK_FORMAT_VERSION;
    page->segment = io->segment;
    memcpy(page->uuid, d->super.uuid, 16);
    page->stride = io->stride;
    page->epoch = io->epoch;
    disk_page_seal(page);
}

static int segment_header_write(disk *d, const tier_io *io)
{
    disk_segment *page = d->env->alloc(d->env, TIER_UNIT);
    if (page == NULL)
        return -ENOMEM;
    if (io->stride) /* else all zero: never used */
        segment_header_fill(d, io, page);
    uint64_t offset = (uint64_t)io->segment * d->tier.geometry.segment_units * TIER_UNIT;
    int r = disk_pages_write(d, d->data_file, offset, page, TIER_UNIT);
    d->env->free(d->env, page, TIER_UNIT);
    return r;
}

/* Flushed before a slot of that stride is written: if a power cut took the header and left the slot, nobody would see
   that block, with a write number that is given out again, until the segment has the same stride and epoch once more,
   and then it would be back from before whatever was done to it. A segment changes rarely.
   The lock is the tier's own and is held over both, so that a second writer waits for them. */
int disk_segment_ready(disk *d, const tier_io *io)
{
    disk_segment_now *now = &d->on_medium[io->segment];
    int r = 0;
    pthread_mutex_lock(&d->lock);
    bool late = disk_epoch_before(io->epoch, now->epoch); /* epochs only rise */
    if (!late && (!now->known || now->stride != io->stride || now->epoch != io->epoch)) {
        r = segment_header_write(d, io);
        if (r == 0)
            r = d->env->flush(d->env, d->data_file);
        *now = (disk_segment_now){io->stride, io->epoch, r == 0};
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

int disk_segment_write(tier_medium *t, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    tier_io io = {.segment = segment, .stride = stride, .epoch = epoch};
    return disk_segment_ready(disk_of(t), &io);
}

/* ---- slots ---- */

void disk_header_fill(const disk *d, const tier_io *io, uint64_t number, disk_slot *h)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, DISK_MAGIC_SLOT, 8);
    h->version = DISK_FORMAT_VERSION;
    h->slot = io->slot;
    memcpy(h->uuid, d->super.uuid, 16);
    h->write_number = number;
    h->stride = io->stride;
    h->epoch = io->epoch;
    h->rewrites = io->rewrites;
    h->format = io->format;
    memcpy(h->delta, io->delta, sizeof io->delta);
    h->policy = io->policy;
    h->touch = io->touch;
    h->stored_bytes = io->identity.payload_bytes;
    memcpy(h->space_digest, io->space_digest, 32);
    h->identity = io->identity;
    disk_page_seal(h);
}

int disk_header_check(const disk *d, const tier_io *io, const disk_slot *h)
{
    if (!disk_page_whole(h) || memcmp(h->magic, DISK_MAGIC_SLOT, 8) != 0)
        return -EBADMSG;
    if (h->slot != io->slot || memcmp(h->uuid, d->super.uuid, 16) != 0 || h->epoch != io->epoch)
        return -EBADMSG;
    if ((uint8_t)h->write_number != io->generation || memcmp(&h->identity, &io->identity, sizeof h->identity) != 0)
        return -EBADMSG;
    return 0;
}

/* It keeps stride and epoch: with the segment's header damaged, they tell that earlier ones are void. */
static void dead_fill(disk *d, uint32_t slot, uint64_t number, disk_slot *h)
{
    pthread_mutex_lock(&d->lock);
    disk_segment_now now = d->on_medium[slot / d->tier.geometry.segment_units];
    pthread_mutex_unlock(&d->lock);
    memset(h, 0, sizeof *h);
    memcpy(h->magic, DISK_MAGIC_DEAD, 8);
    h->version = DISK_FORMAT_VERSION;
    h->slot = slot;
    memcpy(h->uuid, d->super.uuid, 16);
    h->write_number = number;
    h->stride = now.stride;
    h->epoch = now.epoch;
    disk_page_seal(h);
}

static int invalidate_batch(disk *d, const uint32_t *slots, size_t count, disk_slot *pages)
{
    move_transfer transfers[DISK_BATCH];
    disk_writer writer;
    uint64_t number = disk_numbers_begin(d, count, &writer);
    for (size_t i = 0; i < count; i++) {
        dead_fill(d, slots[i], number + i, &pages[i]);
        transfers[i] = (move_transfer){.file = d->data_file,
                                       .write = true,
                                       .piece_count = 1,
                                       .pieces = {{&pages[i], TIER_UNIT}},
                                       .offset = (uint64_t)slots[i] * TIER_UNIT};
    }
    move_run(d->engine, transfers, count);
    int result = 0;
    for (size_t i = 0; i < count; i++)
        if (transfers[i].result != TIER_UNIT)
            result = transfers[i].result < 0 ? (int)transfers[i].result : -EIO;
    disk_numbers_end(d, &writer);
    d->account.add(d->account.context, true, count * TIER_UNIT, 0);
    return result;
}

int disk_invalidate(tier_medium *t, const uint32_t *slots, size_t count)
{
    disk *d = disk_of(t);
    size_t most = count < DISK_BATCH ? count : DISK_BATCH;
    disk_slot *pages = d->env->alloc(d->env, most * TIER_UNIT);
    if (pages == NULL)
        return -ENOMEM;
    int result = 0;
    for (size_t i = 0; i < count; i += DISK_BATCH) {
        int r = invalidate_batch(d, slots + i, count - i < DISK_BATCH ? count - i : DISK_BATCH, pages);
        if (r != 0)
            result = r;
    }
    d->env->free(d->env, pages, most * TIER_UNIT);
    return result;
}

int disk_pad(tier_medium *t, uint32_t slot, uint32_t payload_bytes, const void *last_unit)
{
    disk *d = disk_of(t);
    uint64_t end = (uint64_t)(slot + 1) * TIER_UNIT + tier_payload_span(payload_bytes);
    return disk_pages_write(d, d->data_file, end - TIER_UNIT, last_unit, TIER_UNIT);
}
