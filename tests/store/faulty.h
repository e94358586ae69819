/* SPDX-License-Identifier: Apache-2.0 */
/* A store on the real machine, whose reads, writes and allocations fail when a test says so. */
#ifndef FAULTY_H
#define FAULTY_H

#include <stdatomic.h>

#include "fixture.h"

enum { ALWAYS = 1 << 30 };

/* Each is a number of calls to come that fail (ALWAYS: until it is set to 0), or a sum. */
typedef struct faulty_calls {
    _Atomic int block_reads;  /* header and payload of a block */
    _Atomic int all_reads;    /* these, and every other read */
    _Atomic int block_writes; /* header and payload */
    _Atomic int page_writes;  /* whatever is smaller: dead headers, headers of segments, notes */
    _Atomic int flushes;
    _Atomic int allocs_until; /* n: the nth from now fails, once; 0: none does */
    _Atomic long reads_made;  /* of blocks */
    _Atomic int ends;         /* the next write of a block gets half way, and the process ends */
    void (*during_page)(void); /* called while a page is being written; NULL */
    void (*during)(void);     /* called while a block is being read or written; NULL */
} faulty_calls;

extern faulty_calls faulty;
/* Reads of any of these bytes of `data` fail, also while it is opened; bytes 0: none does. */
extern _Atomic uint64_t faulty_unreadable_from, faulty_unreadable_bytes;

/* As open_store() and try_open(), on that machine; nothing fails at first. */
void faulty_open(const char *tiers);
/* Files that were written since they were last flushed. */
unsigned faulty_unflushed(void);
int faulty_try_open(const char *tiers, kvo_error *error);

#endif
