/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane: transfers of files, several at a time. An engine carries them (io_uring, threads, or
 * the simulated one of tests), with the same results: those of base_env's read and write.
 *
 * A caller opens a stream, adds transfers while it is not full, and takes finished ones back, in the
 * order in which they finish. A stream has one user at a time; any number are used at once.
 */
#ifndef MOVE_MOVE_H
#define MOVE_MOVE_H

#include <stdbool.h>

#include "base/env.h"
#include "kvonce.h"

#define MOVE_DEPTH 64u     /* transfers of one stream in flight */
#define MOVE_PIECES_MAX 10 /* header, up to eight of a caller's segments, tail */

/* As kvo_io_engine. AUTO_THREADS is AUTO where threads serve better: KVONCE_IO decides there too. SIMULATED
   runs a transfer when it is taken, in an order drawn from env->random: for environments of tests. */
typedef enum move_kind {
    MOVE_AUTO = KVO_IO_AUTO,
    MOVE_URING = KVO_IO_URING,
    MOVE_THREADS = KVO_IO_THREADS,
    MOVE_SIMULATED = 100,
    MOVE_AUTO_THREADS = 101
} move_kind;

typedef struct move_engine move_engine;
typedef struct move_stream move_stream;

/* The caller's, untouched and with its memory, from move_add() until move_next() gives it back. */
typedef struct move_transfer {
    int file;
    bool write;
    int piece_count;
    struct iovec pieces[MOVE_PIECES_MAX];
    uint64_t offset;
    ssize_t result;       /* bytes, or a negative errno value */
    uint32_t submissions; /* requests that it took; the threads' calls count as one each */

    move_stream *stream; /* the engine's, as the next two */
    struct move_transfer *next;
    uint64_t bytes;
} move_transfer;

/* threads: of MOVE_THREADS, 1 .. 64. flight_bytes: bound of all transfers in flight; a stream without
   any lets one through. A kvo_status. */
int move_open(base_env *env, move_kind kind, uint32_t threads, uint64_t flight_bytes, move_engine **out,
              kvo_error *error);
/* For one line, from any thread, when io_uring stops working under an open engine: from then on each caller's thread
   carries its own transfers. Before the first stream. */
void move_on_log(move_engine *engine, void (*log)(void *context, const char *line), void *context);
void move_close(move_engine *engine); /* no stream is open; NULL is allowed */
move_kind move_kind_of(const move_engine *engine);
/* Whether staging memory is registered with the kernel, for any stream; not before its first use. */
bool move_registered(const move_engine *engine);

/* NULL: no memory. */
move_stream *move_stream_open(move_engine *engine);
void move_stream_close(move_stream *stream); /* nothing in flight */
/* No room for a transfer of so many bytes until one in flight has come back. */
bool move_stream_full(const move_stream *stream, uint64_t bytes);
void move_add(move_stream *stream, move_transfer *transfer); /* while it is not full */
/* A finished transfer; NULL: none in flight, or none has finished and wait is false. */
move_transfer *move_next(move_stream *stream, bool wait);

/* A whole batch, from any thread; a single one runs in the caller's. */
void move_run(move_engine *engine, move_transfer *transfers, size_t count);

/*
 * Memory for payloads that cannot go straight: page aligned, not zeroed, and such that an engine can
 * register it with the kernel, for transfers of one piece. Bounded: beyond that it comes from the
 * environment, or, with `must` false, is NULL: take back what is in flight first.
 */
void *move_staging_take(move_engine *engine, size_t bytes, bool must);
void move_staging_give(move_engine *engine, void *memory, size_t bytes);

#endif
