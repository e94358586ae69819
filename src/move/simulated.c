/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers in the thread that takes them, through the environment: one after the other where an engine
 * has no stream to give, and in an order drawn from env->random for tests, which so meet every order.
 */
#include "move/internal.h"

typedef struct caller_stream {
    move_stream base;
    move_transfer *waiting[MOVE_DEPTH]; /* in_flight of them */
} caller_stream;

static int simulated_open(move_engine *e, uint32_t threads, kvo_error *error)
{
    (void)e, (void)threads, (void)error;
    return KVO_OK;
}

static void simulated_close(move_engine *e) { (void)e; }

static move_stream *open_as(move_engine *e, const move_ops *ops)
{
    caller_stream *s = e->env->alloc(e->env, sizeof *s);
    if (s == NULL)
        return NULL;
    s->base = (move_stream){.engine = e, .ops = ops};
    return &s->base;
}

static move_stream *simulated_stream(move_engine *e) { return open_as(e, &move_simulated); }
static move_stream *caller_stream_open(move_engine *e) { return open_as(e, &move_caller); }

static void stream_close(move_stream *stream)
{
    stream->engine->env->free(stream->engine->env, stream, sizeof(caller_stream));
}

static void add(move_stream *stream, move_transfer *t)
{
    ((caller_stream *)stream)->waiting[stream->in_flight - 1] = t;
}

static move_transfer *run(move_stream *stream, uint32_t which)
{
    caller_stream *s = (caller_stream *)stream;
    move_transfer *t = s->waiting[which];
    s->waiting[which] = s->waiting[stream->in_flight - 1];
    move_run_here(stream->engine->env, t);
    return t;
}

/* Who does not wait may find nothing finished. */
static move_transfer *simulated_next(move_stream *stream, bool wait)
{
    base_env *env = stream->engine->env;
    uint32_t drawn[2] = {0};
    (void)env->random(env, drawn, sizeof drawn);
    return wait || drawn[0] & 1 ? run(stream, drawn[1] % stream->in_flight) : NULL;
}

static move_transfer *caller_next(move_stream *stream, bool wait) { return wait ? run(stream, 0) : NULL; }

const move_ops move_simulated = {simulated_open, simulated_close, simulated_stream, stream_close, add, simulated_next};
const move_ops move_caller = {simulated_open, simulated_close, caller_stream_open, stream_close, add, caller_next};
