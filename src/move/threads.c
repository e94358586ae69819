/* SPDX-License-Identifier: Apache-2.0 */
#include "move/move.h"

#include <pthread.h>
#include <signal.h>

#define THREADS_MAX 64

/* A batch lives on its caller's stack until all its transfers are done. */
typedef struct move_batch {
    struct move_batch *next;
    move_transfer *transfers;
    size_t count;
    size_t started;
    size_t finished;
} move_batch;

struct move_engine {
    base_env *env;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t done;
    move_batch *first; /* batches with transfers that have not started */
    move_batch **last;
    bool closing;
    uint32_t thread_count;
    pthread_t threads[THREADS_MAX];
};

static void run_one(base_env *env, move_transfer *t)
{
    t->result = t->write ? env->write(env, t->file, t->pieces, t->piece_count, t->offset)
                         : env->read(env, t->file, t->pieces, t->piece_count, t->offset);
}

/* Takes the next transfer; NULL if there is none. Under the lock. */
static move_transfer *take(move_engine *e, move_batch **batch)
{
    move_batch *b = e->first;
    if (b == NULL)
        return NULL;
    *batch = b;
    move_transfer *t = &b->transfers[b->started++];
    if (b->started == b->count) {
        e->first = b->next;
        if (e->first == NULL)
            e->last = &e->first;
    }
    return t;
}

static void *worker(void *argument)
{
    move_engine *e = argument;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        move_batch *batch = NULL;
        move_transfer *t = take(e, &batch);
        if (t == NULL) {
            if (e->closing)
                break;
            pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        run_one(e->env, t);
        pthread_mutex_lock(&e->lock);
        if (++batch->finished == batch->count)
            pthread_cond_broadcast(&e->done);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Signals of the program are not for our threads. */
static int start_thread(move_engine *e)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&e->threads[e->thread_count], NULL, worker, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0)
        e->thread_count++;
    return r;
}

move_engine *move_open(base_env *env, uint32_t threads)
{
    move_engine *e = env->alloc(env, sizeof *e);
    if (e == NULL)
        return NULL;
    e->env = env;
    e->last = &e->first;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->done, NULL);
    for (uint32_t i = 0; i < threads && i < THREADS_MAX; i++)
        if (start_thread(e) != 0)
            break;
    if (e->thread_count == 0) {
        move_close(e);
        return NULL;
    }
    return e;
}

void move_close(move_engine *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < e->thread_count; i++)
        pthread_join(e->threads[i], NULL);
    pthread_cond_destroy(&e->done);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    e->env->free(e->env, e, sizeof *e);
}

void move_run(move_engine *e, move_transfer *transfers, size_t count)
{
    if (count == 1)
        run_one(e->env, transfers);
    if (count <= 1)
        return;
    move_batch batch = {.transfers = transfers, .count = count};
    pthread_mutex_lock(&e->lock);
    *e->last = &batch;
    e->last = &batch.next;
    pthread_cond_broadcast(&e->work);
    while (batch.finished < count)
        pthread_cond_wait(&e->done, &e->lock);
    pthread_mutex_unlock(&e->lock);
}
