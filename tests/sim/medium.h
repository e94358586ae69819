/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated medium: a base_env whose files lie in memory and whose every change is logged, so that
 * what a crash may leave of them can be made at any point of the log. One thread. All that it draws
 * follows from one seed.
 *
 * A change of a file is *durable* once a later flush of that file has succeeded, a change of a directory
 * once a later flush of that directory has; all others are *volatile*. A process that dies leaves all
 * complete calls in place, and any part of the one that it was in. A power cut leaves the durable ones, and
 * of the volatile ones whatever it likes: whole, in part, in another order, or nothing.
 */
#ifndef SIM_MEDIUM_H
#define SIM_MEDIUM_H

#include <stdbool.h>

#include "base/env.h"

enum { SIM_FILES = 64, SIM_PATH_BYTES = 48 };

/* ---- what lies on a medium ---- */

typedef struct sim_file {
    uint8_t *bytes; /* NULL: a directory, or never written */
    uint64_t size, capacity;
    uint64_t changed_ns; /* since 1970 */
} sim_file;

typedef struct sim_entry {
    char path[SIM_PATH_BYTES];
    uint32_t file;
    bool directory;
} sim_entry;

typedef struct sim_image {
    sim_file files[SIM_FILES];
    sim_entry entries[SIM_FILES];
    uint32_t file_count, entry_count;
} sim_image;

void sim_image_copy(sim_image *to, const sim_image *from); /* keeps and uses memory that `to` has */
void sim_image_free(sim_image *image);
sim_file *sim_image_find(sim_image *image, const char *path); /* NULL: there is no such file */
void sim_image_remove(sim_image *image, const char *path);
void sim_image_flip(sim_image *image, const char *path, uint64_t bit);

/* ---- the log ---- */

typedef enum sim_kind {
    SIM_WRITE,
    SIM_SIZE,  /* truncate, or allocate: `bytes` is the new size */
    SIM_FLUSH,
    SIM_CREATE, /* of a file or a directory: an entry */
    SIM_RENAME,
    SIM_REMOVE,
    SIM_FLUSH_DIRECTORY
} sim_kind;

typedef struct sim_change {
    sim_kind kind;
    bool grows; /* SIM_SIZE: an allocation, which never makes a file shorter */
    bool directory;
    uint32_t file;
    uint64_t offset, bytes;
    size_t data; /* of a write: where its bytes are in the pool */
    uint64_t time_ns;
    char path[SIM_PATH_BYTES], to[SIM_PATH_BYTES];
} sim_change;

/* ---- faults: each in 1000 calls ---- */

typedef struct sim_faults {
    uint32_t read_errors, write_errors, no_space, short_writes, flush_errors, delays;
} sim_faults;

typedef struct sim_counts {
    uint64_t calls, read_errors, write_errors, no_space, short_writes, flush_errors, delays, lost_calls;
} sim_counts;

typedef struct sim_handle {
    bool open, locked, read_only;
    uint32_t file;
} sim_handle;

typedef struct sim_medium {
    base_env env;
    sim_image start; /* before the log; durable */
    sim_image now;   /* what the process sees */
    sim_change *log;
    size_t log_count, log_capacity;
    uint8_t *pool;
    size_t pool_used, pool_capacity;
    size_t crash_at; /* the change with this number is not completed, and nothing after it happens; SIZE_MAX: none */
    bool dead;       /* it came to that */
    bool torn;       /* pages may be part old, part new: the last crash cut between sectors */
    bool lost;       /* the device: every call fails until it is back */
    sim_faults faults;
    sim_counts counts;
    sim_handle handles[SIM_FILES];
    uint64_t random, time_ns, boot, unit;
    size_t allocated_bytes; /* of the library's memory, given out */
} sim_medium;

/* An empty machine with one directory, "/". */
void sim_open(sim_medium *m, uint64_t seed);
void sim_close(sim_medium *m);

/* Another machine with this on its medium, all of it durable, and an empty log. */
void sim_load(sim_medium *m, const sim_image *image, uint64_t seed);

/*
 * A process died: what was complete before change number `point` is there and as volatile as it was, and a part
 * of that change, drawn from `seed`. The log goes on.
 */
void sim_die(sim_medium *m, const sim_medium *from, size_t point, uint64_t seed);

/* The power failed: what that leaves, with the change number `point` in progress, is durable now; an empty log,
   another boot. Drawn from `seed`. */
void sim_power_cut(sim_medium *m, const sim_medium *from, size_t point, uint64_t seed);

/* One line a change, for a person. */
void sim_print(const sim_medium *m);

/* A number below `limit`, from a generator's state. */
uint32_t sim_draw(uint64_t *random, uint32_t limit);

#endif
