/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks to and from their slots: header page and payload in one request each. */
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
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
    for (unsigned i = 0; i < DISK_WRITERS; i++)
        if (d->writing[i] && d->writing[i] <= mark)
            mark = d->writing[i] - 1;
    return mark;
}

static unsigned free_place(const disk *d)
{
    unsigned place = 0;
    while (place < DISK_WRITERS && d->writing[place])
        place++;
    return place;
}

/* The first of `count` new write numbers, and a place in the list of batches on their way. */
static uint64_t numbers_begin(disk *d, size_t count, unsigned *place)
{
    pthread_mutex_lock(&d->lock);
    while ((*place = free_place(d)) == DISK_WRITERS)
        pthread_cond_wait(&d->writer_left, &d->lock);
    uint64_t first = atomic_fetch_add(d->write_number, count) + 1;
    d->writing[*place] = first;
    pthread_mutex_unlock(&d->lock);
    return first;
}

static void numbers_end(disk *d, unsigned place)
{
    pthread_mutex_lock(&d->lock);
    d->writing[place] = 0;
    pthread_cond_signal(&d->writer_left);
    pthread_mutex_unlock(&d->lock);
}

/* ---- segment headers ---- */

static int segment_header_write(disk *d, const tier_io *io)
{
    disk_segment *page = d->env->alloc(d->env, TIER_UNIT);
    if (page == NULL)
        return -ENOMEM;
    memcpy(page->magic, DISK_MAGIC_SEGMENT, 8);
    page->version = DISK_FORMAT_VERSION;
    page->segment = io->segment;
    memcpy(page->uuid, d->super.uuid, 16);
    page->stride = io->stride;
    page->epoch = io->epoch;
    disk_page_seal(page);
    uint64_t offset = (uint64_t)io->segment * d->tier.geometry.segment_units * TIER_UNIT;
    int r = disk_pages_write(d, d->data_file, offset, page, TIER_UNIT);
    d->env->free(d->env, page, TIER_UNIT);
    return r;
}

/* A segment says its slot size before a slot of that size is written into it. The lock is the
   tier's own and is held over the page's write, so that a second writer waits for it. */
static int segment_ready(disk *d, const tier_io *io)
{
    disk_segment_now *now = &d->on_medium[io->segment];
    int r = 0;
    pthread_mutex_lock(&d->lock);
    /* Epochs only rise: an older one comes late. */
    if (now->epoch <= io->epoch && (!now->known || now->stride != io->stride || now->epoch != io->epoch)) {
        r = segment_header_write(d, io);
        *now = (disk_segment_now){io->stride, io->epoch, r == 0};
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

int disk_segment_write(tier_medium *t, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    tier_io io = {.segment = segment, .stride = stride, .epoch = epoch};
    return segment_ready(disk_of(t), &io);
}

/* ---- slots ---- */

static void header_fill(const disk *d, const tier_io *io, uint64_t number, disk_slot *h)
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

static move_transfer transfer_of(disk *d, tier_io *io, disk_slot *header, bool write)
{
    uint64_t span = tier_payload_span(io->identity.payload_bytes);
    return (move_transfer){
        .file = d->data_file,
        .write = write,
        .piece_count = 2,
        .pieces = {{header, TIER_UNIT}, {io->memory, span}},
        .offset = (uint64_t)io->slot * TIER_UNIT,
    };
}

static int outcome(const move_transfer *t, const tier_io *io)
{
    if (t->result < 0)
        return (int)t->result;
    uint64_t all = TIER_UNIT + tier_payload_span(io->identity.payload_bytes);
    return (uint64_t)t->result == all ? 0 : -EIO;
}

static void count_transfers(disk *d, const move_transfer *transfers, size_t count)
{
    uint64_t submissions = 0;
    for (size_t i = 0; i < count; i++)
        submissions += transfers[i].submissions;
    atomic_fetch_add(&d->tier.transfers, count);
    atomic_fetch_add(&d->tier.submissions, submissions);
}

static void write_batch(disk *d, tier_io *ios, size_t count, disk_slot *headers)
{
    move_transfer transfers[DISK_BATCH];
    size_t which[DISK_BATCH], n = 0;
    unsigned place;
    uint64_t number = numbers_begin(d, count, &place);
    for (size_t i = 0; i < count; i++) {
        ios[i].result = segment_ready(d, &ios[i]);
        if (ios[i].result != 0)
            continue;
        header_fill(d, &ios[i], number + i, &headers[n]);
        ios[i].generation = (uint8_t)(number + i);
        transfers[n] = transfer_of(d, &ios[i], &headers[n], true);
        which[n++] = i;
    }
    move_run(d->engine, transfers, n);
    count_transfers(d, transfers, n);
    uint64_t metadata = 0, padding = 0;
    for (size_t k = 0; k < n; k++) {
        tier_io *io = &ios[which[k]];
        io->result = outcome(&transfers[k], io);
        metadata += TIER_UNIT;
        padding += tier_payload_span(io->identity.payload_bytes) - io->identity.payload_bytes;
    }
    numbers_end(d, place);
    d->account.add(d->account.context, true, metadata, padding);
}

/* The header must be this block's, here, whole, and of the write that memory knows. */
static int header_check(const disk *d, const tier_io *io, const disk_slot *h)
{
    if (!disk_page_whole(h) || memcmp(h->magic, DISK_MAGIC_SLOT, 8) != 0)
        return -EBADMSG;
    if (h->slot != io->slot || memcmp(h->uuid, d->super.uuid, 16) != 0 || h->epoch != io->epoch)
        return -EBADMSG;
    if ((uint8_t)h->write_number != io->generation || memcmp(&h->identity, &io->identity, sizeof h->identity) != 0)
        return -EBADMSG;
    return 0;
}

static void read_batch(disk *d, tier_io *ios, size_t count, disk_slot *headers)
{
    move_transfer transfers[DISK_BATCH];
    for (size_t i = 0; i < count; i++)
        transfers[i] = transfer_of(d, &ios[i], &headers[i], false);
    move_run(d->engine, transfers, count);
    count_transfers(d, transfers, count);
    for (size_t i = 0; i < count; i++) {
        ios[i].result = outcome(&transfers[i], &ios[i]);
        if (ios[i].result == 0)
            ios[i].result = header_check(d, &ios[i], &headers[i]);
    }
    d->account.add(d->account.context, false, count * TIER_UNIT, 0);
}

static void in_batches(disk *d, tier_io *ios, size_t count,
                       void (*batch)(disk *, tier_io *, size_t, disk_slot *))
{
    size_t most = count < DISK_BATCH ? count : DISK_BATCH;
    disk_slot *headers = count ? d->env->alloc(d->env, most * TIER_UNIT) : NULL;
    for (size_t i = 0; i < count; i += DISK_BATCH) {
        size_t n = count - i < DISK_BATCH ? count - i : DISK_BATCH;
        if (headers)
            batch(d, ios + i, n, headers);
        for (size_t k = 0; headers == NULL && k < n; k++)
            ios[i + k].result = -ENOMEM;
    }
    if (headers)
        d->env->free(d->env, headers, most * TIER_UNIT);
}

void disk_write(tier_medium *t, tier_io *ios, size_t count) { in_batches(disk_of(t), ios, count, write_batch); }
void disk_read(tier_medium *t, tier_io *ios, size_t count) { in_batches(disk_of(t), ios, count, read_batch); }

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
    unsigned place;
    uint64_t number = numbers_begin(d, count, &place);
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
    numbers_end(d, place);
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
