/* SPDX-License-Identifier: Apache-2.0 */
/* What all engines have in common: the choice, idle streams, the bounds. */
#include "move/move.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move/internal.h"

#define STREAMS_MAX 64u /* that the engine gives; the caller's thread carries those beyond */

void move_run_here(base_env *env, move_transfer *t)
{
    t->submissions = 1;
    t->result = t->write ? env->write(env, t->file, t->pieces, t->piece_count, t->offset)
                         : env->read(env, t->file, t->pieces, t->piece_count, t->offset);
}

/* ---- opening ---- */

static int from_environment(move_kind *kind, kvo_error *error)
{
    const char *text = secure_getenv("KVONCE_IO");
    if (text == NULL || *text == 0 || strcmp(text, "auto") == 0)
        return KVO_OK;
    if (strcmp(text, "io_uring") == 0)
        *kind = MOVE_URING;
    else if (strcmp(text, "threads") == 0)
        *kind = MOVE_THREADS;
    else
        return base_fail(error, KVO_E_ARGUMENT, "KVONCE_IO=%s: it is auto, io_uring or threads", text);
    return KVO_OK;
}

static const move_ops *ops_of(move_kind kind)
{
    return kind == MOVE_URING ? &move_uring : kind == MOVE_THREADS ? &move_threads : &move_simulated;
}

static int open_as(move_engine *e, move_kind kind, uint32_t threads, kvo_error *error)
{
    e->kind = kind;
    e->ops = ops_of(kind);
    return e->ops->open(e, threads, error);
}

/* io_uring passes by the environment, so it is for the real machine alone, and the simulated engine for
   all others. */
static int open_engine(move_engine *e, move_kind kind, uint32_t threads, kvo_error *error)
{
    bool real = e->env == base_env_posix();
    if (kind == MOVE_AUTO || kind == MOVE_AUTO_THREADS) {
        int r = from_environment(&kind, error);
        if (r != KVO_OK)
            return r;
        if (!real || kind == MOVE_AUTO_THREADS)
            kind = MOVE_THREADS;
    }
    if ((kind == MOVE_URING && !real) || (kind == MOVE_SIMULATED && real))
        return base_fail(error, KVO_E_UNSUPPORTED, "this I/O engine does not work in this environment");
    if (kind != MOVE_AUTO)
        return open_as(e, kind, threads, error);
    int r = open_as(e, MOVE_URING, threads, NULL);
    return r == KVO_OK ? r : open_as(e, MOVE_THREADS, threads, error);
}

int move_open(base_env *env, move_kind kind, uint32_t threads, uint64_t flight_bytes, move_engine **out,
              kvo_error *error)
{
    *out = NULL;
    move_engine *e = env->alloc(env, sizeof *e);
    if (e == NULL)
        return base_fail(error, KVO_E_MEMORY, "no memory for the I/O engine");
    e->env = env;
    e->flight_max = flight_bytes;
    int r = open_engine(e, kind, threads, error);
    if (r != KVO_OK) {
        env->free(env, e, sizeof *e);
        return r;
    }
    pthread_mutex_init(&e->lock, NULL);
    move_staging_open(e);
    *out = e;
    return KVO_OK;
}

void move_on_log(move_engine *e, void (*log)(void *context, const char *line), void *context)
{
    e->log = log;
    e->log_context = context;
    if (e->no_uring)
        move_log(e, MOVE_NO_URING "; using threads", strerror(e->no_uring), move_why_no_uring(e->no_uring));
}

const char *move_why_no_uring(int error)
{
    return error == ENOMEM ? "too little memory may be locked (ulimit -l)"
                           : "a sandbox or kernel.io_uring_disabled forbids it, or the kernel is too old";
}

void move_log(const move_engine *e, const char *format, ...)
{
    char line[320];
    va_list arguments;
    if (e->log == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    e->log(e->log_context, line);
}

void move_broke(move_engine *e, int error)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&e->broken, &none, error))
        move_log(e, "io_uring stopped working (%s); from now on each caller's thread does its own I/O",
                 strerror(error));
}

static void close_idle(move_engine *e)
{
    pthread_mutex_lock(&e->lock);
    move_stream *idle = e->idle;
    e->idle = NULL;
    for (move_stream *stream = idle; stream; stream = stream->next)
        e->stream_count--;
    pthread_mutex_unlock(&e->lock);
    while (idle) {
        move_stream *stream = idle;
        idle = stream->next;
        stream->ops->stream_close(stream);
    }
}

void move_close(move_engine *e)
{
    if (e == NULL)
        return;
    close_idle(e);
    KVO_ASSERT(e->stream_count == 0 && atomic_load(&e->flight) == 0);
    e->ops->close(e);
    move_staging_close(e);
    pthread_mutex_destroy(&e->lock);
    e->env->free(e->env, e, sizeof *e);
}

move_kind move_kind_of(const move_engine *e) { return e->kind; }
bool move_registered(const move_engine *e) { return atomic_load(&e->registered) > 0; }

/* ---- streams ---- */

/* An idle one, or the right to make one. */
static bool take_idle(move_engine *e, move_stream **stream)
{
    pthread_mutex_lock(&e->lock);
    *stream = e->idle;
    bool more = e->idle == NULL && e->stream_count < STREAMS_MAX;
    if (*stream)
        e->idle = (*stream)->next;
    else if (more)
        e->stream_count++;
    pthread_mutex_unlock(&e->lock);
    return more;
}

move_stream *move_stream_open(move_engine *e)
{
    move_stream *stream = NULL;
    bool more = atomic_load(&e->broken) == 0 && take_idle(e, &stream);
    if (more && (stream = e->ops->stream_open(e)) == NULL) {
        pthread_mutex_lock(&e->lock);
        e->stream_count--;
        pthread_mutex_unlock(&e->lock);
    }
    /* No ring or no thread to be had must not stop a transfer. */
    if (stream == NULL)
        stream = move_caller.stream_open(e);
    return stream;
}

void move_stream_close(move_stream *stream)
{
    move_engine *e = stream->engine;
    KVO_ASSERT(stream->in_flight == 0);
    if (stream->ops == &move_caller) {
        stream->ops->stream_close(stream);
        return;
    }
    pthread_mutex_lock(&e->lock);
    stream->next = e->idle;
    e->idle = stream;
    pthread_mutex_unlock(&e->lock);
    if (atomic_load(&e->broken))
        close_idle(e);
}

bool move_stream_full(const move_stream *stream, uint64_t bytes)
{
    if (stream->in_flight == 0)
        return false;
    return stream->in_flight == MOVE_DEPTH || atomic_load(&stream->engine->flight) + bytes > stream->engine->flight_max;
}

void move_add(move_stream *stream, move_transfer *t)
{
    KVO_ASSERT(stream->in_flight < MOVE_DEPTH && t->piece_count > 0 && t->piece_count <= MOVE_PIECES_MAX);
    t->stream = stream;
    t->next = NULL;
    t->submissions = 0;
    t->bytes = 0;
    for (int i = 0; i < t->piece_count; i++)
        t->bytes += t->pieces[i].iov_len;
    atomic_fetch_add(&stream->engine->flight, t->bytes);
    stream->in_flight++;
    stream->ops->add(stream, t);
}

move_transfer *move_next(move_stream *stream, bool wait)
{
    move_transfer *t = stream->in_flight ? stream->ops->next(stream, wait) : NULL;
    if (t) {
        atomic_fetch_sub(&stream->engine->flight, t->bytes);
        stream->in_flight--;
    }
    return t;
}

void move_run(move_engine *e, move_transfer *transfers, size_t count)
{
    move_stream *stream = count > 1 ? move_stream_open(e) : NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        for (int k = 0; stream && k < transfers[i].piece_count; k++)
            bytes += transfers[i].pieces[k].iov_len;
        if (stream == NULL) {
            move_run_here(e->env, &transfers[i]);
            continue;
        }
        while (move_stream_full(stream, bytes))
            move_next(stream, true);
        move_add(stream, &transfers[i]);
    }
    while (stream && move_next(stream, true))
        continue;
    if (stream)
        move_stream_close(stream);
}
