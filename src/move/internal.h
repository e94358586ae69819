/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is to move.c, and what engines share. */
#ifndef MOVE_INTERNAL_H
#define MOVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/status.h"
#include "base/thread.h"
#include "move/move.h"

/* move.c keeps the bounds, so that add() has room and next() something in flight. */
typedef struct move_ops {
    int (*open)(move_engine *engine, uint32_t threads, kvo_error *error); /* a kvo_status */
    void (*close)(move_engine *engine);                                   /* after an open that succeeded */
    move_stream *(*stream_open)(move_engine *engine);                     /* NULL: not now */
    void (*stream_close)(move_stream *stream);
    void (*add)(move_stream *stream, move_transfer *transfer);
    move_transfer *(*next)(move_stream *stream, bool wait);
} move_ops;

extern const move_ops move_uring, move_threads, move_simulated;
/* A stream that runs each transfer in the caller's thread when it is taken; for when an engine has no
   stream to give. */
extern const move_ops move_caller;

/* An engine's own stream begins with this. */
struct move_stream {
    move_engine *engine;
    const move_ops *ops;
    move_stream *next; /* idle ones */
    uint32_t in_flight;
};

typedef struct move_staging {
    pthread_mutex_t lock;
    _Atomic(uint8_t *) region; /* NULL until the first use */
    size_t bytes;
    uint64_t *used; /* one bit a unit; behind the region */
} move_staging;

struct move_engine {
    base_env *env;
    const move_ops *ops;
    move_kind kind;
    uint64_t flight_max;
    _Atomic uint64_t flight; /* bytes */
    move_staging staging;
    void (*log)(void *context, const char *line); /* may be NULL */
    void *log_context;
    pthread_mutex_t lock; /* the four below */
    move_stream *idle;
    uint32_t stream_count;
    bool refused;                /* the kernel does not register staging */
    int no_uring;                /* the errno value with which no io_uring was to be had, and threads were taken */
    _Atomic uint32_t registered; /* streams with which it is; read without the lock */
    _Atomic int broken;          /* the errno value with which a stream failed for good: there are no new ones */
    void *own;                   /* the engine's */
};

/* In the caller's thread, through the environment. */
void move_run_here(base_env *env, move_transfer *transfer);

/* Of an errno value's text and of what may be the cause. */
#define MOVE_NO_URING "io_uring is not to be had here (%s): %s"
const char *move_why_no_uring(int error);

void move_staging_open(move_engine *engine);
void move_staging_close(move_engine *engine);
void move_log(const move_engine *engine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A stream has failed for good. The first one says so in the log. */
void move_broke(move_engine *engine, int error);
/* Whether memory lies in the region that can be registered. */
bool move_staging_holds(const move_engine *engine, const void *memory);

#endif
