/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan of all headers would find, in one file, written at a close in order. It is believed only
 * beside the superblock that this close wrote, which says clean, and if `data` was not changed since: an
 * opening to write says unclean before all else, so from then on there is no checkpoint until the next close.
 */
#include <errno.h>
#include <string.h>

#include "base/status.h"
#include "tier/disk/internal.h"

#define PAGES 512u /* of a read or a write: enough for a device to do it in parallel */

/* That hold so many entries: each but the last is full. */
static uint32_t pages_for(uint64_t entries, uint32_t of_a_page)
{
    return (uint32_t)((entries + of_a_page - 1) / of_a_page);
}

/* ---- which one is believed ---- */

static bool data_unchanged(disk *d, uint64_t changed_ns)
{
    tier_geometry g = {d->super.segment_units, d->super.segment_count, d->super.last_units};
    uint64_t bytes, ns;
    return d->env->file_bytes(d->env, d->data_file, &bytes) == 0 && bytes == tier_units(&g) * TIER_UNIT &&
           d->env->file_changed_ns(d->env, d->data_file, &ns) == 0 && ns == changed_ns;
}

/* NULL: it is of the close that left this directory as it is. */
static const char *wrong_with(disk *d, const disk_checkpoint *p)
{
    const disk_checkpoint_head *h = &p->of.head;
    if (disk_page_zero(p))
        return "there is no checkpoint";
    if (!disk_page_whole(p) || memcmp(p->magic, DISK_MAGIC_CHECKPOINT, 7) != 0)
        return "the checkpoint is damaged";
    if (p->magic[7] != DISK_MAGIC_CHECKPOINT[7] || p->version != DISK_FORMAT_VERSION)
        return "the checkpoint is of another version";
    if (p->page != 0 || p->kind != DISK_CHECKPOINT_HEAD || h->tiers == 0 || h->tiers > KVO_TIERS_MAX ||
        h->slots > UINT32_MAX)
        return "the checkpoint is damaged";
    if (memcmp(p->uuid, d->super.uuid, 16) != 0)
        return "the checkpoint is of another directory";
    if (h->sequence != d->super.sequence || h->write_number != d->super.write_number ||
        h->spaces_checksum != disk_note_checksum(d, TIER_NOTE_SPACES))
        return "the checkpoint is of another close";
    return data_unchanged(d, h->data_changed_ns) ? NULL : "the data was changed after the checkpoint";
}

static const char *find(disk *d, disk_checkpoint *page)
{
    if (d->crashed)
        return "it was not closed in order";
    if (disk_file_open(d, "checkpoint", BASE_OPEN_DIRECT, &d->checkpoint_file, NULL, NULL) != KVO_OK)
        return "there is no checkpoint";
    if (disk_pages_read(d, d->checkpoint_file, 0, page, TIER_UNIT) != 0)
        return "the checkpoint cannot be read";
    return wrong_with(d, page);
}

void disk_checkpoint_find(disk *d)
{
    disk_checkpoint *page = d->env->alloc(d->env, TIER_UNIT);
    const char *why = page ? find(d, page) : "no memory for the checkpoint";
    if (why)
        disk_log(d, "%s: %s; reading all slot headers", d->path, why);
    else {
        d->tier.checkpoint.tier_count = page->of.head.tiers;
        memcpy(d->tier.checkpoint.id, page->close_id, 16);
        d->checkpoint_slots = page->of.head.slots;
    }
    if (page)
        d->env->free(d->env, page, TIER_UNIT);
}

/* ---- reading ---- */

typedef struct reading {
    disk *d;
    int (*segment)(void *context, uint32_t segment, uint32_t stride, uint32_t epoch);
    int (*each)(void *context, const tier_slot *slot);
    void *context;
    tier_geometry then; /* of the close; the tier may be of another size now */
    disk_checkpoint *pages;
    uint32_t first, have; /* pages in memory */
    uint32_t end;         /* of the file */
    disk_segment_now *segments; /* of `then` */
    uint64_t slots;
    uint32_t next_slot; /* the least that the next one may be */
} reading;

/* A page of so many entries, checked; NULL: not what it should be. */
static const disk_checkpoint *page_at(reading *r, uint32_t page, disk_checkpoint_kind kind, uint64_t count)
{
    if (page >= r->first + r->have) {
        r->first = page;
        r->have = r->end - page < PAGES ? r->end - page : PAGES;
        uint64_t offset = (uint64_t)page * TIER_UNIT;
        if (disk_pages_read(r->d, r->d->checkpoint_file, offset, r->pages, r->have * TIER_UNIT) != 0)
            return NULL;
    }
    const disk_checkpoint *p = &r->pages[page - r->first];
    bool good = disk_page_whole(p) && memcmp(p->magic, DISK_MAGIC_CHECKPOINT, 8) == 0 &&
                p->version == DISK_FORMAT_VERSION && p->page == page && p->kind == (uint32_t)kind &&
                p->count == count && memcmp(p->uuid, r->d->super.uuid, 16) == 0 &&
                memcmp(p->close_id, r->d->tier.checkpoint.id, 16) == 0;
    return good ? p : NULL;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int read_segments(reading *r)
{
    for (uint32_t done = 0, page = 1; done < r->then.segment_count; page++) {
        const disk_checkpoint *p = page_at(r, page, DISK_CHECKPOINT_SEGMENTS,
                                           least(r->then.segment_count - done, DISK_CHECKPOINT_SEGMENTS_MAX));
        if (p == NULL)
            return -EBADMSG;
        for (uint32_t i = 0; i < p->count; i++, done++) {
            disk_segment_now now = {p->of.segments[i].stride, p->of.segments[i].epoch, p->of.segments[i].epoch != 0};
            r->segments[done] = now;
            if (!now.known || done >= r->d->tier.geometry.segment_count)
                continue;
            r->d->on_medium[done] = now;
            int result = r->segment(r->context, done, now.stride, now.epoch);
            if (result != 0)
                return result;
        }
    }
    return 0;
}

static int read_slot(reading *r, const disk_checkpoint_slot *c)
{
    uint32_t segment = c->slot / r->then.segment_units, at = c->slot % r->then.segment_units;
    if (c->slot < r->next_slot || segment >= r->then.segment_count || at == 0)
        return -EBADMSG;
    disk_segment_now now = r->segments[segment];
    if (now.stride < 2 || (at - 1) % now.stride != 0 ||
        (at - 1) / now.stride >= disk_slots_of(&r->then, segment, now.stride) ||
        c->rewrites > LIFE_REWRITES_MAX || c->format > 15 || !disk_identity_fits(&c->identity, now.stride))
        return -EBADMSG;
    r->next_slot = c->slot + now.stride;
    r->slots++;
    /* What lies beyond the end of a tier that is smaller now is gone. */
    if (segment >= r->d->tier.geometry.segment_count ||
        (at - 1) / now.stride >= disk_slots_of(&r->d->tier.geometry, segment, now.stride))
        return 0;
    tier_slot slot = {.state = TIER_SLOT_LIVE,
                      .slot = c->slot,
                      .segment = segment,
                      .stride = now.stride,
                      .epoch = now.epoch,
                      .write_number = c->generation,
                      .identity = c->identity,
                      .policy = c->policy,
                      .touch = c->touch,
                      .rewrites = c->rewrites,
                      .format = c->format};
    return r->each(r->context, &slot);
}

static int read_slots(reading *r)
{
    uint64_t all = r->d->checkpoint_slots;
    for (uint32_t page = 1 + pages_for(r->then.segment_count, DISK_CHECKPOINT_SEGMENTS_MAX); r->slots < all; page++) {
        const disk_checkpoint *p =
            page_at(r, page, DISK_CHECKPOINT_SLOTS, least(all - r->slots, DISK_CHECKPOINT_SLOTS_MAX));
        if (p == NULL)
            return -EBADMSG;
        for (uint32_t i = 0; i < p->count; i++) {
            int result = read_slot(r, &p->of.slots[i]);
            if (result != 0)
                return result;
        }
    }
    return 0;
}

int disk_checkpoint_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
                         int (*each)(void *, const tier_slot *), void *context)
{
    disk *d = disk_of(t);
    reading r = {.d = d, .segment = segment, .each = each, .context = context};
    r.then = (tier_geometry){d->super.segment_units, d->super.segment_count, d->super.last_units};
    r.end = 1 + pages_for(r.then.segment_count, DISK_CHECKPOINT_SEGMENTS_MAX) +
            pages_for(d->checkpoint_slots, DISK_CHECKPOINT_SLOTS_MAX);
    size_t bytes = r.then.segment_count * sizeof *r.segments;
    r.pages = d->env->alloc(d->env, PAGES * TIER_UNIT);
    r.segments = d->env->alloc(d->env, bytes);
    int result = r.pages && r.segments ? read_segments(&r) : -ENOMEM;
    if (result == 0)
        result = read_slots(&r);
    if (r.pages)
        d->env->free(d->env, r.pages, PAGES * TIER_UNIT);
    if (r.segments)
        d->env->free(d->env, r.segments, bytes);
    return result;
}

/* ---- writing ---- */

typedef struct writing {
    disk *d;
    const tier_checkpoint *close;
    disk_checkpoint *pages;
    uint32_t first, filled; /* pages in memory: those after `first`, which is their number in the file */
    uint64_t slots;
    int result; /* of the first write that failed */
} writing;

static void pages_out(writing *w)
{
    for (uint32_t i = 0; i < w->filled; i++)
        disk_page_seal(&w->pages[i]);
    if (w->result == 0)
        w->result = disk_pages_write(w->d, w->d->checkpoint_file, (uint64_t)w->first * TIER_UNIT, w->pages,
                                     w->filled * TIER_UNIT);
    w->first += w->filled;
    w->filled = 0;
}

static disk_checkpoint *page_new(writing *w, disk_checkpoint_kind kind)
{
    if (w->filled == PAGES)
        pages_out(w);
    disk_checkpoint *p = &w->pages[w->filled];
    memset(p, 0, sizeof *p);
    memcpy(p->magic, DISK_MAGIC_CHECKPOINT, 8);
    p->version = DISK_FORMAT_VERSION;
    p->page = w->first + w->filled++;
    memcpy(p->uuid, w->d->super.uuid, 16);
    memcpy(p->close_id, w->close->id, 16);
    p->kind = (uint32_t)kind;
    return p;
}

static void write_segments(writing *w)
{
    disk_checkpoint *p = NULL;
    for (uint32_t i = 0; i < w->d->tier.geometry.segment_count; i++) {
        if (i % DISK_CHECKPOINT_SEGMENTS_MAX == 0)
            p = page_new(w, DISK_CHECKPOINT_SEGMENTS);
        disk_segment_now now = w->d->on_medium[i];
        if (now.epoch != 0 && !now.known) /* the next opening would take its header for written */
            w->result = -EIO;
        p->of.segments[p->count++] = (disk_checkpoint_segment){now.stride, now.epoch};
    }
}

/* Small files have 1/128 of the data, which a policy record for each of the smallest slots would fill. */
static bool fits(const writing *w)
{
    uint64_t bytes = (uint64_t)(w->first + w->filled) * TIER_UNIT + w->slots * DISK_POLICY_BYTES;
    return bytes <= w->d->tier.data_bytes / 128 + 128 * 1024;
}

static void write_slots(writing *w, size_t (*next)(void *, tier_slot *, size_t), void *context)
{
    tier_slot slots[DISK_CHECKPOINT_SLOTS_MAX];
    for (size_t n; w->result == 0 && (n = next(context, slots, DISK_CHECKPOINT_SLOTS_MAX)) != 0;) {
        disk_checkpoint *p = page_new(w, DISK_CHECKPOINT_SLOTS);
        for (size_t i = 0; i < n; i++)
            p->of.slots[p->count++] = (disk_checkpoint_slot){.slot = slots[i].slot,
                                                             .rewrites = (uint16_t)slots[i].rewrites,
                                                             .format = (uint8_t)slots[i].format,
                                                             .generation = (uint8_t)slots[i].write_number,
                                                             .policy = slots[i].policy,
                                                             .touch = slots[i].touch,
                                                             .identity = slots[i].identity};
        w->slots += n;
        if (!fits(w))
            w->result = -EFBIG;
    }
}

static int write_head(writing *w)
{
    disk *d = w->d;
    w->first = w->filled = 0;
    disk_checkpoint_head *h = &page_new(w, DISK_CHECKPOINT_HEAD)->of.head;
    h->tiers = w->close->tier_count;
    h->sequence = disk_super_next(d);
    h->write_number = atomic_load(d->write_number);
    h->slots = w->slots;
    h->spaces_checksum = disk_note_checksum(d, TIER_NOTE_SPACES);
    int r = d->env->file_changed_ns(d->env, d->data_file, &h->data_changed_ns);
    if (r == 0)
        pages_out(w);
    return r ? r : w->result;
}

/* The head comes last, so that a file that was written in part has an old one. */
int disk_checkpoint_write(tier_medium *t, const tier_checkpoint *close, size_t (*next)(void *, tier_slot *, size_t),
                          void *context)
{
    disk *d = disk_of(t);
    int flags = BASE_OPEN_DIRECT | BASE_OPEN_CREATE;
    if (d->checkpoint_file < 0 && disk_file_open(d, "checkpoint", flags, &d->checkpoint_file, NULL, NULL) != KVO_OK)
        return -EIO;
    writing w = {.d = d, .close = close, .first = 1};
    w.pages = d->env->alloc(d->env, PAGES * TIER_UNIT);
    if (w.pages == NULL)
        return -ENOMEM;
    write_segments(&w);
    write_slots(&w, next, context);
    pages_out(&w);
    uint64_t bytes = (uint64_t)w.first * TIER_UNIT;
    int r = w.result ? w.result : write_head(&w);
    if (r == 0)
        r = d->env->truncate(d->env, d->checkpoint_file, bytes);
    if (r == 0)
        r = d->env->flush(d->env, d->checkpoint_file);
    d->env->free(d->env, w.pages, PAGES * TIER_UNIT);
    return r;
}
