/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine for one thread with its files in memory: a store on it opens in microseconds, and what its medium holds
 * can be copied and changed. It counts memory, and gives no more than a bound.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include "fuzz.h"

#include "base/env.h"

enum { MACHINE_FILES = 16, MACHINE_PATH_BYTES = 32 };

typedef struct machine_file {
    char path[MACHINE_PATH_BYTES]; /* empty: none */
    bool directory;
    int opened; /* descriptors */
    uint8_t *bytes;
    uint64_t size, capacity, changed_ns;
} machine_file;

typedef struct machine {
    base_env env;
    machine_file files[MACHINE_FILES];
    uint64_t time_ns, random, boot;
    size_t memory_bytes, memory_most; /* given out now, and most at a time */
    uint32_t fail_in;                 /* the nth transfer, flush or change of a file from now fails; 0: none */
} machine;

extern size_t machine_memory_bytes_max; /* of one machine; a larger file system has no room either */

void machine_begin(machine *m);
/* Another machine with this one's files, its clock, and nothing open. */
void machine_copy(machine *to, const machine *from);
void machine_end(machine *m);
machine_file *machine_find(machine *m, const char *path);
void machine_remove(machine *m, const char *path);
/* Nothing is open, nothing is allocated. */
void machine_must_be_idle(const machine *m);

#endif
