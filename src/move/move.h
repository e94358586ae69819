/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane's engine: runs batches of file transfers, several at a time, and returns when
 * all of a batch are done. Other engines (io_uring, simulated) take the same batches.
 */
#ifndef MOVE_MOVE_H
#define MOVE_MOVE_H

#include <stdbool.h>

#include "base/env.h"

#define MOVE_PIECES_MAX 3

typedef struct move_transfer {
    int file;
    bool write;
    int piece_count;
    struct iovec pieces[MOVE_PIECES_MAX];
    uint64_t offset;
    ssize_t result; /* bytes, or a negative errno value */
} move_transfer;

typedef struct move_engine move_engine;

/* threads: transfers at a time, 1 .. 64. NULL: no memory or no thread. */
move_engine *move_open(base_env *env, uint32_t threads);
void move_close(move_engine *engine);
/* From any thread; a single transfer runs in the caller's. */
void move_run(move_engine *engine, move_transfer *transfers, size_t count);

#endif
