/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads, one vectored call a transfer. */

#include "move/internal.h"

#define THREADS_MAX 64

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    move_transfer *first; /* that no thread has taken yet */
    move_transfer **last;
    bool closing;
    uint32_t thread_count;
    base_env *env;
    pthread_t threads[THREADS_MAX];
} pool;

typedef struct thread_stream {
    move_stream base;
    pthread_cond_t done;
    move_transfer *first; /* finished; under the pool's lock, as all here but `held` */
    move_transfer **last;
    bool waiting;
    move_transfer *held; /* a first one: if its user waits for it before a second comes, its user runs it */
} thread_stream;

static void append(move_transfer ***last, move_transfer *t)
{
    t->next = NULL;
    **last = t;
    *last = &t->next;
}

static move_transfer *take(move_transfer **first, move_transfer ***last)
{
    move_transfer *t = *first;
    if (t && (*first = t->next) == NULL)
        *last = first;
    return t;
}

static void *worker(void *argument)
{
    pool *p = argument;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        move_transfer *t = take(&p->first, &p->last);
        if (t == NULL) {
            if (p->closing)
                break;
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        move_run_here(p->env, t);
        pthread_mutex_lock(&p->lock);
        thread_stream *s = (thread_stream *)t->stream;
        append(&s->last, t);
        if (s->waiting)
            pthread_cond_signal(&s->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void threads_close(move_engine *e)
{
    pool *p = e->own;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    e->env->free(e->env, p, sizeof *p);
}

static int threads_open(move_engine *e, uint32_t threads, kvo_error *error)
{
    pool *p = e->own = e->env->alloc(e->env, sizeof *p);
    if (p == NULL)
        return base_fail(error, KVO_E_MEMORY, "no memory for the threads of transfers");
    p->env = e->env;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    while (p->thread_count < threads && p->thread_count < THREADS_MAX &&
           base_thread_start(&p->threads[p->thread_count], worker, p) == 0)
        p->thread_count++;
    if (p->thread_count)
        return KVO_OK;
    threads_close(e);
    return base_fail(error, KVO_E_MEMORY, "cannot start a thread for transfers");
}

static move_stream *stream_open(move_engine *e)
{
    thread_stream *s = e->env->alloc(e->env, sizeof *s);
    if (s == NULL)
        return NULL;
    s->base = (move_stream){.engine = e, .ops = &move_threads};
    s->last = &s->first;
    pthread_cond_init(&s->done, NULL);
    return &s->base;
}

static void stream_close(move_stream *stream)
{
    thread_stream *s = (thread_stream *)stream;
    pthread_cond_destroy(&s->done);
    stream->engine->env->free(stream->engine->env, s, sizeof *s);
}

/* Under the pool's lock. */
static void to_pool(pool *p, move_transfer *t)
{
    append(&p->last, t);
    pthread_cond_signal(&p->work);
}

static void release_held(pool *p, thread_stream *s)
{
    if (s->held)
        to_pool(p, s->held);
    s->held = NULL;
}

static void add(move_stream *stream, move_transfer *t)
{
    thread_stream *s = (thread_stream *)stream;
    pool *p = stream->engine->own;
    if (stream->in_flight == 1) {
        s->held = t;
        return;
    }
    pthread_mutex_lock(&p->lock);
    release_held(p, s);
    to_pool(p, t);
    pthread_mutex_unlock(&p->lock);
}

static move_transfer *next(move_stream *stream, bool wait)
{
    thread_stream *s = (thread_stream *)stream;
    pool *p = stream->engine->own;
    move_transfer *t = s->held;
    if (t && wait) {
        s->held = NULL;
        move_run_here(p->env, t);
        return t;
    }
    pthread_mutex_lock(&p->lock);
    release_held(p, s);
    s->waiting = wait;
    while ((t = take(&s->first, &s->last)) == NULL && wait)
        pthread_cond_wait(&s->done, &p->lock);
    s->waiting = false;
    pthread_mutex_unlock(&p->lock);
    return t;
}

const move_ops move_threads = {threads_open, threads_close, stream_open, stream_close, add, next};
