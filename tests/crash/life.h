/* SPDX-License-Identifier: Apache-2.0 */
/* The two processes of a round: one that works until it is killed, one that looks at what is left. */
#ifndef CRASH_LIFE_H
#define CRASH_LIFE_H

#include "known.h"

typedef struct life life;
struct life {
    const char *tiers;
    int level;          /* that survives: KVO_WRITTEN or KVO_SAFE */
    int io_engine;      /* kvo_io_engine */
    bool device_dies;   /* errors of the medium are answers too */
    bool keeps_all;     /* the working set fits: nothing may be evicted */
    uint64_t seed;
    known *known;
    /* kvo_open(), or another way to open. */
    int (*open)(const char *tiers, const kvo_options *options, kvo_store **store, kvo_error *error);
    void (*prepare)(const life *l); /* the writer's first call; may be NULL */
};

/* In a process of its own each; they return an exit status. The writer works until it is killed, or asked to
   close in order. */
int life_write(const life *l);
/* verifies: kvo_verify() first. closes: in order, else as a crash would leave it. */
int life_check(const life *l, bool verifies, bool closes);

/* Both's: with the space "a", unless it is read-only. */
int life_open(const life *l, uint32_t flags, kvo_store **store, kvo_space *space);

#endif
