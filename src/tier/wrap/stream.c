/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on their way through a wrapper. Each transfer has a copy of its request, which is what the tier
 * behind sees, so that a write can be given other bytes and an answer be changed or held back.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "tier/wrap/wrap.h"

#define TRANSFERS 64u

typedef struct wrap_transfer {
    tier_io io; /* first: what the tier behind gives back is this */
    tier_io *outer;
    wrap_verdict verdict;
    uint64_t due_ns; /* not given back before; 0: no matter when */
    uint8_t *copy;   /* a write's bytes, if they are not the caller's */
    struct wrap_transfer *next;
} wrap_transfer;

typedef struct wrap_stream {
    tier_stream base;
    tier_stream *behind;
    uint64_t used;          /* one bit a transfer */
    wrap_transfer *waiting; /* that the tier behind is done with */
    wrap_transfer transfers[TRANSFERS];
} wrap_stream;

static wrap_stream *stream_of(tier_stream *stream) { return (wrap_stream *)stream; }

tier_stream *wrap_stream_open(tier_medium *t, bool write)
{
    wrap *w = wrap_of(t);
    wrap_stream *x = w->env->alloc(w->env, sizeof *x);
    if (x == NULL)
        return NULL;
    x->base = (tier_stream){.tier = t, .write = write};
    x->behind = tier_stream_open(t->behind, write);
    if (x->behind)
        return &x->base;
    w->env->free(w->env, x, sizeof *x);
    return NULL;
}

void wrap_stream_close(tier_stream *stream)
{
    wrap_stream *x = stream_of(stream);
    wrap *w = wrap_of(stream->tier);
    tier_stream_close(x->behind);
    w->env->free(w->env, x, sizeof *x);
}

bool wrap_full(const tier_stream *stream, uint32_t payload_bytes)
{
    const wrap_stream *x = (const wrap_stream *)stream;
    return x->used == UINT64_MAX || tier_stream_full(x->behind, payload_bytes);
}

/* ---- what goes wrong with bytes ---- */

/* Where a payload's byte lies. */
static uint8_t *byte_at(const tier_io *io, uint64_t at)
{
    if (io->segments == NULL)
        return (uint8_t *)io->memory + at;
    const kvo_segment *segment = io->segments;
    for (; at >= segment->bytes; segment++)
        at -= segment->bytes;
    return (uint8_t *)segment->base + at;
}

static void flip(const tier_io *io, uint64_t drawn)
{
    uint64_t bit = drawn % ((uint64_t)io->identity.payload_bytes * 8);
    *byte_at(io, bit / 8) ^= (uint8_t)(1u << bit % 8);
}

/* From some byte to the end: not one of them is what it should be. */
static void spoil_end(const tier_io *io, uint64_t drawn)
{
    for (uint64_t at = drawn % io->identity.payload_bytes; at < io->identity.payload_bytes; at++)
        *byte_at(io, at) ^= 0xff;
}

/* A sealed payload is nobody's to change: the copy goes down instead. false: no memory. */
static bool spoil_write(wrap *w, wrap_transfer *t)
{
    tier_io *io = &t->io;
    t->copy = w->env->alloc(w->env, tier_payload_span(io->identity.payload_bytes));
    if (t->copy == NULL)
        return false;
    if (io->segments == NULL)
        memcpy(t->copy, io->memory, io->identity.payload_bytes);
    uint8_t *to = t->copy;
    for (uint32_t i = 0; io->segments && i < io->segment_count; to += io->segments[i++].bytes)
        memcpy(to, io->segments[i].base, io->segments[i].bytes);
    io->memory = t->copy;
    io->segments = NULL;
    io->front = false;
    if (t->verdict.what == WRAP_FLIP)
        flip(io, t->verdict.draw);
    else
        spoil_end(io, t->verdict.draw);
    return true;
}

/* ---- transfers ---- */

static void wait_turn(wrap_stream *x, wrap_transfer *t)
{
    t->next = x->waiting;
    x->waiting = t;
}

/* It did not go further. */
static void stop(wrap_stream *x, wrap_transfer *t, bool begun, int result)
{
    t->io.begun = begun;
    t->io.result = result;
    wait_turn(x, t);
}

void wrap_add(tier_stream *stream, tier_io *io)
{
    wrap_stream *x = stream_of(stream);
    wrap *w = wrap_of(stream->tier);
    unsigned which = (unsigned)__builtin_ctzll(~x->used);
    wrap_transfer *t = &x->transfers[which];
    x->used |= 1ull << which;
    *t = (wrap_transfer){.io = *io, .outer = io, .verdict = wrap_judge(w, stream->write ? WRAP_WRITE : WRAP_READ)};
    wrap_what what = t->verdict.what;
    if (t->verdict.delay_ns)
        t->due_ns = w->env->now_ns(w->env) + t->verdict.delay_ns;
    if (what == WRAP_ERROR || what == WRAP_LOST)
        stop(x, t, true, t->verdict.error);
    else if (stream->write && (what == WRAP_FLIP || what == WRAP_TORN) && !spoil_write(w, t))
        stop(x, t, false, -ENOMEM);
    else
        tier_stream_add(x->behind, &t->io);
}

static void came_back(wrap_stream *x, wrap_transfer *t)
{
    wrap *w = wrap_of(x->base.tier);
    if (t->copy)
        w->env->free(w->env, t->copy, tier_payload_span(t->io.identity.payload_bytes));
    if (!x->base.write && t->io.result == 0 && t->verdict.what == WRAP_FLIP)
        flip(&t->io, t->verdict.draw);
    if (t->io.result == 0 && t->verdict.what == WRAP_SHORT) {
        spoil_end(&t->io, t->verdict.draw);
        t->io.result = -EIO;
    }
    wait_turn(x, t);
}

static wrap_transfer **earliest(wrap_stream *x)
{
    wrap_transfer **best = &x->waiting;
    for (wrap_transfer **at = best; *at; at = &(*at)->next)
        if ((*at)->due_ns < (*best)->due_ns)
            best = at;
    return best;
}

static tier_io *give_back(wrap_stream *x, wrap_transfer **at)
{
    wrap_transfer *t = *at;
    *at = t->next;
    x->used &= ~(1ull << (t - x->transfers));
    t->outer->result = t->io.result;
    t->outer->begun = t->io.begun;
    t->outer->generation = t->io.generation;
    return t->outer;
}

/* What the tier behind has finished comes first: it may be due before what waits here. */
tier_io *wrap_next(tier_stream *stream, bool wait)
{
    wrap_stream *x = stream_of(stream);
    wrap *w = wrap_of(stream->tier);
    for (;;) {
        tier_io *io;
        while ((io = tier_stream_next(x->behind, false)) != NULL)
            came_back(x, (wrap_transfer *)io);
        wrap_transfer **at = earliest(x);
        uint64_t now = *at && (*at)->due_ns ? w->env->now_ns(w->env) : 0;
        if (*at && (*at)->due_ns <= now)
            return give_back(x, at);
        if (!wait)
            return NULL;
        if (x->behind->in_flight) {
            came_back(x, (wrap_transfer *)tier_stream_next(x->behind, true));
            continue;
        }
        wrap_wait(w, (*at)->due_ns - now);
        (*at)->due_ns = 0; /* whatever the environment's clock says */
    }
}
