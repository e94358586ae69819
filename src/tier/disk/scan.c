/* SPDX-License-Identifier: Apache-2.0 */
/* What the medium says: all segment and slot headers, in order of place. */
#include <errno.h>
#include <string.h>

#include "tier/disk/internal.h"

#define WINDOW (2 * MOVE_DEPTH) /* pages asked for and not judged yet: one that is late holds up the rest */
#define SEGMENTS 64u            /* whose headers are read together */

typedef struct scan {
    disk *d;
    int (*segment)(void *context, uint32_t segment, uint32_t stride, uint32_t epoch);
    int (*each)(void *context, const tier_slot *slot);
    void *context;
    move_stream *stream;
    uint8_t *pages; /* WINDOW of them, one a transfer */
    uint64_t asked, taken; /* in the order of places; transfers are taken back as they finish */
    bool unread;           /* the page taken last could not be read */
    bool back[WINDOW];
    move_transfer transfers[WINDOW];
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

/* ---- pages, read ahead ---- */

static bool may_ask(const scan *s)
{
    return s->asked - s->taken < WINDOW && !move_stream_full(s->stream, TIER_UNIT);
}

static void ask(scan *s, uint64_t unit)
{
    size_t i = s->asked++ % WINDOW;
    s->back[i] = false;
    s->transfers[i] = (move_transfer){.file = s->d->data_file,
                                      .piece_count = 1,
                                      .pieces = {{s->pages + i * TIER_UNIT, TIER_UNIT}},
                                      .offset = unit * TIER_UNIT};
    move_add(s->stream, &s->transfers[i]);
}

/* The next page in the order of asking; it stays until it is asked for one again. */
static int take(scan *s, const void **page)
{
    size_t i = s->taken++ % WINDOW;
    while (!s->back[i])
        s->back[move_next(s->stream, true) - s->transfers] = true;
    s->d->account.add(s->d->account.context, false, TIER_UNIT, 0);
    ssize_t result = s->transfers[i].result;
    if (result < 0 && result != -EIO)
        return (int)result;
    *page = s->pages + i * TIER_UNIT;
    s->unread = result < 0;
    /* A page that cannot be read, or lies past the end of the file, is treated as damaged. */
    if (result != TIER_UNIT)
        memset(s->pages + i * TIER_UNIT, 0xff, TIER_UNIT);
    return 0;
}

/* After an error: nothing may stay in flight. */
static void drop_asked(scan *s)
{
    const void *page;
    while (s->taken < s->asked)
        (void)take(s, &page);
}

/* ---- slots ---- */

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

/* Names are compared in words: a name with something behind its end would never be found. */
static bool name_ends(const block_identity *i)
{
    for (unsigned n = i->name_bytes; n < KVO_NAME_BYTES_MAX; n++)
        if (i->name[n] != 0)
            return false;
    return true;
}

bool disk_identity_fits(const block_identity *i, uint32_t stride)
{
    return i->name_bytes >= KVO_NAME_BYTES_MIN && i->name_bytes <= KVO_NAME_BYTES_MAX && name_ends(i) &&
           i->payload_bytes != 0 && 1 + tier_payload_span(i->payload_bytes) / TIER_UNIT <= stride &&
           i->key_hash == identity_hash(i);
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
    if (h->write_number > DISK_COUNT_MAX || h->stride != stride ||
        h->stored_bytes != h->identity.payload_bytes || !disk_identity_fits(&h->identity, stride))
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
static int judge_slot(const scan *s, const disk_slot *h, uint32_t slot, uint32_t segment, uint32_t stride,
                      uint32_t epoch)
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
    if (!s->unread && never_written(s->d, h, slot, epoch))
        return 0;
    tier_slot out = slot_of(h, slot, segment, stride, epoch);
    out.what = s->unread ? "header cannot be read" : wrong_with(s->d, h, whole, slot, stride);
    out.state = out.what ? TIER_SLOT_BAD : TIER_SLOT_LIVE;
    out.unfinished = !s->unread && s->d->crashed && h->write_number > s->d->mark;
    return s->each(s->context, &out);
}

/* Slots of a run of segments, one after the other. */
typedef struct places {
    uint32_t first;
    const disk_segment_now *segments;
    uint32_t count;
    uint32_t at, index; /* the next one */
} places;

static bool next_place(const scan *s, places *p, uint32_t *segment, uint32_t *slot)
{
    for (; p->at < p->count; p->at++, p->index = 0) {
        uint32_t stride = p->segments[p->at].stride;
        if (p->index >= disk_slots_of(&s->d->tier.geometry, p->first + p->at, stride))
            continue;
        *segment = p->at;
        *slot = (p->first + p->at) * s->d->tier.geometry.segment_units + 1 + p->index++ * stride;
        return true;
    }
    return false;
}

static int scan_slots(scan *s, uint32_t first, const disk_segment_now *segments, uint32_t count)
{
    places asking = {.first = first, .segments = segments, .count = count}, taking = asking;
    uint32_t segment = 0, slot = 0; /* of the next place, which there is while slots are asked for */
    const void *page;
    int r = 0;
    bool more = true;
    while (r == 0 && (more || s->taken < s->asked)) {
        while (more && may_ask(s) && (more = next_place(s, &asking, &segment, &slot)))
            ask(s, slot);
        if (s->taken == s->asked)
            continue;
        next_place(s, &taking, &segment, &slot);
        s->d->tier.scanned++;
        r = take(s, &page);
        if (r == 0)
            r = judge_slot(s, page, slot, first + segment, segments[segment].stride, segments[segment].epoch);
    }
    return r;
}

/* Whether the page is a slot's header, whole and in its place: of a block that is there, or was. */
static bool slot_header(const disk *d, const disk_slot *h, uint32_t slot)
{
    bool magic = memcmp(h->magic, DISK_MAGIC_SLOT, 8) == 0 || memcmp(h->magic, DISK_MAGIC_DEAD, 8) == 0;
    return magic && disk_page_whole(h) && belongs_here(d, h, slot);
}

/* The segment's header is damaged: any whole slot header in it, dead or not, tells stride and epoch; *unread: one that
   cannot be read could tell another. */
static int rescue(scan *s, uint32_t segment, disk_segment_now *now, bool *unread)
{
    uint32_t first = segment * s->d->tier.geometry.segment_units, units = units_of(s->d, segment);
    const void *page;
    for (uint32_t asking = 1, at = 1; at < units; at++) {
        while (asking < units && may_ask(s))
            ask(s, first + asking++);
        int r = take(s, &page);
        if (r != 0)
            return r;
        *unread |= s->unread;
        const disk_slot *h = page;
        if (slot_header(s->d, h, first + at) && disk_epoch_before(now->epoch, h->epoch) && h->stride >= 2 &&
            (at - 1) % h->stride == 0)
            *now = (disk_segment_now){h->stride, h->epoch, false};
    }
    return 0;
}

/* ---- segments ---- */

typedef enum segment_page {
    SEGMENT_UNUSED,
    SEGMENT_GOOD,
    SEGMENT_DAMAGED,
    SEGMENT_UNSURE,
    SEGMENT_UNREAD,
    SEGMENT_OTHER
} segment_page;

static const char *const segment_wrong[] = {[SEGMENT_DAMAGED] = "segment header",
                                            [SEGMENT_UNSURE] = "segment header, and slots that tell it cannot be read",
                                            [SEGMENT_UNREAD] = "segment header cannot be read",
                                            [SEGMENT_OTHER] = "segment header version"};

static segment_page judge_segment(const scan *s, uint32_t segment, const disk_segment *h, disk_segment_now *now)
{
    *now = (disk_segment_now){.stride = 0};
    if (s->unread)
        return SEGMENT_UNREAD;
    if (disk_page_zero(h))
        return SEGMENT_UNUSED;
    if (disk_page_whole(h) && memcmp(h->magic, DISK_MAGIC_SEGMENT, 7) == 0 &&
        (h->magic[7] != DISK_MAGIC_SEGMENT[7] || h->version != DISK_FORMAT_VERSION))
        return SEGMENT_OTHER;
    if (!disk_page_whole(h) || memcmp(h->magic, DISK_MAGIC_SEGMENT, 8) != 0 || h->segment != segment ||
        memcmp(h->uuid, s->d->super.uuid, 16) != 0)
        return SEGMENT_DAMAGED;
    *now = (disk_segment_now){h->stride, h->epoch, true};
    return SEGMENT_GOOD;
}

/* A header of zeros before a slot that was used was lost: it is flushed before the first slot is written, and that
   is the first one. */
static int find_lost(scan *s, uint32_t first, uint32_t count, segment_page *pages)
{
    const void *page;
    int r = 0;
    for (uint32_t asking = 0, i = 0; r == 0 && i < count; i++) {
        for (; asking < count && may_ask(s); asking++)
            if (pages[asking] == SEGMENT_UNUSED)
                ask(s, (uint64_t)(first + asking) * s->d->tier.geometry.segment_units + 1);
        if (pages[i] != SEGMENT_UNUSED)
            continue;
        r = take(s, &page);
        if (r == 0 && !s->unread && slot_header(s->d, page, (first + i) * s->d->tier.geometry.segment_units + 1))
            pages[i] = SEGMENT_DAMAGED;
    }
    return r;
}

static int segment_found(scan *s, uint32_t segment, segment_page page, disk_segment_now *now)
{
    if (page == SEGMENT_UNUSED)
        return 0;
    if (page != SEGMENT_GOOD) {
        bool unread = false;
        int r = rescue(s, segment, now, &unread);
        if (page == SEGMENT_DAMAGED && unread)
            page = SEGMENT_UNSURE;
        tier_slot bad = {.state = TIER_SEGMENT_BAD, .segment = segment, .what = segment_wrong[page]};
        bad.slot = segment * s->d->tier.geometry.segment_units;
        if (r == 0)
            r = s->each(s->context, &bad);
        if (r != 0 || now->stride == 0)
            return r;
    }
    s->d->on_medium[segment] = *now;
    /* Also where the slots do not fit a last segment that became shorter: the epoch goes on from here. */
    return s->segment(s->context, segment, now->stride, now->epoch);
}

static int scan_segments(scan *s, uint32_t first, uint32_t count)
{
    segment_page pages[SEGMENTS];
    disk_segment_now now[SEGMENTS];
    const void *page;
    int r = 0;
    for (uint32_t asking = 0, i = 0; r == 0 && i < count; i++) {
        while (asking < count && may_ask(s))
            ask(s, (uint64_t)(first + asking++) * s->d->tier.geometry.segment_units);
        r = take(s, &page);
        if (r == 0)
            pages[i] = judge_segment(s, first + i, page, &now[i]);
    }
    r = r == 0 ? find_lost(s, first, count, pages) : r;
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = segment_found(s, first + i, pages[i], &now[i]);
    return r == 0 ? scan_slots(s, first, now, count) : r;
}

int disk_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
              int (*each)(void *, const tier_slot *), void *context)
{
    disk *d = disk_of(t);
    if (d->half_created)
        return 0;
    memset(d->on_medium, 0, d->on_medium_bytes);
    size_t bytes = WINDOW * TIER_UNIT + sizeof(scan);
    uint8_t *memory = d->env->alloc(d->env, bytes);
    if (memory == NULL)
        return -ENOMEM;
    scan *s = (scan *)(void *)(memory + WINDOW * TIER_UNIT);
    *s = (scan){.d = d, .segment = segment, .each = each, .context = context, .pages = memory};
    s->stream = move_stream_open(d->engine);
    int r = s->stream ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < t->geometry.segment_count; i += SEGMENTS)
        r = scan_segments(s, i, t->geometry.segment_count - i < SEGMENTS ? t->geometry.segment_count - i : SEGMENTS);
    if (s->stream) {
        drop_asked(s);
        move_stream_close(s->stream);
    }
    d->env->free(d->env, memory, bytes);
    return r;
}
