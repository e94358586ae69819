/* SPDX-License-Identifier: Apache-2.0 */
/* The real machine with a medium that a test slows down, stops or makes sparse, and memory that is counted. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdatomic.h>

#include "fixture.h"

typedef struct machine_state {
    _Atomic unsigned write_us;       /* each write of a block takes so long */
    _Atomic long memory_bytes, most; /* held by the library: now, and at most since machine_open() */
    _Atomic unsigned clock_rate;     /* how much faster the library's clock runs */
    _Atomic int waiting;             /* calls that a stopped medium holds */
} machine_state;

extern machine_state machine;

/* As open_store() and try_open(), on that machine. sparse: space for a file is taken as it is written, as where a file
   system has no fallocate(). */
void machine_open(const char *tiers, bool sparse);
int machine_try_open(const char *tiers, bool sparse, kvo_error *error);
void machine_pass_time(uint64_t ns); /* the library's clock goes on by so much at once */
/* Reads, writes and flushes do not return until it goes on. */
void machine_stop(void);
void machine_go_on(void);
void machine_wait(int count); /* until it holds so many calls */

#endif
