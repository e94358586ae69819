/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real machine, of which any call that may fail fails when a test says so: the nth from now, once or from then on.
 * It also counts what is taken and given back, and the bytes that files are asked for, so that a test can compare
 * the store's ledger with what really crossed the boundary.
 */
#ifndef NTH_H
#define NTH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "store/fixture.h"

/* What a call that fails has done by then. */
typedef enum nth_how {
    NTH_NOTHING,  /* nothing; EIO, ENOMEM, EAGAIN of a lock, EMFILE of an open */
    NTH_IN_PART,  /* half of it; ENOSPC, or of a read: it ends short, as where the file does */
    NTH_ALTHOUGH, /* all of it, and says EIO nevertheless */
    NTH_HOWS
} nth_how;

typedef struct nth_sums {
    _Atomic long calls;  /* that may fail, since the last arming */
    _Atomic long failed; /* of them */
    _Atomic long reads_failed;
    _Atomic long total_failed; /* since the program began */
    _Atomic long pieces; /* of memory taken and not given back: allocations and arenas */
    _Atomic long files;  /* open */
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t read_bytes, written_bytes; /* that were asked for */
} nth_sums;

extern nth_sums nth;
extern uint64_t nth_segment_bytes; /* of each tier at the next opening; 0, as nth_setup() leaves it: chosen */
extern bool nth_threads; /* the engine of threads carries transfers; false: the simulated one, always in one order */

/* The first-th call from now fails, and `count` - 1 after it. */
void nth_arm(long first, long count, nth_how how);
void nth_disarm(void);

/* Until it is told 0, each flush answers this (a negative errno value). */
void nth_flushes_say(int error);

/* A bad sector: reads that touch this page of the files of that name fail with EIO, until
   it is written. NULL: there is none. */
void nth_bad_page(const char *name, uint64_t page);

/* As try_open(), on that machine. No flush reaches a device: nobody cuts its power here. */
int nth_try_open(const char *tiers, kvo_error *error);
void nth_open_store(const char *tiers); /* as open_store() */

/* As fixture_setup(), in a file system in memory where there is one: a device has no part in this. */
int nth_setup(void **state);

/* Turns one bit of a file round; its length. */
void nth_flip(int which, const char *name, uint64_t bit);
uint64_t nth_file_length(int which, const char *name);

/* A directory's files as they are now, and back. The image is the caller's to free. */
typedef struct nth_image nth_image;
nth_image *nth_image_take(int which);
void nth_image_restore(const nth_image *image, int which);
void nth_image_free(nth_image *image);

#endif
