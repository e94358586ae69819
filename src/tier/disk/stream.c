/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks to and from their slots: header, payload and padding in one request each. Header and padding
 * have pages of the stream, where the block's memory has none for them.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "tier/disk/internal.h"

typedef struct disk_transfer {
    move_transfer move; /* first: what the engine gives back is this */
    tier_io *io;
    uint64_t number; /* writes */
    uint8_t *header, *tail;
} disk_transfer;

typedef struct disk_stream {
    tier_stream base;
    move_stream *move;
    uint64_t used;           /* one bit a transfer */
    disk_writer writer;      /* while a write is in flight */
    uint32_t writes;         /* in flight */
    tier_io *failed;         /* before they began */
    uint64_t metadata, padding;
    uint8_t *pages; /* two a transfer; in front of this */
    disk_transfer transfers[MOVE_DEPTH];
} disk_stream;

#define PAGES_BYTES (2 * MOVE_DEPTH * TIER_UNIT)

static disk_stream *stream_of(tier_stream *stream) { return (disk_stream *)stream; }

/* ---- opening ---- */

static tier_stream *take_idle(disk *d)
{
    pthread_mutex_lock(&d->lock);
    tier_stream *stream = d->idle;
    if (stream)
        d->idle = stream->next;
    pthread_mutex_unlock(&d->lock);
    return stream;
}

static void put_idle(disk *d, tier_stream *stream)
{
    pthread_mutex_lock(&d->lock);
    stream->next = d->idle;
    d->idle = stream;
    pthread_mutex_unlock(&d->lock);
}

static tier_stream *make(disk *d)
{
    uint8_t *pages = d->env->alloc(d->env, PAGES_BYTES + sizeof(disk_stream));
    if (pages == NULL)
        return NULL;
    disk_stream *x = (disk_stream *)(void *)(pages + PAGES_BYTES);
    x->base.tier = &d->tier;
    x->pages = pages;
    return &x->base;
}

tier_stream *disk_stream_open(tier_medium *t, bool write)
{
    disk *d = disk_of(t);
    tier_stream *stream = take_idle(d);
    if (stream == NULL)
        stream = make(d);
    if (stream == NULL)
        return NULL;
    disk_stream *x = stream_of(stream);
    x->move = move_stream_open(d->engine);
    if (x->move == NULL) {
        put_idle(d, stream);
        return NULL;
    }
    stream->write = write;
    x->metadata = x->padding = 0;
    return stream;
}

void disk_stream_close(tier_stream *stream)
{
    disk_stream *x = stream_of(stream);
    disk *d = disk_of(stream->tier);
    move_stream_close(x->move);
    d->account.add(d->account.context, stream->write, x->metadata, x->padding);
    put_idle(d, stream);
}

void disk_streams_free(disk *d)
{
    while (d->idle) {
        disk_stream *x = stream_of(d->idle);
        d->idle = x->base.next;
        d->env->free(d->env, x->pages, PAGES_BYTES + sizeof *x);
    }
}

/* ---- write numbers ---- */

static void number_begin(disk *d, disk_stream *x, disk_transfer *t)
{
    if (x->writes++ == 0) {
        t->number = disk_numbers_begin(d, 1, &x->writer);
        return;
    }
    /* The stream's entry stands for all of its numbers: they rise, so the first one is the lowest. */
    t->number = atomic_fetch_add(d->write_number, 1) + 1;
}

/* Before its end. */
static void number_failed(disk *d, const disk_transfer *t)
{
    pthread_mutex_lock(&d->lock);
    if (d->failed == 0 || t->number < d->failed)
        d->failed = t->number;
    pthread_mutex_unlock(&d->lock);
}

static void number_end(disk *d, disk_stream *x, const disk_transfer *t)
{
    uint64_t lowest = UINT64_MAX;
    if (--x->writes == 0) {
        disk_numbers_end(d, &x->writer);
        return;
    }
    for (uint64_t used = x->used; used; used &= used - 1) {
        uint64_t number = x->transfers[__builtin_ctzll(used)].number;
        lowest = number < lowest ? number : lowest;
    }
    KVO_ASSERT(lowest != t->number);
    pthread_mutex_lock(&d->lock);
    x->writer.lowest = lowest;
    pthread_mutex_unlock(&d->lock);
}

/* ---- transfers ---- */

static void piece(move_transfer *m, void *base, uint64_t bytes)
{
    m->pieces[m->piece_count++] = (struct iovec){base, bytes};
}

/* The end of a payload that is not a whole unit lies in the caller's last segment. */
static size_t tail_bytes(const tier_io *io) { return io->identity.payload_bytes % TIER_UNIT; }

static uint8_t *tail_of(const tier_io *io)
{
    uint32_t last = io->segment_count - 1;
    while (io->segments[last].bytes == 0)
        last--;
    return (uint8_t *)io->segments[last].base + io->segments[last].bytes - tail_bytes(io);
}

static void straight_pieces(const tier_io *io, disk_transfer *t)
{
    for (uint32_t i = 0; i < io->segment_count; i++) {
        size_t whole = io->segments[i].bytes / TIER_UNIT * TIER_UNIT;
        if (whole)
            piece(&t->move, io->segments[i].base, whole);
    }
    if (tail_bytes(io))
        piece(&t->move, t->tail, TIER_UNIT);
}

static void begin(disk *d, disk_stream *x, unsigned which, tier_io *io)
{
    disk_transfer *t = &x->transfers[which];
    uint64_t span = tier_payload_span(io->identity.payload_bytes);
    t->io = io;
    t->header = io->front ? (uint8_t *)io->memory - TIER_UNIT : x->pages + 2 * which * TIER_UNIT;
    t->tail = x->pages + (2 * which + 1) * TIER_UNIT;
    t->move = (move_transfer){
        .file = d->data_file, .write = x->base.write, .offset = (uint64_t)io->slot * TIER_UNIT};
    piece(&t->move, t->header, io->front ? TIER_UNIT + span : TIER_UNIT);
    if (io->segments)
        straight_pieces(io, t);
    else if (!io->front)
        piece(&t->move, io->memory, span);
}

static void begin_write(disk *d, disk_stream *x, disk_transfer *t)
{
    tier_io *io = t->io;
    size_t tail = tail_bytes(io);
    if (io->segments && tail) {
        memcpy(t->tail, tail_of(io), tail);
        memset(t->tail + tail, 0, TIER_UNIT - tail);
    }
    number_begin(d, x, t);
    disk_header_fill(d, io, t->number, (disk_slot *)(void *)t->header);
    io->generation = (uint8_t)t->number;
}

bool disk_full(const tier_stream *stream, uint32_t payload_bytes)
{
    return move_stream_full(((const disk_stream *)stream)->move, TIER_UNIT + tier_payload_span(payload_bytes));
}

void disk_add(tier_stream *stream, tier_io *io)
{
    disk_stream *x = stream_of(stream);
    disk *d = disk_of(stream->tier);
    unsigned which = (unsigned)__builtin_ctzll(~x->used);
    if (stream->write && (io->result = disk_segment_ready(d, io)) != 0) {
        io->next = x->failed;
        x->failed = io;
        return;
    }
    begin(d, x, which, io);
    if (stream->write)
        begin_write(d, x, &x->transfers[which]);
    io->begun = true;
    x->used |= 1ull << which;
    move_add(x->move, &x->transfers[which].move);
}

/* What crosses the boundary beside the payload. */
static void count_rest(disk_stream *x, const disk_transfer *t)
{
    uint32_t bytes = t->io->identity.payload_bytes;
    x->metadata += TIER_UNIT;
    x->padding += tier_payload_span(bytes) - bytes;
}

static void finish_write(disk *d, disk_stream *x, const disk_transfer *t)
{
    if (t->io->result != 0)
        number_failed(d, t);
    number_end(d, x, t);
    count_rest(x, t);
}

static void finish_read(disk *d, disk_stream *x, const disk_transfer *t)
{
    tier_io *io = t->io;
    count_rest(x, t);
    if (io->result == 0)
        io->result = disk_header_check(d, io, (const disk_slot *)(const void *)t->header);
    if (io->result == 0 && io->segments && tail_bytes(io))
        memcpy(tail_of(io), t->tail, tail_bytes(io));
}

static tier_io *finish(disk_stream *x, disk_transfer *t)
{
    disk *d = disk_of(x->base.tier);
    ssize_t result = t->move.result;
    t->io->result = result < 0 ? (int)result : (uint64_t)result == t->move.bytes ? 0 : -EIO;
    x->used &= ~(1ull << (t - x->transfers));
    atomic_fetch_add_explicit(&x->base.tier->transfers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&x->base.tier->submissions, t->move.submissions, memory_order_relaxed);
    if (x->base.write)
        finish_write(d, x, t);
    else
        finish_read(d, x, t);
    return t->io;
}

tier_io *disk_next(tier_stream *stream, bool wait)
{
    disk_stream *x = stream_of(stream);
    tier_io *io = x->failed;
    if (io) {
        x->failed = io->next;
        return io;
    }
    move_transfer *m = move_next(x->move, wait);
    return m ? finish(x, (disk_transfer *)m) : NULL;
}
